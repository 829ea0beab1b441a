"""P23: an optimizer of an earlier cell trains in the cell; the scope is left after an error."""

from __future__ import annotations

import pytest

pytest_plugins = ("tests.support.keras_kernels",)
pytestmark = [pytest.mark.kernel, pytest.mark.timeout(600)]


def test_an_optimizer_from_before(on_devices):
    on_devices.plain("""
def optimizer():
    rate = keras.optimizers.schedules.CosineDecay(3e-2, 50)
    return keras.optimizers.Adam(rate, weight_decay=1e-3)
alone = make(optimizer())
fit(alone, 16)
opt = before = optimizer()
""")
    on_devices.run("model = make(opt); fit(model, 16)")
    assert on_devices.value("model.optimizer is before")
    assert on_devices.value("apart(model.get_weights(), alone.get_weights()) < 1e-5")


def test_a_second_strategy_in_ours_is_explained_and_the_scope_is_left(on_tensorflow):
    reply = on_tensorflow.cell("""
import tensorflow as tf
other = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with other.scope():
    make()
""")
    assert reply.status == "error"
    assert "make no second strategy" in reply.stdout
    assert not on_tensorflow.value("tf.distribute.has_strategy()")


def test_a_loop_of_ones_own_has_the_strategy_by_name(on_tensorflow):
    on_tensorflow.plain("model = make(); weights = model.get_weights()")
    on_tensorflow.run(
        """
import tensorflow as tf
data = strategy.experimental_distribute_dataset(
    tf.data.Dataset.from_tensor_slices((x[:16], y[:16])).batch(16))
@tf.function
def step(a, b):
    def one(a, b):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(model(a) - b)) / 16
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss
    return strategy.reduce("SUM", strategy.run(one, args=(a, b)), axis=None)
for a, b in data:
    loss = float(step(a, b))
replicas = strategy.num_replicas_in_sync
""",
        "--framework tf",
    )
    assert on_tensorflow.value("replicas") == 4
    on_tensorflow.plain("""
alone = make()
expected = float(alone.train_on_batch(x[:16], y[:16])[0])
""")
    assert on_tensorflow.value("abs(loss - expected) < 1e-5")
    assert on_tensorflow.value("apart(model.get_weights(), alone.get_weights()) < 1e-5")
