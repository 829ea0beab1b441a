"""Errors of a person's code: shown at their cell, without the frames of ours that lead there."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_OURS = (str(Path(__file__).parent), contextlib.__file__)


def hides_ours(magic: Callable[P, R]) -> Callable[P, R]:
    """Make a magic whose errors begin where the code begins that is not ours."""

    @functools.wraps(magic)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True
        try:
            return magic(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - it goes on
            raise error.with_traceback(theirs(error.__traceback__)) from error.__cause__

    return called


def theirs(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback from the first frame that is not ours; all of it when none is."""
    found = trace
    while found is not None and found.tb_frame.f_code.co_filename.startswith(_OURS):
        found = found.tb_next
    return found or trace


def running_cell(shell: Any) -> int:
    """Return the number of the cell that runs; IPython 9 counts on before it runs the cell."""
    running = getattr(shell.displayhook, "exec_result", None)
    count: int = getattr(running, "execution_count", None) or shell.execution_count
    return count
