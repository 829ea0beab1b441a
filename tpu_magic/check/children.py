"""Child processes of a check: a time limit, their last words, and none left behind."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

from tpu_magic.interrupts import Held

MARK = "tpu_magic check: "
_LAST_LINES = 40
_SHELL_SIGNAL = 128
_FAREWELL_S = 10.0


@dataclass(frozen=True)
class Ended:
    """How a child ended.

    Attributes
    ----------
    status
        Its exit status; negative for a signal.
    in_time
        Whether it ended within the time limit.
    said
        Its last lines that were no message of ours.
    """

    status: int
    in_time: bool
    said: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Say whether it ended as it should."""
        return self.status == 0 and self.in_time

    def sentence(self, what: str, limit_s: float) -> str:
        """Return how it ended in words; `what` is what it was: `the compiler`."""
        if not self.in_time:
            return f"{what} did not finish in {limit_s:g} s; --time-limit gives it longer"
        number = -self.status if self.status < 0 else self.status - _SHELL_SIGNAL
        if number == signal.SIGKILL:
            return f"{what} was killed, most likely because this machine ran out of memory"
        words = f": {self.said[-1]}" if self.said else ""
        if number in set(signal.Signals):
            return f"{what} crashed with {signal.Signals(number).name}{words}"
        return f"{what} ended with status {self.status}{words}"


def run(
    command: Sequence[str],
    environ: Mapping[str, str],
    limit_s: float,
    message: Callable[[dict[str, Any]], None],
) -> Ended:
    """Run a child to its end, and call `message` with each JSON message that it prints.

    The child is in a session of its own, so that an interrupt of the notebook does not reach
    it: it is ended here, with everything it started, whatever this call ends with. Its
    standard input is open while this process lives; a child ends when it is closed.
    """
    # An interrupt while it starts would leave a child that nobody knows of.
    starting = Held(deliver=False)
    with starting:
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            env=dict(environ),
            start_new_session=True,
        )
    with child:
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        assert child.stdout is not None  # noqa: S101 - a pipe was asked for
        reader = threading.Thread(target=_read, args=(child.stdout, lines), daemon=True)
        reader.start()
        said: deque[str] = deque(maxlen=_LAST_LINES)
        deadline = time.monotonic() + limit_s
        try:
            if starting.came:
                raise KeyboardInterrupt
            in_time = _listen(lines, deadline, message, said)
            if in_time:
                child.wait(_FAREWELL_S)
        except subprocess.TimeoutExpired:
            in_time = False
        finally:
            _end(child.pid)
            # Here, since leaving `with` by an interrupt does not wait for long.
            child.wait()
            reader.join()
        return Ended(child.returncode, in_time, tuple(said))


def _end(group: int) -> None:
    """End a child and everything that it started."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _read(stream: IO[str], lines: queue.SimpleQueue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


def _listen(
    lines: queue.SimpleQueue[str | None],
    deadline: float,
    message: Callable[[dict[str, Any]], None],
    said: deque[str],
) -> bool:
    """Pass messages on until the child closes its output; False when time is up before."""
    while True:
        try:
            line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return False
        if line is None:
            return True
        # Native code may have written the beginning of the line.
        before, mark, data = line.partition(MARK)
        if before.strip():
            said.append(before.strip())
        if mark:
            message(json.loads(data))
