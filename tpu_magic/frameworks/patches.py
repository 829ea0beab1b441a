"""Attributes of other people's classes and modules, replaced for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_MISSING = object()


@contextmanager
def replaced(owner: Any, makers: Mapping[str, Callable[[Any], Any]]) -> Iterator[None]:
    """Replace attributes of a class or module by what is made of them; undo it on leaving."""
    held = {name: owner.__dict__.get(name, _MISSING) for name in makers}
    try:
        for name, make in makers.items():
            setattr(owner, name, make(getattr(owner, name)))
        yield
    finally:
        for name, value in held.items():
            if value is not _MISSING:
                setattr(owner, name, value)
            elif name in owner.__dict__:
                delattr(owner, name)
