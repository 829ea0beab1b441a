"""Batches on their way from a DataLoader to the device.

The loader's own iterator does the work, in its own order and in this thread: random
numbers, errors (at their batch), `break` and workers are what they are without us. The
device runs asynchronously, so fetching a batch overlaps with the step before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from tpu_magic.frameworks.torch_operands import exchanged_in


class Feeder(Protocol):
    """What batches need of the cell that they are fed to."""

    def batch_begins(self) -> None:
        """End the step of the batch before, when no optimizer did."""
        ...

    def loading(self, loader: DataLoader[Any]) -> Any:
        """Return a context in which a dataset's own code runs as it would without us."""
        ...

    def feed(self, batch: Any, waited_s: float) -> Any:
        """Return the batch on the device, and count it."""
        ...


class DeviceBatches:
    """The iterator of a DataLoader, giving its batches on the device."""

    def __init__(self, loader: DataLoader[Any], batches: Iterator[Any], feeder: Feeder) -> None:
        self._loader, self._batches, self._feeder = loader, batches, feeder

    def __iter__(self) -> DeviceBatches:
        return self

    def __next__(self) -> Any:
        __tracebackhide__ = True
        self._feeder.batch_begins()
        started = time.perf_counter()
        with self._feeder.loading(self._loader):
            batch = next(self._batches)
        return self._feeder.feed(batch, time.perf_counter() - started)

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)


def place_batch(
    batch: Any, place: Callable[[Tensor], Tensor]
) -> tuple[Any, tuple[int, ...] | None]:
    """Return a batch with its tensors placed, and the shape of the first one.

    Understands what `default_collate` makes, and objects that move themselves
    (`batch.to(device)` of graph and text libraries); other objects are left as they are.
    """
    shapes: list[tuple[int, ...]] = []

    def put(tensor: Tensor) -> Tensor:
        if tensor.dim():
            shapes.append(tuple(tensor.shape))
        return place(tensor)

    placed = exchanged_in(put, batch)
    if not shapes and isinstance(getattr(batch, "data", None), dict):
        # A mapping of its own class (the tokenizers' BatchEncoding).
        batch.data = exchanged_in(put, batch.data)
        placed = batch
    return placed, shapes[0] if shapes else None


def device_tensors_of(dataset: Any, is_there: Callable[[Tensor], bool], depth: int = 3) -> bool:
    """Say whether a dataset holds tensors that are on the device."""
    if depth == 0:
        return False
    for value in getattr(dataset, "__dict__", {}).values():
        held = value if isinstance(value, (list, tuple)) and len(value) <= 64 else (value,)  # noqa: PLR2004
        for item in held:
            if isinstance(item, Tensor):
                if is_there(item):
                    return True
            elif isinstance(item, torch.utils.data.Dataset) and device_tensors_of(
                item, is_there, depth - 1
            ):
                return True
    return False
