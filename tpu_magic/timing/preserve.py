"""What timing must leave as it was: the state of every random number generator in use."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tpu_magic.frameworks.base import Adapter


@contextmanager
def random_state(*adapters: Adapter) -> Iterator[None]:
    """Run code that draws random numbers as if it had not.

    Python's generator, NumPy's global one when NumPy is loaded, and those of the adapters
    that have `rng_state()` and `set_rng_state(state)`.
    """
    kept: list[tuple[Callable[[Any], None], Any]] = [(random.setstate, random.getstate())]
    if (numpy := sys.modules.get("numpy.random")) is not None:
        kept.append((numpy.set_state, numpy.get_state()))
    kept += [
        (adapter.set_rng_state, adapter.rng_state())
        for adapter in adapters
        if hasattr(adapter, "rng_state") and hasattr(adapter, "set_rng_state")
    ]
    try:
        yield
    finally:
        for restore, state in kept:
            restore(state)
