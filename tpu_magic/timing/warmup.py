"""Before the first sample: set-up, the first call, and calls until compiling stands still."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

from tpu_magic.frameworks.base import Adapter, Counters
from tpu_magic.timing.calls import Calls
from tpu_magic.timing.measurement import FirstCall, Plan
from tpu_magic.timing.probe import Probe, probe
from tpu_magic.timing.statement import Run

# Bounds of the un-timed phase: a program that still compiles after this many calls is told.
SETTLE_CALLS = 20
_SETTLE_COMPILES = 5  # an optimizer makes two or three programs before it makes the last one
_STILL_CALLS = 2  # calls in a row without a compile that count as settled
# Longer calls, as a share of the time limit, are not made once more only to look at them.
_PROBE_SHARE = 0.05

# Takes what the first call gave and what was counted during it.
Decide = Callable[[Any, Counters], Adapter]


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


def warm_up(calls: Calls, plan: Plan, decide: Decide | None = None) -> Warm:
    """Run the set-up, make the first call, and call until compiling stands still.

    What the first call gave may show that another adapter must time the code: `decide`
    is asked, off the clock, and what it returns is the adapter from then on.
    """
    run = calls.opened()
    before = calls.adapter.counters()
    first, sizes = _first_call(calls, run, decide)
    deadline = inf if plan.time_limit is None else calls.wall() + plan.time_limit
    clean, deadline = _settle(calls, run, plan, deadline)
    settled = bool(clean) or calls.adapter.counters().compiles is None
    seen = Probe()
    if clean and min(clean) < (plan.time_limit or inf) * _PROBE_SHARE:
        seen = probe(
            calls.adapter,
            partial(calls.untimed, run),
            partial(next, run),
            min(clean),
            calls.wall,
        )
    compiles = calls.adapter.counters().since(before).compiles
    return Warm(run, first, compiles, settled, clean, len(sizes), sum(sizes), seen, deadline)


def _first_call(calls: Calls, run: Run, decide: Decide | None) -> tuple[FirstCall, list[int]]:
    """Make the first call; return what it cost, and the sizes of the arrays that it gave."""
    asked = calls.adapter
    before = asked.counters()
    started = calls.wall()
    outputs = calls.call(run)
    calls.runs_total += 1
    asked.materialize(outputs)
    dispatched = calls.wall()
    asked.wait()
    ended = calls.wall()
    counted = asked.counters().since(before)
    if decide is not None:
        calls.adapter = decide(outputs, counted)
    sizes = [
        getattr(array, "nbytes", 0)
        for array in calls.adapter.arrays(outputs)
        if calls.adapter.on_device(array)
    ]
    del outputs
    next(run)
    first = FirstCall(ended - started)
    if counted.compile_s is not None and calls.adapter is asked:  # else it compiles nothing
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


def _settle(calls: Calls, run: Run, plan: Plan, deadline: float) -> tuple[tuple[float, ...], float]:
    """Make calls until compiling has stopped.

    Returns
    -------
    clean, deadline
        Seconds of the calls since then; and the deadline, later by what compiling took:
        the time limit is for timing. It only waits so long for code that never settles.
    """
    compiles = calls.adapter.counters().compiles
    if compiles is None and plan.loops is not None:
        return (), deadline  # nothing to settle, and nothing to find out
    compiling = 0
    clean: tuple[float, ...] = ()
    for _ in range(SETTLE_CALLS):
        elapsed = calls.one_at_a_time(run, 1)
        now = calls.adapter.counters().compiles
        if now == compiles:
            clean = (*clean, elapsed)
        else:
            clean, compiling = (), compiling + 1
            if compiling <= _SETTLE_COMPILES:
                deadline += elapsed
        compiles = now
        half_time = deadline - (plan.time_limit or 0) / 2
        if len(clean) >= _STILL_CALLS or calls.wall() >= half_time:
            break
    return clean, deadline
