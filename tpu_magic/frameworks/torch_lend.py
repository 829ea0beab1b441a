"""Host tensors that are lent to the device while a cell writes to them.

The sum of a loop (`total += loss`) and a table of results are made on the host; written to
with device values they would be read back in each step. So they are moved, and what was only
written to is given back when the cell ends.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tpu_magic.frameworks import torch_move
from tpu_magic.frameworks.torch_place import Placement


class Lending:
    """Moves what is written to, and gives it back."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        # Of a second tensor for the same memory (`p.data`), the first.
        self._firsts: dict[int, tuple[weakref.ref[Tensor], weakref.ref[Tensor]]] = {}
        self._lent = torch_move.WeakIdentitySet()

    def remember_first(self, tensor: Any, first: Tensor) -> None:
        """Note that a tensor is a second one for another's memory."""
        if isinstance(tensor, Tensor) and tensor is not first:
            key = id(tensor)
            second = weakref.ref(tensor, partial(self._firsts.pop, key))
            self._firsts[key] = (second, weakref.ref(first))

    def move(self, target: Tensor) -> bool:
        """Move what is written to, and say whether that was possible.

        Not what shares its memory with an array or another tensor, which would miss what is
        written; but `p.data` and its parameter are moved together.
        """
        if target._is_view() or not (target.is_leaf or target.grad_fn is None):  # noqa: SLF001
            return False
        owners = _owners_of_memory(target)
        first = self._first_of(target)
        if owners > (1 if first is None else 2):
            return False
        try:
            if first is not None:
                self._placement.move(first)
                torch_move.move_tensor(target, lambda _: first.detach())
            else:
                self._placement.move(target)
        except RuntimeError:
            return False
        if first is None and not target.requires_grad:
            self._lent.add(target)
        return True

    def _first_of(self, target: Tensor) -> Tensor | None:
        kept = self._firsts.pop(id(target), None)
        first = None if kept is None or kept[0]() is not target else kept[1]()
        if first is None or self._placement.is_there(first) or first._is_view():  # noqa: SLF001
            return None
        return first if first.data_ptr() == target.data_ptr() else None

    def give_back(self) -> None:
        """Move what was only written to back to the host."""
        for tensor in self._lent:
            if self._placement.is_there(tensor):
                self._placement.forget(tensor)
                torch_move.move_tensor(tensor, self._placement.read)

    def forget(self) -> None:
        """Drop every reference to the person's tensors."""
        self._firsts.clear()


def _owners_of_memory(tensor: Tensor) -> int:
    """Return how many tensors and arrays have a tensor's memory; memory not torch's is many."""
    if not tensor.untyped_storage().resizable():
        return 1 << 16
    memory = tensor.untyped_storage()._cdata  # noqa: SLF001 - a storage that is held is an owner
    owners: int = torch._C._storage_Use_Count(memory)  # noqa: SLF001 - no public one
    return owners
