"""Moving live torch objects to a device and back without anyone losing them.

`module.to(device)` makes new Parameters: an optimizer, a tie, a hook or an average that
holds the old ones goes on with dead tensors. Here every tensor keeps its identity: its
content is swapped in place, and what a swap would drop is carried over.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

# Makes a tensor's copy where it shall live; the copy must not require grad.
Place = Callable[[Tensor], Tensor]

# The attribute that holds each of a tensor's hook dictionaries.
_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


@dataclass
class Moved:
    """What a move did: tensors moved, and what could not be, each with its reason."""

    tensors: int = 0
    left: list[str] = field(default_factory=list)

    def __iadd__(self, other: Moved) -> Moved:
        self.tensors += other.tensors
        self.left += other.left
        return self


def movable(tensor: Tensor) -> bool:
    """Say whether a tensor is of a kind that can be moved: dense, strided, not quantised."""
    return (
        tensor.layout is torch.strided
        and not tensor.is_quantized
        and not tensor.is_meta
        and not isinstance(tensor, nn.parameter.UninitializedTensorMixin)
    )


def move_tensor(tensor: Tensor, place: Place) -> None:
    """Move one tensor, keeping its identity, class, attributes, gradient and hooks.

    Raises
    ------
    RuntimeError
        When something in C++ holds the tensor weakly, so that it cannot be swapped; it is
        then unchanged.
    """
    grad, tensor.grad = (tensor.grad, None) if tensor.is_leaf else (None, None)
    try:
        with torch.no_grad():
            content = place(tensor.detach())
            _swap_content(tensor, content)
            if grad is not None:
                _swap_content(grad, place(grad.detach()))
    finally:
        if grad is not None:
            tensor.grad = grad


def _swap_content(tensor: Tensor, content: Tensor) -> None:
    """Give `tensor` the content of `content` (which is not used afterwards).

    `torch.utils.swap_tensors` does this too, but refuses a tensor that a live autograd graph
    has saved. Such a graph goes on with the old content; only a backward through it that
    would add to the old content's gradient, which nobody sees any more, must fail.
    """
    content.requires_grad_(tensor.requires_grad)
    if tensor.is_leaf and tensor.requires_grad:
        with torch.enable_grad():
            edge = torch.autograd.graph.get_gradient_edge(tensor)
        edge.node.register_prehook(_refuse_backward)
    hooks = {name: getattr(tensor, name, None) for name in _HOOKS}
    torch._C._swap_tensor_impl(tensor, content)  # noqa: SLF001 - the core of swap_tensors
    for name, dictionary in hooks.items():
        if dictionary is not None:
            setattr(tensor, name, dictionary)


def _refuse_backward(_: Any) -> None:
    raise RuntimeError(
        "this graph was recorded before its parameters were moved between host and device: "
        "compute the loss again, then call backward()"
    )


def move_module(module: nn.Module, place: Place, is_there: Callable[[Tensor], bool]) -> Moved:
    """Move a module's parameters and buffers in place.

    Tensors that share storage (weights tied through `.data`) share it afterwards too.

    Parameters
    ----------
    place
        Makes the copy of a tensor where it shall live.
    is_there
        Says whether a tensor lives there already.
    """
    moved = move_tensors(_named_tensors(module), place, is_there)
    for part in module.modules():
        if isinstance(part, torch.jit.ScriptModule):
            moved += _move_script_module(part, place, is_there)
    return moved


def _named_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for prefix, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            continue
        for store in (part._parameters, part._buffers):  # noqa: SLF001
            for name, tensor in store.items():
                if tensor is not None:
                    yield (f"{prefix}.{name}" if prefix else name), tensor


def move_tensors(
    named: Iterable[tuple[str, Tensor]], place: Place, is_there: Callable[[Tensor], bool]
) -> Moved:
    """Move tensors in place; those that share all of a storage share the new one."""
    moved = Moved()
    seen: set[int] = set()
    twins: dict[tuple[Any, ...], Tensor] = {}
    for name, tensor in named:
        if id(tensor) in seen or is_there(tensor):
            continue
        seen.add(id(tensor))
        if not movable(tensor):
            moved.left.append(f"{name} ({_why_not_movable(tensor)})")
            continue
        key = _memory_of(tensor)
        try:
            move_tensor(tensor, _sharing(twins, key, place))
        except RuntimeError as error:
            moved.left.append(f"{name} ({str(error).splitlines()[0]})")
            continue
        moved.tensors += 1
        twins.setdefault(key, tensor)
    return moved


def _memory_of(tensor: Tensor) -> tuple[Any, ...]:
    """Return what two tensors have in common exactly when they are the same memory."""
    return (
        tensor.device,
        tensor.untyped_storage()._cdata,  # noqa: SLF001 - the storage's identity
        tensor.storage_offset(),
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
    )


def _sharing(twins: dict[tuple[Any, ...], Tensor], key: tuple[Any, ...], place: Place) -> Place:
    """Return a `place` that gives a view of what the same memory became, if it was moved."""
    twin = twins.get(key)
    return place if twin is None else lambda _: twin.detach()


def _move_script_module(
    module: torch.jit.ScriptModule, place: Place, is_there: Callable[[Tensor], bool]
) -> Moved:
    """Move a scripted module, whose C++ side holds the tensors: give it the new content."""
    moved = Moved()
    for name, tensor in [
        *module.named_parameters(recurse=False),
        *module.named_buffers(recurse=False),
    ]:
        if is_there(tensor):
            continue
        with torch.no_grad():
            content = place(tensor.detach())
        if isinstance(tensor, nn.Parameter):
            content = nn.Parameter(content, tensor.requires_grad)
        setattr(module, name, content)
        del content
        # The slot now holds the new tensor; the person's reference is given its content.
        torch._C._swap_tensor_impl(tensor, getattr(module, name))  # noqa: SLF001
        moved.tensors += 1
    return moved


def move_optimizer(
    optimizer: torch.optim.Optimizer, place: Place, is_there: Callable[[Tensor], bool]
) -> Moved:
    """Move an optimizer's state to where its parameters are."""
    return move_tensors(_state_tensors(optimizer), place, is_there)


def to_host(item: Any) -> Moved:
    """Move a module, an optimizer's state, or the tensors in a container back to the host."""

    def is_host(tensor: Tensor) -> bool:
        return bool(tensor.device.type == "cpu")

    if isinstance(item, nn.Module):
        return move_module(item, Tensor.cpu, is_host)
    if isinstance(item, torch.optim.Optimizer):
        return move_optimizer(item, Tensor.cpu, is_host)
    return move_tensors(((type(item).__name__, t) for t in tensors_in(item)), Tensor.cpu, is_host)


def _state_tensors(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, Tensor]]:
    """Yield the state tensors that belong beside their parameters, however nested.

    Scalars (`step`, NAdam's `mu_product`, ASGD's `eta`) stay on the host, as torch itself
    keeps them, unless the group is capturable: on a device each would be read back in every
    step.
    """
    scalars_too = {
        id(parameter)
        for group in optimizer.param_groups
        if group.get("capturable")
        for parameter in group["params"]
    }
    for parameter, state in optimizer.state.items():
        for key, value in state.items() if isinstance(state, dict) else ():
            for tensor in tensors_in(value):
                if tensor.dim() or id(parameter) in scalars_too:
                    yield f"state[{key!r}]", tensor


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield every tensor in nested lists, tuples and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (list, tuple, set)):
        for item in value:
            yield from tensors_in(item)


def _why_not_movable(tensor: Tensor) -> str:
    if isinstance(tensor, nn.parameter.UninitializedTensorMixin):
        return "lazy, moved once it has a shape"
    if tensor.is_quantized:
        return "quantised, left on the host"
    return f"{str(tensor.layout).removeprefix('torch.')}, left on the host"


class WeakIdentitySet:
    """Objects remembered by identity, without keeping them alive."""

    def __init__(self) -> None:
        self._references: dict[int, weakref.ref[Any]] = {}

    def add(self, item: Any) -> None:
        """Remember an object."""
        key = id(item)
        self._references[key] = weakref.ref(item, partial(self._references.pop, key))

    def discard(self, item: Any) -> None:
        """Forget an object, and the weak reference to it."""
        self._references.pop(id(item), None)

    def __contains__(self, item: Any) -> bool:
        reference = self._references.get(id(item))
        return reference is not None and reference() is item

    def __iter__(self) -> Iterator[Any]:
        for reference in list(self._references.values()):
            if (item := reference()) is not None:
                yield item
