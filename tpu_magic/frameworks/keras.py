"""Keras on JAX or TensorFlow: which backend and why; the rest is the backend's adapter."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from tpu_magic import frameworks
from tpu_magic.frameworks.base import Availability, Counters, DeviceInfo, Memory
from tpu_magic.frameworks.environ import environment
from tpu_magic.host import detect

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tpu_magic.frameworks.base import Adapter, CellSession, Namespace, Rows
    from tpu_magic.options import RunOptions

# backend of Keras: the adapter that runs it
ADAPTERS = {"jax": "jax", "tensorflow": "tf"}
_RESTART = "restart the kernel with KERAS_BACKEND=jax or KERAS_BACKEND=tensorflow"
_OLDEST = 3


@dataclass(frozen=True)
class Backend:
    """A backend of Keras, and why it is the one."""

    name: str
    why: str


def choose(
    loaded: str | None,
    environ: Mapping[str, str],
    has: Callable[[str], bool],
    *,
    tensorflow_loaded: bool,
    on_tpu: bool,
) -> Backend:
    """Return the backend that Keras runs on here.

    Parameters
    ----------
    loaded
        The backend of the Keras that is imported; None when none is.
    environ
        The environment variables.
    has
        Says whether a distribution is installed.
    tensorflow_loaded
        Whether tensorflow is imported in this process.
    on_tpu
        Whether a TPU chip is here.
    """
    configured = environ.get("KERAS_BACKEND")
    tensorflow = has("tensorflow") or has("tensorflow-cpu")
    # The first that holds decides; tpu_magic.setup plans by the same order.
    order = (
        (loaded, loaded, "keras is loaded with it in this kernel"),
        (configured, configured, "KERAS_BACKEND asks for it"),
        (on_tpu and has("tensorflow-tpu"), "tensorflow", "tensorflow-tpu is installed"),
        (on_tpu, "jax", "the one that runs on today's TPU images"),
        (tensorflow_loaded, "tensorflow", "tensorflow is loaded in this kernel"),
        (has("jax"), "jax", "jax is installed"),
        (tensorflow, "tensorflow", "tensorflow is installed"),
        (True, "jax", "none is installed, and this one runs on a TPU as well"),
    )
    return next(Backend(str(name), why) for holds, name, why in order if holds)


class Keras:
    """The adapter for Keras. `frameworks.base.Adapter`.

    Devices, waiting and counting are those of the adapter below it: JAX's or TensorFlow's.
    """

    name = "keras"

    def __init__(self) -> None:
        self._backend: Backend | None = None

    @property
    def backend(self) -> Backend:
        """Return the backend: what is loaded, configured, or fits this machine."""
        loaded = _loaded_backend()
        if self._backend is not None and loaded in (None, self._backend.name):
            return self._backend
        return choose(
            loaded,
            os.environ,
            _installed,
            tensorflow_loaded="tensorflow" in sys.modules,
            on_tpu=detect.detect().tpu,
        )

    @property
    def below(self) -> Any:
        """Return the adapter of the backend.

        Raises
        ------
        IPython.core.error.UsageError
            When there is none for it.
        """
        backend = self.backend
        if backend.name not in ADAPTERS:
            raise UsageError(
                f"Keras on {backend.name} is not supported yet ({backend.why}): {_RESTART}"
            )
        return frameworks.adapter(ADAPTERS[backend.name])

    # --- here or not ------------------------------------------------------------------------

    def availability(self) -> Availability:
        """Say whether Keras can be used in this process."""
        if self._backend is not None:
            return Availability(usable=True)
        if "keras" not in sys.modules and find_spec("keras") is None:
            return Availability(
                False, "keras is not installed here", "%tpu_setup --framework keras"
            )
        found = metadata.version("keras")
        if int(found.partition(".")[0]) < _OLDEST:
            return Availability(
                False, f"keras {found} is too old", "%tpu_setup --framework keras installs Keras 3"
            )
        backend = self.backend
        if backend.name not in ADAPTERS:
            return Availability(
                False, f"Keras on {backend.name} is not supported yet ({backend.why})", _RESTART
            )
        below: Availability = self.below.availability()
        return below

    def connected(self) -> bool:
        """Say whether Keras is loaded and its backend's runtime has been started."""
        if _loaded_backend() not in ADAPTERS:
            return False
        return bool(self.below.connected())

    def connect(
        self, *, simulate: int | None = None, require_tpu: bool = False, devices: str = "all"
    ) -> DeviceInfo:
        """Start the backend on all devices, and import Keras with it.

        Raises
        ------
        IPython.core.error.UsageError
            When the backend cannot be started, or is not one that runs here.
        """
        backend = self.backend
        self.below.connect(simulate=simulate, require_tpu=require_tpu, devices=devices)
        load(backend.name)
        self._backend = backend
        return self.devices()

    def devices(self) -> DeviceInfo:
        """Return the backend's devices; the note says which backend it is and why."""
        backend = self.backend
        info: DeviceInfo = self.below.devices()
        said = f"Keras on {backend.name}: {backend.why}"
        return replace(info, note=f"{said}; {info.note}" if info.note else said)

    # --- running ----------------------------------------------------------------------------

    def cell(
        self, options: RunOptions, namespace: Namespace
    ) -> AbstractContextManager[CellSession]:
        """Return the context of a cell: models, optimizers and batches are on every device."""
        from tpu_magic.frameworks.keras_cell import KerasCell

        below = self.below
        if self.backend.name == "jax":
            from tpu_magic.frameworks.keras_jax import OnJax

            return KerasCell(self, OnJax(below), options).running(namespace)
        from tpu_magic.frameworks.keras_tensorflow import OnTensorFlow

        return KerasCell(self, OnTensorFlow(below), options).running(namespace)

    def materialize(self, outputs: Any) -> None:
        """Hand pending work over, as the backend does."""
        self.below.materialize(outputs)

    def wait(self) -> None:
        """Block until the devices are done."""
        self.below.wait()

    def counters(self) -> Counters:
        """Return what the backend counted."""
        counted: Counters = self.below.counters()
        return counted

    def memory(self) -> list[Memory]:
        """Return the memory of each device."""
        told: list[Memory] = self.below.memory()
        return told

    # --- arrays -------------------------------------------------------------------------------

    def arrays(self, value: Any) -> Iterator[Any]:
        """Yield the backend's arrays in `value`; of models, layers and optimizers the variables."""
        keras = sys.modules.get("keras")
        if keras is None or _loaded_backend() not in ADAPTERS:
            return
        kinds = (keras.Layer, keras.optimizers.Optimizer, keras.metrics.Metric)
        if isinstance(value, kinds):
            yield from (each.value for each in value.variables)
        elif isinstance(value, keras.Variable):
            yield value.value
        else:
            yield from self.below.arrays(value)

    def on_device(self, array: Any) -> bool:
        """Say whether an array lives on the backend's device."""
        return bool(self.below.on_device(array))

    def to_device(self, array: Any) -> Any:
        """Return the array on the device."""
        return self.below.to_device(array)

    def read(self, array: Any) -> None:
        """Bring an array's values to the host."""
        self.below.read(array)

    def square(self, rows: Rows) -> Rows:
        """Return the product of a matrix with itself, as the backend computes it."""
        product: Rows = self.below.square(rows)
        return product

    def versions(self) -> dict[str, str]:
        """Return the versions of Keras and its backend."""
        below: dict[str, str] = self.below.versions()
        return {"keras": metadata.version("keras"), **below}

    def matmul_precision(self) -> str:
        """Return the precision of float32 matrix products."""
        return str(self.below.matmul_precision())

    def explain(self, error: BaseException, namespace: Namespace) -> str | None:
        """Return one line of help: today's spelling of old recipes, or what a batch broke."""
        from tpu_magic.frameworks import keras_errors

        return keras_errors.explain(error, namespace) or self._explain_below(error, namespace)

    def _explain_below(self, error: BaseException, namespace: Namespace) -> str | None:
        below: Adapter = self.below
        return below.explain(error, namespace)


def load(backend: str) -> Any:
    """Import Keras with a backend, which it reads from the environment once, at its import."""
    if "keras" in sys.modules:
        return sys.modules["keras"]
    with environment({"KERAS_BACKEND": backend}):
        return importlib.import_module("keras")


def configured() -> str | None:
    """Return the backend that Keras is loaded with, or will be; None when nothing says so."""
    return _loaded_backend() or os.environ.get("KERAS_BACKEND")


def _loaded_backend() -> str | None:
    """Return the backend of the Keras that is imported; None when none is, or not yet whole."""
    keras = sys.modules.get("keras")
    ask = getattr(getattr(keras, "config", None), "backend", None)
    return ask() if callable(ask) else None


def _installed(distribution: str) -> bool:
    with suppress(metadata.PackageNotFoundError):
        metadata.version(distribution)
        return True
    return False
