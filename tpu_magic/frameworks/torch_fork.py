"""A forked child cannot use the device: it says so at once, in the place of hanging.

The runtime's threads do not survive a fork, so the child's first operation on the device
would wait for ever. Workers of a DataLoader, which never touch it, go on as they are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

FORKED = (
    "the XLA runtime was opened before this process was forked, and cannot be used in it: "
    "restart the kernel and launch the processes first, or use one process with all devices"
)
_guarded: list[int] = []  # the process that installed the handler; children inherit it


def guard_children() -> None:
    """Make every process that is forked from now on refuse the device in words. Idempotent."""
    if not _guarded:
        _guarded.append(os.getpid())
        os.register_at_fork(after_in_child=_refuse_device)


def _refuse_device() -> None:
    """In a child, for the rest of its life: let no operation with a device tensor begin."""
    _Refusing().__enter__()


class _Refusing(TorchFunctionMode):  # type: ignore[misc]
    """Raises at the first operation on the device."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") != "__get__" and _name_device((*args, *kwargs.values())):
            raise RuntimeError(FORKED)
        return func(*args, **kwargs)


def _name_device(values: Iterable[Any]) -> bool:
    """Say whether the XLA device is among an operation's arguments, or holds one of them."""
    for value in values:
        if isinstance(value, (list, tuple)):
            if _name_device(value):
                return True
            continue
        place = value.device if isinstance(value, torch.Tensor) else value
        if isinstance(place, torch.device):
            if place.type == "xla":
                return True
        elif isinstance(place, str) and place.partition(":")[0] == "xla":
            return True
    return False
