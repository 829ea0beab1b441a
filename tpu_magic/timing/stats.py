"""Statistics of timings: medians and intervals that assume neither a shape nor independence.

Timings are skewed, have outliers, and depend on their neighbours. So everything here works
on order statistics, and an interval is widened by what the dependence takes away. Pure
functions on sequences of floats; the standard library only.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

CONFIDENCE = 0.95
# A verdict is a claim, so it is made with more confidence, and not about what does not matter.
VERDICT_CONFIDENCE = 0.99
MARGIN = 0.03
# Above this many samples the normal approximation of the binomial is right to one rank.
_EXACT_UP_TO = 400
_SMALLEST_FOR_CORRELATION = 8


@dataclass(frozen=True)
class Interval:
    """A confidence interval.

    Attributes
    ----------
    low, high
        The ends, in the unit of the samples.
    confidence
        The coverage really reached, at least what was asked for.
    """

    low: float
    high: float
    confidence: float


@dataclass(frozen=True)
class Summary:
    """What one series of samples says.

    Attributes
    ----------
    n
        Number of samples.
    median
        Median, in the unit of the samples.
    ci_low, ci_high
        Interval of the median (`median_interval`); None when there are too few samples.
    confidence
        Coverage of that interval.
    iqr
        Distance between the quartiles; None below two samples.
    autocorrelation
        Lag-1 autocorrelation; None below eight samples or when all are equal.
    """

    n: int
    median: float
    ci_low: float | None
    ci_high: float | None
    confidence: float | None
    iqr: float | None
    autocorrelation: float | None

    @property
    def relative_width(self) -> float | None:
        """Half the width of the interval as a share of the median; None without an interval."""
        if self.ci_low is None or self.ci_high is None or self.median <= 0:
            return None
        return (self.ci_high - self.ci_low) / 2 / self.median


def summarize(samples: Sequence[float], confidence: float = CONFIDENCE) -> Summary:
    """Return the summary of at least one sample.

    Raises
    ------
    ValueError
        When there are no samples.
    """
    if not samples:
        raise ValueError("no samples")
    interval = median_interval(samples, confidence)
    return Summary(
        n=len(samples),
        median=statistics.median(samples),
        ci_low=interval.low if interval else None,
        ci_high=interval.high if interval else None,
        confidence=interval.confidence if interval else None,
        iqr=interquartile_range(samples),
        autocorrelation=autocorrelation(samples),
    )


def interquartile_range(samples: Sequence[float]) -> float | None:
    """Return the distance between the quartiles (inclusive method); None below two samples."""
    if len(samples) < 2:  # noqa: PLR2004 - quartiles need two
        return None
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return high - low


def median_interval(
    samples: Sequence[float], confidence: float = CONFIDENCE, *, independent: bool = False
) -> Interval | None:
    """Return a distribution-free confidence interval of the median.

    Its ends are the k-th smallest and k-th largest sample, where k is the largest rank whose
    binomial coverage, 1 - 2 P(Bin(n, 1/2) < k), reaches `confidence` (David and Nagaraja,
    Order Statistics, 3rd edition, section 7.1). Dependent samples count as
    `effective_size` of them: the ranks are those of that many samples, at the same quantiles
    (Heidelberger and Lewis, Quantile Estimation in Dependent Sequences, Operations Research
    32(1), 1984, estimate the same inflation from the indicators' spectrum).

    Parameters
    ----------
    samples
        The samples in the order in which they were taken.
    confidence
        Coverage asked for, between 0 and 1.
    independent
        Take the samples as independent, and do not look at their order.

    Returns
    -------
    Interval or None
        None when so few samples cannot reach the confidence (below six for 95 %).
    """
    n = len(samples)
    worth = n if independent else math.floor(effective_size(samples))
    found = _median_rank(worth, confidence)
    if found is None:
        return None
    rank, coverage = found
    # The same quantile in all n samples; rounding outwards can only widen.
    rank = max(1, math.floor(rank * n / worth))
    ordered = sorted(samples)
    return Interval(ordered[rank - 1], ordered[n - rank], coverage)


@lru_cache(maxsize=4096)
def _median_rank(n: int, confidence: float) -> tuple[int, float] | None:
    """Return the largest rank k with coverage of at least `confidence`, and its coverage."""
    if n > _EXACT_UP_TO:
        normal = statistics.NormalDist(n / 2, math.sqrt(n) / 2)
        rank = math.floor(normal.inv_cdf((1 - confidence) / 2) + 0.5)
        return rank, 1 - 2 * normal.cdf(rank - 0.5)
    best = None
    below = 0  # number of the 2**n sign patterns with fewer than `rank` samples under the median
    for rank in range(1, n // 2 + 1):
        below += math.comb(n, rank - 1)
        coverage = 1 - 2 * below / 2**n
        if coverage < confidence:
            break
        best = rank, coverage
    return best


def autocorrelation(samples: Sequence[float]) -> float | None:
    """Return the lag-1 autocorrelation (Box and Jenkins' estimator).

    None below eight samples, where it says nothing, and when all samples are equal.
    """
    if len(samples) < _SMALLEST_FOR_CORRELATION:
        return None
    mean = math.fsum(samples) / len(samples)
    centred = [sample - mean for sample in samples]
    spread = math.fsum(value * value for value in centred)
    if spread <= len(samples) * (1e-12 * mean) ** 2:  # equal but for rounding
        return None
    together = math.fsum(a * b for a, b in itertools.pairwise(centred))
    return together / spread


def effective_size(samples: Sequence[float]) -> float:
    """Return how many independent samples these are worth for their median, at most n.

    What the median depends on is which samples lie below it. The autocorrelation r of those
    indicators gives n (1 - r) / (1 + r), the value for a first-order autoregressive sequence.
    An r that chance explains (below 1.96 / sqrt(n)) is taken as none.
    """
    n = len(samples)
    middle = statistics.median(samples) if n else 0.0
    r = autocorrelation([float(sample > middle) for sample in samples])
    if r is None or r < 1.96 / math.sqrt(n):
        return float(n)
    return n * (1 - r) / (1 + r)


def block_medians(samples: Sequence[float], blocks: int) -> list[float]:
    """Return the medians of `blocks` neighbouring blocks of (nearly) equal length.

    Raises
    ------
    ValueError
        When there are fewer samples than blocks, or no block.
    """
    n = len(samples)
    if not 1 <= blocks <= n:
        raise ValueError(f"{n} samples do not make {blocks} blocks")
    edges = [n * block // blocks for block in range(blocks + 1)]
    return [statistics.median(samples[start:end]) for start, end in itertools.pairwise(edges)]


def drift(samples: Sequence[float], confidence: float = 0.99) -> float | None:
    """Return how much slower the last half ran than the first, as a share; None if it cannot tell.

    Only a difference that the intervals of both halves' medians exclude from chance counts.
    """
    half = len(samples) // 2
    first, last = samples[:half], samples[len(samples) - half :]
    before, after = median_interval(first, confidence), median_interval(last, confidence)
    if before is None or after is None:
        return None
    if before.low <= after.high and after.low <= before.high:
        return None
    return statistics.median(last) / statistics.median(first) - 1


@dataclass(frozen=True)
class Ratio:
    """A ratio of times, the other's over the base's, and its interval (None: too few samples)."""

    value: float
    interval: Interval | None

    def verdict(self, margin: float = MARGIN) -> str:
        """Say what the ratio means.

        Three-way equivalence testing: a difference smaller than `margin` is none that matters,
        so that `same` can be said, and a verdict needs the whole interval on one side
        (Wellek, Testing Statistical Hypotheses of Equivalence and Noninferiority, chapter 1).

        Returns
        -------
        str
            `faster` or `slower` (the other), `same`, or `cannot tell`.
        """
        if self.interval is None:
            return "cannot tell"
        low, high = 1 / (1 + margin), 1 + margin
        if self.interval.high < low:
            return "faster"
        if self.interval.low > high:
            return "slower"
        return "same" if low <= self.interval.low and self.interval.high <= high else "cannot tell"


def paired_ratio(
    base: Sequence[float], other: Sequence[float], confidence: float = VERDICT_CONFIDENCE
) -> Ratio:
    """Return the median of other / base, sample by sample.

    For samples that were taken in turns: what slows the machine for a while slows both, and
    is gone from their ratio.
    """
    ratios = [b / a for a, b in zip(base, other, strict=True)]
    return Ratio(statistics.median(ratios), median_interval(ratios, confidence))


def unpaired_ratio(
    base: Sequence[float], other: Sequence[float], confidence: float = VERDICT_CONFIDENCE
) -> Ratio:
    """Return the ratio of two sets of independent samples.

    The Hodges-Lehmann estimate and the interval that belongs to the Wilcoxon-Mann-Whitney
    test, on ratios: the median of all ratios of one to one, and their k-th smallest and k-th
    largest, k from the exact distribution of the rank sum (Hollander, Wolfe and Chicken,
    Nonparametric Statistical Methods, 3rd edition, sections 4.2 and 4.3). There is no interval
    when so few samples cannot reach the confidence (below five and five for 99 %).
    """
    ratios = sorted(b / a for a in base for b in other)
    counts = _rank_sum_counts(len(base), len(other))
    total, below, rank, coverage = sum(counts), 0, 0, 1.0
    while (reached := 1 - 2 * (below + counts[rank]) / total) >= confidence:
        below += counts[rank]
        rank, coverage = rank + 1, reached
    interval = Interval(ratios[rank - 1], ratios[-rank], coverage) if rank else None
    return Ratio(statistics.median(ratios), interval)


def _rank_sum_counts(n: int, m: int) -> list[int]:
    """Return how many of the arrangements of n and m samples give each Mann-Whitney count."""
    # The Gaussian binomial coefficient's polynomial: the product of (1 - q^(m+i)) / (1 - q^i).
    counts = [1] + [0] * (n * m)
    for i in range(1, n + 1):
        for degree in range(n * m, m + i - 1, -1):
            counts[degree] -= counts[degree - m - i]
        for degree in range(i, n * m + 1):
            counts[degree] += counts[degree - i]
    return counts
