"""Where host tensors meet device tensors: the mode that a cell's torch calls pass through.

Data stays on the host until it is used, since slicing a device tensor with Python integers
compiles once per slice; and half of the everyday expressions with one operand on each side
raise. So operands are brought together where they meet, never earlier.
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from tpu_magic.frameworks.torch_place import Placement
from tpu_magic.frameworks.torch_rules import Kind, kind_of

Function = Callable[..., Any]

# A first axis this short is indexed by what it means (`hidden[0]`), not by a loop's counter.
_SHORT_AXIS = 16
# An elementwise operation that makes this many values, and this many times more than it
# takes (distances by broadcasting), is worth the device.
_MANY_VALUES = 1 << 16
_BLOW_UP = 4
# Devices that copied code names; here they mean the device of the cell.
ACCELERATORS = frozenset({"cuda", "mps", "xpu", "xla"})


class Meet(TorchFunctionMode):
    """Brings operands to the device where they meet one that is there.

    Attributes
    ----------
    helped
        Whether it had to do anything since this was last set to False.
    used
        Whether anything was computed on the device.
    trace_s, backwards
        Host time in `backward` calls, and their number.
    loading
        True inside a data loader: device tensors of a dataset are indexed on the host.
    """

    def __init__(self, placement: Placement) -> None:
        super().__init__()
        self.placement = placement
        self.helped = False
        self.used = False
        self.loading = False
        self.trace_s = 0.0
        self.backwards = 0
        self._kinds: dict[Any, Kind] = {}
        self._slices: dict[int, tuple[weakref.ref[Tensor], Tensor, Any]] = {}
        self._handlers: dict[Kind, Callable[[Function, tuple[Any, ...], dict[str, Any]], Any]] = {
            Kind.READ: self._read,
            Kind.COMPUTE: self._compute,
            Kind.HEAVY: self._heavy,
            Kind.FACTORY: self._factory,
            Kind.VIEW: self._view,
            Kind.INPLACE: self._in_place,
            Kind.GETITEM: self._getitem,
            Kind.SETITEM: self._setitem,
            Kind.TO: self._to,
            Kind.NUMPY: self._numpy,
            Kind.BACKWARD: self._backward,
        }

    def __torch_function__(
        self,
        func: Function,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call the function with its operands brought together."""
        __tracebackhide__ = True
        kind = self._kinds.get(func)
        if kind is None:
            kind = self._kinds[func] = kind_of(func)
        if types:
            self.helped = True  # a tensor subclass: it needs its own __torch_function__
        if kind is Kind.PASSIVE or (self.loading and kind is not Kind.GETITEM):
            return func(*args, **(kwargs or {}))
        return self._handlers[kind](func, args, kwargs or {})

    # --- one handler for each kind --------------------------------------------------------

    def _read(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        # Detached: torch's warning about reading a tensor with a history names the calling
        # line, which would be this one.
        tensor, *rest = args
        return func(tensor.detach(), *rest, **kwargs)

    def _compute(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        host = device = wanted = False
        for tensor in _operands(args, kwargs):
            if self.placement.is_there(tensor):
                device = True
            else:
                host = True
                wanted = wanted or tensor in self.placement.marked
        if host and (device or wanted or _blows_up(args)):
            args, kwargs = self._together(args, kwargs)
            device = True
        self.used = self.used or device
        return func(*args, **kwargs)

    def _heavy(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        if any(not self.placement.is_there(tensor) for tensor in _operands(args, kwargs)):
            args, kwargs = self._together(args, kwargs)
        self.used = True
        return func(*args, **kwargs)

    def _factory(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        on_device = self._names_device(kwargs.get("device"))
        if on_device:
            # Drawn on the host, then moved: the numbers are those of a run on the host.
            kwargs = {**kwargs, "device": None}
        made = func(*args, **kwargs)
        if not isinstance(made, Tensor) or self.placement.is_there(made):
            return made
        if on_device:
            self.used = True
            wants_grad, leaf = made.requires_grad, self.placement.place(made.detach())
            return leaf.requires_grad_(wants_grad)
        if made.is_floating_point() or made.is_complex():
            self.placement.marked.add(made)
        return made

    def _view(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        result = func(*args, **kwargs)
        if args and isinstance(args[0], Tensor) and args[0] in self.placement.marked:
            for tensor in _operands((result,), {}):
                self.placement.marked.add(tensor)
        return result

    def _in_place(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        target = args[0] if args else kwargs.get("tensor")
        if not isinstance(target, Tensor):
            return self._compute(func, args, kwargs)
        self._make_true_view(target)
        if self.placement.is_there(target):
            self.used = True
            args, kwargs = self._together(args, kwargs)
        elif any(self.placement.is_there(tensor) for tensor in _operands(args[1:], kwargs)):
            if not self._move_target(target):
                args, kwargs = self._to_host(args, kwargs)
            self.used = True
        return func(*args, **kwargs)

    def _getitem(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        tensor, index = args
        if not self.placement.is_there(tensor):
            return self._getitem_of_host(func, tensor, index)
        if self.loading:
            return func(self.placement.host_twin(tensor), index)
        self.used = True
        positions = _loop_positions(tensor, index)
        if positions is None:
            return func(tensor, pytree.tree_map_only(Tensor, self._index, index))
        # Gathered by positions that are data: one program serves every slice of this length.
        first, rest = positions
        self.helped = True
        result = func(tensor, (self._index(first), *rest))
        self._remember_slice(result, tensor, index)
        return result

    def _getitem_of_host(self, func: Function, tensor: Tensor, index: Any) -> Any:
        there = [item for item in _operands((index,), {}) if self.placement.is_there(item)]
        if there and not any(item.dtype == torch.bool for item in there):
            self.helped = self.used = True
            return func(self.placement.bring(tensor), pytree.tree_map_only(Tensor, self._index, index))
        if there:
            # The number of rows that a mask picks is only known on the host.
            index = pytree.tree_map_only(Tensor, lambda item: item.cpu(), index)
        return self._view(func, (tensor, index), {})

    def _setitem(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        target, index, value = args
        self._make_true_view(target)
        from_device = isinstance(value, Tensor) and self.placement.is_there(value)
        if not self.placement.is_there(target):
            if not (from_device and target in self.placement.marked and self._move_target(target)):
                args = self._to_host(args, {})[0]
                return func(*args, **kwargs)
        self.used = True
        positions = _loop_positions(target, index)
        if positions is not None:
            index = (positions[0], *positions[1])
        index = pytree.tree_map_only(Tensor, self._index, index)
        value = self.placement.bring(value) if isinstance(value, Tensor) else value
        return func(target, index, value)

    def _to(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        tensor, *rest = args
        name = func.__name__
        if name == "to":
            named = [item for item in (*rest, kwargs.get("device")) if self._names_device(item)]
            if not named:
                return self._view(func, args, kwargs)
            kwargs = {key: item for key, item in kwargs.items() if key != "device"}
            rest = [item for item in rest if not self._names_device(item)]
        elif name == "cpu":
            return func(*args, **kwargs)
        else:
            rest, kwargs = [], {}
        self.used = self.helped = True
        moved = tensor if self.placement.is_there(tensor) else self.placement.split(tensor)
        return moved.to(*rest, **kwargs) if rest or kwargs else moved

    def _numpy(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        tensor, *rest = args
        if self.placement.is_there(tensor):
            self.helped = True
            tensor = tensor.cpu()
        return func(tensor, *rest, **kwargs)

    def _backward(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        started = time.perf_counter()
        self.backwards += 1
        try:
            return func(*args, **kwargs)
        finally:
            self.trace_s += time.perf_counter() - started

    # --- what the handlers share ----------------------------------------------------------

    def _together(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the operands with every tensor on the device."""
        self.helped = True
        return pytree.tree_map_only(Tensor, self.placement.bring, (args, kwargs))

    def _to_host(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return pytree.tree_map_only(
            Tensor, lambda item: item.cpu() if self.placement.is_there(item) else item, (args, kwargs)
        )

    def _move_target(self, target: Tensor) -> bool:
        """Move what is written to, so that the sum of a loop is not read back in each step."""
        if target._is_view() or not (target.is_leaf or target.grad_fn is None):  # noqa: SLF001
            return False
        try:
            self.placement.move(target)
        except RuntimeError:
            return False
        self.helped = True
        return True

    def _names_device(self, place: Any) -> bool:
        """Say whether what copied code names as a place means the device of the cell."""
        if isinstance(place, torch.device):
            return place.type in ACCELERATORS
        return isinstance(place, str) and place.partition(":")[0] in ACCELERATORS

    def _index(self, index: Tensor) -> Tensor:
        """Return an index that can be used with a device tensor."""
        if self.placement.is_there(index):
            return index
        if index.dtype == torch.bool:
            # Turned into positions here, where their number is known without a round trip.
            return index if index.dim() != 1 else self.placement.replicate(index.nonzero()[:, 0])
        return self.placement.replicate(index)

    def _remember_slice(self, result: Tensor, base: Tensor, index: Any) -> None:
        key, forget = id(result), self._slices.pop
        self._slices[key] = (weakref.ref(result, lambda _: forget(key, None)), base, index)

    def _make_true_view(self, target: Tensor) -> None:
        """Before a gathered slice is written to, make it the view that the person meant."""
        kept = self._slices.pop(id(target), None)
        if kept is None or kept[0]() is not target:
            return
        _, base, index = kept
        del kept
        self.placement.forget(target)
        torch.utils.swap_tensors(target, base[index])

    def forget(self) -> None:
        """Drop every reference to the person's tensors."""
        self._slices.clear()


def _operands(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
    """Yield the tensors among the operands, one level of lists deep."""
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            for item in value:
                if isinstance(item, Tensor):
                    yield item


def _blows_up(args: tuple[Any, ...]) -> bool:
    """Say whether broadcasting makes far more values than the operands hold."""
    shapes = [value.shape for value in args if isinstance(value, Tensor)]
    if len(shapes) < 2 or shapes[0] == shapes[1]:  # noqa: PLR2004
        return False
    try:
        made = math.prod(torch.broadcast_shapes(*shapes))
    except RuntimeError:
        return False
    return made >= max(_MANY_VALUES, _BLOW_UP * max(math.prod(shape) for shape in shapes))


def _loop_positions(tensor: Tensor, index: Any) -> tuple[Tensor, tuple[Any, ...]] | None:
    """Return the rows that Python integers pick on a long first axis, as positions.

    None when the index is of another kind: those mean the same in every step of a loop.
    """
    first, *rest = index if isinstance(index, tuple) else (index,)
    if tensor.dim() == 0 or tensor.shape[0] <= _SHORT_AXIS:
        return None
    if not all(isinstance(item, (int, slice)) for item in rest):
        return None
    length = tensor.shape[0]
    if isinstance(first, slice) and type(first.start) is int and type(first.stop) is int:
        positions = range(*first.indices(length))
        if first.start >= 0 and first.stop >= 0 and 0 < len(positions) < length:
            return torch.tensor(positions), tuple(rest)
    if type(first) is int and 0 <= first < length:
        return torch.tensor(first), tuple(rest)
    return None
