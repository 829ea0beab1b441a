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
# What people ask for that no adapter drives yet: what that means, and what to do.
NOT_YET = {
    "torch-tpu": (
        "tpu_magic does not drive TorchTPU (torch_tpu), the successor of torch_xla, yet",
        "plain cells use it by themselves (device 'tpu', on a TPU only); for %%tpu_run, "
        "%tpu_setup --version 2.9 puts torch 2.9 with torch_xla in its place",
    ),
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
    if name in NOT_YET:
        raise UsageError(": ".join(NOT_YET[name]))
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
