"""The runtime's own switches and clocks: waiting for it, its precision, its metrics."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch_xla
from torch_xla import backends, runtime
from torch_xla.core import xla_model
from torch_xla.debug import metrics


def wait_interruptibly() -> None:
    """Wait for the device in a thread, so that an interrupt is not held up by it."""
    waiter = threading.Thread(target=xla_model.wait_device_ops, daemon=True)
    waiter.start()
    while waiter.is_alive():
        waiter.join(0.2)


def wait_for_turn() -> None:
    """Wait, on virtual devices, until what was handed to them before is done.

    XLA's CPU devices share a few threads. Three programs or more in flight that exchange data
    can each hold some of them and wait for the rest, and XLA then aborts the process (seen in
    a loop written by hand, on two cores; never with two programs in flight).
    """
    if _takes_turns():
        xla_model.wait_device_ops()


@functools.cache
def _takes_turns() -> bool:
    # Neither can change in a process once the devices are there.
    return bool(runtime.is_spmd()) and runtime.device_type() == "CPU"


@contextmanager
def precision(name: str) -> Iterator[None]:
    """Set the precision of float32 matrix products for the cell, and put it back."""
    if name == "bf16":
        with torch.autocast("xla", dtype=torch.bfloat16):
            yield
        return
    # The public setter logs a warning at each call.
    before, put = backends.get_mat_mul_precision(), torch_xla._XLAC._xla_set_mat_mul_precision  # noqa: SLF001
    put(name)
    try:
        yield
    finally:
        put(before)


def seconds_in(*names: str) -> float:
    """Return the host's total time in metrics of the runtime, in seconds."""
    found = (metrics.metric_data(name) for name in names)
    return float(sum(data[1] for data in found if data is not None)) / 1e9
