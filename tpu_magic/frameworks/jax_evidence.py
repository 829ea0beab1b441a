"""Whether a cell computed anything: jax counts no executions, so what they leave is looked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
from jax._src.array import ArrayImpl

from tpu_magic.frameworks.base import Counters


class Evidence:
    """What a cell's computations leave: programs compiled, new arrays, and values read.

    What leaves none of them ran for nothing: nobody can see that it did. (On one CPU device
    numpy reads an array past jax; with a program from before and no array kept, that is missed.)
    """

    def __init__(self, counters: Callable[[], Counters]) -> None:
        self._counters = counters
        self._before = counters()
        self._there: set[int] = set()
        self._reads = 0

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Look while a cell runs."""
        self._there = {id(array) for array in jax.live_arrays()}
        own = vars(ArrayImpl)["_value"]

        def value(array: Any) -> Any:
            self._reads += 1
            return own.__get__(array)

        ArrayImpl._value = property(value)  # noqa: SLF001
        try:
            yield
        finally:
            ArrayImpl._value = own  # noqa: SLF001

    def made(self) -> list[Any]:
        """Return the arrays that came and are still there."""
        return [each for each in jax.live_arrays() if id(each) not in self._there]

    def found(self) -> bool:
        """Say whether anything was computed."""
        compiled = self._counters().since(self._before).compiles
        return bool(compiled or self._reads or self.made())
