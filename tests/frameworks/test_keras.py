"""The adapter for Keras: which backend, why, and what is refused before anything is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
from IPython.core.error import UsageError

from tpu_magic import frameworks
from tpu_magic.frameworks import choose as frameworks_choose
from tpu_magic.frameworks import keras as adapter
from tpu_magic.frameworks.base import Adapter

needs_keras = pytest.mark.skipif(find_spec("keras") is None, reason="needs keras")


def choose(loaded=None, environ=None, has=(), *, tensorflow_loaded=False, on_tpu=False):
    return adapter.choose(
        loaded,
        environ or {},
        set(has).__contains__,
        tensorflow_loaded=tensorflow_loaded,
        on_tpu=on_tpu,
    )


@pytest.mark.parametrize(
    ("given", "backend", "why"),
    [
        ({"loaded": "jax", "environ": {"KERAS_BACKEND": "tensorflow"}}, "jax", "loaded"),
        ({"environ": {"KERAS_BACKEND": "torch"}, "has": ["jax"]}, "torch", "KERAS_BACKEND"),
        ({"on_tpu": True, "has": ["tensorflow-tpu", "jax"]}, "tensorflow", "tensorflow-tpu"),
        ({"on_tpu": True, "tensorflow_loaded": True, "has": ["jax"]}, "jax", "TPU images"),
        ({"tensorflow_loaded": True, "has": ["jax"]}, "tensorflow", "loaded in this kernel"),
        ({"has": ["jax", "tensorflow"]}, "jax", "jax is installed"),
        ({"has": ["tensorflow-cpu"]}, "tensorflow", "tensorflow is installed"),
        ({}, "jax", "none is installed"),
    ],
)
def test_the_backend_and_why(given, backend, why):
    found = choose(**given)
    assert found.name == backend
    assert why in found.why


@pytest.fixture
def no_keras(monkeypatch):
    monkeypatch.delitem(sys.modules, "keras", raising=False)


@needs_keras
def test_keras_on_torch_is_refused_in_words(no_keras, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    availability = adapter.Keras().availability()
    assert not availability.usable
    assert "Keras on torch is not supported yet (KERAS_BACKEND asks for it)" in str(availability)
    with pytest.raises(UsageError, match="restart the kernel with KERAS_BACKEND=jax"):
        adapter.Keras().connect()
    assert "keras" not in sys.modules


def test_what_to_install_is_said(no_keras, monkeypatch):
    monkeypatch.setattr(adapter, "find_spec", lambda name: None)
    availability = adapter.Keras().availability()
    assert availability.sentence() == "keras is not installed here: %tpu_setup --framework keras"


@needs_keras
def test_keras_2_is_refused(no_keras, monkeypatch):
    monkeypatch.setattr(adapter.metadata, "version", lambda name: "2.15.0")
    assert "too old" in adapter.Keras().availability().reason


def test_asking_imports_nothing(no_keras):
    keras = adapter.Keras()
    keras.availability()
    assert not keras.connected()
    assert list(keras.arrays([1, 2])) == []
    assert isinstance(keras, Adapter)
    assert "keras" not in sys.modules


@pytest.mark.parametrize("name", ["keras", "tf", "jax"])
def test_the_registry_has_it(name):
    assert frameworks.adapter(name).name == name


def test_a_cell_of_tensorflow_is_tensorflows_unless_keras_is_elsewhere(no_keras, monkeypatch):
    code = "import tensorflow as tf"
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    assert frameworks_choose.framework_of(code, {}) == "tf"
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    assert frameworks_choose.framework_of(code, {}) == "keras"
    monkeypatch.setitem(
        sys.modules, "keras", SimpleNamespace(config=SimpleNamespace(backend=lambda: "tensorflow"))
    )
    assert frameworks_choose.framework_of(code, {}) == "tf"


@needs_keras
@pytest.mark.skipif(find_spec("jax") is None, reason="needs jax")
def test_loading_takes_the_backend_and_leaves_the_environment():
    # In a child: Keras is imported in kernels only.
    program = """
import os
from tpu_magic.frameworks import keras
os.environ.pop("KERAS_BACKEND", None)
assert keras.load("jax").config.backend() == "jax"
assert "KERAS_BACKEND" not in os.environ
os.environ["KERAS_BACKEND"] = "tensorflow"
assert keras.load("tensorflow").config.backend() == "jax"
assert keras.configured() == "jax"
from tpu_magic.frameworks import adapter
device = adapter("keras").connect()
print(device.note)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "Keras on jax: keras is loaded with it in this kernel"
