"""What a cell changes in torch while it runs, and puts back: a table, applied and undone.

Copied code asks for CUDA (`torch.cuda.is_available()`, `.to("cuda")`, `.cuda()`). Taken
literally it would train on the host, in silence; in a cell it means the cell's device.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from tpu_magic.frameworks import torch_compat, torch_own
from tpu_magic.frameworks.torch_feed import DeviceBatches
from tpu_magic.frameworks.torch_meet import ACCELERATORS

_MISSING = object()
_OURS = os.path.dirname(__file__)  # noqa: PTH120 - compared with the names that frames have
_NOT_THEIRS = (_OURS, warnings.__file__)


@contextmanager
def patched(cell: Any, namespace: MutableMapping[str, Any], thread: int) -> Iterator[None]:
    """Apply every patch for the cell that runs on `thread`; undo all of them on the way out."""
    applied: list[tuple[Any, str, Any]] = []
    _forget_warnings()
    try:
        for owner, name, make in (*TABLE, *torch_own.TABLE):
            applied.append((owner, name, owner.__dict__.get(name, _MISSING)))
            setattr(owner, name, make(cell, getattr(owner, name), namespace, thread))
        for owner, name, replace in torch_compat.TABLE:
            applied.append((owner, name, owner.__dict__.get(name, _MISSING)))
            setattr(owner, name, replace(getattr(owner, name, None)))
        torch_own.ask_again()
        yield
    finally:
        for owner, name, held in reversed(applied):
            if held is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, held)
        torch_own.ask_again()


def _call_module(cell: Any, original: Any, _: Any, thread: int) -> Any:
    def __call__(module: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        __tracebackhide__ = True
        if cell.inside or threading.get_ident() != thread:
            return original(module, *args, **kwargs)
        return cell.call_module(module, original, args, kwargs)

    return __call__


def _parameter_used(cell: Any, original: Any, _: Any, thread: int) -> Any:
    """Follow which parameters a module's call takes: it may choose others each time."""
    uses_key = cell.wiring.uses_key

    def __getattr__(module: nn.Module, name: str) -> Any:  # noqa: N807
        __tracebackhide__ = True
        value = original(module, name)
        # By its type: `isinstance` asks a metaclass of torch's, in Python.
        if type(value) is nn.Parameter and cell.inside and threading.get_ident() == thread:
            uses_key(id(value))
        return value

    return __getattr__


def _module_to(cell: Any, original: Any, _: Any, thread: int) -> Any:
    def to(module: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        __tracebackhide__ = True
        if threading.get_ident() != thread:
            return original(module, *args, **kwargs)
        device, *_ = torch._C._nn._parse_to(*args, **kwargs)  # noqa: SLF001
        if device is None:
            return original(module, *args, **kwargs)
        if device.type == "cpu":
            cell.module_to_host(module)
        elif device.type in ACCELERATORS:
            cell.prepare(module)
        else:
            return original(module, *args, **kwargs)
        args = tuple(
            item for item in args if not isinstance(item, (str, torch.device, int, Tensor))
        )
        kwargs = {key: value for key, value in kwargs.items() if key != "device"}
        return original(module, *args, **kwargs) if _converts(args, kwargs) else module

    return to


def _converts(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return any(isinstance(item, torch.dtype) for item in (*args, *kwargs.values())) or bool(
        kwargs.get("memory_format")
    )


def _module_cuda(cell: Any, original: Any, _: Any, thread: int) -> Any:
    def cuda(module: nn.Module, device: Any = None) -> nn.Module:
        if threading.get_ident() != thread:
            return original(module, device)
        cell.prepare(module)
        return module

    return cuda


def _module_cpu(cell: Any, original: Any, _: Any, thread: int) -> Any:
    def cpu(module: nn.Module) -> nn.Module:
        if threading.get_ident() != thread:
            return original(module)
        cell.module_to_host(module)
        return module

    return cpu


def _loader_iter(cell: Any, original: Any, _: Any, thread: int) -> Any:
    def __iter__(loader: DataLoader[Any]) -> Any:  # noqa: N807
        __tracebackhide__ = True
        if threading.get_ident() != thread or cell.inside:
            return original(loader)
        with cell.loading(loader):
            batches = original(loader)
        return DeviceBatches(loader, batches, cell)

    return __iter__


def _zero_grad(_: Any, original: Any, __: Any, thread: int) -> Any:
    def zero_grad(owner: Any, *args: Any, **kwargs: Any) -> None:
        if threading.get_ident() != thread:
            original(owner, *args, **kwargs)
            return
        # It looks at every parameter, and needs no help with any.
        with torch._C.DisableTorchFunction():  # noqa: SLF001
            original(owner, *args, **kwargs)

    return zero_grad


def _flat_gradient(cell: Any, original: Any, _: Any, thread: int) -> Any:
    """Let LBFGS work on the host: its history is another program for each of its lengths."""

    def _gather_flat_grad(optimizer: torch.optim.LBFGS) -> Tensor:
        flat: Tensor = original(optimizer)
        return cell.gradient_for_host(flat) if threading.get_ident() == thread else flat

    return _gather_flat_grad


def _add_update(cell: Any, original: Any, _: Any, __: int) -> Any:
    def _add_grad(optimizer: torch.optim.LBFGS, step_size: Any, update: Tensor) -> None:
        first = optimizer._params[0]  # noqa: SLF001
        if cell.placement.is_there(first):
            step_size, update = float(step_size), update.to(first.device)
        original(optimizer, step_size, update)

    return _add_grad


def _reduce(cell: Any, original: Any, _: Any, thread: int) -> Any:
    def _reduce_ex_internal(tensor: Tensor, protocol: Any) -> Any:
        if threading.get_ident() == thread and cell.placement.is_there(tensor):
            tensor = cell.host_copy_for_file(tensor)
        return original(tensor, protocol)

    return _reduce_ex_internal


def _persons_answer(answer: Callable[[Any], Any]) -> Any:
    """Make a patch that answers the person's own code, and nobody else's.

    Libraries that ask the same question would take paths that need a real CUDA.
    """

    def make(cell: Any, original: Any, namespace: MutableMapping[str, Any], thread: int) -> Any:
        def asked(*args: Any, **kwargs: Any) -> Any:
            caller = sys._getframe(1).f_globals  # noqa: SLF001
            if caller is namespace and threading.get_ident() == thread:
                return answer(cell)
            return original(*args, **kwargs)

        return asked

    return make


def _show_warning(_: Any, original: Any, __: Any, thread: int) -> Any:
    """Show a warning that torch gave in our frame at the line that called it."""

    def showwarning(
        message: Any, category: Any, filename: str, lineno: int, *file_and_line: Any
    ) -> None:
        if filename.startswith(_OURS) and threading.get_ident() == thread:
            frame = sys._getframe(1)  # noqa: SLF001
            while frame.f_back is not None and frame.f_code.co_filename.startswith(_NOT_THEIRS):
                frame = frame.f_back
            filename, lineno = frame.f_code.co_filename, frame.f_lineno
        original(message, category, filename, lineno, *file_and_line)

    return showwarning


def _forget_warnings() -> None:
    """Let torch warn again: Python shows a warning once for each line, here one for all."""
    for name, module in list(sys.modules.items()):
        if name.startswith(__package__):
            vars(module).pop("__warningregistry__", None)


def _seed_all(cell: Any, original: Any, _: Any, __: int) -> Any:
    def manual_seed_all(seed: int) -> None:
        # torch.manual_seed calls this too, under whatever name it was imported.
        original(seed)
        cell.seed_device(seed)

    return manual_seed_all


# where, which attribute, what makes its replacement
TABLE: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
    (warnings, "showwarning", _show_warning),
    (nn.Module, "__call__", _call_module),
    (nn.Module, "__getattr__", _parameter_used),
    (nn.Module, "to", _module_to),
    (nn.Module, "cuda", _module_cuda),
    (nn.Module, "cpu", _module_cpu),
    (nn.Module, "zero_grad", _zero_grad),
    (torch.optim.Optimizer, "zero_grad", _zero_grad),
    (torch.optim.LBFGS, "_gather_flat_grad", _flat_gradient),
    (torch.optim.LBFGS, "_add_grad", _add_update),
    (DataLoader, "__iter__", _loader_iter),
    (Tensor, "_reduce_ex_internal", _reduce),
    (torch.cuda, "manual_seed_all", _seed_all),
    (torch.cuda, "is_available", _persons_answer(lambda _: True)),
    (torch.cuda, "device_count", _persons_answer(lambda _: 1)),
    (torch.cuda, "current_device", _persons_answer(lambda _: 0)),
    (torch.cuda, "get_device_name", _persons_answer(lambda cell: cell.device_kind)),
    (torch.cuda, "synchronize", _persons_answer(lambda cell: cell.synchronize())),
    (torch.cuda, "empty_cache", _persons_answer(lambda _: None)),
)
