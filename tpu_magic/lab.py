"""Kernel side of the JupyterLab extension: tells front ends how the kernel's cells are going.

The protocol is one comm with a fixed id that is never opened: the kernel only publishes on
it. So a front end that does not know it stays silent, a page that is reloaded while a cell
runs gets the next packet, and nothing waits for an answer. A packet is the whole state; what
was lost does not matter. The only message in the other direction asks for one packet, at
once when the kernel is idle; while it is busy a thread publishes anyway.
"""

from __future__ import annotations

import itertools
import os
import re
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from tpu_magic import __version__, frameworks, lab_state

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from tpu_magic.cell.engine import CellEngine
    from tpu_magic.frameworks.base import Adapter

TARGET = "tpu_magic"
COMM_ID = "tpu_magic.status"
PROTOCOL = 1
# Seconds between two packets while a cell runs; a front end may ask for others.
EVERY_S, FASTEST_S, SLOWEST_S = 0.5, 0.25, 1.0
RECENT = 8
THREAD = "tpu-magic-lab"
_MAGIC = re.compile(r"^\s*(%{1,2}tpu_\w+)", re.MULTILINE)
# Packets of two threads may overtake each other; a front end drops what has a lower number.
_numbers = itertools.count(1)
# Eager torch is what plain cells run on; it is no device that was connected to.
_PLAIN = frozenset({"torch-eager", "plain"})


class Channel:
    """The comm, as the kernel's comm manager wants one."""

    comm_id = COMM_ID
    target_name = TARGET

    def __init__(self, kernel: Any, asked: Any) -> None:
        self.kernel = kernel
        self._asked = asked

    def send(self, kind: str, status: Any) -> None:
        """Publish a packet; from any thread, since ipykernel hands it to its own.

        The state is nested: nbclient takes a comm's `state` for that of a widget.
        """
        packet = {
            "type": kind,
            "v": PROTOCOL,
            "seq": next(_numbers),
            "t": time.time(),
            "status": status,
        }
        self.kernel.session.send(
            self.kernel.iopub_socket,
            "comm_msg",
            {"comm_id": COMM_ID, "data": packet},
            ident=f"comm-{COMM_ID}".encode(),
        )

    def handle_msg(self, message: dict[str, Any]) -> None:
        """Answer a front end that asks for the state."""
        data = message.get("content", {}).get("data", {})
        if isinstance(data, dict) and data.get("type") == "refresh":
            self._asked(data)

    def handle_close(self, message: dict[str, Any]) -> None:
        """Do nothing: the comm is never opened, so closing it means nothing either."""

    def close(self, *_: Any, **__: Any) -> None:
        """Do nothing; comm managers close what they hold when the kernel ends."""


@dataclass
class _Watched:
    """A cell of ours that is running."""

    info: Any
    magic: str
    cell_id: str | None
    began: float = field(default_factory=time.perf_counter)
    pace: lab_state.Pace = field(default_factory=lab_state.Pace)
    over: threading.Event = field(default_factory=threading.Event)

    def state(self) -> dict[str, Any]:
        """Return how it is going."""
        elapsed_s = time.perf_counter() - self.began
        return lab_state.running(self.pace, elapsed_s, self.cell_id, self.magic)


class Lab:
    """Follows the cells of a shell and publishes how they are going.

    Parameters
    ----------
    shell
        A shell in a kernel.
    engine
        Its cell engine, which must have been registered before: its reports are read after
        it left a cell.
    """

    def __init__(self, shell: InteractiveShell, engine: CellEngine) -> None:
        self._shell, self._engine = shell, engine
        self._kernel: Any = shell.kernel  # type: ignore[attr-defined]
        self._channel = Channel(self._kernel, self._answer)
        self._every_s = EVERY_S
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._watched: _Watched | None = None
        self._recent: deque[Any] = deque(maxlen=RECENT)
        self._reported = engine.last_report
        self._devices: list[dict[str, Any]] = []
        self._told: Any = None

    # --- from load to unload ------------------------------------------------------------

    def attach(self) -> None:
        """Register the comm and the events, and say that the extension is here."""
        self._kernel.comm_manager.register_comm(self._channel)
        self._shell.events.register("pre_run_cell", self._began)
        self._shell.events.register("post_run_cell", self._ended)
        self._tell()

    def detach(self) -> None:
        """Take everything back, and say that the extension is gone."""
        self._stop()
        for event, callback in (("pre_run_cell", self._began), ("post_run_cell", self._ended)):
            with suppress(ValueError):
                self._shell.events.unregister(event, callback)
        self._kernel.comm_manager.comms.pop(COMM_ID, None)
        self._channel.send("gone", None)

    # --- what IPython and front ends call -----------------------------------------------

    def _began(self, info: Any = None) -> None:
        """Follow a cell that has one of our magics, or runs under `%tpu_run on`.

        Its magic is looked for in the text: what it finds decides only what is shown.
        """
        if self._watched is not None:
            return  # a nested cell is part of the outer one
        found = _MAGIC.search(str(getattr(info, "raw_cell", "")))
        if found is None and self._engine.automatic is None:
            return
        magic = found.group(1) if found else "%tpu_run on"
        self._watched = watched = _Watched(info, magic, self._cell_id())
        name = f"{THREAD}-{watched.magic}"
        threading.Thread(target=self._follow, args=(watched,), name=name, daemon=True).start()

    def _ended(self, result: Any = None) -> None:
        watched = self._watched
        if watched is not None:
            if result is not None and result.info is not watched.info:
                return
            self._stop()
        report = self._engine.last_report
        if report is not None and report is not self._reported:
            ok = result is not None and result.success
            count = getattr(result, "execution_count", None)
            cell_id = watched.cell_id if watched else self._cell_id()
            self._recent.appendleft(lab_state.finished(report, cell_id, count, ok=ok))
            self._reported = report
        if watched is not None or self._standing() != self._told:
            self._tell()

    def _answer(self, asked: dict[str, Any]) -> None:
        wish = asked.get("every_s")
        if isinstance(wish, (int, float)):
            self._every_s = min(max(float(wish), FASTEST_S), SLOWEST_S)
        self._tell()

    # --- telling ------------------------------------------------------------------------

    def _follow(self, watched: _Watched) -> None:
        """Publish while the cell runs. Runs on a thread; ends with the cell."""
        while not watched.over.wait(self._every_s):
            self._tell(watched)

    def _stop(self) -> None:
        watched, self._watched = self._watched, None
        if watched is not None:
            with self._lock:  # no packet about a running cell may follow the last one
                watched.over.set()

    def _tell(self, following: _Watched | None = None) -> None:
        """Publish the whole state; from the thread of a cell, unless that cell has ended.

        What cannot be asked costs a packet: neither a cell nor loading must notice.
        """
        if os.getpid() != self._process:
            return  # a forked child's packets would be its parent's
        with suppress(Exception), self._lock:
            if following is not None and following.over.is_set():
                return
            if following is None:
                self._told = self._standing()
                self._devices = [lab_state.device(adapter) for adapter in self._connected()]
            watched, meter = self._watched, self._engine.meter
            if watched is not None and meter is not None:
                watched.pace.add(lab_state.sample(meter))
                self._devices = [lab_state.device(meter.adapter)]
            status = {
                "package": __version__,
                "every_s": self._every_s,
                "devices": self._devices,
                "automatic": self._engine.automatic,
                "host": _host(),
                "cell": None if watched is None else watched.state(),
                "recent": list(self._recent),
            }
            self._channel.send("state", status)

    def _standing(self) -> Any:
        """Return what is told between cells and a plain cell may change."""
        labels = [adapter.devices().label() for adapter in self._connected()]
        return self._engine.automatic, labels

    def _connected(self) -> list[Adapter]:
        """Return the adapters that hold devices. On the main thread: asking may import one."""
        return [
            adapter
            for adapter in frameworks.running()
            if adapter.name not in _PLAIN and _answers(adapter)
        ]

    def _cell_id(self) -> str | None:
        """Return JupyterLab's id of the cell that is running; None from other front ends."""
        parent = self._kernel.get_parent() or {}
        return (parent.get("metadata") or {}).get("cellId")


def _answers(adapter: Adapter) -> bool:
    """Say whether an adapter knows its devices: a runtime that others started may not be ours."""
    try:
        adapter.devices()
    except UsageError:
        return False
    return True


def _host() -> dict[str, Any]:
    """Return load (percent of all cores, since the call before) and memory of the machine."""
    import psutil

    memory = psutil.virtual_memory()
    return {
        "cpu_percent": psutil.cpu_percent(),
        "used_bytes": memory.total - memory.available,
        "total_bytes": memory.total,
    }


def attach(shell: InteractiveShell, engine: CellEngine) -> None:
    """Follow the shell's cells, where the shell is in a kernel that has comms."""
    kernel = getattr(shell, "kernel", None)
    if all(hasattr(kernel, name) for name in ("comm_manager", "session", "iopub_socket")):
        shell.tpu_lab = Lab(shell, engine)  # type: ignore[attr-defined]
        shell.tpu_lab.attach()  # type: ignore[attr-defined]


def detach(shell: InteractiveShell) -> None:
    """Undo `attach`."""
    lab = getattr(shell, "tpu_lab", None)
    if lab is not None:
        lab.detach()
        del shell.tpu_lab  # type: ignore[attr-defined]
