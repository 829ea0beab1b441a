"""The runtime's own switches and clocks: waiting for it, its precision, its metrics."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch_xla
from torch_xla import backends
from torch_xla.core import xla_model
from torch_xla.debug import metrics


def wait_interruptibly() -> None:
    """Wait for the device in a thread, so that an interrupt is not held up by it."""
    waiter = threading.Thread(target=xla_model.wait_device_ops, daemon=True)
    waiter.start()
    while waiter.is_alive():
        waiter.join(0.2)


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
