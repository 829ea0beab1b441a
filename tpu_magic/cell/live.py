"""The line that tells how a long cell is going, and is gone when the cell ends."""

from __future__ import annotations

import contextvars
import sys
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from IPython.display import display

from tpu_magic.report import render

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from tpu_magic.cell.meter import Meter

FIRST_S = 2.0
EVERY_S = 0.5


class Screen(Protocol):
    """A place for one line that changes."""

    def show(self, line: str) -> None:
        """Put the line in place of the one before."""
        ...

    def clear(self) -> None:
        """Leave no trace."""
        ...


class NotebookScreen:
    """A display that is updated in place, and emptied at the end."""

    def __init__(self) -> None:
        self._id = uuid.uuid4().hex
        self._shown = False

    def show(self, line: str) -> None:
        """Display the line, or update the display."""
        self._publish({"text/plain": line})

    def clear(self) -> None:
        """Empty the display: what is saved of it shows nothing."""
        if self._shown:
            self._publish({})

    def _publish(self, data: dict[str, str]) -> None:
        display(data, raw=True, display_id=self._id, update=self._shown)
        self._shown = True


class TerminalScreen:
    """A line that the cursor goes back on."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def show(self, line: str) -> None:
        """Write over the line before."""
        self._write(f"\r\x1b[2K{line}")

    def clear(self) -> None:
        """Erase the line."""
        self._write("\r\x1b[2K")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def screen_for(shell: InteractiveShell) -> Screen | None:
    """Return where a live line can be shown; None where nobody looks (a script, a pipe)."""
    if hasattr(shell, "kernel"):
        return NotebookScreen()
    return TerminalScreen(sys.stderr) if sys.stderr.isatty() else None


class LiveLine:
    """Shows a line from a thread while a cell runs.

    Parameters
    ----------
    read
        Returns the line; called on the thread, and must not make the device do anything.
    screen
        Where it is shown.
    first_s, every_s
        Seconds before the first line and between two: short cells show none.
    """

    def __init__(
        self,
        read: Callable[[], str],
        screen: Screen,
        first_s: float = FIRST_S,
        every_s: float = EVERY_S,
    ) -> None:
        self._read = read
        self._screen = screen
        self._first_s, self._every_s = first_s, every_s
        self._over = threading.Event()
        self._shown = False
        # A kernel knows by the context which cell an output belongs to.
        run = contextvars.copy_context().run
        self._thread = threading.Thread(
            target=run, args=(self._watch,), name="tpu_magic live", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End the thread and take the line away."""
        self._over.set()
        self._thread.join()
        if self._shown:
            self._screen.clear()

    def _watch(self) -> None:
        pause = self._first_s
        with suppress(Exception):  # a line that cannot be shown is no trouble of the person's
            while not self._over.wait(pause):
                line = self._read()
                self._shown = True
                self._screen.show(line)
                pause = self._every_s


def start(shell: InteractiveShell, meter: Meter) -> LiveLine | None:
    """Start the live line of a cell, where there is a place for it."""
    screen = screen_for(shell)
    if screen is None:
        return None
    return LiveLine(partial(describe, meter), screen, FIRST_S, EVERY_S)


def describe(meter: Meter) -> str:
    """Return the line: time since the beginning, steps, rows a second, programs compiled."""
    facts, elapsed_s = meter.facts, meter.clock() - meter.connected
    parts = [render.seconds(elapsed_s)]
    if facts.steps:
        parts.append(f"step {facts.steps}")
    if facts.examples:
        parts.append(render.rate(facts.examples / elapsed_s).replace("/s", " examples/s"))
    if compiles := meter.compiles():
        parts.append(f"{compiles} compile{'' if compiles == 1 else 's'}")
    return " · ".join(parts)
