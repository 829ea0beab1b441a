"""Which framework a cell is about, when `--framework auto` leaves it to us."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Any

# top-level package: the framework that it speaks for
PACKAGES = {
    "torch": "torch",
    "torch_xla": "torch",
    "torchvision": "torch",
    "transformers": "torch",
    "lightning": "torch",
    "keras": "keras",
    "tensorflow": "tf",
    "jax": "jax",
    "flax": "jax",
}
_IMPORT = re.compile(r"^\s*(?:from|import)\s+([A-Za-z_]\w*)", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z_]\w*")


def framework_of(code: str, namespace: Mapping[str, Any]) -> str | None:
    """Return the framework that a cell uses, or None when nothing speaks for one.

    What the cell imports decides before the objects that it names, and those before what
    is loaded in the process.
    """
    found = (
        _first(_IMPORT.findall(code))
        or _first(_packages_of(namespace[n] for n in _NAME.findall(code) if n in namespace))
        or _first(package for package in PACKAGES if package in sys.modules)
    )
    if found == "tf":
        from tpu_magic.frameworks import keras

        # `tf.keras` and tf.data are also used with Keras on another backend, which then trains.
        return "tf" if keras.configured() in (None, "tensorflow") else "keras"
    return found


def installed_framework() -> str | None:
    """Return the first framework that is installed, importing none."""
    return _first(package for package in ("torch_xla", "keras", "jax") if find_spec(package))


def _first(packages: Iterable[str]) -> str | None:
    return next((PACKAGES[package] for package in packages if package in PACKAGES), None)


def _packages_of(values: Iterable[Any]) -> Iterable[str]:
    """Yield the packages that made the values: a module itself, or the bases of a class."""
    for value in values:
        if isinstance(value, type(sys)):
            yield value.__name__.partition(".")[0]
            continue
        kind = value if isinstance(value, type) else type(value)
        for base in kind.__mro__[:-1]:
            yield base.__module__.partition(".")[0]
