"""What only some adapters can do. Whoever wants it asks with `isinstance`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Profiles(Protocol):
    """An adapter that can write down what its device does."""

    def profile(self, folder: str) -> AbstractContextManager[None]:
        """Return a context that writes a profile of what runs in it into a folder."""
        ...


@runtime_checkable
class NotesStart(Protocol):
    """An adapter that tells later who had started its runtime."""

    def note_started(self, cell: int | None) -> None:
        """Note in which cell (by number) the person's own code was seen to have started it."""
        ...


@runtime_checkable
class Times(Protocol):
    """An adapter whose framework must be told that its calls are timed."""

    def timed(self) -> AbstractContextManager[None]:
        """Return the context in which calls are timed."""
        ...


@runtime_checkable
class CountsWrites(Protocol):
    """An adapter whose arrays can be written to, and know how often they were."""

    def revision(self, array: Any) -> int:
        """Return how often an array was written to."""
        ...


@runtime_checkable
class TellsCompiling(Protocol):
    """An adapter that can say, from another thread, whether it compiles at the moment."""

    def compiling(self) -> bool:
        """Say whether a program is being compiled now."""
        ...


@runtime_checkable
class Synchronous(Protocol):
    """An adapter whose calls may have ended when they return; else they are queued."""

    synchronous: bool
