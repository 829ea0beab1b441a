"""What a report says of a torch cell beyond counters: lines of its code, weights, notes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import torch
from torch import nn

NOT_COMPILED = (
    "{name} ran without torch.compile, which has no code for the device: XLA compiles whole steps"
)
_LEFT = "what computes with {kinds} tensors ran on the host: the device has none"
_PACKED = (
    "packed sequences were computed with on the host: their lengths make each batch another "
    "program; padded batches of one length run on the device"
)
_STORED_AS_BF16 = ("XLA_USE_BF16", "XLA_DOWNCAST_BF16")


def left_on_host(kinds: set[str]) -> list[str]:
    """Return what was computed on the host though it is no fallback, as sentences."""
    tensors = " and ".join(sorted(kinds - {"packed"}))
    said = [_LEFT.format(kinds=tensors)] if tensors else []
    return [*said, _PACKED] if "packed" in kinds else said


class Cell:
    """The code of the cell that is being entered: tells which of its lines is running.

    Parameters
    ----------
    namespace
        The namespace that the cell runs in.
    """

    def __init__(self, namespace: MutableMapping[str, Any]) -> None:
        self._namespace = namespace
        self._file = next(self._frames(), (None, 0))[0]

    def line(self) -> int | None:
        """Return the line of the cell that is running now; None when it is none of the cell's."""
        return next((line for file, line in self._frames() if file == self._file), None)

    def _frames(self) -> Iterator[tuple[str, int]]:
        """Yield file and line of the frames of the person's code, the innermost first."""
        frame: Any = sys._getframe(1)  # noqa: SLF001
        while frame is not None:
            if frame.f_globals is self._namespace:
                yield frame.f_code.co_filename, frame.f_lineno
            frame = frame.f_back


def is_compiled(module: nn.Module) -> bool:
    """Say whether `torch.compile` compiles a module's calls."""
    return hasattr(module, "_orig_mod") or module._compiled_call_impl is not None  # noqa: SLF001


def products(name: str, module: nn.Module) -> list[tuple[str, tuple[int, ...]]]:
    """Return names and shapes of a module's weights that take part in matrix products."""
    return [
        (f"{name}.{prefix}.weight" if prefix else f"{name}.weight", tuple(part.weight.shape))
        for prefix, part in module.named_modules()
        if isinstance(part, nn.Linear)
    ]


def float64(name: str, module: nn.Module) -> list[str]:
    """Return the module's name when some of its parameters are float64."""
    return [name] if any(item.dtype is torch.float64 for item in module.parameters()) else []


def notes(environment: Mapping[str, str]) -> list[str]:
    """Return what the environment does to every number, as sentences."""
    return [
        f"{name} is set: float32 tensors are stored as bfloat16 on the device, while their "
        "dtype still says float32; unset it before the kernel starts, and use --precision bf16"
        for name in _STORED_AS_BF16
        if environment.get(name, "0") not in ("", "0")
    ]


def environment_notes() -> list[str]:
    """Return the notes of this process's environment."""
    return notes(os.environ)
