"""What the calls in a cell's code return: callables that leave no frame in a traceback.

`begin` and `end` do their work and return one of these, which the cell calls. Both are made
of C functions: the cell's own frame is the last one of what is raised.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any


def returning(value: Any) -> Callable[[], Any]:
    """Return a callable that returns the value."""
    return partial((value,).__getitem__, 0)


def raising(error: BaseException) -> Callable[[], Any]:
    """Return a callable that raises the error as if the caller had; its cause and notes stay."""
    return partial(_raise, type(error), error.with_traceback(None))


_raise = ctypes.PYFUNCTYPE(None, ctypes.py_object, ctypes.py_object)(
    ("PyErr_SetObject", ctypes.pythonapi)
)
