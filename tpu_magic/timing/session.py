"""One statement on the way to being timed: its adapter, its inputs, its runner."""

from __future__ import annotations

import os
import platform
import sys
import uuid
from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import IPython

from tpu_magic import frameworks
from tpu_magic.frameworks import abilities
from tpu_magic.frameworks.base import Adapter
from tpu_magic.host import chips
from tpu_magic.timing import inputs, preserve
from tpu_magic.timing.calls import note, undisturbed
from tpu_magic.timing.choose import Choice, choose
from tpu_magic.timing.measurement import Clock
from tpu_magic.timing.runner import Runner
from tpu_magic.timing.statement import Statement

_SHOWS_NOTES = (8, 15)  # the first IPython that surely shows an error's notes
# Whoever reads a saved result must know what decided its speed.
_SETTINGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "PJRT_DEVICE", "JAX_PLATFORMS", "OMP_NUM_THREADS")


@dataclass(frozen=True)
class Session:
    """A statement, where it runs, and what times it.

    Attributes
    ----------
    statement
        The code.
    runner
        What times it.
    moved
        Inputs of which a copy was made on the device, by name.
    choice
        What chose the adapter, and is asked again after the first call.
    """

    statement: Statement
    runner: Runner
    moved: tuple[str, ...]
    choice: Choice
    _values: Mapping[str, Any]
    _before: Mapping[str, Hashable]

    @property
    def adapter(self) -> Adapter:
        """What runs it."""
        return self.runner.adapter

    @contextmanager
    def running(self) -> Iterator[None]:
        """Time in this context: nothing disturbs it, and it disturbs nothing."""
        with ExitStack() as stack:
            running = frameworks.running()
            stack.enter_context(preserve.random_state(*running))
            for adapter in running:
                if isinstance(adapter, abilities.Times):
                    stack.enter_context(adapter.timed())
            stack.enter_context(undisturbed(self.adapter))
            try:
                yield
            except Exception as error:
                self._explain(error)
                raise

    def _explain(self, error: Exception) -> None:
        """Add to an error what helps, and show it where IPython shows no notes."""
        deleted = self.statement.deleted
        if deleted and isinstance(error, NameError):
            names = ", ".join(sorted(deleted))
            note(error, f"the code deletes {names}: its next call cannot find it; make it anew")
        if help_line := self.adapter.explain(error, dict(self._values)):
            note(error, help_line)
        if IPython.version_info < _SHOWS_NOTES:
            for text in getattr(error, "__notes__", ()):
                print(f"%tpu_timeit: {text}", file=sys.stderr)  # noqa: T201

    def changed(self) -> tuple[str, ...]:
        """Return the names whose values the code has changed in place."""
        now = _fingerprints(self.choice.adapter, self._values)
        return tuple(name for name, state in self._before.items() if now[name] != state)

    def peak_flops(self) -> float | None:
        """Return the bf16 peak of all devices together, where the chip is in the table."""
        device = self.adapter.devices()
        generation = chips.by_name(device.kind)
        return generation.bf16_flops_per_device * device.count if generation else None

    def environment(self, program: str | None = None) -> dict[str, str]:
        """Return what decides how fast code is: versions, settings, machine, process, program."""
        return {
            **({"program": program} if program else {}),
            **self.adapter.versions(),
            "machine": platform.machine(),
            **{name: os.environ[name] for name in _SETTINGS if name in os.environ},
            "session": _process_id(),
        }


def prepare(
    statement: Statement, framework: str, device: str, clock: Clock, *, include_transfer: bool
) -> Session:
    """Choose where a statement runs, and bring its inputs there.

    Parameters
    ----------
    include_transfer
        Bring host inputs to the device in every call, as part of it, instead of once before.

    Raises
    ------
    IPython.core.error.UsageError
        When that device is not there, or an input cannot be brought to it.
    """
    values = statement.inputs()
    choice = choose(framework, device, values)
    adapter = choice.adapter
    hosted = inputs.on_host(adapter, values)
    if include_transfer:
        make = {n: partial(inputs.to_device, adapter, value) for n, value in hosted.items()}
        start, moved = statement.starter(remade=make), {}
    else:
        moved = {name: inputs.to_device(adapter, value) for name, value in hosted.items()}
        start = statement.starter(replaced=moved)
    used = {**values, **moved}
    state = _fingerprints(adapter, used)
    runner = Runner(adapter, start, clock)
    return Session(statement, runner, tuple(moved), choice, used, state)


def _fingerprints(adapter: Adapter, values: Mapping[str, Any]) -> dict[str, Hashable]:
    """Return what shows that a value was changed in place: sizes, and the arrays' revisions."""
    revision = adapter.revision if isinstance(adapter, abilities.CountsWrites) else id

    def of(value: Any) -> Hashable:
        length = len(value) if isinstance(value, (list, dict, set, bytearray, deque)) else None
        return length, tuple((id(array), revision(array)) for array in adapter.arrays(value))

    return {name: of(value) for name, value in values.items()}


@cache
def _process_id() -> str:
    """Return a name for this process: results of one session are not independent."""
    return uuid.uuid4().hex
