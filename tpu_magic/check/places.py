"""Which of many frames is the person's own line."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import FrameType, TracebackType

CELL = "<tpu_check cell>"


@dataclass(frozen=True)
class Place:
    """A line of the person's.

    Attributes
    ----------
    line
        Number of the cell's line that it is, or that led to it; None when none did.
    text
        The line itself.
    elsewhere
        Whether it is a line of a function of another cell.
    """

    line: int | None
    text: str
    elsewhere: bool = False

    def __str__(self) -> str:
        if self.line is None:
            return f"another cell: {self.text}"
        return f"line {self.line}{' →' if self.elsewhere else ':'} {self.text}"


class Person:
    """The files that are the person's: the cell, and those of the notebook's functions."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self.sources = sources

    def place(self, filename: str, line: int) -> Place | None:
        """Return a place in one of the person's files; None for others."""
        source = self.sources.get(filename)
        if source is None:
            return None
        lines = source.splitlines()
        text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
        own = filename == CELL
        return Place(line if own else None, text, elsewhere=not own)

    def innermost(self, frames: Iterable[tuple[str, int]]) -> Place | None:
        """Return the first place of frames, the innermost given first, preferring the cell's.

        A line of a function of another cell is told with the number of the cell's line that
        led to it, if there is one.
        """
        places = [found for frame in frames if (found := self.place(*frame)) is not None]
        if not places:
            return None
        own = next((place for place in places if place.line is not None), None)
        return replace(places[0], line=own.line if own else None)

    def here(self) -> Place | None:
        """Return the person's line that is running."""
        return self.innermost(_frames_of(sys._getframe(1)))  # noqa: SLF001

    def frames(self) -> tuple[tuple[str, int], ...]:
        """Return the person's frames that are running, the innermost first."""
        return tuple(item for item in _frames_of(sys._getframe(1)) if item[0] in self.sources)  # noqa: SLF001

    def of_traceback(self, traceback: TracebackType | None) -> Place | None:
        """Return the person's line that an error came from."""
        frames = []
        while traceback is not None:
            frames.append((traceback.tb_frame.f_code.co_filename, traceback.tb_lineno))
            traceback = traceback.tb_next
        return self.innermost(reversed(frames))

    def remember(self) -> None:
        """Let `inspect` and tracebacks find the sources."""
        for filename, source in self.sources.items():
            lines = source.splitlines(keepends=True)
            linecache.cache[filename] = (len(source), None, lines, filename)


def _frames_of(frame: FrameType | None) -> Iterable[tuple[str, int]]:
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
