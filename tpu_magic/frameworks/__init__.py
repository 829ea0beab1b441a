"""The frameworks: a registry of adapters, each imported when it is first asked for."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from typing import TYPE_CHECKING

from IPython.core.error import UsageError

if TYPE_CHECKING:
    from tpu_magic.frameworks.base import Adapter

# name: (module, class). An adapter's module is the only place that imports its framework.
REGISTRY = {
    "torch": ("tpu_magic.frameworks.torch_xla", "TorchXla"),
    "torch-eager": ("tpu_magic.frameworks.torch_eager", "TorchEager"),
    "keras": ("tpu_magic.frameworks.keras", "Keras"),
    "tf": ("tpu_magic.frameworks.tensorflow", "TensorFlow"),
    "jax": ("tpu_magic.frameworks.jax", "Jax"),
    "plain": ("tpu_magic.frameworks.plain", "PlainPython"),
}
# Where the package that an adapter is about has another name than the adapter.
_PACKAGES = {"torch-eager": "torch", "tf": "tensorflow"}


@cache
def adapter(name: str) -> Adapter:
    """Return the adapter of a framework, one per process.

    Raises
    ------
    IPython.core.error.UsageError
        When there is no adapter of that name yet.
    """
    try:
        module, attribute = REGISTRY[name]
    except KeyError:
        raise UsageError(
            f"--framework {name} is not there yet in this version of tpu_magic "
            f"(it has: {', '.join(REGISTRY)})"
        ) from None
    made: Adapter = getattr(importlib.import_module(module), attribute)()
    return made


def running() -> list[Adapter]:
    """Return the adapters whose runtime is up, whoever started it; no framework is imported."""
    loaded = (adapter(name) for name in REGISTRY if _PACKAGES.get(name, name) in sys.modules)
    return [each for each in loaded if each.connected()]
