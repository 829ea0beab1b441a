"""Old recipes as people paste them, run by the real Keras: each gets one line of today's."""

from __future__ import annotations

import pytest

from tpu_magic.frameworks import keras_errors

pytest_plugins = ("tests.support.keras_kernels",)

_MODEL = """
import tensorflow as tf
labels = np.arange(32) % 10
def classifier(loss="sparse_categorical_crossentropy", optimizer="sgd", **options):
    model = keras.Sequential([layers.Input((8,)), layers.Dense(10, activation="softmax")])
    model.compile(optimizer, loss, **options)
    return model
"""
# what is pasted: a part of the line that helps
RECIPES = {
    "classifier().fit_generator(iter([]))": "model.fit, evaluate",
    "classifier().save_weights('x.h5')": "*.weights.h5",
    "classifier().save('folder')": "model.export('folder')",
    "classifier().save('folder', save_format='tf')": "the ending of the name",
    "classifier().fit(x[:32], np.eye(10)[labels], verbose=0)": "loss='categorical_crossentropy'",
    "classifier('categorical_crossentropy').fit(x[:32], labels, verbose=0)": "loss='sparse_cat",
    "classifier(steps_per_run=3)": "steps_per_execution=N",
    "classifier(experimental_steps_per_execution=3)": "is now steps_per_execution",
    "keras.optimizers.Adam(lr=1e-3)": "learning_rate instead of lr",
    "classifier(optimizer=tf.compat.v1.train.AdamOptimizer())": "keras.optimizers.Adam",
    "classifier(optimizer=tf.train.AdamOptimizer())": "keras.optimizers.Adam",
    "tf.contrib.tpu.keras_to_tpu_model(classifier())": "takes the model onto the TPU as it is",
    "classifier().predict_classes(x)": "argmax(axis=-1)",
    "import os; os.environ['COLAB_TPU_ADDR']": "%tpu_setup connect the TPU of this machine",
    "tf.distribute.cluster_resolver.TPUClusterResolver()": "tpu='local'",
}


@pytest.mark.kernel
@pytest.mark.timeout(600)
def test_old_recipes_get_todays_spelling(on_devices):
    on_devices.plain(_MODEL)
    for recipe, line in RECIPES.items():
        reply = on_devices.cell(recipe)
        assert reply.status == "error", recipe
        assert reply.errors_shown == 1, recipe
        assert line in reply.stdout, (recipe, reply.evalue, reply.stdout)


class InvalidArgumentError(Exception):
    """Named as TensorFlow's."""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            InvalidArgumentError(
                "Inputs to operation AddN of type AddN must have the same size and shape.  "
                "Input 0: [3,1] != input 3: [1,1] [Op:AddN] name: "
            ),
            "does not divide by the replicas",
        ),
        (
            ValueError(
                "SyncOnReadVariable does not support `assign_add` in cross-replica mode when "
                "aggregation is set to `tf.VariableAggregation.SUM`."
            ),
            "inside strategy.run",
        ),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes"), "batch_size"),
        (
            ValueError(
                "Unknown variable: <Variable path=dense/kernel>. This optimizer can only be "
                "called for the variables it was originally built with."
            ),
            "make it anew in this cell",
        ),
    ],
)
def test_what_breaks_under_a_strategy_is_explained(error, line):
    assert line in keras_errors.explain(error, {})


@pytest.mark.parametrize(
    "error",
    [
        ValueError("could not convert string to float: 'a'"),
        AttributeError("'Sequential' object has no attribute 'fitt'"),
        KeyError("accuracy"),
        # The text of one kind in an error of another kind is the person's own.
        RuntimeError("The filename must end in `.weights.h5`."),
    ],
)
def test_the_persons_own_mistakes_are_left_alone(error):
    assert keras_errors.explain(error, {}) is None
