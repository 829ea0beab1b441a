"""Real kernels in which Keras runs on 4 virtual devices, one for each backend in a session.

A plugin for pytest: `pytest_plugins = ("tests.support.keras_kernels",)` in a test module.
TensorFlow and JAX are imported in these kernels only, never in the process of the tests.
"""

from __future__ import annotations

import ast
import sys
from importlib.util import find_spec

import pytest

from tests.support.kernels import Kernel, Reply

DEVICES = 4
_CONNECT = f"""
%load_ext tpu_magic
%config TpuMagics.live = False
from tpu_magic.frameworks import adapter
adapter("keras").connect(simulate={DEVICES})
"""
# What each test starts from. `by_hand` does what it says with the framework alone.
_PRELUDE = """
%reset -f
import keras, numpy as np
from keras import layers
rng = np.random.default_rng(0)
x = rng.normal(size=(66, 8)).astype("float32")
y = (x @ rng.normal(size=(8, 1))).astype("float32")

def make(optimizer="sgd", *inner):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([layers.Input((8,)), layers.Dense(6, activation="tanh"), *inner,
                              layers.Dense(1)])
    model.compile(optimizer, "mse", metrics=["mae"])
    return model

def fit(model, rows, batch_size=16, **options):
    options = {"epochs": 2, "shuffle": False, "verbose": 0, **options}
    return model.fit(x[:rows], y[:rows], batch_size=batch_size, **options).history

def apart(these, those):
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in zip(these, those))
"""


class KerasKernel:
    """A kernel with Keras on several devices."""

    def __init__(self, kernel: Kernel, backend: str) -> None:
        self.kernel = kernel
        self.backend = backend

    def plain(self, code: str) -> Reply:
        """Run a cell without the magic, which must work."""
        return self.kernel.run(code).check()

    def cell(self, code: str, options: str = "--framework keras") -> Reply:
        """Run a cell under `%%tpu_run`, whatever becomes of it."""
        return self.kernel.run(f"%%tpu_run {options}\n{code}", timeout=240)

    def run(self, code: str, options: str = "--framework keras") -> Reply:
        """Run a cell under `%%tpu_run`, which must work."""
        return self.cell(code, options).check()

    def value(self, expression: str) -> object:
        """Return the value of an expression in the kernel, of plain Python types."""
        # TensorFlow logs to the same stream; ours is the last line.
        shown = self.plain(f"print(); print(repr(({expression})))").stdout
        return ast.literal_eval(shown.strip().splitlines()[-1])


def _session(backend: str):
    if find_spec("keras") is None or find_spec(backend) is None:
        pytest.skip(f"needs keras and {backend}")
    with Kernel(sys.executable, KERAS_BACKEND=backend, TF_CPP_MIN_LOG_LEVEL="3") as kernel:
        kernel.run(_CONNECT).check()
        yield KerasKernel(kernel, backend)


@pytest.fixture(scope="session")
def _on_jax():
    yield from _session("jax")


@pytest.fixture(scope="session")
def _on_tensorflow():
    yield from _session("tensorflow")


@pytest.fixture
def on_jax(_on_jax):
    """Return the kernel with Keras on JAX, as a test begins."""
    _on_jax.plain(_PRELUDE)
    return _on_jax


@pytest.fixture
def on_tensorflow(_on_tensorflow):
    """Return the kernel with Keras on TensorFlow, as a test begins."""
    _on_tensorflow.plain(_PRELUDE)
    return _on_tensorflow


@pytest.fixture(params=["jax", "tensorflow"])
def on_devices(request):
    """Return the kernel of each backend in turn."""
    return request.getfixturevalue(f"on_{request.param}")
