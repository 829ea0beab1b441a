"""Which cells IPython is running, from its events: they also come for nested and silent ones."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any


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
