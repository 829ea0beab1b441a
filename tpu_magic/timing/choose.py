"""Which adapter times a statement: by the arrays that its names reach."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

from IPython.core.error import UsageError

from tpu_magic import frameworks
from tpu_magic.frameworks.base import Adapter
from tpu_magic.timing.runner import is_synchronous

_DEPTH = 3  # functions that call functions
_PACKAGES = {"tf": "tensorflow"}  # where an adapter is not named as its package


def choose(framework: str, device: str, inputs: Mapping[str, Any]) -> Adapter:
    """Return the adapter that times code with these inputs; its runtime is connected.

    With `auto` it is the first of the registry that is running and finds arrays of its own in
    the inputs, or in what the inputs' functions use. Adapters whose framework is not loaded
    are not asked, so that nothing is imported.

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
    if device == "cpu" and f"{framework}-eager" in frameworks.REGISTRY:
        framework += "-eager"
    chosen = frameworks.adapter(framework) if framework != "auto" else _running(inputs)
    found = chosen.connect(require_tpu=device == "tpu")
    if device == "cpu" and not is_synchronous(chosen):
        raise UsageError(
            f"--device cpu: the code uses arrays on {found.kind}; name host arrays instead"
        )
    return chosen


def _running(inputs: Mapping[str, Any]) -> Adapter:
    """Return the first running adapter that finds arrays of its own."""
    values = [value for each in inputs.values() for value in _reached(each, _DEPTH)]
    for adapter in loaded_adapters():
        if adapter.connected() and any(True for value in values for _ in adapter.arrays(value)):
            return adapter
    return frameworks.adapter("plain")


def loaded_adapters() -> list[Adapter]:
    """Return the adapters whose framework is loaded in this process."""
    return [frameworks.adapter(name) for name in frameworks.REGISTRY if _loaded(name)]


def _loaded(name: str) -> bool:
    root = name.partition("-")[0]
    return _PACKAGES.get(root, root) in sys.modules


def _reached(value: Any, depth: int) -> Iterator[Any]:
    """Yield a value and, for a function, the values that its code names."""
    yield value
    function = getattr(value, "__func__", value)
    if not isinstance(function, types.FunctionType) or not depth:
        return
    named = [function.__globals__.get(name) for name in function.__code__.co_names]
    held = [cell.cell_contents for cell in function.__closure__ or () if _filled(cell)]
    for inner in (*named, *held, *(function.__defaults__ or ())):
        if inner is not value:
            yield from _reached(inner, depth - 1)


def _filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # not bound yet
        return False
