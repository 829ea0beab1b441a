"""Telling programs apart that wire the same tensors differently.

torch_xla finds a compiled program by a hash of its operations and the number of its inputs.
Which of several inputs of one shape goes where is not in it: `f(a, b) + f(b, c)` and
`f(a, b) + f(c, a)` run the same program, and one of them gets the other's result. Code that
draws from a list of tensors (a replay memory, triplets, experts) changes its wiring in each
step. So the wiring of what a cell does is followed, and made part of the hash.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_xla import _XLAC

_tensor_id = _XLAC._xla_get_tensor_id  # noqa: SLF001 - never used again for another tensor
_PATTERNS = 1 << 31


class Wiring:
    """Follows which tensors and modules the program that is being recorded uses again."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._pattern = 0
        self._again = False
        self._one: Tensor | None = None

    def uses(self, tensor: Tensor) -> None:
        """Note that an operation takes a device tensor."""
        self.uses_key(_tensor_id(tensor))

    def uses_key(self, key: Any) -> None:
        """Note the use of something with parameters, by a key of its own."""
        fresh = len(self._numbers)
        number = self._numbers.setdefault(key, fresh)
        self._pattern = hash((self._pattern, number))
        self._again = self._again or number != fresh

    def mark(self, device: torch.device) -> Tensor | None:
        """Return what must live while the program is handed over; begin the next one.

        None when each input was used once: then the order of operations says it all.
        """
        again, pattern = self._again, self._pattern % _PATTERNS
        self._numbers.clear()
        self._pattern, self._again = 0, False
        if not again:
            return None
        with torch._C.DisableTorchFunction():  # noqa: SLF001
            if self._one is None:
                self._one = torch.zeros(1).to(device)
            return torch.roll(self._one, pattern)  # how far is a constant of the program


def compute_alone(tensors: list[Tensor]) -> None:
    """Hand over what leads to some tensors as a program of its own."""
    _XLAC._xla_sync_multi(tensors, [], wait=False)  # noqa: SLF001
