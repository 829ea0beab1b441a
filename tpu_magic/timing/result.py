"""What a timing says: the numbers, how they look, and IPython's own names for them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tpu_magic.frameworks.base import DeviceInfo
from tpu_magic.report.render import Table, View, rate
from tpu_magic.report.result import Result
from tpu_magic.timing import figure
from tpu_magic.timing.stats import Summary

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_STOPPED = {
    "precision": "the interval is narrow enough",
    "time-limit": "the time limit was reached",
    "runs": "that many runs were asked for",
    "samples": "enough runs were kept",
    "interrupt": "it was interrupted",
}


@dataclass(frozen=True)
class Suspicion:
    """A reason to doubt a timing.

    Attributes
    ----------
    code
        The rule that found it, as in the documentation.
    message
        What was seen, and what to do about it.
    """

    code: str
    message: str


@dataclass(frozen=True)
class Runs:
    """The runs of one mode.

    Attributes
    ----------
    seconds
        Seconds of each run.
    loops
        Calls in a run.
    summary
        Statistics of the seconds per call.
    """

    seconds: list[float]
    loops: int
    summary: Summary


@dataclass(frozen=True)
class TimingResult(Result):
    """What `%tpu_timeit -o` returns: all that IPython's `TimeitResult` has, and more.

    Times are in seconds. What was not measured is None.

    Attributes
    ----------
    latency, throughput
        The runs in which every call was waited for, and those in which calls queued and were
        waited for once. The same where a call has ended when it returns.
    latency_s, throughput_s
        Their median seconds per call.
    all_runs, loops, repeat, timings, best, worst, average, stdev
        What `%timeit` has: seconds of each run, calls in a run, number of runs, and seconds
        per call with their extremes, mean and population standard deviation. Of the latency,
        when it was measured, else of the throughput.
    median, ci_low, ci_high, iqr, autocorrelation
        Of `timings`; see `tpu_magic.timing.stats.Summary`.
    compile_time, precision
        Seconds of Python's own compiler, and digits shown.
    first_call_s, trace_s, compile_s, run_s
        The first call and what it consisted of.
    compiles, timed_compiles
        Programs compiled before the timed runs, and while they ran.
    runs_total
        How often the code ran, warm-up included.
    device_kind, on_tpu, simulated, num_devices, matmul_precision
        Where and how it ran.
    stopped_by
        `precision`, `time-limit`, `runs`, `samples` or `interrupt`.
    flops, peak_flops
        Floating-point operations of a call in matrix products, convolutions and attention, and
        the devices' bf16 peak per second, where they are known.
    flops_per_s, peak_share
        The rate that follows from the fastest mode, and its share of the peak.
    suspicions
        Reasons to doubt the numbers.
    label, statement, framework, moved, environment
        What was timed, with what, which inputs were moved to the device before, and the
        versions and settings that decide how fast it is.
    """

    kind: ClassVar[str] = "timing-result"

    latency: Runs | None
    throughput: Runs | None
    compile_time: float
    precision: int
    first_call_s: float
    trace_s: float | None
    compile_s: float | None
    run_s: float | None
    compiles: int | None
    timed_compiles: int | None
    runs_total: int
    device_kind: str
    on_tpu: bool
    simulated: bool
    num_devices: int
    matmul_precision: str
    stopped_by: str
    statement: str
    framework: str
    label: str = ""
    moved: list[str] = field(default_factory=list)
    flops: int | None = None
    peak_flops: float | None = None
    suspicions: list[Suspicion] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.latency is None and self.throughput is None:
            raise ValueError("a timing needs at least one run")

    @property
    def _leading(self) -> Runs:
        runs = self.latency or self.throughput
        assert runs is not None  # noqa: S101 - checked when it was made
        return runs

    @property
    def all_runs(self) -> list[float]:
        """Seconds of each run."""
        return self._leading.seconds

    @property
    def loops(self) -> int:
        """Calls in a run."""
        return self._leading.loops

    @property
    def repeat(self) -> int:
        """Number of runs."""
        return len(self.all_runs)

    @property
    def timings(self) -> list[float]:
        """Seconds per call, by run."""
        return [run / self.loops for run in self.all_runs]

    @property
    def best(self) -> float:
        """Seconds per call of the fastest run."""
        return min(self.timings)

    @property
    def worst(self) -> float:
        """Seconds per call of the slowest run."""
        return max(self.timings)

    @property
    def average(self) -> float:
        """Mean seconds per call."""
        return statistics.fmean(self.timings)

    @property
    def stdev(self) -> float:
        """Population standard deviation of the seconds per call, as in `%timeit`."""
        return statistics.pstdev(self.timings)

    @property
    def median(self) -> float:
        """Median seconds per call."""
        return self._leading.summary.median

    @property
    def ci_low(self) -> float | None:
        """Lower end of the median's confidence interval."""
        return self._leading.summary.ci_low

    @property
    def ci_high(self) -> float | None:
        """Upper end of the median's confidence interval."""
        return self._leading.summary.ci_high

    @property
    def iqr(self) -> float | None:
        """Distance between the quartiles of the seconds per call."""
        return self._leading.summary.iqr

    @property
    def autocorrelation(self) -> float | None:
        """Lag-1 autocorrelation of the runs."""
        return self._leading.summary.autocorrelation

    @property
    def latency_s(self) -> float | None:
        """Median seconds of a call that is waited for."""
        return self.latency.summary.median if self.latency else None

    @property
    def throughput_s(self) -> float | None:
        """Median seconds per call of calls that queue."""
        return self.throughput.summary.median if self.throughput else None

    @property
    def flops_per_s(self) -> float | None:
        """Floating-point operations per second, of the mode that is faster."""
        if not self.flops:
            return None
        times = [seconds for seconds in (self.latency_s, self.throughput_s) if seconds]
        return self.flops / min(times) if times else None

    @property
    def peak_share(self) -> float | None:
        """Share of the devices' bf16 peak; None where the chip is not known."""
        if self.flops_per_s is None or not self.peak_flops:
            return None
        return self.flops_per_s / self.peak_flops

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON types, the derived numbers included."""
        return {**super().to_dict(), **{name: getattr(self, name) for name in _DERIVED}}

    def device_label(self) -> str:
        """Return `TPU v5e × 8`, or `XLA CPU × 1 · not a TPU`."""
        device = DeviceInfo(
            self.device_kind, self.num_devices, self.num_devices, self.on_tpu, self.simulated
        )
        return device.label()

    def __str__(self) -> str:
        """Return one line in the manner of `%timeit`."""
        time = self._time
        interval = ""
        if self.ci_low is not None and self.ci_high is not None:
            interval = f" [{time(self.ci_low)} … {time(self.ci_high)}]"
        runs = f"{self.repeat:,} run{'s' * (self.repeat != 1)}"
        calls = f"{self.loops:,} loop{'s' * (self.loops != 1)} each"
        return f"{time(self.median)}{interval} per loop (median of {runs}, {calls})"

    def view(self) -> View:
        """Return what a person is shown."""
        return View(
            headline=f"{self.label or self.statement}: {self._time(self.median)} per call"
            f" · {self.device_label()}",
            tables=(self._modes(), Table(("", ""), tuple(self._facts()))),
            figure=figure.histogram(self.timings, self._time),
            notes=tuple(suspicion.message for suspicion in self.suspicions),
        )

    def _time(self, seconds: float | None) -> str:
        return duration(seconds, self.precision)

    def _modes(self) -> Table:
        """Return the table of the two modes; one row where they are the same runs."""
        modes = {"latency": self.latency, "throughput": self.throughput}
        if self.latency == self.throughput:
            modes = {"each call": self.latency}
        rows = tuple(self._row(name, runs) for name, runs in modes.items() if runs is not None)
        return Table(("", "median", "confidence interval", "IQR", "runs × loops", "calls"), rows)

    def _row(self, name: str, runs: Runs) -> tuple[str, ...]:
        found = runs.summary
        interval = "too few runs" if found.n < 6 else "too few independent runs"  # noqa: PLR2004
        if found.ci_low is not None and found.ci_high is not None:
            interval = f"{self._time(found.ci_low)} … {self._time(found.ci_high)}"
            interval += f" ({100 * (found.confidence or 0):.0f} %)"
        return (
            name,
            self._time(found.median),
            interval,
            self._time(found.iqr),
            f"{found.n:,} × {runs.loops:,}",
            rate(1 / found.median) if found.median > 0 else "",
        )

    def _facts(self) -> Iterator[tuple[str, str]]:
        """Yield what else there is to say, as rows of a name and a text."""
        first = self._time(self.first_call_s)
        if self.compile_s is not None:
            parts = (("trace", self.trace_s), ("compile", self.compile_s), ("run", self.run_s))
            first += " = " + " + ".join(f"{name} {self._time(part)}" for name, part in parts)
        yield "first call", first
        yield "code ran", f"{self.runs_total:,} times, warm-up included"
        yield "stopped", f"because {_STOPPED[self.stopped_by]}"
        if self.matmul_precision != "not applicable":
            yield "matmul precision", self.matmul_precision
        if self.flops_per_s is not None:
            share = f", {self.peak_share:.1%} of the bf16 peak" if self.peak_share else ""
            yield "matrix work", f"{_flops(self.flops)}, {_flops(self.flops_per_s)}/s{share}"
        if self.moved:
            yield "moved before", f"{', '.join(self.moved)} (to the device, not timed)"


# Computed from the fields, and written into the JSON as well: others read it without us.
_DERIVED = tuple(
    name
    for name, value in vars(TimingResult).items()
    if isinstance(value, property) and not name.startswith("_")
)


def _flops(count: float | None) -> str:
    """Return `2.15 GFLOP`."""
    exponent = 0 if not count else min(5, max(0, int(math.log10(count)) // 3))
    return f"{(count or 0) / 1000**exponent:.3g} {('', 'k', 'M', 'G', 'T', 'P')[exponent]}FLOP"


def duration(seconds: float | None, digits: int = 3) -> str:
    """Return a duration with that many significant digits, in the unit that fits.

    >>> duration(0.0123456)
    '12.3 ms'
    >>> duration(1.5e-7, 2)
    '150 ns'
    >>> duration(None)
    'not measured'
    """
    if seconds is None:
        return "not measured"
    if seconds == 0:
        return "0 s"
    scale, unit = next(
        ((scale, unit) for scale, unit in _UNITS if abs(seconds) >= scale), _UNITS[-1]
    )
    value = seconds / scale
    whole = len(str(int(abs(value))))
    return f"{value:.{max(0, digits - whole)}f} {unit}"
