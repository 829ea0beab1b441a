"""Indexing device tensors so that a loop's counter is data, and compiles once.

`X[i:i+64]` with Python integers is another program for each `i`. Gathered by positions that
are data, one program serves every slice of that length.
"""

from __future__ import annotations

import weakref
from collections import Counter
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from tpu_magic.frameworks.torch_operands import every_tensor
from tpu_magic.frameworks.torch_place import Placement

_MOST_POSITIONS = 4096


class Indexing:
    """The indexing of one cell.

    A gathered slice is a copy; when it is written to, it becomes the view that it stands for.
    """

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        # Of each positions, a tensor for each time that one program uses them: two uses of
        # one tensor would make its wiring depend on the loop's counters (`torch_wiring`).
        self._positions: dict[tuple[int, int, int | None], list[Tensor]] = {}
        self._used: Counter[tuple[int, int, int | None]] = Counter()
        self._masks: dict[int, tuple[weakref.ref[Tensor], int, tuple[Tensor, ...]]] = {}
        self._slices: dict[int, tuple[weakref.ref[Tensor], Tensor, Any]] = {}

    def as_data(self, tensor: Tensor, index: Any) -> Any:
        """Return an index that does the same with the loop's counter as data.

        None when the index is of another kind: those mean the same in every step of a loop.
        """
        first, *rest = index if isinstance(index, tuple) else (index,)
        if tensor.dim() == 0 or not all(isinstance(item, (int, slice)) for item in rest):
            return None
        length = tensor.shape[0]
        if isinstance(first, slice) and type(first.start) is int and type(first.stop) is int:
            rows = range(*first.indices(length))
            if first.start >= 0 and first.stop >= 0 and 0 < len(rows) < length:
                return (self._at(rows.start, rows.step, len(rows)), *rest)
        if type(first) is int and 0 <= first < length > 1:
            return (self._at(first, 1, None), *rest)
        return None

    def _at(self, start: int, step: int, count: int | None) -> Tensor:
        """Return positions on the device: one (`count` None), or `count` of them."""
        key = (start, step, count)
        if key not in self._positions and len(self._positions) >= _MOST_POSITIONS:
            self._positions.clear()
            self._used.clear()
        copies = self._positions.setdefault(key, [])
        use = self._used[key]
        self._used[key] += 1
        if use == len(copies):
            rows = torch.tensor(start) if count is None else start + step * torch.arange(count)
            copies.append(self._placement.replicate(rows))
        return copies[use]

    def program_ended(self) -> None:
        """Note that what was recorded was handed over: positions can be used again."""
        self._used.clear()

    def with_device_tensors(self, index: Any) -> Any:
        """Return an index whose tensors can be used with a device tensor.

        The index itself when there is nothing to do.
        """
        items = index if isinstance(index, tuple) else (index,)
        if not any(_is_mask(item) for item in items):
            tensors = every_tensor((index,), {})
            if all(map(self._placement.is_there, tensors)):
                return index
            return pytree.tree_map_only(Tensor, self._there, index)
        usable: list[Any] = []
        for item in items:
            if _is_mask(item):
                usable += self._hits(item)
            else:
                usable.append(pytree.tree_map_only(Tensor, self._there, item))
        return tuple(usable)

    def _there(self, index: Tensor) -> Tensor:
        return index if self._placement.is_there(index) else self._placement.replicate(index)

    def _hits(self, mask: Tensor) -> tuple[Tensor, ...]:
        """Return where a mask is true, as positions: how many there are, only the host can say.

        Kept while nobody writes to the mask: one that picks the nodes to train on is read once.
        """
        key, version = id(mask), mask._version  # noqa: SLF001
        kept = self._masks.get(key)
        if kept is not None and kept[0]() is mask and kept[1] == version:
            return kept[2]
        values = self._placement.read(mask.detach())
        positions = tuple(map(self._placement.replicate, values.nonzero(as_tuple=True)))
        if self._placement.is_there(mask) or mask.untyped_storage().resizable():
            forget = self._masks.pop
            self._masks[key] = (weakref.ref(mask, partial(forget, key)), version, positions)
        return positions

    def remember(self, result: Tensor, base: Tensor, index: Any) -> None:
        """Remember a gathered slice, in case it is written to."""
        key, forget = id(result), self._slices.pop
        self._slices[key] = (weakref.ref(result, partial(forget, key)), base, index)

    def make_true_view(self, target: Tensor) -> None:
        """Before a gathered slice is written to, make it the view that the person meant."""
        kept = self._slices.pop(id(target), None)
        if kept is None or kept[0]() is not target:
            return
        base, index = kept[1:]
        del kept  # its weak reference would forbid the swap
        self._placement.forget(target)
        torch.utils.swap_tensors(target, base[index])

    def forget(self) -> None:
        """Drop every reference to the person's tensors."""
        self._slices.clear()
        self._masks.clear()
        self._positions.clear()
        self._used.clear()


def within(shape: torch.Size, index: Any) -> Any:
    """Return an index whose negative bounds are within a shape; XLA refuses others (`x[-8:]`).

    The index itself when there is nothing to do.
    """
    items = index if isinstance(index, tuple) else (index,)
    if not any(map(_counts_from_end, items)):
        return index
    axis, found = 0, []
    for place, item in enumerate(items):
        if item is Ellipsis:
            axis = len(shape) - sum(map(_axes, items[place + 1 :]))
        elif _counts_from_end(item):
            length = shape[axis]
            start, stop = (
                max(bound, -length) if isinstance(bound, int) else bound
                for bound in (item.start, item.stop)
            )
            item = slice(start, stop, item.step)  # noqa: PLW2901
        found.append(item)
        axis += _axes(item) if item is not Ellipsis else 0
    return index if found == list(items) else tuple(found)


def _counts_from_end(item: Any) -> bool:
    return isinstance(item, slice) and any(
        isinstance(bound, int) and bound < 0 for bound in (item.start, item.stop)
    )


def _axes(item: Any) -> int:
    """Return how many axes an item of an index takes."""
    if item is None or isinstance(item, bool):
        return 0
    return item.dim() if _is_mask(item) else 1


def _is_mask(item: Any) -> bool:
    return isinstance(item, Tensor) and item.dtype == torch.bool and item.dim() > 0
