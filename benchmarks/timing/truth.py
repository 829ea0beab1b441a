"""`%tpu_timeit` against a hand-written loop, in turns; and what the usual timers say."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.timing.workloads import EAGER, JAX, XLA, Workload

BLOCK_S = 0.15
# Waits for what a call gave.
Finish = Callable[[Any], Any]


@dataclass(frozen=True)
class Truth:
    """One workload's figures. Times in seconds; ratios are over the hand-written loop's time."""

    workload: Workload
    reference_s: float
    ratio: float
    spread: tuple[float, float]
    pairs: int
    timeit_s: float | None
    torch_benchmark_s: float | None

    def allowed(self) -> float | None:
        """Return the deviation that the issue allows, for the size of the work."""
        return 0.05 if self.reference_s >= 1e-3 else 0.15 if self.reference_s >= 5e-5 else None

    def verdict(self) -> str:
        """Say whether ours is within what is allowed, or whether the machine cannot tell."""
        allowed = self.allowed()
        if allowed is None:
            return "-"
        if abs(self.ratio - 1) <= allowed:
            return "ok"
        low, high = self.spread
        return "noise" if low <= self.ratio <= high else "OFF"


def measure(shell: Any, workload: Workload, pairs: int) -> Truth:
    """Time one workload in `pairs` pairs of blocks: by hand, by us, by hand."""
    shell.user_ns["device"] = {XLA: "xla", EAGER: "cpu"}.get(workload.where)
    exec(workload.setup, shell.user_ns)
    finish = _finish(workload.where)
    if workload.where == XLA:
        import torch

        # The eager workloads ran a backward before there was an XLA device (design, section 5).
        torch.autograd.set_multithreading_enabled(False)
    finish(None)
    call = eval(f"lambda: {workload.statement}", shell.user_ns)
    for _ in range(3):
        _by_hand(call, finish, 1)
    once = min(_by_hand(call, finish, 1) for _ in range(3))
    calls = max(1, min(2000, int(BLOCK_S / once)))
    options = f"-o -q --mode latency --time-limit 60 -r {calls}"
    ratios, noise, references = [], [], []
    for _ in range(pairs):
        before = _block(call, finish, calls)
        ours = shell.run_line_magic("tpu_timeit", f"{options} {workload.statement}").median
        after = _block(call, finish, calls)
        references += [before, after]
        ratios.append(ours / statistics.fmean((before, after)))
        noise.append(after / before)
    return Truth(
        workload,
        statistics.median(references),
        statistics.median(ratios),
        (min(noise), max(noise)),
        pairs,
        *_usual(shell, workload, finish, once),
    )


def _finish(where: str) -> Finish:
    """Return what ends a step and really waits: `torch_xla.sync(wait=True)` does not."""
    if where == JAX:
        import jax

        return jax.block_until_ready
    if where != XLA:
        return lambda _: None
    import torch_xla
    from torch_xla.core import xla_model

    def finish(_: Any) -> None:
        torch_xla.sync()
        xla_model.wait_device_ops()

    return finish


def _by_hand(call: Callable[[], Any], finish: Finish, calls: int) -> float:
    """Time calls as an expert does: hold the output, end the step, wait, read the clock."""
    started = time.perf_counter()
    for _ in range(calls):
        output = call()
        finish(output)
    elapsed = time.perf_counter() - started
    del output
    return elapsed / calls


def _block(call: Callable[[], Any], finish: Finish, calls: int) -> float:
    """Return the median of hand-timed calls; short ones are timed ten at a time."""
    with _no_collector():
        probe = _by_hand(call, finish, 1)
        inner = 1 if probe > 1e-4 else 10
        return statistics.median(
            _by_hand(call, finish, inner) for _ in range(max(1, calls // inner))
        )


@contextmanager
def _no_collector() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _usual(shell: Any, workload: Workload, finish: Finish, once: float) -> Iterator[float | None]:
    """Yield what `%timeit` and `torch.utils.benchmark` say, in few loops: a lazy graph grows."""
    loops = max(1, min(20, int(1 / once)))
    result = shell.run_line_magic("timeit", f"-o -q -n {loops} -r 3 {workload.statement}")
    finish(None)
    yield result.average
    if workload.where not in {XLA, EAGER}:
        yield None
        return
    from torch.utils.benchmark import Timer

    yield Timer(workload.statement, globals=shell.user_ns).timeit(loops).mean
    finish(None)
