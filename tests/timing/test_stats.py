"""Statistics against hand-worked tables and properties."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpu_magic.timing import stats

# Order-statistic intervals of the median at 95 %: n, rank, coverage. From the binomial
# coefficients by hand: n = 6 misses 2 of 64 patterns; n = 9 misses 2 (1 + 9) of 512; n = 10
# misses 2 (1 + 10) of 1024; n = 17 misses 2 (1 + 17 + 136 + 680 + 2380) of 131072.
TABLE = [
    (6, 1, 1 - 2 / 64),
    (7, 1, 1 - 2 / 128),
    (8, 1, 1 - 2 / 256),
    (9, 2, 1 - 20 / 512),
    (10, 2, 1 - 22 / 1024),
    (17, 5, 1 - 6428 / 131072),
]


@pytest.mark.parametrize(("n", "rank", "coverage"), TABLE)
def test_median_interval_is_the_binomial_one(n, rank, coverage):
    samples = [float(value) for value in range(1, n + 1)]
    random.Random(n).shuffle(samples)
    interval = stats.median_interval(samples, independent=True)
    assert (interval.low, interval.high) == (rank, n + 1 - rank)
    assert interval.confidence == pytest.approx(coverage, abs=1e-12)


@pytest.mark.parametrize("n", range(6))
def test_below_six_samples_there_is_no_interval_at_95_percent(n):
    assert stats.median_interval([1.0] * n) is None


def test_seven_samples_do_not_reach_99_percent_and_eight_do():
    assert stats.median_interval(range(7), 0.99) is None
    assert stats.median_interval(range(8), 0.99).confidence == 1 - 2 / 256


def test_many_samples_meet_the_exact_ranks():
    # n = 1000: P(Bin(1000, 1/2) < 469) = 0.0231 and P(… < 470) = 0.0268 (summed exactly below).
    def below(rank):
        return sum(math.comb(1000, k) for k in range(rank)) / 2**1000

    interval = stats.median_interval([float(v) for v in range(1, 1001)], independent=True)
    rank = int(interval.low)
    assert 2 * below(rank) <= 0.05 < 2 * below(rank + 1)
    assert interval.high == 1001 - rank


def test_the_interval_covers_the_true_median_as_often_as_it_says():
    generator = random.Random(1)
    trials, covered = 600, 0
    for _ in range(trials):
        samples = [generator.lognormvariate(0, 1) for _ in range(25)]  # true median 1
        interval = stats.median_interval(samples, independent=True)
        covered += interval.low <= 1 <= interval.high
    # Coverage is 95.7 %; four standard errors of 600 trials are 3.3 %.
    assert covered / trials > 0.924


def _autoregressive(n, r, generator):
    value, samples = 0.0, []
    for _ in range(n):
        value = r * value + generator.gauss(0, 1)
        samples.append(value)
    return samples


def test_dependent_samples_widen_the_interval_until_it_covers():
    generator = random.Random(2)
    trials = 200
    plain = widened = 0
    for _ in range(trials):
        samples = _autoregressive(200, 0.8, generator)  # true median 0
        interval = stats.median_interval(samples)
        widened += interval is not None and interval.low <= 0 <= interval.high
        naive = stats.median_interval(samples, independent=True)
        plain += naive.low <= 0 <= naive.high
    assert plain / trials < 0.75  # what taking them as independent would do
    assert widened / trials > 0.88


def test_autocorrelation_by_hand():
    # Mean 3.5; centred -2.5 … 2.5 twice over: 1,2,3,4,5,6,1,2 has mean 3.
    samples = [1.0, 2, 3, 4, 5, 6, 1, 2]
    # centred -2,-1,0,1,2,3,-2,-1: products 2,0,0,2,6,-6,2 = 6; squares 4,1,0,1,4,9,4,1 = 24.
    assert stats.autocorrelation(samples) == pytest.approx(6 / 24)


@pytest.mark.parametrize("samples", [[1.0, 2, 3], [0.1] * 50, [1e-9] * 8])
def test_no_autocorrelation_of_few_or_equal_samples(samples):
    assert stats.autocorrelation(samples) is None


def test_effective_size_by_hand():
    samples = [0.0] * 50 + [1.0] * 50
    # Indicators of "above the median" are the samples: r = (sum of 99 products) / 25 with 98
    # products of 1/4 and one of -1/4: 24.25 / 25 = 0.97.
    assert stats.effective_size(samples) == pytest.approx(100 * 0.03 / 1.97)


def test_alternating_samples_are_worth_no_more_than_their_number():
    assert stats.effective_size([0.0, 1.0] * 20) == 40


def test_block_medians_by_hand():
    assert stats.block_medians([1.0, 9, 2, 5, 5, 6, 7], 2) == [2, 5.5]
    with pytest.raises(ValueError, match="3 samples do not make 4 blocks"):
        stats.block_medians([1.0, 2, 3], 4)


def test_drift_is_found_and_steadiness_is_not():
    generator = random.Random(3)
    steady = [1 + generator.gauss(0, 0.01) for _ in range(100)]
    drifting = [value * (1.1 if index >= 50 else 1) for index, value in enumerate(steady)]
    assert stats.drift(steady) is None
    assert stats.drift(drifting) == pytest.approx(0.1, abs=0.01)
    assert stats.drift([1.0, 2.0]) is None


def test_summary_of_one_and_of_no_sample():
    one = stats.summarize([2.0])
    assert (one.n, one.median, one.ci_low, one.iqr, one.relative_width) == (
        1,
        2.0,
        None,
        None,
        None,
    )
    with pytest.raises(ValueError, match="no samples"):
        stats.summarize([])


def test_relative_width_by_hand():
    # Ten samples, ranks 2 and 9: (9 - 2) / 2 / 5.5.
    summary = stats.summarize([5.0, 1, 9, 3, 7, 2, 10, 4, 8, 6])
    assert summary.relative_width == pytest.approx(3.5 / 5.5)
    assert summary.iqr == pytest.approx(7.75 - 3.25)


SAMPLES = st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=120)


@given(SAMPLES)
def test_the_interval_holds_the_median_and_stays_in_the_range(samples):
    summary = stats.summarize(samples)
    if summary.ci_low is not None:
        assert min(samples) <= summary.ci_low <= summary.median <= summary.ci_high <= max(samples)
        assert summary.confidence >= stats.CONFIDENCE


@given(SAMPLES, st.integers(-8, 8))
def test_the_unit_does_not_matter(samples, power):
    scale = 2.0**power  # exact in floating point
    one, other = stats.summarize(samples), stats.summarize([scale * s for s in samples])
    assert other.median == scale * one.median
    assert (other.ci_low is None) == (one.ci_low is None)
    if one.ci_low is not None:
        assert (other.ci_low, other.ci_high) == (scale * one.ci_low, scale * one.ci_high)


@given(SAMPLES)
def test_a_higher_confidence_never_narrows(samples):
    wide, narrow = stats.median_interval(samples, 0.99), stats.median_interval(samples, 0.9)
    if wide is not None:
        assert wide.low <= narrow.low <= narrow.high <= wide.high


@given(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=60), st.integers(1, 60))
def test_blocks_hold_every_sample_once(samples, blocks):
    if blocks > len(samples):
        return
    medians = stats.block_medians(samples, blocks)
    assert len(medians) == blocks
    assert min(samples) <= min(medians) <= max(medians) <= max(samples)
