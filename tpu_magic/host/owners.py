"""Who holds the chip: processes with an open device node, and libtpu's lock file.

Only looks. Links of other people's processes may be unreadable; that is counted, never raised.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

LOCK_NAME = "libtpu_lockfile"
_NODE = re.compile(r"/dev/(accel|vfio/)\d+")
_KERNEL = re.compile(r"ipykernel|colab_kernel_launcher|jupyter[-_/].*kernel|kernel-[\w-]+\.json")


@dataclass(frozen=True)
class Owner:
    """A process that holds a chip.

    Attributes
    ----------
    pid, command, user
        As the system lists them; empty where they may not be read.
    started
        When the process started, in seconds since 1970. When it opened the chip is not
        recorded anywhere, so this is the earliest time.
    kernel
        Whether it looks like a notebook kernel.
    this_process
        Whether it is the process that asks.
    nodes
        The device nodes that it holds.
    """

    pid: int
    command: str
    user: str
    started: float | None
    kernel: bool
    this_process: bool
    nodes: tuple[str, ...]

    def sentence(self) -> str:
        """Say who it is and what frees the chip."""
        if self.this_process:
            return f"this kernel (pid {self.pid}); restarting it is the only way to free the chip"
        what = "a notebook kernel" if self.kernel else "a process"
        who = f" of {self.user}" if self.user else ""
        command = f" ({self.command})" if self.command else ""
        cure = (
            "shut that kernel down" if self.kernel else f"end it if it is yours (kill {self.pid})"
        )
        return f"{what}{who}, pid {self.pid}{command}; to free the chip, {cure}"


@dataclass(frozen=True)
class Holding:
    """Who holds what.

    Attributes
    ----------
    owners
        Processes with an open device node of a chip.
    unreadable
        Processes whose open files may not be listed; with any of them, "nobody" is not known.
    lock_file
        Path of libtpu's lock file, where there is one.
    lock_stale
        Whether that file is left over (no live process has it open); None when not known.
    """

    owners: tuple[Owner, ...] = ()
    unreadable: int = 0
    lock_file: str | None = None
    lock_stale: bool | None = None

    @property
    def others(self) -> tuple[Owner, ...]:
        """Owners other than this process."""
        return tuple(owner for owner in self.owners if not owner.this_process)

    def sentences(self) -> list[str]:
        """Say who holds the chip."""
        return [f"the chip is held by {owner.sentence()}" for owner in self.owners]

    def lock_sentence(self) -> str | None:
        """Say what is wrong with the lock file; None when nothing is."""
        if self.lock_file is None or self.lock_stale is False:
            return None
        if self.lock_stale:
            return (
                f"{self.lock_file} is left over, no live process holds it: "
                f"if libtpu complains about its lock file, remove it (rm {self.lock_file})"
            )
        return (
            f"{self.lock_file} is there; whether a process of another account holds it "
            "cannot be seen from this one"
        )


def owners(
    root: Path = Path("/"),
    temporary: Path | None = None,
    describe: Callable[[int], tuple[str, str, float | None]] | None = None,
) -> Holding:
    """Return who holds the chips of this machine. Never raises, never ends a process.

    Parameters
    ----------
    root
        Folder that holds `proc`.
    temporary
        Folder of the lock file (default: the system's temporary folder).
    describe
        Returns command, user and start of a process (default: by psutil).
    """
    lock = (temporary or Path(tempfile.gettempdir())) / LOCK_NAME
    found: list[Owner] = []
    unreadable = 0
    locked = False
    for pid, folder in _processes(root):
        try:
            links = set(_links(folder))
        except PermissionError:
            unreadable += 1
            continue
        except OSError:  # it ended meanwhile
            continue
        locked = locked or str(lock) in links
        nodes = tuple(sorted(link for link in links if _NODE.fullmatch(link)))
        if nodes:
            found.append(_owner(pid, nodes, describe or _describe))
    if not lock.exists():
        return Holding(tuple(found), unreadable)
    held = locked or bool(found)
    stale = False if held else None if unreadable else True
    return Holding(tuple(found), unreadable, str(lock), stale)


def _processes(root: Path) -> Iterator[tuple[int, Path]]:
    try:
        folders = list((root / "proc").iterdir())
    except OSError:
        return
    for folder in folders:
        if folder.name.isdecimal():
            yield int(folder.name), folder / "fd"


def _links(folder: Path) -> Iterator[str]:
    """Yield what a process has open. psutil lists regular files only, no device nodes."""
    for entry in folder.iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            yield str(entry.readlink())


def _owner(
    pid: int, nodes: tuple[str, ...], describe: Callable[[int], tuple[str, str, float | None]]
) -> Owner:
    command, user, started = describe(pid)
    return Owner(
        pid=pid,
        command=command if len(command) <= 120 else command[:119] + "…",  # noqa: PLR2004
        user=user,
        started=started,
        kernel=bool(_KERNEL.search(command)),
        this_process=pid == os.getpid(),
        nodes=nodes,
    )


def _describe(pid: int) -> tuple[str, str, float | None]:
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            return " ".join(process.cmdline()), process.username(), process.create_time()
    except psutil.Error:
        return "", "", None
