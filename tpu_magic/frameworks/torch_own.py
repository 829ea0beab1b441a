"""Code that was already written for TPUs: it ends its own steps, feeds itself, and launches.

In a cell, one process drives every device. So what torch_xla does with a process for each
device, and with threads that upload batches, is done here as for code that knows no TPU.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch_xla
from torch_xla._internal import tpu
from torch_xla.distributed import parallel_loader, xla_multiprocessing

from tpu_magic.frameworks.torch_feed import DeviceBatches

_LAUNCHED = (
    "{name} called its function once, in this process, which drives {devices}: a batch is one "
    "over all of them (for a process each: %tpu_setup --no-connect in a fresh kernel)"
)


def _step_marker(cell: Any, original: Any, _: Any, thread: int) -> Any:
    def _xla_step_marker(*args: Any, **kwargs: Any) -> None:
        if threading.get_ident() != thread:
            original(*args, **kwargs)
            return
        started = time.perf_counter()
        lives_meanwhile = cell.hand_over()
        original(*args, **kwargs)
        del lives_meanwhile
        cell.step_was_ended(time.perf_counter() - started)

    return _xla_step_marker


def _parallel_loader(cell: Any, original: Any, _: Any, thread: int) -> Any:
    """Feed batches as those of a DataLoader are fed, split over the devices, by no thread.

    In torch_xla's threads a dataset's error ends the loop without a word, and random numbers
    are drawn while the model draws its own.
    """

    class ParallelLoader(original):  # type: ignore[misc]
        def __init__(self, cpu_loader: Any, devices: Any, *args: Any, **kwargs: Any) -> None:
            # With several devices or shardings, the person says where each batch goes.
            self._is_ours = (
                threading.get_ident() == thread
                and len(devices) == 1
                and kwargs.get("input_sharding") is None
            )
            if self._is_ours:
                self._cpu_loader, self._devices = cpu_loader, devices
            else:
                super().__init__(cpu_loader, devices, *args, **kwargs)

        def per_device_loader(self, device: Any) -> Iterator[Any]:
            if not self._is_ours:
                loader: Iterator[Any] = super().per_device_loader(device)
                return loader
            batches = iter(self._cpu_loader)
            if isinstance(batches, DeviceBatches):
                return batches
            return DeviceBatches(self._cpu_loader, batches, cell)

        def close(self) -> None:
            if not self._is_ours:
                super().close()

    return ParallelLoader


def _launch(name: str, nprocs: int | None) -> Callable[..., Any]:
    """Make a patch for a function that starts processes.

    Parameters
    ----------
    nprocs
        Where the number of processes stands among its arguments; None when it takes none.
    """

    def make(cell: Any, original: Any, _: Any, thread: int) -> Any:
        def launch(fn: Callable[..., Any], args: Any = (), *more: Any, **named: Any) -> Any:
            __tracebackhide__ = True
            given = named.get("nprocs")
            if nprocs is not None and len(more) > nprocs:
                given = more[nprocs]
            if threading.get_ident() != thread or given not in (None, 1):
                return original(fn, args, *more, **named)
            mesh = cell.placement.mesh
            devices = "the device" if mesh is None else f"all {mesh.size()} devices"
            cell.say_once(_LAUNCHED.format(name=name, devices=devices))
            fn(0, *args)
            return None

        return launch

    return make


def _chips(_: Any, original: Any, __: Any, thread: int) -> Any:
    """Show Lightning no chips, so that it does not launch a process for each.

    It takes its loop for one processor then, which the cell brings to all devices.
    """

    def num_available_devices() -> int:
        devices: int = 0 if threading.get_ident() == thread else original()
        return devices

    return num_available_devices


def ask_again() -> None:
    """Make Lightning forget what it knows of chips: it asks once in a process."""
    for name in ("lightning.fabric", "lightning_fabric"):
        module = sys.modules.get(f"{name}.accelerators.xla")
        if module is not None:
            module.XLAAccelerator.auto_device_count.cache_clear()
            module.XLAAccelerator.is_available.cache_clear()


# where, which attribute, what makes its replacement
TABLE: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
    (torch_xla._XLAC, "_xla_step_marker", _step_marker),  # noqa: SLF001 - every end passes it
    (parallel_loader, "ParallelLoader", _parallel_loader),
    (tpu, "num_available_devices", _chips),
    (torch_xla, "launch", _launch("torch_xla.launch", None)),
    (xla_multiprocessing, "spawn", _launch("xmp.spawn", 0)),
)
