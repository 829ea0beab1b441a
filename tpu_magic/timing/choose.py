"""Which adapter times a statement: by the arrays that its names reach."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from IPython.core.error import UsageError

from tpu_magic import frameworks
from tpu_magic.frameworks.base import Adapter, Counters
from tpu_magic.timing.calls import is_synchronous

_DEPTH = 3  # functions that call functions


@dataclass(frozen=True)
class Choice:
    """An adapter, and whether what is known before the first call settles it.

    Attributes
    ----------
    adapter
        The adapter; its runtime is connected.
    settled
        False when the first call may still show that another one must time the code.
    """

    adapter: Adapter
    settled: bool

    def after(self, outputs: Any, counted: Counters) -> Adapter:
        """Return the adapter for code whose first call gave these outputs and counts.

        The chosen one if it is settled, or if the call used its device. Else the first whose
        device holds an output; else one whose arrays are on the host; else plain Python.
        """
        chosen = self.adapter
        used = not is_synchronous(chosen) and (counted.executions or _holds(chosen, outputs))
        if self.settled or used:
            return chosen
        running = frameworks.running()
        for adapter in running:
            if not is_synchronous(adapter):
                adapter.connect()
        return next(filter(lambda a: _holds(a, outputs), running), frameworks.adapter("plain"))


def choose(framework: str, device: str, inputs: Mapping[str, Any]) -> Choice:
    """Return the adapter that times code with these inputs.

    With `auto` it is the first of the registry that is running and finds arrays of its own in
    the inputs, or in what the inputs' functions use. Adapters whose framework is not loaded
    are not asked, so that nothing is imported. Where none finds any it is one with a device:
    waiting for it in vain is better than not waiting.

    Parameters
    ----------
    framework
        `auto`, or the name of an adapter.
    device
        `auto`, `tpu` (refuse anything else) or `cpu` (the framework without its device).
    inputs
        The values that the code's names have.

    Raises
    ------
    IPython.core.error.UsageError
        When there is no such adapter, or not that device.
    """
    if framework != "auto":
        eager = f"{framework}-eager"
        name = eager if device == "cpu" and eager in frameworks.REGISTRY else framework
        choice = Choice(frameworks.adapter(name), settled=True)
    else:
        running = frameworks.running()
        if device == "cpu":
            running = [adapter for adapter in running if is_synchronous(adapter)]
        values = [value for each in inputs.values() for value in _reached(each, _DEPTH)]
        found = next((a for a in running if any(_finds(a, value) for value in values)), None)
        waited = next((a for a in running if not is_synchronous(a)), frameworks.adapter("plain"))
        # Arrays of a host adapter do not settle it: the code may bring them to a device.
        settled = found is not None and (device == "cpu" or not is_synchronous(found))
        choice = Choice(found or waited, settled)
    kind = choice.adapter.connect(require_tpu=device == "tpu").kind
    if device == "cpu" and not is_synchronous(choice.adapter):
        raise UsageError(f"--device cpu: --framework {framework} runs on {kind} here")
    return choice


def _finds(adapter: Adapter, value: Any) -> bool:
    return any(True for _ in adapter.arrays(value))


def _holds(adapter: Adapter, outputs: Any) -> bool:
    return any(adapter.on_device(array) for array in adapter.arrays(outputs))


def _reached(value: Any, depth: int, seen: set[int] | None = None) -> Iterator[Any]:
    """Yield a value and, for a function or method, the values that its code names."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return
    seen.add(id(value))
    yield value
    function = getattr(value, "__func__", value)
    if not depth:
        return
    if callable(value):  # `jax.jit` and `tf.function` wrap it in objects of their own
        yield from _reached(getattr(value, "__wrapped__", None), depth, seen)
    if isinstance(value, functools.partial):
        for inner in (value.func, *value.args, *value.keywords.values()):
            yield from _reached(inner, depth, seen)
    if not isinstance(function, types.FunctionType):
        return
    named = [function.__globals__.get(name) for name in function.__code__.co_names]
    held = [cell.cell_contents for cell in function.__closure__ or () if _filled(cell)]
    owner = getattr(value, "__self__", None)
    for inner in (owner, *named, *held, *(function.__defaults__ or ())):
        yield from _reached(inner, depth - 1, seen)


def _filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # not bound yet
        return False
