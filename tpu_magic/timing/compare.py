"""What a comparison says: a ratio, its interval and a verdict for every two candidates."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from tpu_magic.report.render import Table, View
from tpu_magic.report.result import Result
from tpu_magic.timing import figure, stats
from tpu_magic.timing.result import Suspicion, duration

# Turns the times of two candidates into their ratio.
RatioOf = Callable[[Sequence[float], Sequence[float]], stats.Ratio]


@dataclass(frozen=True)
class Candidate:
    """One candidate's times.

    Attributes
    ----------
    name, statement
        What it is called, and its code.
    median
        Median seconds per call over the rounds (or over the sessions, of saved results).
    times
        Seconds per call, by round (or by session).
    runs_total
        How often the code ran, warm-up included.
    """

    name: str
    statement: str
    median: float
    times: list[float]
    runs_total: int


@dataclass(frozen=True)
class Pair:
    """Two candidates and the verdict.

    Attributes
    ----------
    base, other
        Their names.
    ratio, low, high, confidence
        Time of the other over time of the base, and its interval; the interval is None where
        there is too little to tell.
    verdict
        `faster` or `slower` (the other), `same`, or `cannot tell`.
    """

    base: str
    other: str
    ratio: float
    low: float | None
    high: float | None
    confidence: float | None
    verdict: str


@dataclass(frozen=True)
class CompareResult(Result):
    """What `%%tpu_compare` found.

    Attributes
    ----------
    candidates
        The candidates, the first being the base of the table.
    pairs
        A verdict for every two of them.
    self_ratio
        The first candidate against itself (its first blocks against its second ones): what
        this machine does to a ratio that is one. None for saved results.
    rounds, left_out, stopped_by
        Rounds made (or sessions), rounds left out because something was compiled, and why it
        stopped.
    mode, device_label
        `latency` or `throughput`, and where the candidates ran.
    margin, precision, label
        Difference that counts as none, digits shown, and what the comparison is called.
    suspicions, environment
        Reasons to doubt the verdicts, and the versions and settings.
    """

    kind: ClassVar[str] = "compare-result"

    candidates: list[Candidate]
    pairs: list[Pair]
    self_ratio: Pair | None
    rounds: int
    left_out: int
    stopped_by: str
    mode: str
    device_label: str
    margin: float = stats.MARGIN
    precision: int = 3
    label: str = ""
    suspicions: list[Suspicion] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)

    def view(self) -> View:
        """Return what a person is shown."""
        base, *others = (candidate.name for candidate in self.candidates)
        with_base = {pair.other: pair for pair in self.pairs if pair.base == base}
        told = "; ".join(f"{other} {_said(with_base[other], base)}" for other in others)
        rows = [
            (
                each.name,
                duration(each.median, self.precision),
                *_ratio_cells(with_base.get(each.name)),
            )
            for each in self.candidates
        ]
        tables = [Table(("", "median", f"time ÷ {base}", "interval", "verdict"), tuple(rows))]
        rest = [pair for pair in self.pairs if pair.base != base]
        if rest:
            more = tuple((f"{p.other} ÷ {p.base}", *_ratio_cells(p)) for p in rest)
            tables.append(Table(("pair", "ratio", "interval", "verdict"), more))
        return View(
            headline=f"{self.label + ': ' if self.label else ''}{told} · {self.device_label}",
            lines=tuple(self._lines()),
            tables=tuple(tables),
            figure=figure.intervals(
                [(p.other, p.ratio, p.low, p.high) for p in with_base.values()], self.margin
            ),
            notes=tuple(suspicion.message for suspicion in self.suspicions),
        )

    def _lines(self) -> list[str]:
        made = sum(candidate.runs_total for candidate in self.candidates)
        margin = f"a difference below {self.margin:.0%} counts as none"
        if self.self_ratio is None:
            return [f"saved results, sessions of each: {self.rounds}; {margin}"]
        lines = [
            f"{self.mode}, timed in turns: {self.rounds} rounds, {made:,} calls, stopped by "
            f"{self.stopped_by}; {margin}"
        ]
        found = self.self_ratio
        if found.low is not None and found.high is not None:
            lines.append(
                f"{found.base} against itself here: {found.low:.3f} … {found.high:.3f} "
                f"({found.verdict})"
            )
        return lines


def pairs_of(candidates: Sequence[Candidate], ratio: RatioOf) -> list[Pair]:
    """Return the verdict for every two candidates."""
    return [pair_of(base, other, ratio) for base, other in itertools.combinations(candidates, 2)]


def pair_of(base: Candidate, other: Candidate, ratio: RatioOf) -> Pair:
    """Return the verdict for two candidates."""
    found = ratio(base.times, other.times)
    interval = found.interval
    return Pair(
        base=base.name,
        other=other.name,
        ratio=found.value,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        confidence=interval.confidence if interval else None,
        verdict=found.verdict(),
    )


def _said(pair: Pair, base: str) -> str:
    if pair.verdict in {"faster", "slower"}:
        factor = 1 / pair.ratio if pair.verdict == "faster" else pair.ratio
        return f"is {pair.verdict} than {base}, {factor:.2f} times"
    if pair.verdict == "same":
        return f"is as fast as {base}"
    return f"against {base}: cannot tell"


def _ratio_cells(pair: Pair | None) -> tuple[str, str, str]:
    if pair is None:
        return "1", "", "base"
    interval = "too little to tell"
    if pair.low is not None and pair.high is not None:
        interval = f"{pair.low:.3f} … {pair.high:.3f} ({100 * (pair.confidence or 0):.1f} %)"
    return f"{pair.ratio:.3f}", interval, pair.verdict
