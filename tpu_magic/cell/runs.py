"""Which cells IPython is running, and which of them is on the device.

IPython tells by events, which also come for nested and silent cells.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import ExitStack

    from tpu_magic.cell.live import LiveLine
    from tpu_magic.cell.meter import Meter
    from tpu_magic.frameworks.base import CellSession
    from tpu_magic.options import RunOptions


@dataclass
class Run:
    """One run of a cell, from `pre_execute` on. Silent runs get no info."""

    info: Any = None

    @property
    def is_silent(self) -> bool:
        """Say whether nothing of it is shown."""
        return self.info is None


class Runs(threading.local):
    """The cells that are running on a thread, the innermost last."""

    def __init__(self) -> None:
        self._stack: list[Run] = []

    def __bool__(self) -> bool:
        return bool(self._stack)

    def push(self) -> None:
        """Note that a run begins (`pre_execute`)."""
        self._stack.append(Run())

    def name(self, info: Any) -> None:
        """Note what `pre_run_cell` tells; silent runs have none."""
        if self._stack:
            self._stack[-1].info = info

    def top(self) -> Run | None:
        """Return the innermost run."""
        return self._stack[-1] if self._stack else None

    def code(self) -> str:
        """Return the text of the innermost cell as the person wrote it."""
        top = self.top()
        return "" if top is None or top.info is None else str(top.info.raw_cell)

    def pop_silent(self) -> Run | None:
        """End the innermost run if it is silent (`post_execute`); others wait for their result."""
        return self._stack.pop() if self._stack and self._stack[-1].is_silent else None

    def pop(self, result: Any) -> Run | None:
        """End the run that a `post_run_cell` is about, if it is one of ours.

        The event also comes for cells that IPython never began (empty ones), and with None
        when a coroutine was cut short.
        """
        if not self._stack:
            return None
        if result is None or self._stack[-1].info is result.info:
            return self._stack.pop()
        return None


@dataclass
class Active:
    """The cell that is on the device now."""

    run: Run | None
    options: RunOptions
    session: CellSession
    undo: ExitStack
    meter: Meter
    automatic: bool
    runs_left: int
    line: LiveLine | None = None
    late_error: BaseException | None = None
    thread: int = field(default_factory=threading.get_ident)
    process: int = field(default_factory=os.getpid)

    def is_silent(self) -> bool:
        """Say whether nothing of the cell is shown."""
        return self.run is not None and self.run.is_silent

    def is_here(self) -> bool:
        """Say whether the caller belongs to this cell: its thread, and no forked child."""
        return self.thread == threading.get_ident() and self.process == os.getpid()
