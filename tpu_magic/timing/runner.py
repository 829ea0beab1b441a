"""The timed loop: runs are made until the figure is known well enough, and looked at in batches.

What does not belong in a figure (the first call, compiling, set-up) happened before
(`warmup`); the clock and the adapter are handed in, the samples come out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from tpu_magic.timing import stats, warmup
from tpu_magic.timing.calls import Calls
from tpu_magic.timing.measurement import MODES, Measurement, Plan, Series
from tpu_magic.timing.statement import Run
from tpu_magic.timing.warmup import Decide, Warm

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
_LATENCY_SHARE = 0.6  # of the time limit, when throughput is measured as well


@dataclass(frozen=True)
class Way:
    """How the runs of a mode are made, what a call takes, and runs that were made before."""

    sample: Callable[[Run, int], float]
    loops: int
    call_s: float
    made: tuple[float, ...] = ()


class Runner(Calls):
    """Times one statement on one adapter."""

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
        return self._timed(warmup.warm_up(self, plan, decide), plan)

    def way(self, warm: Warm, mode: str, plan: Plan) -> Way:
        """Return how to make the runs of a mode."""
        made = warm.clean or (warm.first.wall_s,)
        call_s = min(made)
        asked = plan.loops
        if asked is not None and plan.time_limit is not None and call_s > 0:
            asked = min(asked, max(1, int(plan.time_limit / call_s)))
        if mode == "throughput" and not self.one_by_one:
            queue = _queue_length(call_s, warm.output_bytes, plan.time_limit)
            return Way(self.queued, asked or queue, call_s)
        if self.one_by_one and call_s < _SHORT_CALL_S:
            return Way(self.in_one_go, asked or self._loops(warm.run), call_s)
        return Way(self.one_at_a_time, asked or 1, call_s, () if asked else warm.clean)

    def _timed(self, warm: Warm, plan: Plan) -> Measurement:
        series: dict[str, Series] = {}
        timed_from, counted_from = self.runs_total, self.adapter.counters()
        for mode in ("latency",) if self.one_by_one else MODES[plan.mode]:
            end = warm.deadline
            if plan.time_limit is not None and mode != MODES[plan.mode][-1]:
                end -= plan.time_limit * (1 - _LATENCY_SHARE)
            way = self.way(warm, mode, plan)
            if series and self.wall() + way.loops * way.call_s > warm.deadline:
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
            one_by_one=self.one_by_one,
            seen=warm.seen,
        )

    def _loops(self, run: Run) -> int:
        """Return how many short calls make a run in which reading the clock does not count."""
        target = max(_SMALLEST_RUN_S, (self.clock.cost() + self.clock.resolution) / OVERHEAD)
        loops = 1
        while (elapsed := self.in_one_go(run, loops)) < target / 2 and loops < _MOST_LOOPS:
            loops *= 10
        return _round_up(loops * target / elapsed) if elapsed > 0 else loops

    def _series(self, run: Run, way: Way, plan: Plan, deadline: float) -> Series:
        """Make runs until a reason to stop.

        Runs are made in batches. Between them, off the clock, the counters tell whether
        something was compiled; such a batch is set aside.
        """
        runs: list[float] = list(way.made) if self.wall() >= deadline else []
        compiled: list[float] = []
        began, stopped_by = self.wall(), "time-limit" if runs else ""
        while not stopped_by:
            elapsed = self.wall() - began
            look_at = began + max(elapsed * _LOOK_GROWTH, elapsed + _FIRST_LOOK_S)
            most = (plan.repeat or _MOST_SAMPLES) - len(runs) - len(compiled)
            compiles = self.adapter.counters().compiles
            batch: list[float] = []
            try:
                while not batch or (len(batch) < most and self.wall() < min(look_at, deadline)):
                    if plan.loops is not None:  # as with %timeit, -n runs begin with the set-up
                        run = self.opened()
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
        if self.wall() >= deadline:
            return "time-limit"
        if made >= _MOST_SAMPLES:
            return "samples"
        if plan.repeat is None and len(runs) >= _FEWEST_SAMPLES:
            width = stats.summarize(runs).relative_width
            if width is not None and width <= plan.precision_goal:
                return "precision"
        return ""


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
