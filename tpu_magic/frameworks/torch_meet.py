"""Where host tensors meet device tensors: the mode that a cell's torch calls pass through.

Data stays on the host until it is used, since slicing a device tensor with Python integers
compiles once per slice; and half of the everyday expressions with one operand on each side
raise. So operands are brought together where they meet, never earlier.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from tpu_magic.frameworks import torch_move
from tpu_magic.frameworks.torch_compat import computed
from tpu_magic.frameworks.torch_index import Indexing, within
from tpu_magic.frameworks.torch_lend import Lending
from tpu_magic.frameworks.torch_operands import every_tensor, exchanged, operands
from tpu_magic.frameworks.torch_place import Placement
from tpu_magic.frameworks.torch_rules import Kind, kind_of
from tpu_magic.frameworks.torch_wiring import Wiring, compute_alone

Function = Callable[..., Any]

# An elementwise operation that makes this many values, and this many times more than it
# takes (distances by broadcasting), is worth the device.
_MANY_VALUES = 1 << 16
_BLOW_UP = 4
# With fewer parts, a join is mostly the same in each step (`cat([h, x])`).
_A_CHOICE = 3
# So many rounds of a loop that nothing ends become one program.
_MOST_ROUNDS = 8
_PLAIN = frozenset({Tensor, torch.nn.Parameter})
# The names under which gradients of outputs are handed to `backward` and `grad`.
_SEEDS = ("gradient", "grad_tensors", "grad_outputs")
# What gives a second tensor for the same memory that torch does not call a view.
_SAME_MEMORY = frozenset({"__get__", "detach"})
# Devices that copied code names; here they mean the device of the cell.
ACCELERATORS = frozenset({"cuda", "mps", "xpu", "xla"})


class Meet(TorchFunctionMode):  # type: ignore[misc]
    """Brings operands to the device where they meet one that is there.

    Attributes
    ----------
    helped
        Whether it had to do anything since this was last set to False.
    used
        Whether anything was computed on the device.
    left
        Kinds of tensors that were computed with on the host, since the device has none.
    trace_s, backwards
        Host time in `backward` calls, and their number.
    loading
        True inside a data loader: device tensors of a dataset are indexed on the host.
    inside
        True inside a module's call, where an index means the same in every step.
    """

    def __init__(
        self,
        placement: Placement,
        reading: Callable[[Tensor], AbstractContextManager[Tensor]],
        recorded_long: Callable[[FrameType], bool],
    ) -> None:
        super().__init__()
        self._reading = reading
        self._recorded_long = recorded_long
        self._rounds: dict[tuple[int, int], int] = {}
        self.placement = placement
        self.helped = False
        self.used = False
        self.loading = False
        self.inside = False
        self.left: set[str] = set()
        self.trace_s = 0.0
        self.backwards = 0
        self._kinds: dict[Any, Kind] = {}
        self.lending = Lending(placement)
        self.wiring = Wiring()
        self._indexing = Indexing(placement)
        self._handlers: dict[Kind, Callable[[Function, tuple[Any, ...], dict[str, Any]], Any]] = {
            Kind.READ: self._read,
            Kind.COMPUTE: self._compute,
            Kind.HEAVY: self._heavy,
            Kind.JOIN: self._join,
            Kind.PACKED: partial(self._on_host, "packed"),
            Kind.RECURRENT: self._recurrent,
            Kind.HOST: partial(self._on_host, "quantised"),
            Kind.FACTORY: self._factory,
            Kind.LIKE: self._like,
            Kind.DRAW: self._draw,
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
        if types and not _PLAIN.issuperset(types):
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
        tensor = tensor.detach()
        if not self.placement.is_there(tensor):
            return func(tensor, *rest, **kwargs)
        with self._reading(tensor) as whole:
            return func(whole, *rest, **kwargs)

    def _compute(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        host = device = wanted = False
        for tensor in operands(args, kwargs):
            if self.placement.is_there(tensor):
                device = True
            else:
                host = True
                wanted = wanted or tensor in self.placement.marked
        if host and (device or wanted or _blows_up(args)):
            args, kwargs = self._together(args, kwargs)
            device = any(map(self.placement.is_there, operands(args, kwargs)))
        if not device:
            return func(*args, **kwargs)
        self.used = True
        self._comes_round(sys._getframe(2))  # noqa: SLF001
        return self._call(func, args, kwargs)

    def _join(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Put a list of tensors together.

        A list is mostly a choice (a replay memory's states, predictions of an epoch), which
        is another one each time: joined in a program of its own, whose inputs all differ, it
        leaves the wiring of the step as it is. What is all on the host goes over as one.
        """
        __tracebackhide__ = True
        parts = args[0] if args else None
        if not isinstance(parts, (list, tuple)) or len(parts) < _A_CHOICE or self._is_traced():
            return self._compute(func, args, kwargs)
        there = [self.placement.is_there(part) for part in parts]
        if not any(there):
            if any(part.requires_grad for part in parts):
                return self._compute(func, args, kwargs)
            joined = func(*args, **kwargs)
            if any(part in self.placement.marked for part in parts):
                self.placement.marked.add(joined)
            return joined
        if not all(there):
            (parts,), _ = self._together((parts,), {})
        self.used = True
        if not all(self.placement.is_there(p) and self.placement.is_computed(p) for p in parts):
            return self._call(func, (parts, *args[1:]), kwargs)
        self.helped = True
        distinct: dict[int, Tensor] = {}
        for part in parts:
            if id(part) in distinct:
                part = computed(part)  # noqa: PLW2901
                compute_alone([part])
            distinct[id(part)] = part
        joined = func(list(distinct.values()), *args[1:], **kwargs)
        compute_alone([joined])
        return joined

    def _heavy(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        if any(not self.placement.is_there(tensor) for tensor in operands(args, kwargs)):
            args, kwargs = self._together(args, kwargs)
        self.used = self.used or any(map(self.placement.is_there, operands(args, kwargs)))
        self._comes_round(sys._getframe(2))  # noqa: SLF001
        return self._call(func, args, kwargs)

    def _recurrent(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        # Of packed sequences, the second operand says how many go on at each time.
        packed = len(args) > 1 and isinstance(args[1], Tensor) and args[1].dtype == torch.int64
        return (
            self._on_host("packed", func, args, kwargs)
            if packed
            else self._heavy(func, args, kwargs)
        )

    def _on_host(
        self, kind: str, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        __tracebackhide__ = True
        self.helped = True
        self.left.add(kind)
        args, kwargs = self._to_host(args, kwargs)
        return func(*args, **kwargs)

    def _factory(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        on_device = self._names_device(kwargs.get("device"))
        if on_device:
            # Drawn on the host, then moved: the numbers are those of a run on the host.
            self.helped = self.helped or not _names_xla(kwargs["device"])
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

    def _like(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        if not (args and self.placement.is_there(args[0])):
            return self._factory(func, args, kwargs)
        if self._names_device(kwargs.get("device")):
            self.helped = self.helped or not _names_xla(kwargs["device"])
            kwargs = {**kwargs, "device": None}
        return func(*args, **kwargs)

    def _draw(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        # `nn.init`'s functions come with names only.
        target = args[0] if args else kwargs["tensor"]
        if self.inside or not self.placement.is_there(target):
            return func(*args, **kwargs)
        # Weights drawn anew get the numbers that they would get on the host.
        self._indexing.make_true_view(target)
        blank = torch.empty(target.shape, dtype=target.dtype)
        drawn = func(blank, *args[1:], **{k: v for k, v in kwargs.items() if k != "tensor"})
        with torch.no_grad():
            return target.copy_(drawn)

    def _view(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        result = self._call(func, args, kwargs)
        if args and isinstance(args[0], Tensor):
            for remembered in (self.placement.marked, self.placement.fed):
                if args[0] in remembered:
                    for tensor in operands((result,), {}):
                        remembered.add(tensor)
            if not self.placement.is_there(args[0]) and func.__name__ in _SAME_MEMORY:
                self.lending.remember_first(result, args[0])
        return result

    def _in_place(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        target = args[0] if args else kwargs.get("tensor")
        if not isinstance(target, Tensor):
            return self._compute(func, args, kwargs)
        self._indexing.make_true_view(target)
        there = self.placement.is_there(target)
        sources = [self.placement.is_there(item) for item in operands(args[1:], kwargs)]
        if there or any(sources):
            self.used = True
        if (there and not all(sources)) or (not there and any(sources)):
            together = self._together if there or self._lend(target) else self._to_host
            args, kwargs = together(args, kwargs)
        return self._call(func, args, kwargs)

    def _getitem(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        tensor, index = args
        if not self.placement.is_there(tensor):
            return self._getitem_of_host(func, tensor, index)
        if self.loading:
            return func(self.placement.host_twin(tensor), index)
        self.used = True
        index = self._within(tensor, index)
        gathered = None if self.inside else self._indexing.as_data(tensor, index)
        if gathered is None:
            usable = self._indexing.with_device_tensors(index)
            self.helped = self.helped or usable is not index
            return self._view(func, (tensor, usable), {})
        self.helped = True
        result = self._view(func, (tensor, gathered), {})
        self._indexing.remember(result, tensor, index)
        return result

    def _within(self, tensor: Tensor, index: Any) -> Any:
        bounded = within(tensor.shape, index)
        self.helped = self.helped or bounded is not index
        return bounded

    def _getitem_of_host(self, func: Function, tensor: Tensor, index: Any) -> Any:
        there = [item for item in operands((index,), {}) if self.placement.is_there(item)]
        if there and not any(item.dtype == torch.bool for item in there):
            self.helped = self.used = True
            return func(self.placement.bring(tensor), self._indexing.with_device_tensors(index))
        if there:
            # The number of rows that a mask picks is only known on the host.
            index = pytree.tree_map_only(Tensor, self.placement.read, index)
        return self._view(func, (tensor, index), {})

    def _setitem(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        target, index, value = args
        self._indexing.make_true_view(target)
        if not self.placement.is_there(target):
            there = any(self.placement.is_there(item) for item in operands((index, value), {}))
            if not (there and target in self.placement.marked and self._lend(target)):
                args = self._to_host(args, {})[0] if there else args
                return func(*args, **kwargs)
        self.used = True
        index = self._within(target, index)
        if isinstance(index, Tensor) and index.dtype == torch.bool and _is_scalar(value):
            self.helped = True
            # `x[x < 0] = 0`: as an index, a mask is another program for each number of hits.
            mask = self.placement.bring(index)
            mask = mask.reshape(mask.shape + (1,) * (target.dim() - mask.dim()))
            value = self.placement.bring(value) if isinstance(value, Tensor) else value
            target.masked_fill_(mask, value)
            return None
        gathered = None if self.inside else self._indexing.as_data(target, index)
        usable = self._indexing.with_device_tensors(index if gathered is None else gathered)
        self.helped = self.helped or usable is not index
        if isinstance(value, Tensor):
            value = computed(self.placement.bring(value))
        return self._call(func, (target, usable, value), {})

    def _to(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        tensor, *rest = args
        name = func.__name__
        if name == "cpu":
            if not self.placement.is_there(tensor):
                return func(*args, **kwargs)
            with self._reading(tensor) as whole:
                return func(whole, *rest, **kwargs)
        if name == "to":
            tensor = computed(tensor) if kwargs.get("copy") else tensor
            # A loader's batch is on the device without the person's doing: what their code
            # does for the host leaves it there.
            stays = tensor in self.placement.fed
            places = [item for item in (*rest, kwargs.get("device")) if _is_place(item)]
            if not any(self._names_device(item) or stays for item in places):
                return self._view(func, (tensor, *rest), kwargs)
            kwargs = {key: item for key, item in kwargs.items() if key != "device"}
            rest = [item for item in rest if not _is_place(item)]
        else:
            rest, kwargs = [], {}
        self.used = self.helped = True
        moved = tensor if self.placement.is_there(tensor) else self.placement.split(tensor)
        return self._view(func, (moved, *rest), kwargs) if rest or kwargs else moved

    def _numpy(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        tensor, *rest = args
        if self.placement.is_there(tensor):
            self.helped = True
            with self._reading(tensor) as whole:
                tensor = whole.cpu()
        return func(tensor, *rest, **kwargs)

    def _backward(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        # Only what is handed in as the gradients of the outputs is brought over: a copy of an
        # input would not be what the graph knows.
        place = 2 if func.__name__ == "grad" else 1
        seeds = {key: kwargs[key] for key in _SEEDS if kwargs.get(key) is not None}
        if len(args) > place or seeds:
            there = any(self.placement.is_there(item) for item in operands(args[:1], {}))
            if there:
                given, seeds = self._together(args[place : place + 1], seeds)
                args, kwargs = (*args[:place], *given, *args[place + 1 :]), {**kwargs, **seeds}
        self._wire(args[:1], {})
        started = time.perf_counter()
        self.backwards += 1
        try:
            return func(*args, **kwargs)
        finally:
            self.trace_s += time.perf_counter() - started

    # --- what the handlers share ----------------------------------------------------------

    def _call(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        self._wire(args, kwargs)
        return func(*args, **kwargs)

    def _comes_round(self, frame: FrameType) -> None:
        """Note that an operation is recorded again by the same place of the person's code.

        A loop that nothing ends would become one program of all of its rounds. Handed over at
        one place of the loop, it is programs that are all the same.
        """
        key = (id(frame.f_code), frame.f_lasti)
        rounds = self._rounds[key] = self._rounds.get(key, 0) + 1
        if rounds > _MOST_ROUNDS and not self._is_traced():
            # The operation at hand is the first of the next program, which ends here again.
            self._rounds[key] = 1 if self._recorded_long(frame) else 0

    def _wire(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Follow which device tensors an operation takes; of a module's, its parameters only."""
        if self._is_traced():
            return
        for tensor in operands(args, kwargs):
            if self.placement.is_there(tensor):
                self.wiring.uses(tensor)

    def _is_traced(self) -> bool:
        """Say whether a module or one of functorch's transforms runs the operation."""
        return self.inside or torch._C._functorch.peek_interpreter_stack() is not None  # noqa: SLF001

    def wire_call(self, module: Any, tensors: list[Tensor]) -> None:
        """Follow which module is called with which tensors."""
        self.wiring.uses_key((id(module),))
        self._wire(tuple(tensors), {})

    def hand_over(self) -> Tensor | None:
        """Note that what was recorded is handed over; return what must live meanwhile."""
        self._rounds.clear()
        self._indexing.program_ended()
        return self.wiring.mark(self.placement.device)

    def _together(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the operands with every tensor on the device.

        With one that cannot be there (sparse, quantised), with every tensor on the host.
        """
        self.helped = True
        left = [item for item in every_tensor(args, kwargs) if not torch_move.movable(item)]
        if left:
            self.left.update("quantised" if item.is_quantized else "sparse" for item in left)
            return self._to_host(args, kwargs)
        return exchanged(self.placement.bring, args, kwargs)

    def _to_host(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return exchanged(self.placement.read, args, kwargs)

    def _lend(self, target: Tensor) -> bool:
        lent = self.lending.move(target)
        self.helped = self.helped or lent
        return lent

    def _names_device(self, place: Any) -> bool:
        """Say whether what copied code names as a place means the device of the cell."""
        if isinstance(place, torch.device):
            return place.type in ACCELERATORS
        return isinstance(place, str) and place.partition(":")[0] in ACCELERATORS

    def forget(self) -> None:
        """Drop every reference to the person's tensors."""
        self.lending.forget()
        self._indexing.forget()


def _names_xla(place: Any) -> bool:
    return str(place).startswith("xla")


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (bool, int, float)) or (isinstance(value, Tensor) and not value.dim())


def _is_place(item: Any) -> bool:
    return isinstance(item, (str, torch.device))


def _blows_up(args: tuple[Any, ...]) -> bool:
    """Say whether broadcasting makes far more values than the operands hold."""
    shapes = [value.shape for value in args if isinstance(value, Tensor)]
    if len(shapes) < 2 or shapes[0] == shapes[1]:  # noqa: PLR2004
        return False
    try:
        made = math.prod(torch.broadcast_shapes(*shapes))
    except RuntimeError:
        return False
    return bool(made >= max(_MANY_VALUES, _BLOW_UP * max(math.prod(shape) for shape in shapes)))
