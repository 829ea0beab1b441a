"""Errors of a person's code: shown at their cell, without the frames of ours that lead there."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
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


@contextlib.contextmanager
def showing_theirs(shell: Any) -> Iterator[None]:
    """While a cell runs, let the shell show its errors without the frames of ours in them.

    IPython hides frames that ask for it, except the last one: which is ours where what we call
    is in C, as most of torch is.
    """
    show, missing = shell.showtraceback, object()
    before = vars(shell).get("showtraceback", missing)

    def showtraceback(exc_tuple: Any = None, *args: Any, **kwargs: Any) -> None:
        drop_ours(sys.exc_info()[1] if exc_tuple is None else exc_tuple[1])
        show(exc_tuple, *args, **kwargs)

    shell.showtraceback = showtraceback
    try:
        yield
    finally:
        if vars(shell).get("showtraceback") is showtraceback:  # else the cell put its own there
            if before is missing:
                del shell.showtraceback
            else:
                shell.showtraceback = before


def drop_ours(error: BaseException | None) -> None:
    """Take the frames of ours that are to be hidden out of an error's traceback, in place.

    Also out of those of its causes and contexts. The outermost frame stays.
    """
    waiting, seen = [error], set[int]()
    while waiting:
        found = waiting.pop()
        if found is None or id(found) in seen:
            continue
        seen.add(id(found))
        waiting += [found.__cause__, found.__context__]
        trace = found.__traceback__
        while trace is not None:
            following = trace.tb_next
            while following is not None and _is_hidden(following):
                following = following.tb_next
            trace.tb_next = following
            trace = following


def _is_hidden(trace: TracebackType) -> bool:
    frame = trace.tb_frame
    return frame.f_code.co_filename.startswith(_OURS[0]) and bool(
        frame.f_locals.get("__tracebackhide__")
    )


def running_cell(shell: Any) -> int:
    """Return the number of the cell that runs; IPython 9 counts on before it runs the cell."""
    running = getattr(shell.displayhook, "exec_result", None)
    count: int = getattr(running, "execution_count", None) or shell.execution_count
    return count
