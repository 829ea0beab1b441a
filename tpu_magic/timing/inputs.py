"""The values that timed code uses: which live on the host, and their copies on the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from IPython.core.error import UsageError

from tpu_magic.frameworks.base import Adapter


def on_host(adapter: Adapter, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs that hold arrays which are not on the adapter's device.

    Raises
    ------
    IPython.core.error.UsageError
        When such an input is no array and no container of arrays, so that it cannot be
        copied: a model, for instance.
    """
    found = {}
    for name, value in inputs.items():
        if all(adapter.on_device(array) for array in adapter.arrays(value)):
            continue
        if not _copyable(adapter, value):
            raise UsageError(
                f"{name} ({type(value).__name__}) is on the host, the code's device is "
                f"{adapter.devices().kind}: use it once under %%tpu_run, or time it on the host "
                "with --device cpu"
            )
        found[name] = value
    return found


def to_device(adapter: Adapter, value: Any) -> Any:
    """Return a copy of an array, or of containers of arrays, on the device."""
    if isinstance(value, dict):
        return {key: to_device(adapter, item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [to_device(adapter, item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return adapter.to_device(value) if _is_array(adapter, value) else value


def _copyable(adapter: Adapter, value: Any) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return all(_copyable(adapter, item) for item in value)
    return _is_array(adapter, value) or not any(True for _ in adapter.arrays(value))


def _is_array(adapter: Adapter, value: Any) -> bool:
    return any(array is value for array in adapter.arrays(value))
