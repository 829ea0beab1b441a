"""What to say about a cell: a table of rules from what was counted to one sentence each.

A rule is silent unless it has figures to give. Its thresholds say when a person would want
to be interrupted, not when something is measurable.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tpu_magic.frameworks.base import CellFacts, Counters, DeviceInfo, Memory
from tpu_magic.report import render

# A handful of steps is a try-out, not a loop to be tuned.
_A_LOOP = 10
_MANY_COMPILES = 5
_MANY_SHAPES = 3
_COMPILES_A_SHAPE = 4
_LATE_SHARE = 0.5
_INPUT_SHARE = 0.25
_FEW_ROWS = 8
_MEMORY_SHARE = 0.9
# The matrix units work on tiles of 128 lanes and 8 sublanes (facts: layouts of arrays).
_LANES, _SUBLANES = 128, 8
_WASTE = 1.25
_LARGE_WEIGHT = 1 << 16


@dataclass(frozen=True)
class Advice:
    """One piece of advice: a stable code, a sentence, and the line of the cell it is about."""

    code: str
    message: str
    line: int | None = None


@dataclass(frozen=True)
class Evidence:
    """What the rules judge by."""

    facts: CellFacts
    counters: Counters
    device: DeviceInfo
    memory: tuple[Memory, ...]
    working_s: float


Rule = Callable[[Evidence], "tuple[str, int | None] | None"]


def advise(evidence: Evidence) -> list[Advice]:
    """Return what there is to say, the most expensive kind first."""
    said = ((code, rule(evidence)) for code, rule in RULES.items())
    return [Advice(code, *found) for code, found in said if found is not None]


def _host_reads(e: Evidence) -> tuple[str, int | None] | None:
    steps, reads = e.facts.steps or 0, e.counters.host_reads or 0
    if steps < _A_LOOP or reads < steps:
        return None
    line = max(e.facts.read_lines, key=lambda at: e.facts.read_lines[at], default=None)
    return (
        f"{reads} host reads in {steps} steps: each one cuts the step's program and waits for "
        "the device; read every so many steps, or after the loop",
        line,
    )


def _recompiles(e: Evidence) -> tuple[str, int | None] | None:
    compiles = e.counters.compiles or 0
    if compiles < _MANY_COMPILES:
        return None
    shapes = list(dict.fromkeys(item.shapes for item in e.facts.compiled if item.shapes))
    lines = Counter(item.line for item in e.facts.compiled if item.line is not None)
    line = lines.most_common(1)[0][0] if lines else None
    took = render.seconds(e.counters.compile_s)
    if len(shapes) >= max(_MANY_SHAPES, compiles / _COMPILES_A_SHAPE):
        some = ", ".join(shapes[:_MANY_SHAPES]) + (" …" if len(shapes) > _MANY_SHAPES else "")
        return (
            f"{compiles} compilations for {len(shapes)} shapes ({some}), {took} of compiling: "
            "pad to one shape, or use drop_last=True",
            line,
        )
    if _keeps_compiling(e):
        return (
            f"{compiles} compilations in {e.facts.steps} steps of the same shape, {took} of "
            "compiling: something that changes in each step has become part of the program (a "
            "number that tensors are raised to, a length, another order of operations)",
            line,
        )
    return None


def _keeps_compiling(e: Evidence) -> bool:
    """Say whether many of the later steps compiled something: the first ones always do."""
    steps = e.facts.steps or 0
    late = {item.step for item in e.facts.compiled if item.step and item.step > steps / 2}
    return steps >= _A_LOOP and len(late) > steps / 2 * _LATE_SHARE


def _fallbacks(e: Evidence) -> tuple[str, int | None] | None:
    if not e.counters.fallbacks:
        return None
    ran = ", ".join(f"{name} × {count}" for name, count in e.counters.fallbacks.items())
    return f"ran on the host for want of a device kernel, with a transfer each way: {ran}", None


def _unended(e: Evidence) -> tuple[str, int | None] | None:
    calls = e.facts.unended_calls
    if calls < _A_LOOP:
        return None
    return (
        f"{calls} calls of the model became one program, since nothing ended their steps: "
        "take batches from a DataLoader, or read a result now and then",
        None,
    )


def _input_wait(e: Evidence) -> tuple[str, int | None] | None:
    running_s = e.working_s - (e.counters.compile_s or 0.0)
    if (e.facts.steps or 0) < _A_LOOP or running_s <= 0:
        return None
    share = e.facts.input_wait_s / running_s
    if share < _INPUT_SHARE:
        return None
    return (
        f"{share:.0%} of the time went into loading data: num_workers, larger batches or "
        "data held in memory help",
        None,
    )


def _few_rows(e: Evidence) -> tuple[str, int | None] | None:
    batch, devices = e.facts.global_batch, e.device.count
    if batch is None or devices == 1 or batch >= devices * _FEW_ROWS:
        return None
    return (
        f"a batch of {batch} on {devices} devices is {batch / devices:g} rows each: larger "
        "batches use them better",
        None,
    )


def _matrix_sizes(e: Evidence) -> tuple[str, int | None] | None:
    if not e.device.on_tpu:
        return None
    wasteful = [
        (name, shape, waste)
        for name, shape in e.facts.products
        if math.prod(shape) >= _LARGE_WEIGHT and (waste := padding(shape)) >= _WASTE
    ]
    if not wasteful:
        return None
    name, shape, waste = max(wasteful, key=lambda item: math.prod(item[1]) * item[2])
    return (
        f"{name} {shape} is padded to {waste:.2g} times its size in the matrix units: last "
        f"dimensions that are multiples of {_LANES} and {_SUBLANES} waste nothing",
        None,
    )


def padding(shape: tuple[int, ...]) -> float:
    """Return how many times its size an array takes in tiles of 8 × 128."""
    *_, rows, lanes = (1, 1, *shape)
    padded = math.ceil(rows / _SUBLANES) * _SUBLANES * math.ceil(lanes / _LANES) * _LANES
    return padded / (rows * lanes)


def _float64(e: Evidence) -> tuple[str, int | None] | None:
    if not e.facts.float64:
        return None
    names = ", ".join(e.facts.float64)
    return f"float64 on the device ({names}): a TPU has no units for it; .float() is enough", None


def _memory(e: Evidence) -> tuple[str, int | None] | None:
    for item in e.memory:
        if (
            item.peak_bytes
            and item.limit_bytes
            and item.peak_bytes >= item.limit_bytes * _MEMORY_SHARE
        ):
            return (
                f"peak memory {render.size(item.peak_bytes)} of {render.size(item.limit_bytes)} "
                "a device: a little more will not fit",
                None,
            )
    return None


# code: rule; the order is the order in which they are shown.
RULES: dict[str, Rule] = {
    "recompiles": _recompiles,
    "unended-steps": _unended,
    "host-reads": _host_reads,
    "fallbacks": _fallbacks,
    "input-wait": _input_wait,
    "float64": _float64,
    "memory": _memory,
    "few-rows": _few_rows,
    "matrix-sizes": _matrix_sizes,
}
