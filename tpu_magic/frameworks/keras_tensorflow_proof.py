"""Whether a step of a model may be split over replicas: tried, where it is not known.

Split over replicas, a step computes the mean over equal shares of its batch. That is the step of
the whole batch when every row stands for itself and the loss is a mean over rows. Keras's own
steps, losses and layers are made so; of code of a person's own it is tried out on a batch: on
the shares and on the whole, with all randomness held still.
"""

from __future__ import annotations

import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.tensorflow import random as keras_random

from tpu_magic.frameworks.keras_steps import ModelStep
from tpu_magic.frameworks.keras_tensorflow_update import Split
from tpu_magic.frameworks.patches import replaced

# Losses of Keras's own in which the rows of a batch meet, unless they are told otherwise.
_MIXING = {"dice", "tversky", "circle"}
_STEPS = ("train_step", "test_step", "predict_step", "compute_loss", "compute_metrics")
# How far float32 (or a narrower type) may stray between two ways to add the same rows.
_CLOSE, _CLOSE_NARROW = 1e-3, 5e-2
_NOISE = 1e-6
_FLOAT32 = 4
_STILL = 0.37  # what every random number is while a step is tried

_FIXED = "it was made for batches of a fixed number of rows"
_UNTRIED = "it could not be tried on shares of a batch"
_DIFFERS = (
    "{} on the whole of a batch is not the mean of those on shares (it is when a loss is a mean "
    "over rows that do not meet)"
)

_DIFFERS_IN_ROWS = "what it predicts for a row depends on the other rows of its batch"

# Verdicts by the function that Keras made for a model: compiling anew makes another one.
_verdicts: weakref.WeakKeyDictionary[Callable[..., Any], str] = weakref.WeakKeyDictionary()


def obstacle(step: ModelStep, split: Split, batch: Any, joined: Any) -> str:
    """Return what stands against splitting a step over the replicas; empty when nothing does.

    Parameters
    ----------
    step
        The train or test function of a model, with Keras's own inside.
    split
        What the replicas are given, as the patches of losses and updates know it.
    batch, joined
        A batch that is split in equal shares, and the same with all rows on every replica.
    """
    if _rows_made_for(step.model):
        return _FIXED
    if step.function not in _verdicts:
        tried = _tried(step, split, batch, joined) if doubtful(step.model) else ""
        _verdicts[step.function] = tried
    return _verdicts[step.function]


def obstacle_to_predictions(step: ModelStep, batch: Any, joined: Any) -> str:
    """Return what stands against predicting a batch in shares, as `obstacle` for other steps."""
    if _rows_made_for(step.model):
        return _FIXED
    if step.function not in _verdicts:
        tried = _tried_predicting(step, batch, joined) if doubtful(step.model) else ""
        _verdicts[step.function] = tried
    return _verdicts[step.function]


def judged(step: ModelStep) -> str | None:
    """Return the verdict of `obstacle` if it is known without a batch, else None."""
    if _rows_made_for(step.model):
        return None
    return _verdicts.get(step.function, None if doubtful(step.model) else "")


def doubtful(model: Any) -> bool:
    """Say whether anything of a model is not Keras's own, whose steps are known to split."""
    layers = list(model._flatten_layers())  # noqa: SLF001 - no public walk over nested layers
    metrics = [part for each in model.metrics for part in (each, *getattr(each, "metrics", ()))]
    return (
        any(not _is_keras(getattr(model, name)) for name in _STEPS)
        or any(not _is_keras(type(layer)) for layer in layers)
        or any(isinstance(layer, keras.layers.Lambda) for layer in layers)
        or any(not _splits(loss) for loss in _losses(model))
        or any(not _is_keras(type(metric)) for metric in metrics)
    )


def _closeness(model: Any) -> float:
    layers = model._flatten_layers()  # noqa: SLF001
    narrow = any(tf.as_dtype(each.compute_dtype).size < _FLOAT32 for each in layers)
    return _CLOSE_NARROW if narrow else _CLOSE


def _rows_made_for(model: Any) -> bool:
    """Say whether a model takes batches of one size only, as a stateful RNN does."""
    inputs = keras.tree.flatten(getattr(model, "inputs", None))
    return any(each.shape and each.shape[0] is not None for each in inputs if each is not None)


def _losses(model: Any) -> list[Any]:
    compiled = getattr(model, "_compile_loss", None)
    return list(keras.tree.flatten(getattr(compiled, "_user_loss", None)))


def _is_keras(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).startswith("keras.")


def _splits(loss: Any) -> bool:
    """Say whether a loss is Keras's own and a mean, or sum, over rows."""
    if loss is None:
        return True
    function = loss if isinstance(loss, str) else getattr(loss, "fn", loss)
    name = function if isinstance(function, str) else getattr(function, "__name__", "")
    owners = (function, type(loss)) if isinstance(loss, keras.losses.Loss) else (function,)
    known = isinstance(loss, str) or all(_is_keras(each) for each in owners)
    return known and name.lower() not in _MIXING and getattr(loss, "reduction", "") is not None


# --- trying ------------------------------------------------------------------------------------


class _Values(NamedTuple):
    """What a step computed; gradients and result as means over the replicas."""

    gradients: list[Any]
    metrics: dict[str, Any]
    result: list[Any]


def _tried(step: ModelStep, split: Split, batch: Any, joined: Any) -> str:
    """Run a step on the shares and on the whole without its updates, and compare."""
    try:
        with split.given("shares"):
            shares = _values(step.model, step.kind, batch)
        with split.given("whole"):
            whole = _values(step.model, step.kind, joined)
    except Exception:  # noqa: BLE001 - a step that fails does so again where its person sees it
        return _UNTRIED
    close = _closeness(step.model)
    if not _same(shares.gradients, whole.gradients, close):
        return _DIFFERS.format("its gradient")
    for name, value in whole.metrics.items():
        if not _same([shares.metrics[name]], [value], close):
            return _DIFFERS.format(f"the metric {name}")
    return "" if _same(shares.result, whole.result, close) else _DIFFERS.format("its result")


def _values(model: Any, kind: str, batch: Any) -> _Values:
    strategy = model.distribute_strategy
    step = getattr(model, f"{kind}_step")
    gradients: dict[int, list[Any]] = {}

    def on_replica(data: Any) -> Any:
        mine = gradients[threading.get_ident()] = []
        return step(data), mine

    def on_replicas(data: Any) -> Any:
        return strategy.run(on_replica, args=(data,))

    run = on_replicas if model.run_eagerly else tf.function(on_replicas, autograph=False)
    run = model._autoconvert_optionals(run)  # noqa: SLF001 - what Keras puts around its own
    with _unchanged(model), _recorded(gradients), _still():
        result, found = run(batch)
        metrics = {name: np.asarray(value) for name, value in model.get_metrics_result().items()}
    return _Values(_means(strategy, found), metrics, _means(strategy, result))


def _means(strategy: Any, values: Any) -> list[Any]:
    """Return the mean over the replicas of each tensor in a structure."""
    return [
        np.mean([np.asarray(tf.convert_to_tensor(part)) for part in parts], axis=0)
        for parts in map(strategy.experimental_local_results, keras.tree.flatten(values))
    ]


def _same(these: list[Any], those: list[Any], close: float) -> bool:
    """Compare arrays one by one; below the noise of all of them an array says nothing."""
    if [each.shape for each in these] != [each.shape for each in those]:
        return False
    sizes = [float(np.linalg.norm(each.astype("float64"))) for each in those]
    noise = _NOISE * sum(sizes)
    return all(
        float(np.linalg.norm(this.astype("float64") - that.astype("float64")))
        <= close * size + noise
        for this, that, size in zip(these, those, sizes, strict=True)
    )


def _tried_predicting(step: ModelStep, batch: Any, joined: Any) -> str:
    """Predict the shares of a batch and the whole of it, and compare."""

    def predicted(values: Any) -> list[Any]:
        return [np.asarray(each) for each in keras.tree.flatten(step.function([values]))]

    try:
        shares, whole = predicted(batch), predicted(joined)
    except Exception:  # noqa: BLE001 - raised again where its person sees it
        return _UNTRIED
    # Each replica predicted the whole.
    once = [values[: len(other)] for values, other in zip(whole, shares, strict=True)]
    return "" if _same(shares, once, _closeness(step.model)) else _DIFFERS_IN_ROWS


@contextmanager
def _unchanged(model: Any) -> Iterator[None]:
    """Give the variables of a model and its metrics back the values that they have."""
    every = {id(each): each.value for each in (*model.variables, *model.metrics_variables)}
    parts = [part for each in every.values() for part in getattr(each, "values", (each,))]
    before = [part.read_value() for part in parts]
    try:
        yield
    finally:
        for part, value in zip(parts, before, strict=True):
            part.assign(value)


@contextmanager
def _recorded(gradients: dict[int, list[Any]]) -> Iterator[None]:
    """Let optimizers note what they get, by thread, and update nothing.

    Each replica of a MirroredStrategy is traced in its own, those of a TPUStrategy in one.
    """

    def recording(_original: Callable[..., Any]) -> Callable[..., Any]:
        def apply(optimizer: Any, grads: Any, trainable_variables: Any = None) -> None:
            if not optimizer.built:
                optimizer.build(list(trainable_variables))
                optimizer.built = True
            gradients[threading.get_ident()] += [
                tf.convert_to_tensor(each) for each in grads if each is not None
            ]

        return apply

    with ExitStack() as undo:
        for kind in (keras.optimizers.Optimizer, keras.optimizers.LossScaleOptimizer):
            undo.enter_context(replaced(kind, {"apply": recording}))
        yield


@contextmanager
def _still() -> Iterator[None]:
    """Make random numbers constant, and let what normalises a batch use its moving averages.

    That batch normalization and dropout are per replica is said in words: it is no obstacle.
    """
    with ExitStack() as undo:
        for module in (keras_random, tf.random):
            names = [name for name in _DRAWS if hasattr(module, name)]
            undo.enter_context(replaced(module, {name: _DRAWS[name] for name in names}))
        undo.enter_context(replaced(keras.layers.BatchNormalization, {"call": _inferring}))
        yield


def _constant(original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def draw(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        dtype = tf.as_dtype(given.get("dtype") or keras.config.floatx())
        value = _STILL if dtype.is_floating else given.get("minval", 0)
        return tf.fill(given["shape"], tf.cast(value, dtype))

    return draw


def _likeliest(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def categorical(logits: Any, num_samples: int, dtype: Any = "int64", **_kwargs: Any) -> Any:
        best = tf.argmax(logits, axis=-1, output_type=tf.int64)
        return tf.cast(tf.repeat(best[:, None], num_samples, axis=1), dtype or "int64")

    return categorical


def _as_given(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def leave(values: Any, *_args: Any, **_kwargs: Any) -> Any:
        return values

    return leave


def _inferring(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(layer: Any, inputs: Any, training: Any = None, mask: Any = None) -> Any:  # noqa: ARG001
        return original(layer, inputs, training=False, mask=mask)

    return call


# What draws random numbers, in Keras and in TensorFlow: how it is held still.
_DRAWS = {
    **dict.fromkeys(
        (
            "normal",
            "truncated_normal",
            "uniform",
            "randint",
            "gamma",
            "beta",
            "binomial",
            "stateless_normal",
            "stateless_truncated_normal",
            "stateless_uniform",
        ),
        _constant,
    ),
    "categorical": _likeliest,
    "dropout": _as_given,
    "shuffle": _as_given,
}
