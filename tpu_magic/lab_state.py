"""What JupyterLab is told of a kernel: plain JSON types, made from samples and reports."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from tpu_magic.frameworks.abilities import TellsCompiling

if TYPE_CHECKING:
    from tpu_magic.cell.meter import Meter
    from tpu_magic.frameworks.base import Adapter
    from tpu_magic.report.cell_report import CellReport

# A rate is taken over the last seconds, so that it follows a loop that becomes slower.
WINDOW_S = 5.0
_WAITING_SHARE = 0.5
_RECENT_FIELDS = (
    "framework",
    "device_kind",
    "on_tpu",
    "simulated",
    "num_devices",
    "wall_s",
    "trace_s",
    "compile_s",
    "input_wait_s",
    "device_wait_s",
    "other_s",
    "steps",
    "examples_per_s",
    "compiles",
    "peak_memory_bytes",
    "reached_device",
    "unreached_reason",
)


@dataclass(frozen=True)
class Sample:
    """What a running cell had done at a time (seconds of one clock)."""

    at: float
    steps: int
    examples: int
    input_wait_s: float
    compiles: int | None
    compiling: bool | None


@dataclass
class Pace:
    """The last samples of a cell, and what they say about how it is going."""

    samples: deque[Sample] = field(default_factory=deque)

    def add(self, sample: Sample) -> None:
        """Take a sample; those older than the window are dropped, but for one."""
        self.samples.append(sample)
        while len(self.samples) > 2 and sample.at - self.samples[1].at >= WINDOW_S:  # noqa: PLR2004
            self.samples.popleft()

    def phase(self) -> str:
        """Return what the cell is doing: `starting`, `compiling`, `input` or `running`.

        `compiling` is said while the runtime reports it; where it cannot, while the number of
        programs grows and no step ends. `input`: half of the window went into the input
        pipeline, or more.
        """
        if not self.samples:
            return "starting"
        first, last = self.samples[0], self.samples[-1]
        window = last.at - first.at
        stepped = last.steps > first.steps
        grown = (last.compiles or 0) > (first.compiles or 0)
        if last.compiling or (last.compiling is None and grown and not stepped):
            return "compiling"
        if window > 0 and last.input_wait_s - first.input_wait_s >= _WAITING_SHARE * window:
            return "input"
        return "running"

    def per_second(self, name: str) -> float | None:
        """Return how fast `steps` or `examples` grow; None before there are two samples."""
        if len(self.samples) < 2:  # noqa: PLR2004 - a rate is between two
            return None
        first, last = self.samples[0], self.samples[-1]
        grown = getattr(last, name) - getattr(first, name)
        return grown / (last.at - first.at) if last.at > first.at else None

    def still_s(self) -> float | None:
        """Return for how long at least no step has ended; None where there are no steps."""
        if not self.samples or not self.samples[-1].steps:
            return None
        last = self.samples[-1]
        same = [sample.at for sample in self.samples if sample.steps == last.steps]
        return last.at - same[0]


def sample(meter: Meter) -> Sample:
    """Return what a cell has done by now. Called from a thread while the cell runs."""
    facts = meter.facts
    adapter = meter.adapter
    return Sample(
        at=meter.clock(),
        steps=facts.steps or 0,
        examples=facts.examples or 0,
        input_wait_s=facts.input_wait_s,
        compiles=meter.compiles(),
        compiling=adapter.compiling() if isinstance(adapter, TellsCompiling) else None,
    )


def device(adapter: Adapter) -> dict[str, Any]:
    """Return an adapter's devices and their memory. Sizes in bytes; None: not told."""
    info = adapter.devices()
    return {
        **asdict(info),
        "framework": adapter.name,
        "label": info.label(),
        "memory": [asdict(item) for item in adapter.memory()],
    }


def running(pace: Pace, elapsed_s: float, cell_id: str | None, magic: str) -> dict[str, Any]:
    """Return a cell that is running."""
    last = pace.samples[-1] if pace.samples else None
    return {
        "id": cell_id,
        "magic": magic,
        "elapsed_s": elapsed_s,
        "phase": pace.phase(),
        "steps": last.steps if last else 0,
        "steps_per_s": pace.per_second("steps"),
        "examples_per_s": pace.per_second("examples"),
        "compiles": last.compiles if last else None,
        "still_s": pace.still_s(),
    }


def finished(report: CellReport, cell_id: str | None, count: int | None, *, ok: bool) -> Any:
    """Return a cell that has ended: its figures as in the report, and its advice."""
    return {
        "id": cell_id,
        "count": count,
        "ok": ok,
        **{name: getattr(report, name) for name in _RECENT_FIELDS},
        "advice": [asdict(item) for item in report.advice],
    }
