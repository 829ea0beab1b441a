"""Where torch tensors go: onto the device, over its mesh, and their twins on the other side."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tpu_magic.frameworks import torch_move

# Below this many rows a first axis is rarely a batch, and splitting it gains nothing.
_SMALLEST_BATCH = 2


class Placement:
    """Makes device tensors out of host tensors; on several devices, over a 1-D mesh.

    Parameters
    ----------
    device
        The XLA device; under SPMD it stands for all of them.
    mesh
        The mesh over all devices, or None with one device.

    Attributes
    ----------
    rows
        Rows of the batch at hand: a tensor with as many rows is split like it.
    marked
        Host tensors that were made in the cell, for the device: what computes with one of
        them goes there.
    undivided
        Rows of batches that were not split, since they do not divide over the mesh.
    fed
        Device tensors that a loader gave in the place of host tensors.
    """

    def __init__(self, device: torch.device, mesh: Any = None) -> None:
        self.device = device
        self.mesh = mesh
        self.rows: int | None = None
        self.undivided: set[int] = set()
        self.marked = torch_move.WeakIdentitySet()
        self.fed = torch_move.WeakIdentitySet()
        self._twins: dict[int, tuple[weakref.ref[Tensor], int, Tensor]] = {}
        self._host_twins: dict[int, tuple[weakref.ref[Tensor], int, Tensor]] = {}

    def is_there(self, tensor: Tensor) -> bool:
        """Say whether a tensor is on the device."""
        return bool(tensor.device.type == self.device.type)

    def replicate(self, tensor: Tensor) -> Tensor:
        """Return a copy on the device, whole on each one of a mesh."""
        return tensor.to(self.device)

    def split(self, tensor: Tensor) -> Tensor:
        """Return a copy on the device, split over the mesh on its first axis.

        Rows that do not divide stay whole, so that every device computes all of them: padded,
        they make the partitioner end the process in scatters and in the gradients of `gather`,
        `topk` and embeddings, or give wrong gradients in silence.
        """
        if self.mesh is None or tensor.dim() == 0 or tensor.shape[0] < _SMALLEST_BATCH:
            return self.replicate(tensor)
        if tensor.shape[0] % self.mesh.size():
            self.undivided.add(tensor.shape[0])
            return self.replicate(tensor)
        import torch_xla
        from torch_xla.distributed import spmd

        names = ("data", *(None for _ in range(tensor.dim() - 1)))
        if tensor.requires_grad:
            copy = tensor.to(self.device)
            spmd.mark_sharding(copy, self.mesh, names)
            return copy
        spec = spmd.ShardingSpec(self.mesh, names).xla_spec(tensor)
        plain = tensor.detach().as_subclass(Tensor)
        made: list[Tensor] = torch_xla._XLAC._xla_tensors_from_aten(  # noqa: SLF001
            [plain], [str(self.device)], [spec]
        )
        return made[0]

    def whole(self, tensor: Tensor) -> Tensor:
        """Return a device tensor of the same values that can be read without compiling.

        The runtime compiles a program at each read of a split tensor; annotated as whole, its
        values are brought together by a program that is kept.
        """
        if self.mesh is None or tensor.dim() == 0:
            return tensor
        if self.is_computed(tensor) and not _is_split(tensor):
            return tensor
        import torch_xla

        # A tensor's own annotation cannot be changed, and a clone of it shares it.
        copy = torch.stack([tensor])[0]
        replicated = self.mesh.get_op_sharding((None,) * tensor.dim())
        torch_xla._XLAC._xla_mark_sharding(copy, replicated)  # noqa: SLF001
        return copy

    def is_computed(self, tensor: Tensor) -> bool:
        """Say whether a device tensor's values are there already, or on their way."""
        import torch_xla

        pending = torch_xla._XLAC._check_tensor_need_materialization([tensor])  # noqa: SLF001
        return not pending[0]

    def read(self, tensor: Tensor) -> Tensor:
        """Return a tensor's values on the host."""
        return self.whole(tensor).cpu() if self.is_there(tensor) else tensor

    def place(self, tensor: Tensor) -> Tensor:
        """Return a copy on the device, split when it has the rows of the batch at hand."""
        is_batch = tensor.dim() > 0 and tensor.shape[0] == self.rows
        return self.split(tensor) if is_batch else self.replicate(tensor)

    def twin(self, tensor: Tensor, place: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the device's copy of a host tensor; the tensor itself stays as it is.

        The copy is kept while the tensor lives and is not written to. Memory that torch
        does not own (`torch.from_numpy`) can be written to unseen: it is copied each time.
        """
        key, version = id(tensor), tensor._version  # noqa: SLF001
        kept = self._twins.get(key)
        if kept is not None and kept[0]() is tensor and kept[1] == version:
            return kept[2]
        made = place(tensor)
        # The callback runs in C only: an interrupt that came in Python code there would be lost.
        if tensor.untyped_storage().resizable():
            forget = self._twins.pop
            self._twins[key] = (weakref.ref(tensor, partial(forget, key)), version, made)
        return made

    def host_twin(self, tensor: Tensor) -> Tensor:
        """Return the host's copy of a device tensor, read once while nobody writes to it."""
        key, version = id(tensor), tensor._version  # noqa: SLF001
        kept = self._host_twins.get(key)
        if kept is not None and kept[0]() is tensor and kept[1] == version:
            return kept[2]
        made = self.read(tensor.detach())
        forget = self._host_twins.pop
        self._host_twins[key] = (weakref.ref(tensor, partial(forget, key)), version, made)
        return made

    def bring(self, tensor: Tensor, place: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Return a tensor that is on the device and stands for `tensor`.

        A leaf that wants gradients is moved itself, so that they reach the person's object;
        anything else gets a copy (differentiable where it has a history).
        """
        place = place or self.place
        if self.is_there(tensor):
            return tensor
        if torch._C._functorch.peek_interpreter_stack() is not None:  # noqa: SLF001
            return tensor.to(self.device)  # within `vmap` or `grad` every tensor is theirs
        if not torch_move.movable(tensor):
            return tensor
        if tensor.requires_grad:
            return self.move(tensor) if tensor.is_leaf else place(tensor)
        return self.twin(tensor, place)

    def move(self, tensor: Tensor) -> Tensor:
        """Move the tensor itself to the device, keeping its identity.

        Raises
        ------
        RuntimeError
            When it cannot be swapped (`torch_move.move_tensor`).
        """
        self.forget(tensor)
        torch_move.move_tensor(tensor, self.replicate)
        return tensor

    def forget(self, tensor: Tensor) -> None:
        """Drop what is known of a tensor: a weak reference to it would forbid a swap."""
        self._twins.pop(id(tensor), None)
        self._host_twins.pop(id(tensor), None)
        self.marked.discard(tensor)
        self.fed.discard(tensor)

    def forget_all(self) -> None:
        """Drop every twin, so that nothing outlives the cell."""
        self._twins.clear()
        self._host_twins.clear()
        self.marked = torch_move.WeakIdentitySet()
        self.fed = torch_move.WeakIdentitySet()
        self.rows = None
        self.undivided.clear()


def _is_split(tensor: Tensor) -> bool:
    """Say whether a tensor's values are spread over the devices of the mesh."""
    from torch_xla import _XLAC

    return bool(_XLAC._get_xla_sharding_spec(tensor))  # noqa: SLF001
