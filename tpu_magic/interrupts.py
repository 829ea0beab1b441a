"""Interrupts that wait until a change is whole."""

from __future__ import annotations

import signal
import threading
from typing import Any


class Held:
    """A context in which an interrupt is kept back; `came` says whether there was one.

    Putting patches on and taking them off must never be half done. It takes milliseconds,
    after which the interrupt is raised, or left to the caller when `deliver` is False.
    Off the main thread Python delivers no interrupts, and nothing is done.
    """

    def __init__(self, *, deliver: bool = True) -> None:
        self.came = False
        self._deliver = deliver
        self._before: Any = None

    def __enter__(self) -> Held:
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if callable(before):  # else nobody's, or not Python's: no KeyboardInterrupt to hold
                self._before = before
                signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        __tracebackhide__ = True
        if self._before is None:
            return
        signal.signal(signal.SIGINT, self._before)
        if self.came and self._deliver:
            raise KeyboardInterrupt

    def _note(self, *_: object) -> None:
        self.came = True
