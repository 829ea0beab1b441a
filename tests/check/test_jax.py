"""A jax cell from the notebook to the verdict: the jitted functions that it calls."""

import hashlib

import pytest

from tests.check.conftest import needs_compiler

pytest.importorskip("jax")
pytest.importorskip("cloudpickle")
pytestmark = needs_compiler

SIZE, BATCH = 1024, 256
STEP = f"""
import jax, jax.numpy as jnp
weights = [jnp.ones(({SIZE}, {SIZE})), jnp.ones(({SIZE}, {SIZE}))]
x, y = jnp.ones(({BATCH}, {SIZE})), jnp.zeros(({BATCH}, {SIZE}))

def update(weights, x, y):
    def loss(weights):
        return jnp.mean((jax.nn.relu(x @ weights[0]) @ weights[1] - y) ** 2)
    value, slopes = jax.value_and_grad(loss)(weights)
    return jax.tree.map(lambda weight, slope: weight - 0.1 * slope, weights, slopes), value

step, in_place = jax.jit(update), jax.jit(update, donate_argnums=0)
"""


def state(shell):
    names = shell.user_ns
    arrays = [*names["weights"], names["x"], names["y"]]
    parts = [*(item.tobytes() for item in arrays), repr(sorted(names)).encode()]
    return hashlib.sha256(b"".join(parts)).hexdigest()


@pytest.mark.parametrize(("name", "donated"), [("step", 0), ("in_place", 2 * SIZE * SIZE * 4)])
def test_a_training_loop(shell, check, name, donated):
    shell.run(STEP)
    before = state(shell)
    report = check(
        f"for i in range(1000):\n    weights, value = {name}(weights, x, y)\n    print(float(value))"
    )
    assert state(shell) == before
    weights = 2 * SIZE * SIZE * 4
    assert report.fits
    assert report.arguments_bytes == pytest.approx(weights + 2 * BATCH * SIZE * 4, rel=0.02)
    assert report.outputs_bytes == pytest.approx(weights, rel=0.02)
    assert report.aliased_bytes == donated
    assert report.programs[0].matrix_flops == 5 * 2 * BATCH * SIZE * SIZE
    assert report.programs[0].line == 3


def test_a_mistake_is_told_at_its_line(shell, check):
    shell.run(STEP)
    report = check("a = 1\nweights, value = step(weights, x[:, :5], y)")
    assert report.compiles is None
    assert report.line == 3
    assert "dot_general" in report.error


def test_what_the_compiler_refuses_is_told_at_its_line(shell, check):
    shell.run("import jax, jax.numpy as jnp, numpy as np\nsignal = np.ones(256, complex)")
    report = check(
        "jax.config.update('jax_enable_x64', True)\n"
        "transform = jax.jit(lambda values: jnp.fft.fft(values) * 2)\n"
        "found = transform(signal)"
    )
    assert not shell.user_ns["jax"].config.jax_enable_x64  # the cell was not run here
    assert report.compiles is False
    assert report.fits is None
    assert "FFT" in report.error
    assert report.line == 4  # where it is called
    (advice,) = [item for item in report.advice if item.code == "float64"]
    assert advice.message.startswith("complex128 (line ")
