"""Signals that wait until a change is whole."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress
from typing import Any

# An interrupt; and the death of a child, at which torch's handler raises wherever Python is
# (a data loader's worker that died).
_SIGNALS = (signal.SIGINT, *([signal.SIGCHLD] if hasattr(signal, "SIGCHLD") else []))


class Held:
    """A context in which signals are kept back; `came` says whether there was an interrupt.

    Putting patches on and taking them off must never be half done. It takes milliseconds,
    after which the interrupt is raised, or left to the caller when `deliver` is False. The
    handlers of other signals are called then; without `deliver` what they raise is dropped.
    Off the main thread Python delivers no signals, and nothing is done.
    """

    def __init__(self, *, deliver: bool = True) -> None:
        self._deliver = deliver
        self._before: dict[int, Any] = {}
        self._came: list[int] = []

    @property
    def came(self) -> bool:
        """Whether an interrupt came."""
        return signal.SIGINT in self._came

    def __enter__(self) -> Held:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                before = signal.getsignal(number)
                if callable(before):  # else nobody's, or not Python's: nothing to hold
                    self._before[number] = before
                    signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        __tracebackhide__ = True
        for number, before in self._before.items():
            signal.signal(number, before)
        for number in dict.fromkeys(self._came):
            if number == signal.SIGINT:
                continue
            with suppress(*(() if self._deliver else (Exception,))):
                self._before[number](number, None)
        if self.came and self._deliver:
            raise KeyboardInterrupt

    def _note(self, number: int, _: object) -> None:
        self._came.append(number)
