"""Losses, gradients and updates of steps that are split over replicas, as one device has them.

Keras divides each loss by the number of replicas and adds their gradients. That is right for its
own losses only, wrong for a loss that a `train_step` computes by hand, and clips each replica's
share instead of the gradient. Here a replica's loss is the mean over its rows, and the gradient
is the mean over the replicas before the optimizer sees it.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.losses import loss as keras_loss
from keras.src.trainers.compile_utils import CompileLoss

from tpu_magic.frameworks.patches import replaced

_MEAN = "sum_over_batch_size"  # Keras's own default


class Split:
    """What a step of ours is given while it is run or traced.

    What is given is not asked by thread: MirroredStrategy traces each replica in one of its own.

    Attributes
    ----------
    told
        The models of which the report says that their batches are not split.
    """

    def __init__(self) -> None:
        self._given = ""
        self.told: weakref.WeakSet[Any] = weakref.WeakSet()
        self._rows = threading.local()

    @contextmanager
    def given(self, what: str) -> Iterator[None]:
        """Be in a step whose replicas have `shares` of the batch, or the `whole` of it each."""
        before, self._given = self._given, what
        try:
            yield
        finally:
            self._given = before

    @contextmanager
    def counting(self, rows: Any) -> Iterator[None]:
        """Compute losses of a replica that has these rows."""
        self._rows.here = rows
        try:
            yield
        finally:
            self._rows.here = None

    @property
    def rows(self) -> Any:
        """The rows of this replica while its losses are computed, else None."""
        return getattr(self._rows, "here", None)

    @property
    def in_step(self) -> bool:
        """Whether a step of ours is run, on its replicas or between them."""
        return bool(self._given)

    def on_replica(self) -> bool:
        """Say whether this is a replica of a step of ours."""
        return self.in_step and not tf.distribute.in_cross_replica_context()

    def on_share(self) -> bool:
        """Say whether this is a replica that has its share of the batch."""
        return self._given == "shares" and self.on_replica()

    def of_the_persons(self) -> bool:
        """Say whether this is a replica of the person's own `strategy.run`."""
        return not self.in_step and not tf.distribute.in_cross_replica_context()


@contextmanager
def as_one_device(split: Split) -> Iterator[None]:
    """Compute losses and updates as one device does, in steps and in loops by hand.

    In a `strategy.run` of the person's own, Keras's rule holds as it is written down: losses are
    divided by the replicas, and gradients are added.
    """
    losses = {
        "scale_loss_for_distribution": _undivided,
        "unscale_loss_for_distribution": _undivided,
        "reduce_values": _over_all_rows,
        "apply_mask": _over_all_valid,
    }
    by_hand = {"compute_average_loss": _average_of_rows, "scale_regularization_loss": _sum}
    updates = {
        "_all_reduce_sum_gradients": _reduced,
        "_backend_apply_gradients": _mean_first,
    }
    patches: tuple[tuple[Any, dict[str, Any]], ...] = (
        (keras_loss, losses),
        (tf.nn, by_hand),
        (TFOptimizer, updates),
        (keras.optimizers.LossScaleOptimizer, {"_tf_apply": _finite_everywhere}),
        (keras.optimizers.Optimizer, {"build": _outside}),
        (keras.metrics.Mean, {"update_state": _once}),
        (CompileLoss, {"call": _by_rows}),
    )
    with ExitStack() as undo:
        for owner, makers in patches:
            bound = {name: functools.partial(make, split) for name, make in makers.items()}
            undo.enter_context(replaced(owner, bound))
        yield


# --- losses ---------------------------------------------------------------------------------------


def _undivided(split: Split, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(original)
    def scale(value: Any) -> Any:
        return original(value) if split.of_the_persons() else value

    return scale


def _over_all_rows(split: Split, original: Callable[..., Any]) -> Callable[..., Any]:
    """Make the patch by which the mean over the replicas is what is asked for over all rows."""

    @functools.wraps(original)
    def reduce_values(values: Any, sample_weight: Any = None, reduction: Any = _MEAN) -> Any:
        loss = original(values, sample_weight, reduction)
        if not split.on_share():
            return loss
        if reduction == "sum":
            return loss * tf.cast(tf.distribute.get_strategy().num_replicas_in_sync, loss.dtype)
        if reduction == "mean_with_sample_weight" and sample_weight is not None:
            return loss * _share_of(tf.reduce_sum(sample_weight), loss.dtype)
        return loss

    return reduce_values


def _over_all_valid(split: Split, original: Callable[..., Any]) -> Callable[..., Any]:
    """Make the patch by which a masked loss divides by what is valid in all rows."""

    @functools.wraps(original)
    def apply_mask(sample_weight: Any, mask: Any, dtype: Any, reduction: Any) -> Any:
        weight = original(sample_weight, mask, dtype, reduction)
        if mask is None or reduction not in ("mean", _MEAN) or not split.on_share():
            return weight
        return weight * _share_of(tf.reduce_sum(tf.cast(mask, dtype)), dtype)

    return apply_mask


def _share_of(value: Any, dtype: Any) -> Any:
    """Return a replica's value over the mean of all replicas'."""
    here = tf.distribute.get_replica_context()
    value = tf.stop_gradient(tf.cast(value, dtype))
    return tf.math.divide_no_nan(value, here.all_reduce(tf.distribute.ReduceOp.MEAN, value))


def _average_of_rows(split: Split, original: Callable[..., Any]) -> Callable[..., Any]:
    """Make the patch of a function that takes the rows of a replica times the replicas."""

    @functools.wraps(original)
    def compute_average_loss(
        per_example_loss: Any, sample_weight: Any = None, global_batch_size: Any = None
    ) -> Any:
        if global_batch_size is None and split.on_replica():
            global_batch_size = tf.shape(per_example_loss)[0]
        return original(per_example_loss, sample_weight, global_batch_size)

    return compute_average_loss


def _sum(split: Split, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(original)
    def scale_regularization_loss(regularization_loss: Any) -> Any:
        if split.on_replica():
            return tf.reduce_sum(regularization_loss)
        return original(regularization_loss)

    return scale_regularization_loss


def _once(split: Split, original: Callable[..., Any]) -> Callable[..., Any]:
    """Make the patch by which a number for a batch counts once, not once for each replica."""

    @functools.wraps(original)
    def update_state(metric: Any, values: Any, sample_weight: Any = None) -> Any:
        if sample_weight is None and split.on_replica() and not keras.ops.shape(values):
            if split.rows is not None:
                sample_weight = split.rows
            elif split.on_share():
                sample_weight = 1 / tf.distribute.get_strategy().num_replicas_in_sync
        return original(metric, values, sample_weight)

    return update_state


def _by_rows(split: Split, original: Callable[..., Any]) -> Callable[..., Any]:
    """Make the patch by which the loss of each output is a mean over rows, in any program.

    Keras weighs a batch by its rows only where a program is for that number of rows alone, and
    else as one: then the means of the outputs are not those of the loss that they add up to.
    """

    @functools.wraps(original)
    def call(losses: Any, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        first = keras.tree.flatten(y_pred)[0]
        rows = tf.shape(first)[0] if tf.is_tensor(first) and first.shape.rank else None
        with split.counting(rows):
            return original(losses, y_true, y_pred, sample_weight)

    return call


# --- updates --------------------------------------------------------------------------------------


def _mean_first(split: Split, original: Callable[..., Any]) -> Callable[..., Any]:
    """Make the patch by which an optimizer gets the gradient of the batch, not of a share."""

    @functools.wraps(original)
    def _backend_apply_gradients(optimizer: Any, grads: Any, variables: Any) -> Any:
        if not split.on_replica():
            return original(optimizer, grads, variables)
        here = tf.distribute.get_replica_context()
        if not split.on_share():
            grads = [_of_first_replica(gradient) for gradient in grads]
        means = here.all_reduce(tf.distribute.ReduceOp.MEAN, list(grads))
        if not (optimizer.gradient_accumulation_steps or optimizer.ema_overwrite_frequency):
            return original(optimizer, means, variables)

        # These update in a branch of a condition, in which no replica can wait for the others.
        def across(strategy: Any, means: list[Any]) -> None:
            original(
                optimizer,
                [strategy.experimental_local_results(mean)[0] for mean in means],
                variables,
            )

        return here.merge_call(across, args=(means,))

    return _backend_apply_gradients


def _of_first_replica(gradient: Any) -> Any:
    """Let slices that every replica has count once: an optimizer squares each of them."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    here = tf.distribute.get_replica_context()
    factor = here.num_replicas_in_sync * tf.cast(
        tf.equal(here.replica_id_in_sync_group, 0), tf.int32
    )
    values = gradient.values * tf.cast(factor, gradient.values.dtype)
    return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)


def _finite_everywhere(split: Split, original: Callable[..., Any]) -> Callable[..., Any]:
    """Make the patch by which an overflow on one replica is one on all of them."""

    @functools.wraps(original)
    def _tf_apply(optimizer: Any, grads: Any, trainable_variables: Any = None) -> Any:
        if split.on_replica():
            known = [each for each in grads if each is not None]
            here = tf.distribute.get_replica_context()
            means = iter(here.all_reduce(tf.distribute.ReduceOp.MEAN, known))
            grads = [None if each is None else next(means) for each in grads]
        return original(optimizer, grads, trainable_variables)

    return _tf_apply


def _reduced(split: Split, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _all_reduce_sum_gradients(optimizer: Any, grads_and_vars: Any) -> Any:
        if split.on_replica():
            return grads_and_vars
        return original(optimizer, grads_and_vars)

    return _all_reduce_sum_gradients


def _outside(split: Split, original: Callable[..., Any]) -> Callable[..., Any]:
    """Make the patch by which an optimizer that a step meets unbuilt gets its variables.

    A replica alone cannot make variables of all, and the next one would find it built.
    """

    @functools.wraps(original)
    def build(optimizer: Any, variables: Any) -> Any:
        if not split.on_replica():
            return original(optimizer, variables)

        def once(strategy: Any) -> None:
            with tf.init_scope(), strategy.scope():
                original(optimizer, variables)

        return tf.distribute.get_replica_context().merge_call(once)

    return build
