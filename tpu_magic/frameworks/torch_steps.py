"""The steps of a torch cell: where they end, how many there were, and what they cost the host.

Nothing in plain PyTorch ends a step for XLA: without an end, a loop is one program. A step
ends after an optimizer's step, at the next batch when no optimizer stepped, and at a model's
next call when its last one is done.
"""

from __future__ import annotations

import time
import weakref
from collections import Counter
from typing import Any

import torch
import torch_xla
from torch_xla.debug import metrics

from tpu_magic.frameworks.base import CellFacts, Compile
from tpu_magic.frameworks.torch_busy import BusyTime
from tpu_magic.frameworks.torch_facts import Cell
from tpu_magic.frameworks.torch_runtime import seconds_in

_MOST_CALLS_IN_PROGRAM = 4
_COMPILES = "UncachedCompile"
# The runtime counts here how long the host stood before a device that was behind.
_BLOCKED = "DeviceLockWait"


class Steps:
    """Counts and ends the steps of one cell.

    Parameters
    ----------
    facts
        Where the counts are told, also while the cell runs.
    code
        Tells which line of the cell is running.

    Attributes
    ----------
    ended
        Whether nothing was recorded since the last end.
    trace_s
        Host time in recording, as told by who recorded.
    optimizer_steps
        How often optimizers stepped.
    """

    def __init__(self, facts: CellFacts, code: Cell) -> None:
        self._facts = facts
        self._code = code
        self._busy = BusyTime()
        self.ended = True
        self.trace_s = 0.0
        self.optimizer_steps = 0
        self._rounds = 0
        self._stepped: weakref.WeakSet[Any] = weakref.WeakSet()
        self._batches = 0
        self._own_ends = 0
        self._ending = False
        self._shape: tuple[int, ...] | None = None
        self._rows_at_hand = 0
        self._backwards_of_rows = 0
        self._rows_since_step = 0
        self._trained = 0
        self._seen = 0
        self._sizes: Counter[int] = Counter()
        self._calls: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._backwards = 0
        self._blocked_before_s = seconds_in(_BLOCKED)
        self._compiles = metrics.counter_value(_COMPILES) or 0
        self._compiled_s = seconds_in("CompileTime")

    def batch(self, shape: tuple[int, ...] | None, backwards: int) -> None:
        """Note a batch that a loader gave, by the shape of its first tensor."""
        self._batches += 1
        self.takes(shape)
        if shape is not None:
            self.rows(shape[0], backwards)
        self._tell()

    def takes(self, shape: tuple[int, ...] | None) -> None:
        """Note the shape that is being computed with."""
        self._shape = shape

    def rows(self, rows: int, backwards: int) -> None:
        """Note rows that go into this step."""
        self.ended = False
        # Rows that no gradient came of, as those of a validation, train nothing.
        self._rows_since_step += self._rows_at_hand if backwards > self._backwards_of_rows else 0
        self._rows_at_hand = rows
        self._backwards_of_rows = backwards
        self._seen += rows
        self._sizes[rows] += 1

    def module_called(self, module: Any, backwards: int) -> None:
        """Note a module's call, which may begin a step of a loop that nothing else ends.

        A module that is called again after a `backward`, or with no gradients wanted, begins
        anew; else it may be called several times in a step (twin networks, words of a
        sentence), in programs of a few calls each.

        Parameters
        ----------
        backwards
            How many `backward` calls there were in the cell.
        """
        calls = self._calls.get(module, 0)
        if calls and (backwards > self._backwards or not torch.is_grad_enabled()):
            self.end(backwards)
        elif calls >= _MOST_CALLS_IN_PROGRAM:
            self.cut()
        self._calls[module] = self._calls.get(module, 0) + 1

    def optimizer_stepped(self, optimizer: Any) -> None:
        """Count an optimizer's step. Optimizers that take turns make one step together."""
        self.optimizer_steps += 1
        if optimizer in self._stepped or not self._rounds:
            self._stepped.clear()
            self._rounds += 1
        self._stepped.add(optimizer)
        self._trained += self._rows_since_step + self._rows_at_hand
        self._rows_since_step = self._rows_at_hand = 0
        self._tell()

    def end(self, backwards: int) -> None:
        """Hand the recorded work to the device as one program. Does not wait."""
        self._has_ended(backwards, self._hand_over())

    def cut(self) -> None:
        """Hand over what is recorded so far of a step that goes on."""
        self.trace_s += max(0.0, self._hand_over() - self.note_compiles())
        self._calls.clear()

    def _hand_over(self) -> float:
        started, self._ending = time.perf_counter(), True
        try:
            torch_xla.sync()
        finally:
            self._ending = False
        return time.perf_counter() - started

    def ended_by_person(self, backwards: int, took_s: float) -> None:
        """Note that the person's own code ended a step (`torch_xla.sync()`), and its time."""
        if self._ending:
            return
        self._own_ends += not self.ended
        self._has_ended(backwards, took_s)
        self._tell()

    def _has_ended(self, backwards: int, took_s: float) -> None:
        self.trace_s += max(0.0, took_s - self.note_compiles())
        self._busy.step_ended()
        self.ended = True
        self._facts.unended_calls = max(self._calls.values(), default=0)
        self._calls.clear()
        self._backwards = backwards

    def note_compiles(self) -> float:
        """Note the programs compiled since the last time, and return the compiler's time."""
        compiles = metrics.counter_value(_COMPILES) or 0
        if compiles == self._compiles:
            return 0.0  # reading the times costs more than a small step
        shapes = "" if self._shape is None else str(self._shape)
        compiled = Compile(self._code.line(), shapes, self._done)
        self._facts.compiled += [compiled] * (compiles - self._compiles)
        before, self._compiled_s = self._compiled_s, seconds_in("CompileTime")
        self._compiles = compiles
        return self._compiled_s - before

    def blocked_s(self) -> float:
        """Return how long the host has stood before the device in this cell."""
        return seconds_in(_BLOCKED) - self._blocked_before_s

    def busy_s(self) -> float | None:
        """Return how long the device was busy; None where that is not known."""
        return self._busy.seconds()

    def summarise(self) -> None:
        """Tell what is known at the end."""
        self._tell()
        common = self._sizes.most_common(1)
        self._facts.global_batch = common[0][0] if common else None

    @property
    def _done(self) -> int:
        return self._rounds or self._batches or self._own_ends

    def _tell(self) -> None:
        self._facts.steps = self._done or None
        self._facts.examples = (self._trained if self._rounds else self._seen) or None
