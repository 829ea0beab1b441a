"""Loops of a person's own over a Keras model in the strategy's scope, outside of its replicas.

A `GradientTape` in the cell or in a `tf.function` is one device's code, which TensorFlow refuses
once the variables are on several. Here it computes on one replica, and its updates reach all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.distribute import values as distributed
from tensorflow.python.distribute import values_util

from tpu_magic.frameworks.keras_cell import KerasCell
from tpu_magic.frameworks.keras_tensorflow_update import Split
from tpu_magic.frameworks.patches import replaced

_ONE_REPLICA = (
    "a loop of your own trained on one of {count} replicas: model.fit uses all of them, and so "
    "does strategy.run (--framework tf)"
)


@contextmanager
def on_one_replica(cell: KerasCell, replicas: int, split: Split) -> Iterator[None]:
    """Let code outside of the replicas differentiate, apply gradients and start anew."""
    variables = distributed.DistributedVariable
    handle = property(functools.partial(_handle, variables.handle.fget))
    applies = {"_tf_apply": _across}
    with ExitStack() as undo:
        undo.enter_context(replaced(variables, {"handle": lambda _original: handle}))
        undo.enter_context(
            replaced(
                tf.__internal__.distribute.interim,
                {"maybe_merge_call": functools.partial(_merged, cell, replicas, split)},
            )
        )
        undo.enter_context(replaced(keras.optimizers.LossScaleOptimizer, applies))
        yield


def _handle(original: Callable[[Any], Any], variable: Any) -> Any:
    """Return the handle of a variable; outside of the replicas that of the one it is read from."""
    if tf.distribute.in_cross_replica_context() and not values_util.is_saving_non_distributed():
        return variable._get_on_device_or_primary().handle  # noqa: SLF001 - as reading it does
    return original(variable)


def _merged(
    cell: KerasCell, replicas: int, split: Split, original: Callable[..., Any]
) -> Callable[..., Any]:
    """Make the patch by which an update outside of the replicas needs no wait for them."""

    @functools.wraps(original)
    def maybe_merge_call(update: Any, strategy: Any, *args: Any, **kwargs: Any) -> Any:
        if not tf.distribute.in_cross_replica_context():
            return original(update, strategy, *args, **kwargs)
        if cell.is_here() and not split.in_step:
            cell.say(_ONE_REPLICA.format(count=replicas))
        return update(strategy, *args, **kwargs)

    return maybe_merge_call


def _across(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _tf_apply(optimizer: Any, grads: Any, trainable_variables: Any = None) -> Any:
        if tf.distribute.in_cross_replica_context():
            return optimizer._common_apply(grads, trainable_variables)  # noqa: SLF001
        return original(optimizer, grads, trainable_variables)

    return _tf_apply
