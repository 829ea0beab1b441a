"""How the runs of a repeated cell differ, and which part of the wall time makes it so."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields

from tpu_magic.report import render


@dataclass(frozen=True)
class Repeat:
    """One run of a cell that was repeated: its wall time and the parts of it, in seconds."""

    wall_s: float
    trace_s: float | None
    compile_s: float | None
    input_wait_s: float | None
    device_wait_s: float | None
    other_s: float


def describe(repeats: Sequence[Repeat]) -> str:
    """Return one line: the median, the spread, and the part that varied most.

    >>> runs = [Repeat(w, 0.0, 0.0, 0.0, w - 0.1, 0.1) for w in (0.2, 0.3, 0.5)]
    >>> describe(runs)
    '3 runs: median 300 ms, 200 ms to 500 ms; device wait varied most (100 ms to 400 ms)'
    """
    walls = [run.wall_s for run in repeats]
    ranges = {
        item.name: (min(values), max(values))
        for item in fields(Repeat)
        if item.name != "wall_s" and (values := _measured(repeats, item.name))
    }
    name, (low, high) = max(ranges.items(), key=lambda found: found[1][1] - found[1][0])
    part = name.removesuffix("_s").replace("_", " ")
    return (
        f"{len(repeats)} runs: median {render.seconds(statistics.median(walls))}, "
        f"{render.seconds(min(walls))} to {render.seconds(max(walls))}; "
        f"{part} varied most ({render.seconds(low)} to {render.seconds(high)})"
    )


def _measured(repeats: Sequence[Repeat], name: str) -> list[float]:
    values = [getattr(run, name) for run in repeats]
    return [value for value in values if value is not None]
