"""The calls that are timed: made one by one, in one go, or queued, on an adapter's device.

One sample is flush, wait, clock, call, keep the outputs, materialise them, wait, clock. The
outputs are dropped after the clock is read.
"""

from __future__ import annotations

import gc
import itertools
import operator
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tpu_magic.frameworks.abilities import Synchronous
from tpu_magic.frameworks.base import Adapter
from tpu_magic.timing.measurement import WALL, Clock
from tpu_magic.timing.statement import Run


@contextmanager
def undisturbed(adapter: Adapter) -> Iterator[None]:
    """Time without garbage collection, as `timeit` does; after an error the device is idle."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    except BaseException:
        # What is queued must not run into the next cell.
        with suppress(Exception):
            adapter.wait()
        raise
    finally:
        if enabled:
            gc.enable()


class Calls:
    """Makes the calls of one statement on one adapter.

    Parameters
    ----------
    adapter
        The framework's adapter.
    start
        Starts a run: executes the set-up, and returns what then makes the calls.
    clock
        The clock of the samples.
    wall
        The clock of the time limit, in seconds.

    Attributes
    ----------
    runs_total
        How often the code has run.
    """

    def __init__(
        self,
        adapter: Adapter,
        start: Callable[[], Run],
        clock: Clock = WALL,
        wall: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.runs_total = 0
        self.adapter = adapter
        self._start = start
        self.clock = clock
        self.wall = wall

    @property
    def one_by_one(self) -> bool:
        """Whether calls have ended when they return, so that none can be queued."""
        return is_synchronous(self.adapter)

    def opened(self) -> Run:
        """Execute the set-up, and let the device finish with it."""
        run = self._start()
        self.adapter.materialize(())
        self.adapter.wait()
        return run

    def call(self, run: Run, calls: int = 1) -> Any:
        """Make calls, and say in which one the person's code raised."""
        left = itertools.repeat(None, calls)
        try:
            return run.send(left)
        except BaseException as error:
            self.runs_total += calls - operator.length_hint(left)
            note(error, f"raised in call {self.runs_total} of the timed code")
            raise

    def untimed(self, run: Run) -> Any:
        """Make one call, and return what it computed."""
        outputs = self.call(run)
        self.runs_total += 1
        return outputs

    def one_at_a_time(self, run: Run, loops: int) -> float:
        """Return the seconds of calls that are each waited for; dropping outputs is not timed."""
        read, materialize, wait = self.clock.read, self.adapter.materialize, self.adapter.wait
        total = 0.0
        for _ in range(loops):
            started = read()
            outputs = self.call(run)
            materialize(outputs)
            wait()
            total += read() - started
            self.runs_total += 1
            del outputs
            next(run)
        return total

    def in_one_go(self, run: Run, loops: int) -> float:
        """Return the seconds of calls so short that a loop of Python's own must make them."""
        started = self.clock.read()
        self.call(run, loops)
        elapsed = self.clock.read() - started
        self.runs_total += loops
        next(run)
        return elapsed

    def queued(self, run: Run, loops: int) -> float:
        """Return the seconds of calls that are queued one behind the other and waited for once."""
        read, materialize = self.clock.read, self.adapter.materialize
        started = read()
        for _ in range(loops):
            materialize(self.call(run))
            self.runs_total += 1
            next(run)
        self.adapter.wait()
        return read() - started


def is_synchronous(adapter: Adapter) -> bool:
    """Say whether calls on the adapter's device have ended when they return."""
    return isinstance(adapter, Synchronous) and adapter.synchronous


def note(error: BaseException, text: str) -> None:
    """Add a note to an error, as Python 3.11's `add_note` does."""
    notes: list[str] = getattr(error, "__notes__", [])
    error.__notes__ = [*notes, text]  # type: ignore[attr-defined] # Python 3.10 has no notes
