"""What a checked cell may not do: write, connect, start processes. It is listed instead.

Writing goes on into nothing, so that a cell with a checkpoint or a log is checked to its
end; what cannot be played is refused with an error. This keeps honest code from doing harm,
which is what is asked of it; it is no jail for hostile code.
"""

from __future__ import annotations

import builtins
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tpu_magic.check.places import Person

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# audit events of Python: what a person would call it; the first argument says of what
_EVENTS = {
    "os.chmod": "change", "os.chown": "change", "os.link": "link", "os.remove": "delete",
    "os.rename": "rename", "os.rmdir": "delete", "os.symlink": "link", "os.truncate": "change",
    "os.utime": "change", "os.setxattr": "change", "shutil.rmtree": "delete",
    "sqlite3.connect": "open the database",
    "os.system": "run", "os.exec": "run", "os.posix_spawn": "run", "os.spawn": "run",
    "os.startfile": "run", "subprocess.Popen": "run", "pty.spawn": "run",
    "os.fork": "start a process", "os.forkpty": "start a process", "os.kill": "signal the process",
    "socket.connect": "connect to", "socket.getaddrinfo": "connect to", "socket.bind": "listen at",
    "socket.sendto": "send to",
}  # fmt: skip
# Events that name the socket first.
_SECOND = frozenset({"socket.connect", "socket.bind", "socket.sendto"})


class Refusals:
    """What a cell was refused, as a person reads it, each once."""

    def __init__(self, person: Person, scratch: str) -> None:
        self.listed: list[str] = []
        self._person = person
        self._scratch = os.path.realpath(scratch) + os.sep
        self._active = False
        self._hooked = False

    def add(self, what: str) -> None:
        """Note what was refused, with the person's line."""
        place = self._person.here()
        text = f"{what} ({place})" if place else what
        if text not in self.listed:
            self.listed.append(text)

    def allowed(self, path: Any) -> bool:
        """Say whether a path may be written: nothing is lost in it."""
        if isinstance(path, int):
            return True
        try:
            real = os.path.realpath(os.fsdecode(path))
        except TypeError:
            return False
        return real.startswith(self._scratch) or real == os.devnull

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Refuse while the cell runs."""
        if not self._hooked:
            # A hook cannot be taken out again; it asks whether it is active.
            sys.addaudithook(self._audit)
            self._hooked = True
        kept = builtins.open, io.open, os.mkdir
        sink = self._opener(kept[0])
        builtins.open = io.open = sink
        os.mkdir = self._mkdir
        self._active = True
        try:
            yield
        finally:
            self._active = False
            builtins.open, io.open, os.mkdir = kept

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let our own work do what it must."""
        was, self._active = self._active, False
        try:
            yield
        finally:
            self._active = was

    def _opener(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def open(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:  # noqa: A001
            if not self._active or not set(mode) & set("wax+") or self.allowed(file):
                return original(file, mode, *args, **kwargs)
            self.add(f"write {os.fspath(file)}")
            return io.BytesIO() if "b" in mode else io.StringIO()

        return open

    def _mkdir(self, path: Any, *_: Any, **__: Any) -> None:
        self.add(f"make the folder {os.fspath(path)}")

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._active:
            return
        if event == "open":
            path, mode, flags = arguments
            writes = set(mode) & set("wax+") if isinstance(mode, str) else flags & _WRITING
            if not writes or self.allowed(path):
                return
            what = f"write {os.fsdecode(path)}"
        elif event in _EVENTS:
            if event.startswith(("os.re", "os.rm", "shutil")) and self.allowed(arguments[0]):
                return
            told = arguments[1:] if event in _SECOND else arguments
            what = f"{_EVENTS[event]} {told[0]}" if told else _EVENTS[event]
        else:
            return
        with self.paused():
            self.add(what)
        raise PermissionError(f"%%tpu_check runs nothing for real, so it does not {what}")
