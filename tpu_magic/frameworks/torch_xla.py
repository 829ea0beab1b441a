"""torch on XLA: TPUs through PyTorch/XLA, and XLA's own CPU devices where there is no TPU."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tpu_magic.frameworks import NOT_YET
from tpu_magic.frameworks.base import (
    Availability,
    CellSession,
    Counters,
    DeviceInfo,
    Memory,
    Namespace,
    Rows,
)
from tpu_magic.frameworks.environ import environment
from tpu_magic.frameworks.starting import StartsOnce
from tpu_magic.frameworks.threads import enough_threads, few_threads
from tpu_magic.host import detect
from tpu_magic.options import RunOptions

if TYPE_CHECKING:
    from tpu_magic.frameworks.torch_place import Placement

_INSTALL = (
    "%pip install torch==2.9.0 torch_xla==2.9.0 (on a TPU, %tpu_setup --framework torch "
    "also picks the libtpu that fits)"
)
# Fallback counters are named after the operation; this one is a read of a value.
_NO_FALLBACK = frozenset({"aten::_local_scalar_dense"})


class TorchXla(StartsOnce):
    """The adapter for torch on XLA devices. `frameworks.base.Adapter`."""

    name = "torch"
    label = "torch"
    packages = ("torch", "torch_xla", "libtpu")

    def __init__(self) -> None:
        super().__init__()
        self._placement: Placement | None = None
        self._started_in: int | None = None

    # --- here or not ----------------------------------------------------------------------

    def availability(self) -> Availability:
        """Say whether torch_xla can be used in this process."""
        if self._info is not None or "torch_xla" in sys.modules:
            return Availability(usable=True)
        if find_spec("torch_tpu") is not None and find_spec("torch_xla") is None:
            return Availability(False, *NOT_YET["torch-tpu"])
        for package in ("torch", "torch_xla"):
            if find_spec(package) is None:
                return Availability(False, f"{package} is not installed here", _INSTALL)
        if "tensorflow" in sys.modules:
            return Availability(
                False,
                "tensorflow is loaded in this kernel, and importing torch_xla after it would "
                "kill the kernel with all its variables",
                "restart the kernel and use torch first, or use a notebook of its own for it",
            )
        installed = {name: metadata.version(name).split("+")[0] for name in ("torch", "torch_xla")}
        minors = {version.rsplit(".", 1)[0] for version in installed.values()}
        if len(minors) > 1:
            return Availability(
                False,
                f"torch {installed['torch']} and torch_xla {installed['torch_xla']} are "
                "different releases",
                f"%pip install torch=={installed['torch_xla'].rsplit('.', 1)[0]}.*",
            )
        return Availability(usable=True)

    def _runtime_started(self) -> bool:
        extension = sys.modules.get("_XLAC")
        return extension is not None and bool(
            extension._xla_runtime_is_initialized()  # noqa: SLF001
        )

    def _start(self, facts: detect.HostFacts, simulate: int | None, devices: str) -> None:
        """Import torch_xla, start its runtime, and span all devices when there are several."""
        started_before_us = self._runtime_started()
        wanted = {}
        # XLA reads it at each message; torch_xla itself would set 1, which warns at each compile.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        if not facts.chips:
            os.environ.setdefault("PJRT_DEVICE", "CPU")
            wanted["TPU_SKIP_MDS_QUERY"] = os.environ.get("TPU_SKIP_MDS_QUERY", "1")
            if simulate:
                wanted["CPU_NUM_DEVICES"] = str(simulate)
            wanted |= enough_threads(simulate or _virtual_devices())
        with environment(wanted):
            runtime, torch_xla = _import_quietly()
            # It must be known before the runtime starts: SPMD cannot be switched on later,
            # and costs with one device.
            expected = facts.devices if facts.chips else _virtual_devices()
            if devices == "all" and expected > 1 and not started_before_us:
                runtime.use_spmd()
            device = torch_xla.device()
            # Asking for their number is what really starts the devices under SPMD.
            everywhere = runtime.global_runtime_device_count()
        from tpu_magic.frameworks.torch_fork import guard_children
        from tpu_magic.frameworks.torch_place import Placement

        guard_children()
        count = everywhere if runtime.is_spmd() else 1
        self._placement = Placement(device, _mesh(count) if count > 1 else None)
        on_tpu = runtime.device_type() == "TPU"
        kind = facts.accelerator if on_tpu and facts.accelerator else f"XLA {runtime.device_type()}"
        note = "" if on_tpu or not started_before_us else few_threads(count)
        if count < everywhere and devices == "all":
            note = (
                f"{count} of {everywhere} devices: the runtime was started {self._origin()}; "
                "restart the kernel and let %tpu_setup or %%tpu_run start it to use all"
            )
        self._info = DeviceInfo(
            kind=kind,
            count=count,
            present=everywhere,
            on_tpu=on_tpu,
            simulated=not on_tpu and everywhere > 1,
            note=note,
            since=None if started_before_us else time.time(),
        )

    def note_started(self, cell: int | None) -> None:
        """Remember the cell in which the person's own code started the runtime."""
        if self._info is None:
            self._started_in = cell

    def _origin(self) -> str:
        return "before tpu_magic" if self._started_in is None else f"in cell {self._started_in}"

    @property
    def placement(self) -> Placement:
        """Return where tensors go."""
        self.devices()
        assert self._placement is not None  # noqa: S101 - set with the devices
        return self._placement

    # --- running --------------------------------------------------------------------------

    def cell(
        self, options: RunOptions, namespace: Namespace
    ) -> AbstractContextManager[CellSession]:
        """Return the context in which a cell runs on the device."""
        from tpu_magic.frameworks.torch_cell import TorchCell

        return TorchCell(options, namespace, self.placement, self.devices().kind).running()

    def profile(self, folder: str) -> AbstractContextManager[None]:
        """Return the context that writes a profile of a cell into a folder."""
        from tpu_magic.frameworks.torch_profile import profiling

        return profiling(folder)

    def timed(self) -> AbstractContextManager[None]:
        """Return the context in which code is timed: nothing helps it, but backward works.

        The autograd engine counts the devices once, at the first backward of the process; if
        that came before the XLA device, only its calling thread knows the device.
        """
        import torch

        context: AbstractContextManager[None] = torch.autograd.set_multithreading_enabled(False)
        return context

    def materialize(self, outputs: Any) -> None:  # one program holds all that lives
        """Hand everything that is pending and alive to the device as one program."""
        import torch_xla

        torch_xla.sync()

    def wait(self) -> None:
        """Block until the device is done. `torch_xla.sync(wait=True)` does not do that."""
        from torch_xla.core import xla_model

        xla_model.wait_device_ops()

    def counters(self) -> Counters:
        """Return what the runtime counted since it started."""
        from torch_xla.debug import metrics

        def data(name: str) -> tuple[int, float]:
            found = metrics.metric_data(name)
            return (0, 0.0) if found is None else (found[0], found[1])

        compiles, compile_ns = data("CompileTime")
        reads, read_ns = data("TransferFromDeviceTime")
        _, lock_ns = data("DeviceLockWait")
        executions = data("ExecuteTime")[0] + data("ExecuteReplicatedTime")[0]
        return Counters(
            compiles=compiles,
            compile_s=compile_ns / 1e9,
            executions=executions,
            host_reads=reads,
            bytes_to_device=int(data("OutboundData")[1]),
            bytes_from_device=int(data("InboundData")[1]),
            wait_s=(read_ns + lock_ns) / 1e9,
            trace_s=data("LazyTracing")[1] / 1e9,
            fallbacks={
                name: metrics.counter_value(name)
                for name in metrics.counter_names()
                if name.startswith("aten::") and name not in _NO_FALLBACK
            },
        )

    def compiling(self) -> bool:
        """Say whether a program is being compiled now. For who watches from another thread."""
        from torch_xla.debug import metrics

        ended = metrics.metric_data("CompileTime")
        return int(metrics.counter_value("UncachedCompile") or 0) > (ended[0] if ended else 0)

    def memory(self) -> list[Memory]:
        """Return the memory of each device; nothing where the runtime does not tell (CPU)."""
        from torch_xla.core import xla_model

        try:
            info = xla_model.get_memory_info(self.placement.device)
        except RuntimeError:
            return []
        return [Memory(info["bytes_used"], info.get("peak_bytes_used"), info["bytes_limit"])]

    # --- arrays ---------------------------------------------------------------------------

    def arrays(self, value: Any) -> Iterator[Any]:
        """Yield every tensor in `value`, also in modules and optimizers."""
        import torch

        from tpu_magic.frameworks import torch_move

        if isinstance(value, torch.nn.Module):
            yield from (*value.parameters(), *value.buffers())
        elif isinstance(value, torch.optim.Optimizer):
            yield from torch_move.tensors_in([group["params"] for group in value.param_groups])
            yield from torch_move.tensors_in(dict(value.state))
        else:
            yield from torch_move.tensors_in(value)

    def on_device(self, array: Any) -> bool:
        """Say whether a tensor is on the XLA device."""
        return bool(self.placement.is_there(array))

    def to_device(self, array: Any) -> Any:
        """Return the tensor on the device."""
        return array if self.on_device(array) else self.placement.split(array)

    def revision(self, array: Any) -> int:
        """Return how often a tensor was written to in place."""
        return int(array._version)  # noqa: SLF001 - torch has no public name for it

    def read(self, array: Any) -> None:
        """Bring a tensor's values to the host, which cannot end before they are computed."""
        array.cpu()

    def inspect(self, call: Callable[[], Any]) -> tuple[int | None, str | None]:
        """Make a call; return its floating-point operations, and a hash of its program."""
        import torch_xla

        from tpu_magic.frameworks.torch_eager import count_flops

        flops, outputs = count_flops(call)
        pending = [tensor for tensor in self.arrays(outputs) if self.on_device(tensor)]
        if not pending:
            return flops, None
        graph_hash: bytes = torch_xla._XLAC._get_graph_hash(pending)  # noqa: SLF001 - no public one
        return flops, graph_hash.hex()

    def rng_state(self) -> Any:
        """Return the state of the device's random number generator."""
        from torch_xla.core import xla_model

        return xla_model.get_rng_state() if self.connected() else None

    def set_rng_state(self, state: Any) -> None:
        """Put that state back."""
        from torch_xla.core import xla_model

        if state is not None:
            xla_model.set_rng_state(state)

    def square(self, rows: Rows) -> Rows:
        """Return the product of a matrix with itself, computed on every device."""
        import torch

        matrix = self.to_device(torch.tensor(rows, dtype=torch.float32, device="cpu"))
        product: Rows = (matrix @ matrix).cpu().tolist()
        return product

    def matmul_precision(self) -> str:
        """Return the precision of float32 matrix products."""
        from torch_xla import backends

        return str(backends.get_mat_mul_precision())

    def explain(self, error: BaseException, namespace: Namespace) -> str | None:
        """Return one line of help for an error that the device or a moved object caused."""
        from tpu_magic.frameworks import torch_errors

        return torch_errors.explain(error, namespace)


def _import_quietly() -> tuple[Any, Any]:
    """Import torch_xla; what it does to the root logger and to torch itself is undone."""
    handlers = list(logging.root.handlers)
    torch_xla = importlib.import_module("torch_xla")
    runtime = importlib.import_module("torch_xla.runtime")
    logging.root.handlers[:] = handlers
    _restore_torch()
    return runtime, torch_xla


def _restore_torch() -> None:
    """Put back what importing torch_xla replaces in torch for the whole process.

    Its `nn.GRU` fails on the host and ignores `batch_first`; its `clip_grad_norm_` refuses
    `foreach=True`. torch's own work on the device.
    """
    from torch import nn

    for owner, name in ((nn, "GRU"), (nn.utils, "clip_grad_norm_")):
        original = getattr(getattr(owner, name), "_orig", None)
        if original is not None:
            setattr(owner, name, original)


def _virtual_devices() -> int:
    """Return how many CPU devices the runtime will make, by its own variable."""
    given = os.environ.get("CPU_NUM_DEVICES", "1")
    return int(given) if given.isdigit() else 1


def _mesh(count: int) -> Any:
    import numpy as np
    from torch_xla.distributed import spmd

    return spmd.Mesh(np.arange(count), (count,), ("data",))
