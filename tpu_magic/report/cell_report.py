"""What a cell cost on the device: `CellReport`, made from counters and an adapter's facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tpu_magic.frameworks.base import CellFacts, Counters, DeviceInfo, Memory
from tpu_magic.report import render
from tpu_magic.report.advice import Advice, Evidence, advise
from tpu_magic.report.repeats import Repeat, describe
from tpu_magic.report.result import Result

SHOWN_ADVICE = 3


@dataclass(frozen=True)
class CellReport(Result):
    """What a cell did on the device. Times in seconds, sizes in bytes; None: not measured.

    Attributes
    ----------
    wall_s
        Host wall time of the cell, cut once:
        ``wall = trace + compile + input_wait + device_wait + other``.
    trace_s
        Host time recording the work: forward, backward, optimizer, handing programs over.
    compile_s
        Host time in the compiler.
    input_wait_s
        Host time in the input pipeline.
    device_wait_s
        Host time blocked on the device: final wait, reads of values, back-pressure.
    other_s
        The rest: the person's own Python, and the connecting (`connect_s`) in a first cell.
    execute_s
        Time the device was busy; overlaps the others and stands apart.
    global_batch
        Rows in a batch over all devices.
    repeats
        Each run of a cell that `--repeat` repeated; the other figures are of all together.
    """

    kind: ClassVar[str] = "cell-report"

    framework: str
    device_kind: str
    on_tpu: bool
    simulated: bool
    num_devices: int
    global_batch: int | None
    precision: str
    wall_s: float
    trace_s: float | None
    compile_s: float | None
    input_wait_s: float | None
    device_wait_s: float | None
    other_s: float
    compiles: int | None
    execute_s: float | None
    host_reads: int | None
    bytes_to_device: int | None
    bytes_from_device: int | None
    fallbacks: dict[str, int]
    steps: int | None
    examples: int | None
    examples_per_s: float | None
    peak_memory_bytes: int | None
    moved: list[str] = field(default_factory=list)
    advice: list[Advice] = field(default_factory=list)
    reached_device: bool = True
    unreached_reason: str = ""
    not_followed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    connect_s: float = 0.0
    device_note: str = ""
    repeats: list[Repeat] = field(default_factory=list)

    def view(self) -> render.View:
        """Return what is shown after the cell."""
        lines = [self._wall_line(), self._work_line()]
        if self.repeats:
            lines.append(describe(self.repeats))
        if self.moved:
            lines.append("moved to the device: " + ", ".join(self.moved))
        if self.device_note:
            lines.append(self.device_note)
        shown = self.advice[:SHOWN_ADVICE]
        notes = [
            *(f"not followed: {item}" for item in self.not_followed),
            *self.notes,
            *(item.message + (f" (line {item.line})" if item.line else "") for item in shown),
        ]
        if len(self.advice) > len(shown):
            notes.append(f"{len(self.advice) - len(shown)} more in the report's `advice`")
        return render.View(
            self._headline(), tuple(line for line in lines if line), notes=tuple(notes)
        )

    def _headline(self) -> str:
        if not self.reached_device:
            return f"nothing in this cell ran on the device: {self.unreached_reason}"
        parts = [self.framework, self._device(), self._batch(), f"precision {self.precision}"]
        return " · ".join(part for part in parts if part)

    def _device(self) -> str:
        info = DeviceInfo(
            self.device_kind, self.num_devices, self.num_devices, self.on_tpu, self.simulated
        )
        return info.label()

    def _batch(self) -> str:
        if self.global_batch is None:
            return ""
        if self.num_devices == 1:
            return f"batch {self.global_batch}"
        each, rest = divmod(self.global_batch, self.num_devices)
        share = f"{self.num_devices} × {each}" + (f" + {rest}" if rest else "")
        return f"global {self.global_batch} = {share}"

    def _wall_line(self) -> str:
        parts = (
            ("trace", self.trace_s),
            ("compile", self.compile_s),
            ("input wait", self.input_wait_s),
            ("device wait", self.device_wait_s),
            ("other", self.other_s),
        )
        cut = " + ".join(f"{name} {render.seconds(value)}" for name, value in parts if value)
        connecting = f" (connecting {render.seconds(self.connect_s)})" if self.connect_s > 1 else ""
        return f"wall {render.seconds(self.wall_s)} = {cut}{connecting}"

    def _work_line(self) -> str:
        parts = []
        if self.steps:
            parts.append(render.count(self.steps, "step"))
        if self.examples_per_s is not None:
            parts.append(f"{render.rate(self.examples_per_s).replace('/s', ' examples/s')}")
        if self.compiles is not None:
            parts.append(render.count(self.compiles, "compile"))
        if self.host_reads:
            parts.append(render.count(self.host_reads, "host read"))
        if self.bytes_to_device:
            parts.append(f"{render.size(self.bytes_to_device)} to the device")
        if self.peak_memory_bytes is not None:
            parts.append(f"peak {render.size(self.peak_memory_bytes)} a device")
        return " · ".join(parts)


def assemble(
    *,
    device: DeviceInfo,
    framework: str,
    facts: CellFacts,
    counters: Counters,
    memory: Sequence[Memory],
    wall_s: float,
    connect_s: float,
) -> CellReport:
    """Make the report of a cell from what was counted and what the adapter saw."""
    parts = _cut(wall_s, facts, counters)
    peaks = [item.peak_bytes for item in memory if item.peak_bytes is not None]
    working_s = wall_s - connect_s
    return CellReport(
        framework=framework,
        device_kind=device.kind,
        on_tpu=device.on_tpu,
        simulated=device.simulated,
        num_devices=device.count,
        global_batch=facts.global_batch,
        precision=facts.precision,
        wall_s=wall_s,
        **parts,
        compiles=counters.compiles,
        execute_s=facts.execute_s,
        host_reads=counters.host_reads,
        bytes_to_device=counters.bytes_to_device,
        bytes_from_device=counters.bytes_from_device,
        fallbacks=dict(counters.fallbacks),
        steps=facts.steps,
        examples=facts.examples,
        examples_per_s=facts.examples / working_s if facts.examples and working_s > 0 else None,
        peak_memory_bytes=max(peaks) if peaks else None,
        moved=list(facts.moved),
        advice=advise(Evidence(facts, counters, device, tuple(memory), working_s)),
        reached_device=facts.reached_device,
        unreached_reason=facts.unreached_reason,
        not_followed=list(facts.not_followed),
        notes=list(facts.notes),
        connect_s=connect_s,
        device_note=device.note,
    )


def _cut(wall_s: float, facts: CellFacts, counters: Counters) -> dict[str, Any]:
    """Cut the wall time into its parts; `other_s` is what the measured parts leave.

    The parts are measured by clocks and counters of different places, so that their sum can
    pass the wall time by rounding; then they are scaled to it, and `other_s` is 0.
    """
    waits = [facts.device_wait_s, counters.wait_s]
    parts: dict[str, float | None] = {
        "trace_s": facts.trace_s,
        "compile_s": counters.compile_s,
        "input_wait_s": None if facts.input_unseen else facts.input_wait_s,
        "device_wait_s": sum(wait for wait in waits if wait is not None),
    }
    total = sum(value for value in parts.values() if value is not None)
    if total > wall_s > 0:
        parts = {
            name: None if value is None else value * wall_s / total for name, value in parts.items()
        }
        total = wall_s
    return {**parts, "other_s": wall_s - total}
