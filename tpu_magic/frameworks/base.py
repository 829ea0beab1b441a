"""The one seam between the product and the frameworks.

Everything above this file (cell engine, timing, reports) knows devices, steps, waiting and
counters; only an adapter knows how its framework spells them. A new backend is one module
with an `Adapter` and one line in `frameworks/__init__.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, runtime_checkable

from tpu_magic.options import RunOptions

Namespace = MutableMapping[str, Any]
# A matrix in plain numbers, row by row.
Rows = list[list[float]]


@dataclass(frozen=True)
class Availability:
    """Whether a framework can be used here, and if not, why and what to do about it."""

    usable: bool
    reason: str = ""
    cure: str = ""

    def sentence(self) -> str:
        """Return the reason and the cure as one line."""
        return f"{self.reason}: {self.cure}" if self.cure else self.reason


@dataclass(frozen=True)
class DeviceInfo:
    """The devices that an adapter runs on.

    Attributes
    ----------
    kind
        What the device is, as a person says it: `TPU v5e`, `XLA CPU`, `CUDA GPU (…)`, `CPU`.
    count
        Devices that cells run on.
    present
        Devices that exist here; more than `count` when the runtime was started without them.
    on_tpu
        Whether the device is a TPU. Everything else says "not a TPU" wherever it is shown.
    simulated
        Whether the devices are virtual ones, made of this machine's processor.
    note
        Why fewer devices are used than are present, or why there is no TPU; may be empty.
    since
        When this process started the runtime, in seconds since 1970; None where it was running
        before tpu_magic looked, or holds nothing.
    """

    kind: str
    count: int
    present: int
    on_tpu: bool
    simulated: bool
    note: str = ""
    since: float | None = None

    def label(self) -> str:
        """Return `TPU v5e × 8` or `XLA CPU × 4 · not a TPU`."""
        some = f"{self.count} of {self.present}" if self.count < self.present else f"{self.count}"
        return f"{self.kind} × {some}" + ("" if self.on_tpu else " · not a TPU")


@dataclass(frozen=True)
class Counters:
    """What a runtime counted since it started; the difference of two is a cell's or a call's cost.

    Times are in seconds, sizes in bytes. A runtime that does not count something leaves `None`.

    Attributes
    ----------
    compiles, compile_s
        Programs compiled, and the host's time in the compiler.
    executions
        Programs sent to the device.
    host_reads
        Times that values were read back to the host.
    bytes_to_device, bytes_from_device
        Traffic between host and device.
    wait_s
        Host time blocked on the device: reads of values and back-pressure.
    trace_s
        Host time in recording operations, where the runtime counts it.
    fallbacks
        Operations that ran on the host for want of a device kernel, by name.
    """

    compiles: int | None = None
    compile_s: float | None = None
    executions: int | None = None
    host_reads: int | None = None
    bytes_to_device: int | None = None
    bytes_from_device: int | None = None
    wait_s: float | None = None
    trace_s: float | None = None
    fallbacks: Mapping[str, int] = field(default_factory=dict)

    def since(self, before: Counters) -> Counters:
        """Return what was counted after `before`."""
        changed: dict[str, Any] = {}
        for item in fields(self):
            now, then = getattr(self, item.name), getattr(before, item.name)
            if item.name == "fallbacks":
                grown = {name: count - then.get(name, 0) for name, count in now.items()}
                changed[item.name] = {name: count for name, count in grown.items() if count}
            else:
                changed[item.name] = None if now is None or then is None else now - then
        return Counters(**changed)


@dataclass(frozen=True)
class Memory:
    """Memory of one device in bytes; `None` for what the runtime does not tell."""

    used_bytes: int | None = None
    peak_bytes: int | None = None
    limit_bytes: int | None = None


@dataclass(frozen=True)
class Compile:
    """A program that was compiled while a cell ran.

    Attributes
    ----------
    line
        The line of the cell (or of the person's function) that made it be compiled.
    shapes
        Shapes of the batch or the operands at hand, as text: `(64, 1, 8, 8)`.
    step
        How many steps had ended by then; None where that was not followed.
    """

    line: int | None
    shapes: str
    step: int | None = None


@dataclass
class CellFacts:
    """What an adapter saw while a cell ran; the report is made from it.

    Attributes
    ----------
    reached_device
        Whether anything in the cell was computed on the device.
    unreached_reason
        When nothing was: why, in words.
    moved
        What was moved to the device, as a person would name it: `net (8 parameters)`.
    not_followed
        What could not be moved or kept linked, each with its reason.
    steps, examples
        Training steps (or batches, where nothing trains) and the rows in them; kept up to
        date while the cell runs, since the live line reads them.
    global_batch
        Rows in a batch over all devices, the commonest of the cell.
    input_wait_s
        Host time in the input pipeline (data loading, collation).
    input_unseen
        Whether batches were fetched inside of programs, where nobody could time that.
    device_wait_s
        Host time in the final wait for the device.
    trace_s
        Host time recording the work.
    execute_s
        Time the device was busy.
    compiled
        Programs compiled in this cell, in order.
    read_lines
        Lines of the cell that read values back from the device, and how often each did.
    float64
        Names of float64 objects that were put on the device, as a person would name them.
    products
        Names and shapes of the weights that take part in matrix products.
    unended_calls
        Model calls in the largest program that nothing ended before the cell did.
    notes
        Sentences that the report shows as they are.
    """

    reached_device: bool = False
    unreached_reason: str = ""
    moved: list[str] = field(default_factory=list)
    not_followed: list[str] = field(default_factory=list)
    steps: int | None = None
    examples: int | None = None
    global_batch: int | None = None
    input_wait_s: float = 0.0
    input_unseen: bool = False
    device_wait_s: float = 0.0
    trace_s: float | None = None
    execute_s: float | None = None
    compiled: list[Compile] = field(default_factory=list)
    read_lines: dict[int, int] = field(default_factory=dict)
    float64: list[str] = field(default_factory=list)
    products: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    unended_calls: int = 0
    precision: str = "default"
    notes: list[str] = field(default_factory=list)


@runtime_checkable
class CellSession(Protocol):
    """A cell that is running on the device."""

    facts: CellFacts

    def finish(self) -> None:
        """Compute what is pending and wait until the device is done; errors are the cell's."""
        ...


@runtime_checkable
class Adapter(Protocol):
    """A framework on its device. What only some adapters can do is in `abilities`."""

    name: str

    def availability(self) -> Availability:
        """Say whether the framework can be used in this process, importing nothing."""
        ...

    def connect(
        self, *, simulate: int | None = None, require_tpu: bool = False, devices: str = "all"
    ) -> DeviceInfo:
        """Start the runtime if it is not running, and return its devices. Idempotent.

        Raises
        ------
        IPython.core.error.UsageError
            When it cannot be started, or there is no TPU and one is required.
        """
        ...

    def connected(self) -> bool:
        """Say whether the runtime has been started by us or by anyone in this process."""
        ...

    def devices(self) -> DeviceInfo:
        """Return the devices of the running runtime."""
        ...

    def cell(
        self, options: RunOptions, namespace: Namespace
    ) -> AbstractContextManager[CellSession]:
        """Return the context in which a cell runs on the device.

        On leaving it everything that must not stay changed is as it was: patches, hooks,
        modes, default device, RNG state, environment.
        """
        ...

    def materialize(self, outputs: Any) -> None:
        """Make the device really compute every array in `outputs` (any nesting), and end the step.

        Dispatches; does not wait. With no array in `outputs`, ends the step with whatever
        the runtime has pending, so that state changed in place is computed.
        """
        ...

    def wait(self) -> None:
        """Block until the device has finished everything that was dispatched."""
        ...

    def counters(self) -> Counters:
        """Return a snapshot of what the runtime counted."""
        ...

    def memory(self) -> list[Memory]:
        """Return the memory of each device; an empty list where the runtime does not tell."""
        ...

    def arrays(self, value: Any) -> Iterator[Any]:
        """Yield every array of this framework in `value`, whatever the nesting."""
        ...

    def on_device(self, array: Any) -> bool:
        """Say whether an array of this framework lives on the adapter's device."""
        ...

    def to_device(self, array: Any) -> Any:
        """Return a copy of a host array on the device (the array itself when it is there)."""
        ...

    def square(self, rows: Rows) -> Rows:
        """Return the product of a matrix with itself, computed on the device in float32."""
        ...

    def versions(self) -> dict[str, str]:
        """Return the versions of the packages that decide what runs."""
        ...

    def matmul_precision(self) -> str:
        """Return the precision in force for float32 matrix products."""
        ...

    def explain(self, error: BaseException, namespace: Namespace) -> str | None:
        """Return one line of help for an error that the device or a moved object caused."""
        ...
