"""One line for what Keras and TensorFlow refuse: old recipes, and what breaks under a strategy.

Each row has the kind of the error, what its text looks like, and today's spelling. Texts were
taken from keras 3.15 and tensorflow 2.21 by running the old recipes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tpu_magic.frameworks.base import Namespace


class Row(NamedTuple):
    """An error that people meet, and what helps."""

    kinds: tuple[str, ...]
    text: re.Pattern[str]
    hint: str


def _row(kinds: str, text: str, hint: str) -> Row:
    return Row(tuple(kinds.split()), re.compile(text, re.DOTALL), hint)


ROWS = (
    # --- recipes of TensorFlow 1 and Keras 2
    _row(
        "AttributeError",
        r"(fit|evaluate|predict)_generator",
        "fit_generator, evaluate_generator and predict_generator are gone: model.fit, evaluate "
        "and predict take generators themselves",
    ),
    _row(
        "ValueError",
        r"must end in `\.weights\.h5`",
        "Keras 3 wants weights in a file named *.weights.h5: model.save_weights('name.weights.h5')",
    ),
    _row(
        "ValueError",
        r"[Ii]nvalid filepath extension for saving",
        "Keras 3 saves whole models as *.keras: model.save('name.keras'); for serving, "
        "model.export('folder')",
    ),
    _row(
        "ValueError",
        r"`save_format` argument is deprecated",
        "the ending of the name says the format: model.save('name.keras'); for serving, "
        "model.export('folder')",
    ),
    _row(
        "AttributeError ImportError ModuleNotFoundError",
        r"keras_to_tpu_model|contrib",
        "tf.contrib and keras_to_tpu_model are gone: %%tpu_run takes the model onto the TPU as "
        "it is",
    ),
    _row(
        "ValueError AttributeError",
        r"Could not interpret optimizer identifier|"
        r"module .*tensorflow.*\.train' has no attribute '\w*Optimizer'",
        "optimizers of TensorFlow 1 (tf.train.*, tf.compat.v1.train.*) do not train Keras models: "
        "keras.optimizers.Adam(learning_rate=…), or its name, 'adam'",
    ),
    _row(
        "TypeError ValueError",
        r"unexpected keyword argument 'steps_per_run'|steps_per_run",
        "steps_per_run is gone: model.compile(…, steps_per_execution=N)",
    ),
    _row(
        "TypeError ValueError",
        r"experimental_steps_per_execution",
        "experimental_steps_per_execution is now steps_per_execution",
    ),
    _row(
        "ValueError",
        r"Argument\(s\) not recognized: \{'(lr|decay)'|unexpected keyword argument '(lr|decay)'",
        "optimizers take learning_rate instead of lr; decay is a schedule: "
        "keras.optimizers.schedules.InverseTimeDecay",
    ),
    _row(
        "AttributeError",
        r"'predict_(classes|proba)'",
        "predict_classes and predict_proba are gone: model.predict(x).argmax(axis=-1), "
        "model.predict(x)",
    ),
    _row(
        "ValueError",
        r"must have the same shape up until the last dimension|"
        r"must have rank \(ndim\) `target\.ndim - 1`",
        "the labels are one-hot, and the loss wants class numbers: "
        "loss='categorical_crossentropy', or labels.argmax(axis=-1)",
    ),
    _row(
        "ValueError",
        r"must have the same (shape|rank \(ndim\))\. Received: target\.shape=\(\w+,\)",
        "the target has no axis for the outputs: class numbers go with "
        "loss='sparse_categorical_crossentropy'",
    ),
    # --- addresses and files
    _row(
        "ValueError",
        r"Please provide a TPU Name",
        "a TPU of today is attached to this machine: leave the resolver away (%%tpu_run and "
        "%tpu_setup connect it), or write TPUClusterResolver(tpu='local')",
    ),
    _row(
        "KeyError",
        r"COLAB_TPU_ADDR",
        "COLAB_TPU_ADDR belonged to TPUs of the past: leave the address away; %%tpu_run and "
        "%tpu_setup connect the TPU of this machine",
    ),
    _row(
        ".*",
        r"File system scheme '?\[local\]'? not implemented",
        "this TPU is on another machine, which cannot read local files: load the data into "
        "memory, use gs://, or save with "
        "tf.saved_model.SaveOptions(experimental_io_device='/job:localhost')",
    ),
    _row(
        ".*",
        r"ConfigureDistributedTPU|could not find registered transfer manager",
        "this TensorFlow and TPUs do not fit: Keras on JAX does; restart the kernel with "
        "KERAS_BACKEND=jax (it must be set before keras is imported)",
    ),
    # --- what breaks under a strategy or a distribution
    _row(
        ".*",
        r"Mixing different tf\.distribute\.Strategy|[Mm]ust not nest tf\.distribute\.Strategy|"
        r"inside strategy\.scope.*different strategy",
        "an object belongs to another strategy: in a %%tpu_run cell the scope is entered "
        "already; make no second strategy, and use the name `strategy` (--framework tf)",
    ),
    _row(
        "ValueError",
        r"SyncOnReadVariable does not support .* in cross-replica",
        "under a strategy metrics are updated on the replicas: inside strategy.run, by "
        "model.fit and evaluate, or in a cell without the magic for a metric made there",
    ),
    _row(
        "InvalidArgumentError",
        r"AddN.*(shape|same)|Inputs to operation .*AddN",
        "a batch does not divide by the replicas: run this cell with %%tpu_run, which splits it "
        "right, or make the batch size a multiple of them",
    ),
    _row(
        "ValueError",
        r"Unknown variable: .*This optimizer can only be called for the variables",
        "the optimizer was made for another model's variables: make it anew in this cell, "
        "before model.compile",
    ),
    _row(
        ".*",
        r"RESOURCE_EXHAUSTED|ResourceExhausted|OOM when allocating",
        "the device is out of memory: a smaller batch_size, or "
        "keras.config.set_dtype_policy('mixed_bfloat16') before the model is made",
    ),
)


def explain(error: BaseException, namespace: Namespace) -> str | None:  # noqa: ARG001
    """Return a hint for an error, or None when it is none that is known here."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    text = str(error)
    for row in ROWS:
        if (row.kinds == (".*",) or kinds.intersection(row.kinds)) and row.text.search(text):
            return row.hint
    return None
