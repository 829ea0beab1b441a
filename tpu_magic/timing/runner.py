"""The loop that times: the clock and the adapter are handed in, the samples come out.

One sample is flush, wait, clock, call, keep the outputs, materialise them, wait, clock. The
outputs are dropped after the clock is read. What does not belong in a figure (the first call,
compiling, set-up) happens before the first sample.
"""

from __future__ import annotations

import gc
import itertools
import operator
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import ceil, floor, inf, log10
from typing import Any

from tpu_magic.frameworks.base import Adapter, Counters
from tpu_magic.timing import stats
from tpu_magic.timing.measurement import (
    MODES,
    WALL,
    Clock,
    FirstCall,
    Measurement,
    Plan,
    Series,
)
from tpu_magic.timing.probe import Probe, probe
from tpu_magic.timing.statement import Run

# Bounds of the un-timed phase: a program that still compiles after this many calls is told.
SETTLE_CALLS = 20
_SETTLE_COMPILES = 5  # an optimizer makes two or three programs before it makes the last one
_STILL_CALLS = 2  # calls in a row without a compile that count as settled
# Timer and wait may cost this share of what they measure.
OVERHEAD = 0.01
_SHORT_CALL_S = 1e-5  # below it, a clock reading around every call costs more than OVERHEAD
_SMALLEST_RUN_S = 1e-3  # of many short calls
_MOST_LOOPS = 10**9
# Queued calls: long enough that filling the queue and one wait do not count, yet bounded.
_QUEUE_S = 0.05
_QUEUE_CALLS = (8, 1000)
_QUEUE_BYTES = 2**30
# When to look at the counters and the interval.
_FIRST_LOOK_S = 0.2
_LOOK_GROWTH = 1.3
_FEWEST_SAMPLES = 12
_MOST_SAMPLES = 20_000
# Longer calls, as a share of the time limit, are not made once more only to look at them.
_PROBE_SHARE = 0.05
_LATENCY_SHARE = 0.6  # of the time limit, when throughput is measured as well


@dataclass(frozen=True)
class Way:
    """How the runs of a mode are made, what a call takes, and runs that were made before."""

    sample: Callable[[Run, int], float]
    loops: int
    call_s: float
    made: tuple[float, ...] = ()


@dataclass(frozen=True)
class Warm:
    """A statement that is ready to be timed.

    Attributes
    ----------
    run
        What makes its calls.
    first
        The first call.
    compiles, settled
        Programs compiled so far, and whether compiling has stopped.
    clean
        Seconds of the calls since it has.
    output_arrays, output_bytes
        What one call gives.
    seen
        What probing told.
    deadline
        When the time limit is reached, by the runner's wall clock.
    """

    run: Run
    first: FirstCall
    compiles: int | None
    settled: bool
    clean: tuple[float, ...]
    output_arrays: int
    output_bytes: int
    seen: Probe
    deadline: float


# Takes what the first call gave and what was counted during it.
Decide = Callable[[Any, Counters], Adapter]


@contextmanager
def undisturbed(adapter: Adapter) -> Iterator[None]:
    """Time without garbage collection, as `timeit` does; after an error the device is idle."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    except BaseException:
        # What is queued must not run into the next cell.
        with suppress(Exception):
            adapter.wait()
        raise
    finally:
        if enabled:
            gc.enable()


class Runner:
    """Times one statement on one adapter.

    Parameters
    ----------
    adapter
        The framework's adapter. When it has an attribute `synchronous` that is true, a call
        has ended when it returns.
    start
        Starts a run: executes the set-up, and returns what then makes the calls.
    clock
        The clock of the samples.
    wall
        The clock of the time limit, in seconds.
    """

    def __init__(
        self,
        adapter: Adapter,
        start: Callable[[], Run],
        clock: Clock = WALL,
        wall: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.runs_total = 0
        self.adapter = adapter
        self._start = start
        self._clock = clock
        self._wall = wall

    @property
    def _one_by_one(self) -> bool:
        return is_synchronous(self.adapter)

    def measure(self, plan: Plan, decide: Decide | None = None) -> Measurement:
        """Make the first call, let compiling settle, and time; call it in `undisturbed`.

        An interrupt ends the timing with the runs that there are.

        Raises
        ------
        KeyboardInterrupt
            When the interrupt came before there was a whole run.
        Exception
            What the person's code raises, untouched but for a note that says in which call.
        """
        return self._timed(self.warm_up(plan, decide), plan)

    def warm_up(self, plan: Plan, decide: Decide | None = None) -> Warm:
        """Run the set-up, make the first call, and call until compiling stands still.

        What the first call gave may show that another adapter must time the code: `decide`
        is asked, off the clock, and what it returns is the adapter from then on.
        """
        run = self._opened()
        before = self.adapter.counters()
        first, sizes = self._first_call(run, decide)
        deadline = inf if plan.time_limit is None else self._wall() + plan.time_limit
        clean, deadline = self._settle(run, plan, deadline)
        settled = bool(clean) or self.adapter.counters().compiles is None
        seen = Probe()
        if clean and min(clean) < (plan.time_limit or inf) * _PROBE_SHARE:
            seen = probe(
                self.adapter,
                partial(self._untimed_call, run),
                partial(next, run),
                min(clean),
                self._wall,
            )
        compiles = self.adapter.counters().since(before).compiles
        return Warm(run, first, compiles, settled, clean, len(sizes), sum(sizes), seen, deadline)

    def way(self, warm: Warm, mode: str, plan: Plan) -> Way:
        """Return how to make the runs of a mode."""
        made = warm.clean or (warm.first.wall_s,)
        call_s = min(made)
        asked = plan.loops
        if asked is not None and plan.time_limit is not None and call_s > 0:
            asked = min(asked, max(1, int(plan.time_limit / call_s)))
        if mode == "throughput" and not self._one_by_one:
            queue = _queue_length(call_s, warm.output_bytes, plan.time_limit)
            return Way(self._queued, asked or queue, call_s)
        if self._one_by_one and call_s < _SHORT_CALL_S:
            return Way(self._in_one_go, asked or self._loops(warm.run), call_s)
        return Way(self._one_at_a_time, asked or 1, call_s, () if asked else warm.clean)

    def _timed(self, warm: Warm, plan: Plan) -> Measurement:
        series: dict[str, Series] = {}
        timed_from, counted_from = self.runs_total, self.adapter.counters()
        for mode in ("latency",) if self._one_by_one else MODES[plan.mode]:
            end = warm.deadline
            if plan.time_limit is not None and mode != MODES[plan.mode][-1]:
                end -= plan.time_limit * (1 - _LATENCY_SHARE)
            way = self.way(warm, mode, plan)
            if series and self._wall() + way.loops * way.call_s > warm.deadline:
                break  # no time is left for a second mode; it stays unmeasured
            series[mode] = self._series(warm.run, way, plan, end)
            if series[mode].stopped_by == "interrupt":
                break
        return Measurement(
            first=warm.first,
            compiles=warm.compiles,
            settled=warm.settled,
            series=series,
            counted=self.adapter.counters().since(counted_from),
            timed_calls=self.runs_total - timed_from,
            runs_total=self.runs_total,
            output_arrays=warm.output_arrays,
            output_bytes=warm.output_bytes,
            one_by_one=self._one_by_one,
            seen=warm.seen,
        )

    def _opened(self) -> Run:
        """Execute the set-up, and let the device finish with it."""
        run = self._start()
        self.adapter.materialize(())
        self.adapter.wait()
        return run

    def _call(self, run: Run, calls: int = 1) -> Any:
        """Make calls, and say in which one the person's code raised."""
        left = itertools.repeat(None, calls)
        try:
            return run.send(left)
        except BaseException as error:
            self.runs_total += calls - operator.length_hint(left)
            note(error, f"raised in call {self.runs_total} of the timed code")
            raise

    def _untimed_call(self, run: Run) -> Any:
        outputs = self._call(run)
        self.runs_total += 1
        return outputs

    def _first_call(self, run: Run, decide: Decide | None) -> tuple[FirstCall, list[int]]:
        """Make the first call; return what it cost, and the sizes of the arrays that it gave."""
        before = self.adapter.counters()
        started = self._wall()
        outputs = self._call(run)
        self.runs_total += 1
        self.adapter.materialize(outputs)
        dispatched = self._wall()
        self.adapter.wait()
        ended = self._wall()
        counted = self.adapter.counters().since(before)
        if decide is not None:
            self.adapter = decide(outputs, counted)
        sizes = [
            getattr(array, "nbytes", 0)
            for array in self.adapter.arrays(outputs)
            if self.adapter.on_device(array)
        ]
        del outputs
        next(run)
        first = FirstCall(ended - started)
        if counted.compile_s is not None:
            # Up to the dispatch the host traced and compiled; then the device ran.
            compile_s = min(counted.compile_s, ended - started)
            trace_s = counted.trace_s
            if trace_s is None:
                trace_s = dispatched - started - compile_s
            elif trace_s > first.wall_s - compile_s:  # an operation that needed a value compiled
                trace_s -= compile_s
            trace_s = max(0.0, trace_s)
            run_s = max(0.0, first.wall_s - compile_s - trace_s)
            first = FirstCall(first.wall_s, trace_s, compile_s, run_s)
        return first, sizes

    def _settle(self, run: Run, plan: Plan, deadline: float) -> tuple[tuple[float, ...], float]:
        """Make calls until compiling has stopped.

        Returns
        -------
        clean, deadline
            Seconds of the calls since then; and the deadline, later by what compiling took:
            the time limit is for timing. It only waits so long for code that never settles.
        """
        compiles = self.adapter.counters().compiles
        if compiles is None and plan.loops is not None:
            return (), deadline  # nothing to settle, and nothing to find out
        compiling = 0
        clean: tuple[float, ...] = ()
        for _ in range(SETTLE_CALLS):
            elapsed = self._one_at_a_time(run, 1)
            now = self.adapter.counters().compiles
            if now == compiles:
                clean = (*clean, elapsed)
            else:
                clean, compiling = (), compiling + 1
                if compiling <= _SETTLE_COMPILES:
                    deadline += elapsed
            compiles = now
            half_time = deadline - (plan.time_limit or 0) / 2
            if len(clean) >= _STILL_CALLS or self._wall() >= half_time:
                break
        return clean, deadline

    def _loops(self, run: Run) -> int:
        """Return how many short calls make a run in which reading the clock does not count."""
        target = max(_SMALLEST_RUN_S, (self._clock.cost() + self._clock.resolution) / OVERHEAD)
        loops = 1
        while (elapsed := self._in_one_go(run, loops)) < target / 2 and loops < _MOST_LOOPS:
            loops *= 10
        return _round_up(loops * target / elapsed) if elapsed > 0 else loops

    def _series(self, run: Run, way: Way, plan: Plan, deadline: float) -> Series:
        """Make runs until a reason to stop.

        Runs are made in batches. Between them, off the clock, the counters tell whether
        something was compiled; such a batch is set aside.
        """
        runs: list[float] = list(way.made) if self._wall() >= deadline else []
        compiled: list[float] = []
        began, stopped_by = self._wall(), "time-limit" if runs else ""
        while not stopped_by:
            elapsed = self._wall() - began
            look_at = began + max(elapsed * _LOOK_GROWTH, elapsed + _FIRST_LOOK_S)
            most = (plan.repeat or _MOST_SAMPLES) - len(runs) - len(compiled)
            compiles = self.adapter.counters().compiles
            batch: list[float] = []
            try:
                while not batch or (len(batch) < most and self._wall() < min(look_at, deadline)):
                    if plan.loops is not None:  # as with %timeit, -n runs begin with the set-up
                        run = self._opened()
                    batch.append(way.sample(run, way.loops))
            except KeyboardInterrupt:
                if not (runs or compiled or batch):
                    raise
                stopped_by = "interrupt"
                self.adapter.wait()
            still = self.adapter.counters().compiles == compiles
            (runs if still else compiled).extend(batch)
            stopped_by = stopped_by or self._reason(runs, len(runs) + len(compiled), plan, deadline)
        return Series(tuple(runs or compiled), way.loops, stopped_by, tuple(compiled))

    def _reason(self, runs: Sequence[float], made: int, plan: Plan, deadline: float) -> str:
        """Return why to stop now; empty to go on."""
        if plan.repeat is not None and made >= plan.repeat:
            return "runs"
        if self._wall() >= deadline:
            return "time-limit"
        if made >= _MOST_SAMPLES:
            return "samples"
        if plan.repeat is None and len(runs) >= _FEWEST_SAMPLES:
            width = stats.summarize(runs).relative_width
            if width is not None and width <= plan.precision_goal:
                return "precision"
        return ""

    def _one_at_a_time(self, run: Run, loops: int) -> float:
        """Return the seconds of calls that are each waited for; dropping outputs is not timed."""
        read, materialize, wait = self._clock.read, self.adapter.materialize, self.adapter.wait
        total = 0.0
        for _ in range(loops):
            started = read()
            outputs = self._call(run)
            materialize(outputs)
            wait()
            total += read() - started
            self.runs_total += 1
            del outputs
            next(run)
        return total

    def _in_one_go(self, run: Run, loops: int) -> float:
        """Return the seconds of calls so short that a loop of Python's own must make them."""
        started = self._clock.read()
        self._call(run, loops)
        elapsed = self._clock.read() - started
        self.runs_total += loops
        next(run)
        return elapsed

    def _queued(self, run: Run, loops: int) -> float:
        """Return the seconds of calls that are queued one behind the other and waited for once."""
        read, materialize = self._clock.read, self.adapter.materialize
        started = read()
        for _ in range(loops):
            materialize(self._call(run))
            self.runs_total += 1
            next(run)
        self.adapter.wait()
        return read() - started


def is_synchronous(adapter: Adapter) -> bool:
    """Say whether calls on the adapter's device have ended when they return."""
    return bool(getattr(adapter, "synchronous", False))


def _queue_length(call_s: float, output_bytes: int, time_limit: float | None) -> int:
    """Return how many calls to queue: enough for a steady pipeline, bounded in time and memory."""
    fewest, most = _QUEUE_CALLS
    calls = max(fewest, ceil(_QUEUE_S / max(call_s, 1e-9)))
    if output_bytes:
        most = min(most, _QUEUE_BYTES // output_bytes)
    if time_limit is not None:
        most = min(most, int(time_limit * (1 - _LATENCY_SHARE) / _FEWEST_SAMPLES / call_s))
    return max(2, min(calls, most))


def _round_up(number: float) -> int:
    """Return the next round number: 1, 2 or 5 times a power of ten."""
    scale: int = 10 ** max(0, floor(log10(max(number, 1.0))))
    return next(step * scale for step in (1, 2, 5, 10) if step * scale >= number)


def note(error: BaseException, text: str) -> None:
    """Add a note to an error, as Python 3.11's `add_note` does."""
    notes: list[str] = getattr(error, "__notes__", [])
    error.__notes__ = [*notes, text]  # type: ignore[attr-defined] # Python 3.10 has no notes
