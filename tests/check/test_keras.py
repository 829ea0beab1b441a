"""A Keras cell in a real kernel: `fit` and `evaluate` on either backend, recorded on JAX."""

import json
import sys
from importlib.util import find_spec

import pytest

from tests.check.conftest import needs_compiler
from tests.support.kernels import Kernel
from tpu_magic.check.verdict import CheckReport

# Imported here, TensorFlow would end this process at the first test of torch_xla.
needs_keras = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("keras", "cloudpickle")), reason="needs Keras"
)
pytestmark = [needs_compiler, needs_keras, pytest.mark.kernel, pytest.mark.timeout(600)]

SIZE, BATCH = 1024, 256
MODEL = f"""
%load_ext tpu_magic
import hashlib, random
import keras, numpy as np
keras.utils.set_random_seed(0)
dense = keras.layers.Dense
model = keras.Sequential([keras.layers.Input(({SIZE},)),
                          dense({SIZE}, use_bias=False, activation="relu"),
                          dense({SIZE}, use_bias=False)])
model.compile("adam", "mse")
x = np.ones((4 * {BATCH}, {SIZE}), "float32")

def state():
    parts = [weight.tobytes() for weight in model.get_weights()]
    parts += [np.asarray(item).tobytes() for item in model.optimizer.variables]
    parts += [x.tobytes(), repr((random.getstate(), np.random.get_state())).encode()]
    return hashlib.sha256(b"".join(parts)).hexdigest()

before = state()
"""
CHECKED = f"""%%tpu_check -q -o report
history = model.fit(x, x, batch_size={BATCH}, epochs=90, verbose=0)
model.evaluate(x, x, batch_size={BATCH})
"""
TOLD = "import json; print(json.dumps([state() == before, report.to_json()]))"


@pytest.fixture(params=["jax", "tensorflow"])
def kernel(request, tmp_path):
    """Return a kernel with Keras on a backend, and the backend's name."""
    if find_spec(request.param) is None:
        pytest.skip(f"needs {request.param}")
    environment = {
        "KERAS_BACKEND": request.param,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "XDG_CACHE_HOME": str(tmp_path),
    }
    with Kernel(sys.executable, **environment) as started:
        started.run(MODEL, timeout=120).check()
        yield started, request.param


def test_fit_and_evaluate(kernel):
    running, backend = kernel
    running.run(CHECKED, timeout=300).check()
    same, text = json.loads(running.run(TOLD).check().stdout)
    assert same
    report = CheckReport.from_json(text)
    step, measure = report.programs
    weights, batch = 2 * SIZE * SIZE * 4, 2 * BATCH * SIZE * 4
    assert report.fits
    assert (step.line, step.trains) == (2, True)
    # Weights and Adam's two moments, given back in place; the forward pass has no more of them.
    assert step.arguments_bytes == pytest.approx(3 * weights + batch, rel=0.02)
    assert step.aliased_bytes == pytest.approx(3 * weights, rel=0.02)
    assert step.matrix_flops == 5 * 2 * BATCH * SIZE * SIZE
    assert (measure.line, measure.trains) == (3, False)
    assert measure.arguments_bytes == pytest.approx(weights + batch, rel=0.02)
    assert measure.matrix_flops == 2 * 2 * BATCH * SIZE * SIZE
    said = any("backend is tensorflow" in text for text in report.notes)
    assert said is (backend == "tensorflow")


@pytest.mark.parametrize("kernel", ["tensorflow"], indirect=True)
def test_tensorflow_by_itself_is_refused_in_one_line(kernel):
    running, _ = kernel
    running.run(
        "import tensorflow as tf\n@tf.function\ndef square(a):\n    return a @ a\na = tf.ones((8, 8))"
    ).check()
    reply = running.run("%%tpu_check\nsquare(a)")
    assert reply.ename == "UsageError"
    assert "train with Keras" in reply.evalue
