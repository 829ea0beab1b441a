"""P22: a model of an earlier cell is taken over under its own name, or refused in words."""

from __future__ import annotations

import pytest

pytest_plugins = ("tests.support.keras_kernels",)
pytestmark = [pytest.mark.kernel, pytest.mark.timeout(600)]


def test_compiled_and_trained_in_the_cell(on_devices):
    on_devices.plain("""
def bare():
    keras.utils.set_random_seed(4)
    return keras.Sequential([layers.Input((8,)), layers.Dense(1)])
alone, model = bare(), bare()
alone.compile("sgd", "mse")
fit(alone, 32)
before = model
""")
    reply = on_devices.run('model.compile("sgd", "mse"); fit(model, 32)')
    assert on_devices.value("model is before")
    assert on_devices.value("apart(model.get_weights(), alone.get_weights()) < 1e-5")
    assert any("model" in item for item in reply.reports[0]["moved"])


def test_what_cannot_be_taken_is_named_and_left_unharmed(on_tensorflow):
    on_tensorflow.plain("""
import tensorflow as tf
class Scale(layers.Layer):
    def __init__(self):
        super().__init__()
        self.factor = tf.Variable(2.0)
    def call(self, inputs):
        return inputs * self.factor
model = make("sgd", Scale())
before = model.predict(x[:4], verbose=0)
""")
    reply = on_tensorflow.cell("fit(model, 32)", "--framework keras -o report")
    assert reply.ename == "ValueError"
    assert "scale.factor is a tf.Variable" in reply.evalue
    assert "add_weight" in reply.evalue
    # Nothing ran, and the error says more than a report of that would.
    assert reply.reports == []
    assert on_tensorflow.value("any('model: scale.factor' in n for n in report.not_followed)")
    # It stands in the way of no cell that does not use it.
    on_tensorflow.run("1")
    assert on_tensorflow.value("apart([model.predict(x[:4], verbose=0)], [before])") == 0
