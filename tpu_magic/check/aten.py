"""The ATen operations of a torch cell, written down so that another torch can do them again.

Tensors are known by their storage, since views, swaps and autograd make tensors that no
dispatch shows. What another process needs is numbers, names and shapes; no value travels.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree

# Keywords that say how a host lays things out.
_OF_THE_HOST = frozenset({"pin_memory", "layout", "memory_format", "non_blocking", "generator"})
Frames = tuple[tuple[str, int], ...]


@dataclass
class _Storage:
    """A storage: who can tell whether it lives, its first tensor's number, and its views'."""

    alive: StorageWeakRef
    base: int
    views: dict[Any, int] = field(default_factory=dict)


class Recorder:
    """Writes operations down, one program after another.

    Parameters
    ----------
    frames
        Returns the person's frames that are running, the innermost first.
    """

    def __init__(self, frames: Callable[[], Frames]) -> None:
        self._frames = frames
        self._storages: dict[int, _Storage] = {}
        self._operations: list[dict[str, Any]] = []
        self._count = 0

    def arrive(self, tensor: Tensor, *, split: bool = False) -> None:
        """Note a device tensor that came from the host; `split` over the devices, or whole."""
        self._add("arrive", [_shape(tensor), split], {}, [self._new(tensor)])

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call an operation on tensors without values, and write it down."""
        frames = self._frames()
        told = [self._plain(item) for item in args]
        named = {
            name: self._plain(value) for name, value in kwargs.items() if name not in _OF_THE_HOST
        }
        result = func(*args, **kwargs)
        outputs = [self._output(item) for item in pytree.tree_leaves(result)]
        self._add(str(func), told, named, outputs, frames)
        return result

    def end(self) -> tuple[str, list[dict[str, Any]], list[int]] | None:
        """End a program: its digest, its operations, and the numbers of what lives on.

        None when nothing of it lives on.
        """
        operations, self._operations = self._operations, []
        for key, item in list(self._storages.items()):
            if item.alive.expired():
                del self._storages[key]
            else:
                # Views are made anew of their whole: the whole is what a step hands on.
                item.views = dict(list(item.views.items())[:1])
        alive = sorted(item.base for item in self._storages.values())
        if not operations:
            return None
        return _digest(operations, set(alive)), operations, alive

    # --- tensors --------------------------------------------------------------------------

    def _new(self, tensor: Tensor) -> int:
        """Give a tensor with a storage of its own a number."""
        self._count += 1
        storage = tensor.untyped_storage()
        made = _Storage(StorageWeakRef(storage), self._count, {_geometry(tensor): self._count})
        # While it is referred to, though weakly, no other storage gets its address.
        self._storages[storage._cdata] = made  # noqa: SLF001
        return self._count

    def _known(self, tensor: Tensor) -> _Storage | None:
        found = self._storages.get(tensor.untyped_storage()._cdata)  # noqa: SLF001
        return None if found is None or found.alive.expired() else found

    def _output(self, value: Any) -> int | None:
        """Return the number of a result; None for what is no new tensor of the device."""
        if not isinstance(value, Tensor) or not value.is_meta:
            return None
        known = self._known(value)
        if known is None:
            return self._new(value)
        geometry = _geometry(value)
        if geometry in known.views:
            return None
        self._count += 1
        known.views[geometry] = self._count
        return self._count

    def _number(self, tensor: Tensor) -> int:
        """Return the number of a tensor of the device; views that nobody saw are made."""
        known = self._known(tensor)
        if known is None:
            self.arrive(tensor)
            known = self._known(tensor)
            assert known is not None  # noqa: S101 - just made
        geometry = _geometry(tensor)
        if geometry not in known.views:
            self._count += 1
            known.views[geometry] = self._count
            sizes = [list(tensor.shape), list(tensor.stride()), tensor.storage_offset()]
            told = [{"tensor": known.base}, *sizes]
            self._add("aten.as_strided.default", told, {}, [self._count])
        return known.views[geometry]

    def _plain(self, value: Any) -> Any:
        """Return an argument as JSON holds it."""
        if isinstance(value, (list, tuple)):
            return [self._plain(item) for item in value]
        if not isinstance(value, Tensor):
            return _scalar(value)
        if value.is_meta:
            return {"tensor": self._number(value)}
        if value.numel() == 1:
            return {"constant": _scalar(value.item()), "like": _shape(value)}
        return {"host": _shape(value)}

    def _add(
        self, name: str, args: Any, kwargs: Any, outputs: Sequence[int | None], frames: Frames = ()
    ) -> None:
        self._operations.append(
            {
                "name": name,
                "args": args,
                "kwargs": kwargs,
                "outputs": list(outputs),
                "frames": list(frames),
            }
        )


def _geometry(tensor: Tensor) -> Any:
    return tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset()


def _shape(tensor: Tensor) -> dict[str, Any]:
    return {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}


def _scalar(value: Any) -> Any:
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": value.type}
    # Layouts and generators are of the host.
    return value if value is None or isinstance(value, (bool, int, float, str)) else None


def _digest(operations: Sequence[dict[str, Any]], alive: set[int]) -> str:
    """Return what two programs share that differ only in numbers that change by the step."""
    numbers: dict[int, Any] = {}

    def renumbered(number: int) -> Any:
        return numbers.setdefault(number, (len(numbers), number in alive))

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: renumbered(item) if key == "tensor" else plain(item)
                for key, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [plain(item) for item in value]
        # A schedule's or a bias correction's number is an input of the program.
        return "number" if isinstance(value, float) and value not in {0.0, 1.0, -1.0} else value

    told = [
        [
            item["name"],
            plain(item["args"]),
            plain(item["kwargs"]),
            [None if number is None else renumbered(number) for number in item["outputs"]],
            item["frames"],
        ]
        for item in operations
    ]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()
