"""What the runner is told and what it gives back: clocks, plans, runs."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from tpu_magic.frameworks.base import Counters
from tpu_magic.timing.probe import Probe

MODES = {
    "latency": ("latency",),
    "throughput": ("throughput",),
    "both": ("latency", "throughput"),
}


@dataclass(frozen=True)
class Clock:
    """A clock.

    Attributes
    ----------
    read
        Returns the time in seconds.
    resolution
        Smallest difference that it can show, in seconds.
    """

    read: Callable[[], float]
    resolution: float = 0.0

    def cost(self) -> float:
        """Return what one reading costs, in seconds."""
        readings = [self.read() for _ in range(101)]
        gaps = [after - before for before, after in itertools.pairwise(readings)]
        return max(0.0, statistics.median(gaps))


WALL = Clock(time.perf_counter, time.get_clock_info("perf_counter").resolution)


@dataclass(frozen=True)
class Plan:
    """What to measure, and when to stop.

    Attributes
    ----------
    mode
        `latency`, `throughput` or `both`.
    loops
        Calls in a run; None lets the runner choose.
    repeat
        Runs to make; None stops at `precision_goal` or `time_limit`.
    time_limit
        Seconds after the first call; None when only `repeat` stops.
    precision_goal
        Half the width of the median's interval, as a share of the median, that is enough.
    """

    mode: str = "both"
    loops: int | None = None
    repeat: int | None = None
    time_limit: float | None = 5.0
    precision_goal: float = 0.01


@dataclass(frozen=True)
class FirstCall:
    """The first call: its wall time, and what of it was tracing, compiling and running.

    All in seconds; what the runtime does not count is None.
    """

    wall_s: float
    trace_s: float | None = None
    compile_s: float | None = None
    run_s: float | None = None


@dataclass(frozen=True)
class Series:
    """Runs of one mode.

    Attributes
    ----------
    runs
        Seconds of each run.
    loops
        Calls in a run.
    stopped_by
        `precision`, `time-limit`, `runs`, `samples` or `interrupt`.
    compiled
        Seconds of the runs in which something was compiled; they are not in `runs`, unless
        there are no others.
    """

    runs: tuple[float, ...]
    loops: int
    stopped_by: str
    compiled: tuple[float, ...] = ()

    @property
    def timings(self) -> list[float]:
        """Seconds of one call, by run."""
        return [run / self.loops for run in self.runs]


@dataclass(frozen=True)
class Measurement:
    """What the runner saw.

    Attributes
    ----------
    first
        The first call.
    compiles
        Programs compiled before the timed runs; None where the runtime does not count.
    settled
        Whether compiling had stopped before the timed runs.
    series
        The runs, by mode (`latency`, `throughput`).
    counted
        What the runtime counted while the timed runs ran.
    timed_calls, runs_total
        Calls in the timed runs, and all calls ever made.
    output_arrays, output_bytes
        Arrays in what one call gave back, and their size.
    one_by_one
        Whether calls end when they return, so that nothing queues: then latency and
        throughput are the same runs.
    seen
        What probing calls told.
    """

    first: FirstCall
    compiles: int | None
    settled: bool
    series: dict[str, Series]
    counted: Counters
    timed_calls: int
    runs_total: int
    output_arrays: int
    output_bytes: int
    one_by_one: bool
    seen: Probe
