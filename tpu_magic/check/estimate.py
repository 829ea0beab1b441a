"""From a compiled program to numbers: operations with loops counted, bytes, cycles, buffers.

Pure: text in, figures out. What cannot be known is None. Methods and their sources:

* Operations of a convolution or matrix product: two for each product that is not with
  padding, as XLA's cost analysis counts them (xla/service/hlo_cost_analysis.cc). Bodies of
  loops count as often as the loop's condition says, which that analysis does not do.
* Floor: the roofline (Williams, Waterman, Patterson, CACM 2009), the greater of operations
  over the peak and bytes in and out over the bandwidth; nothing can be faster.
* Cycles: the compiler's own `estimated_cycles` for each instruction of the schedule.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tpu_magic.check.hlo import Array, Computation, Instruction, Module

# Passes of a bfloat16 unit for one float32 product, by precision (measured on compiled
# programs: 4096³ at `highest` took 5.7 times the cycles of `default`).
PASSES = {"default": 1, "bf16": 1, "high": 3, "highest": 6}
COLLECTIVES = (
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute",
    "collective-broadcast",
)  # fmt: skip
_ARITHMETIC = frozenset({
    "add", "subtract", "multiply", "divide", "maximum", "minimum", "negate", "abs", "sign",
    "sqrt", "rsqrt", "cbrt", "power", "exponential", "exponential-minus-one", "log",
    "log-plus-one", "logistic", "tanh", "cosine", "sine", "tan", "atan2", "erf", "remainder",
    "select", "clamp", "compare", "and", "or", "xor", "not", "floor", "ceil",
    "round-nearest-even", "round-nearest-afz",
})  # fmt: skip
# Custom calls of the compiler's own that compute nothing a person would count.
_FREE_CALLS = re.compile(
    r"X64|AllocateBuffer|Sharding|SPMD|AssumeGatherIndices|ConcatBitcast|SliceBitcast|"
    r"GatherScatterIndices|AnnotateDeviceId|LayoutConstraint|Pin|MoveToHost|MoveToDevice|"
    r"xla\.sdy|annotate"
)
_COPIES = frozenset({"copy", "bitcast", "convert"})
_NO_BUFFER = frozenset({
    "get-tuple-element", "tuple", "bitcast", "while", "conditional", "call", "constant",
    "after-all", "copy-done", "opt-barrier", "partition-id", "replica-id",
})  # fmt: skip


@dataclass(frozen=True)
class Work:
    """What a program does.

    Attributes
    ----------
    flops
        Operations, loops counted; None when a part cannot be counted.
    matrix_flops
        Those of matrix products and convolutions, which the chip's peak is a peak of.
    uncounted
        Why `flops` is None, in words.
    """

    flops: float | None
    matrix_flops: float | None
    uncounted: str = ""


@dataclass(frozen=True)
class Located:
    """A number of an instruction, with where it comes from."""

    value: float
    instruction: Instruction
    times: int


def work(module: Module) -> Work:
    """Return the operations of a program on one device."""
    total = matrix = 0.0
    for computation, times in _counted(module):
        for item in computation.instructions.values():
            if times is None:
                if _flops(item, computation)[0]:
                    return Work(None, None, "a loop's number of rounds is only known when it runs")
                continue
            if item.opcode == "custom-call":
                target = item.attribute("custom_call_target").strip('"')
                if not _FREE_CALLS.search(target):
                    return Work(None, None, f"a custom call ({target}) cannot be counted")
            flops, is_matrix = _flops(item, computation)
            total += times * flops
            matrix += times * flops * is_matrix
    return Work(total, matrix)


def floor(
    matrix_flops: float | None, bytes_moved: int, peak: float, bandwidth: float, precision: str
) -> tuple[float, str]:
    """Return the least time of a program on one device in seconds, and what sets it.

    Parameters
    ----------
    matrix_flops
        Operations of the matrix unit; None counts as none, so the floor stays one.
    bytes_moved
        Bytes of arguments and outputs.
    peak, bandwidth
        bfloat16 operations and bytes per second of one device.
    precision
        Of float32 products, which take several bfloat16 passes when it is high.
    """
    compute = (matrix_flops or 0.0) * PASSES[precision] / peak
    memory = bytes_moved / bandwidth
    return (compute, "compute") if compute >= memory else (memory, "memory")


def cycles(module: Module) -> list[Located] | None:
    """Return the compiler's cycles of every instruction in the schedule; None without trips."""
    found = []
    for computation, times in _scheduled(module):
        for item in computation.instructions.values():
            if item.cycles:
                if times is None:
                    return None
                found.append(Located(item.cycles * times, item, times))
    return found


def collectives(module: Module) -> list[tuple[str, int | None, int]]:
    """Return kind, number and bytes (of one) of the collectives, the largest first."""
    found: Counter[tuple[str, int]] = Counter()
    unknown = set()
    for computation, times in _counted(module):
        for item in computation.instructions.values():
            kind = item.opcode.removesuffix("-start")
            if kind in COLLECTIVES:
                key = (kind, sum(array.bytes for array in _results(item)))
                found[key] += times or 1
                if times is None:
                    unknown.add(key)
    rows = [
        (kind, None if (kind, size) in unknown else times, size)
        for (kind, size), times in found.items()
    ]
    return sorted(rows, key=lambda row: -(row[1] or 1) * row[2])


def _results(item: Instruction) -> tuple[Array, ...]:
    """Return the arrays that a collective makes; a start also lists what it takes."""
    return item.arrays[-1:] if item.opcode.endswith("-start") else item.arrays


def buffers(module: Module) -> list[tuple[Array, Instruction]]:
    """Return the arrays in main memory that a program makes or takes, the largest first.

    Which of them share memory only the compiler knows, so their sum is no total.
    """
    found = []
    for computation, _ in _scheduled(module):
        entry = computation.name == module.entry
        for item in computation.instructions.values():
            if item.opcode in _NO_BUFFER or (item.opcode == "parameter" and not entry):
                continue
            found += [(array, item) for array in item.arrays if array.in_main_memory]
    return sorted(found, key=lambda pair: -pair[0].padded_bytes)


def padding(module: Module) -> tuple[int, list[tuple[Array, Instruction]]]:
    """Return the bytes that tiles add to arguments and outputs, and the arrays, worst first."""
    entry = module.computations[module.entry]
    ends = [item for item in entry.instructions.values() if item.opcode == "parameter"]
    pairs = [(array, item) for item in [*ends, entry.root] for array in item.arrays]

    def waste(pair: tuple[Array, Instruction]) -> int:
        return pair[0].padded_bytes - pair[0].bytes

    worst = sorted((pair for pair in pairs if waste(pair) > 0), key=waste, reverse=True)
    return sum(map(waste, worst)), worst


# --- how often a computation runs -----------------------------------------------------------


def _scheduled(module: Module) -> Iterator[tuple[Computation, int | None]]:
    """Yield the computations that the schedule steps through, with how often each runs."""
    yield from _reached(module, lambda _: ())


def _counted(module: Module) -> Iterator[tuple[Computation, int | None]]:
    """Yield also the insides of fusions, which hold the operations."""
    yield from _reached(module, lambda item: item.called("calls"))


def _reached(
    module: Module, inside: Callable[[Instruction], list[str] | tuple[str, ...]]
) -> Iterator[tuple[Computation, int | None]]:
    pending: list[tuple[str, int | None]] = [(module.entry, 1)]
    while pending:
        name, times = pending.pop()
        computation = module.computations[name]
        yield computation, times
        for item in computation.instructions.values():
            if item.opcode == "while":
                trips = trip_count(module, computation, item)
                rounds = None if times is None or trips is None else times * trips
                pending += [(body, rounds) for body in item.called("body")]
            elif item.opcode == "call":
                pending += [(body, times) for body in item.called("to_apply")]
            elif item.opcode == "conditional":
                # One of them runs; which is not known here, so the one with most operations.
                branches = [
                    *item.called("branch_computations"),
                    *item.called("true_computation"),
                    *item.called("false_computation"),
                ]
                sizes = {name: len(module.computations[name].instructions) for name in branches}
                pending.append((max(sizes, key=lambda name: sizes[name]), times))
            else:
                pending += [(body, times) for body in inside(item)]


def trip_count(module: Module, computation: Computation, loop: Instruction) -> int | None:
    """Return how often a loop runs, where its condition says: a counter below a constant."""
    known = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', loop.rest)
    if known:
        return int(known[1])
    condition = module.computations[loop.called("condition")[0]]
    body = module.computations[loop.called("body")[0]]
    test = condition.root
    if test.opcode == "fusion":
        condition, test = _unfused(module, condition, test)
    if test.opcode != "compare" or len(test.operands) != 2:  # noqa: PLR2004
        return None
    sides = [_through(condition, name) for name in test.operands]
    counter = next((side for side in sides if side.opcode == "get-tuple-element"), None)
    bound = next((_constant(side) for side in sides if side.opcode == "constant"), None)
    if counter is None or bound is None or sides[0] is not counter:
        return None
    place = int(counter.attribute("index"))
    start = _start(computation, loop, place)
    step = _step(module, body, place)
    if start is None or step is None or step <= 0:
        return None
    direction = test.attribute("direction")
    if direction not in ("LT", "LE", "NE"):
        return None
    return max(0, math.ceil((bound + (direction == "LE") - start) / step))


def _unfused(
    module: Module, outside: Computation, fusion: Instruction
) -> tuple[Computation, Instruction]:
    """Return a fused test with its parameters replaced by what is handed in."""
    inner = module.computations[fusion.called("calls")[0]]
    joined = Computation(inner.name)
    for item in inner.instructions.values():
        if item.opcode == "parameter":
            given = outside.instructions[fusion.operands[int(item.text)]]
            joined.instructions[item.name] = _through(outside, given.name)
        else:
            joined.instructions[item.name] = item
    return joined, inner.root


def _through(computation: Computation, name: str) -> Instruction:
    """Return what an instruction copies."""
    item = computation.instructions[name]
    while item.opcode in _COPIES and item.operands[0] in computation.instructions:
        item = computation.instructions[item.operands[0]]
    return item


def _constant(item: Instruction) -> int | None:
    is_number = item.opcode == "constant" and re.fullmatch(r"-?\d+", item.text)
    return int(item.text) if is_number else None


def _start(computation: Computation, loop: Instruction, place: int) -> int | None:
    tuple_ = _through(computation, loop.operands[0])
    if tuple_.opcode != "tuple":
        return None
    return _constant(_through(computation, tuple_.operands[place]))


def _step(module: Module, body: Computation, place: int) -> int | None:
    """Return what a loop's body adds to the counter at a place of its tuple."""
    if body.root.opcode != "tuple":
        return None
    add = _through(body, body.root.operands[place])
    inside = body
    if add.opcode == "fusion":
        inside, add = _unfused(module, body, add)
    if add.opcode != "add":
        return None
    sides = [_through(inside, name) for name in add.operands]
    counter = next((side for side in sides if side.opcode == "get-tuple-element"), None)
    constants = [_constant(side) for side in sides if side.opcode == "constant"]
    if counter is None or not constants or int(counter.attribute("index")) != place:
        return None
    return constants[0]


# --- operations of one instruction ------------------------------------------------------------


def _flops(item: Instruction, computation: Computation) -> tuple[float, bool]:
    """Return the operations of an instruction, and whether they are the matrix unit's."""
    if item.opcode == "convolution":
        return _convolution(item, computation), True
    if item.opcode == "dot":
        return _dot(item, computation), True
    if item.opcode in _ARITHMETIC and item.arrays[0].element[0] in "fbc":
        return float(item.arrays[0].elements), False
    if item.opcode in ("reduce", "reduce-window"):
        taken = _operand(item, computation, 0).elements
        window = math.prod(_sizes(item.attribute("window"), len(item.arrays[0].shape)))
        made = item.arrays[0].elements * window
        return float(made if item.opcode == "reduce-window" else taken), False
    return 0.0, False


def _operand(item: Instruction, computation: Computation, place: int) -> Array:
    return computation.instructions[item.operands[place]].arrays[0]


def _dot(item: Instruction, computation: Computation) -> float:
    left = _operand(item, computation, 0)
    contracted = [int(n) for n in item.attribute("lhs_contracting_dims").split(",") if n]
    return 2.0 * item.arrays[0].elements * math.prod(left.shape[n] for n in contracted)


def _convolution(item: Instruction, computation: Computation) -> float:
    """Return two operations for each product that is not with padding or a dilation's hole."""
    labels = re.match(r"(\w+)_(\w+)->(\w+)", item.attribute("dim_labels"))
    assert labels is not None, item.rest  # noqa: S101 - every convolution has them
    left, right = _operand(item, computation, 0), _operand(item, computation, 1)
    result = item.arrays[0]
    spatial = sum(letter.isdigit() for letter in labels[1])
    window = item.attribute("window")
    strides = _field(window, "stride", spatial, 1)
    holes = _field(window, "lhs_dilate", spatial, 1)
    gaps = _field(window, "rhs_dilate", spatial, 1)
    pads = re.search(r"pad=([\d_x\-]+)", window)
    before = [int(pair.split("_")[0]) for pair in pads[1].split("x")] if pads else [0] * spatial
    valid = 1
    for n in range(spatial):
        size = left.shape[labels[1].index(str(n))]
        reach = (size - 1) * holes[n] + 1
        kernel = right.shape[labels[2].index(str(n))]
        steps = range(result.shape[labels[3].index(str(n))])
        valid *= sum(
            0 <= at < reach and at % holes[n] == 0
            for k in range(kernel)
            for at in (o * strides[n] - before[n] + k * gaps[n] for o in steps)
        )
    batch = result.shape[labels[3].index("b")]
    features = result.shape[labels[3].index("f")]
    # The kernel's input features are those of one group.
    return 2.0 * batch * features * right.shape[labels[2].index("i")] * valid


def _field(window: str, name: str, count: int, default: int) -> list[int]:
    match = re.search(rf"\b{name}=([\dx]+)", window)
    return [int(n) for n in match[1].split("x")] if match else [default] * count


def _sizes(window: str, count: int) -> list[int]:
    return _field(window, "size", count, 1)
