"""Keras on TensorFlow: variables onto every replica in place, and batches that do not divide.

What Keras does by itself (seen with keras 3.15, tensorflow 2.21, 4 replicas): a model from
before the scope stops with an empty AssertionError, a first batch that does not divide on AddN,
and a last batch smaller than the replicas turns every weight into NaN.
"""

from __future__ import annotations

import functools
import itertools
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from tpu_magic.frameworks import tensorflow as tensorflow_adapter
from tpu_magic.frameworks.keras_cell import KerasCell, replaced, variables_of
from tpu_magic.interrupts import Held
from tpu_magic.report import render

if TYPE_CHECKING:
    from tpu_magic.frameworks.base import Namespace
    from tpu_magic.frameworks.tensorflow import TensorFlow

_DEPTH = 4
# Models of which it was said that they compute per replica.
_told: weakref.WeakSet[Any] = weakref.WeakSet()
_PRECISION = (
    "--precision {precision}: TensorFlow has no such setting; bf16 makes the cell's layers "
    "with mixed_bfloat16"
)


class OnTensorFlow:
    """What TensorFlow does for a cell of Keras code. `frameworks.keras_cell.Below`."""

    def __init__(self, adapter: TensorFlow) -> None:
        self.replicas = adapter.devices().count
        self._adapter = adapter
        self._wrapped: list[tuple[Any, str, _Step]] = []

    @contextmanager
    def running(self, cell: KerasCell, namespace: Namespace) -> Iterator[None]:
        """Run the cell in the strategy's scope, with the namespace's objects taken into it.

        All of them: a loop of the person's own with `strategy.run` gives no later moment,
        since no variable can be made inside it.
        """
        if cell.facts.precision in ("high", "highest"):
            cell.say(_PRECISION.format(precision=cell.facts.precision))
        with ExitStack() as undo:
            undo.enter_context(self._adapter.scope())
            if self.replicas > 1:
                for item in reachable(namespace):
                    cell.take_if_possible(item)
            undo.callback(self._unwrap)
            makers: dict[str, Callable[..., Any]] = {
                f"make_{kind}_function": functools.partial(self._maker, cell, kind, step)
                for kind, step in (("train", _Step), ("test", _Step), ("predict", _PredictStep))
            }
            if self.replicas > 1:
                makers["_maybe_symbolic_build"] = functools.partial(_built_whole, cell)
            undo.enter_context(replaced(keras.Model, makers))
            yield

    def _maker(
        self, cell: KerasCell, kind: str, step: type[_Step], original: Callable[..., Any]
    ) -> Callable[..., Any]:
        attribute = f"{kind}_function"

        @functools.wraps(original)
        def make(model: Any, *args: Any, **kwargs: Any) -> Any:
            made = original(model, *args, **kwargs)
            function = getattr(model, attribute)
            if cell.is_here() and not isinstance(function, _Step):
                wrapped = step(function, model, kind, cell, self.replicas)
                setattr(model, attribute, wrapped)
                self._wrapped.append((model, attribute, wrapped))
            return made

        return make

    def _unwrap(self) -> None:
        """Give the models their own functions back, with what those have traced."""
        for model, attribute, step in self._wrapped:
            if getattr(model, attribute) is step:
                setattr(model, attribute, step.function)
        self._wrapped.clear()

    def take(self, item: Any) -> int:
        """Make every variable one of the strategy's; the objects that hold them stay the same."""
        if self.replicas == 1:
            return 0
        strategy = self._adapter.strategy
        outside = [each for each in variables_of(item) if _is_outside(each, strategy)]
        _refuse_raw_variables(item, strategy)
        _refuse_other_strategy(item, outside, strategy)
        with Held(), strategy.scope():
            for variable in outside:
                value = variable.value.read_value()
                # What the variable does when it is made: here with the value it has.
                variable._value = None  # noqa: SLF001
                variable._initialize(value)  # noqa: SLF001
                # Where the replicas' parts add up (metrics), each must hold its share only.
                variable.value.assign(value)
        _join(item, strategy, changed=bool(outside))
        return len(outside)

    def entered(self, model: Any) -> AbstractContextManager[None]:
        """Return an empty context: TensorFlow's variables hold their values at any time."""
        return nullcontext()

    def notes(self, model: Any) -> list[str]:
        """Say once for a model what is computed per replica."""
        if self.replicas == 1 or model in _told:
            return []
        layers = list(model._flatten_layers())  # noqa: SLF001 - no public walk over nested layers
        norms = [
            each
            for each in layers
            if isinstance(each, keras.layers.BatchNormalization) and not each.synchronized
        ]
        drops = [each for each in layers if isinstance(each, keras.layers.Dropout)]
        said = []
        if norms:
            said.append(
                f"batch normalization ({render.count(len(norms), 'layer')}) uses the statistics of "
                "each replica's share, so the numbers differ from one device's: "
                "BatchNormalization(synchronized=True) uses the whole batch's"
            )
        if drops:
            said.append(
                f"dropout ({render.count(len(drops), 'layer')}) draws a mask of its own on each "
                "replica"
            )
        if clips := _clipping(getattr(model, "optimizer", None)):
            said.append(
                f"{clips} clips each replica's share of the gradient, before the shares are "
                "added: the numbers differ from one device's (on JAX they do not)"
            )
        if said:
            _told.add(model)
        return said

    def traced_s(self) -> float | None:
        """Return None: TensorFlow does not tell how long it traced."""
        return None


class _Step:
    """A train or test function of a model, fed with batches that each replica can take."""

    def __init__(
        self, function: Callable[..., Any], model: Any, kind: str, cell: KerasCell, replicas: int
    ) -> None:
        self.function = function
        self._model = model
        self._kind = kind
        self._cell = cell
        self._replicas = replicas

    def __call__(self, iterator: Any) -> Any:
        """Run as many steps as one execution has; the same values as `function` gives."""
        __tracebackhide__ = True
        many = self._model.steps_per_execution
        if many > 1 and (self._replicas == 1 or _always_even(iterator)):
            # The loop over the steps is part of the program: that is what it is for.
            self._cell.not_counted()
            return self.function(iterator)
        started = time.perf_counter()
        batches = list(itertools.islice(iterator, many))
        self._cell.facts.input_wait_s += time.perf_counter() - started
        if not batches:
            raise StopIteration
        outputs = None
        for batch in batches:
            shares = _shares(batch)
            uneven = len(set(shares)) > 1
            outputs = self._run_whole(batch) if uneven else self.function(iter([batch]))
            rows = sum(shares) if shares else _rows(batch)
            alone = self._replicas > 1 and len(shares) < self._replicas
            self._cell.count(self._kind, rows, whole=uneven or alone)
        return outputs

    def _run_whole(self, batch: Any) -> Any:
        """Run a step in which each replica has all rows.

        The mean over the replicas is then the gradient of one device, whatever the number of
        rows. Metrics add up over replicas, so that only the first one's may count.
        """
        __tracebackhide__ = True
        others = [
            part
            for variable in self._model.metrics_variables
            for part in getattr(variable.value, "values", ())[1:]
        ]
        before = [part.read_value() for part in others]
        outputs = self.function(iter([whole(batch)]))
        for part, value in zip(others, before, strict=True):
            part.assign(value)
        return outputs


class _PredictStep(_Step):
    """A predict function: rows are independent, so that any split gives the right values."""

    def __call__(self, data: Any) -> Any:
        """Predict a list of batches."""
        __tracebackhide__ = True
        outputs = self.function(data)
        for batch in data:
            shares = _shares(batch)
            self._cell.count(self._kind, sum(shares) if shares else _rows(batch), whole=False)
        return outputs


def _built_whole(cell: KerasCell, original: Callable[..., Any]) -> Callable[..., Any]:
    """Make the patch by which a model is built from a whole batch, not from its mean share."""

    @functools.wraps(original)
    def _maybe_symbolic_build(model: Any, iterator: Any = None, data_batch: Any = None) -> Any:
        if not cell.is_here() or iterator is None:
            return original(model, iterator=iterator, data_batch=data_batch)
        for _, _, batches in iterator:
            data_batch = whole(next(batches))
            break
        return original(model, data_batch=data_batch)

    return _maybe_symbolic_build


# --- batches ----------------------------------------------------------------------------------


def whole(batch: Any) -> Any:
    """Return a batch with the replicas' shares joined again."""

    def join(leaf: Any) -> Any:
        if not isinstance(leaf, tf.distribute.DistributedValues):
            return leaf
        parts = leaf.values
        if isinstance(parts[0], tf.SparseTensor):
            return tf.sparse.concat(0, parts)
        return parts[0] if isinstance(parts[0], tf.experimental.Optional) else tf.concat(parts, 0)

    return keras.tree.map_structure(join, batch)


def _shares(batch: Any) -> list[int]:
    """Return how many rows each replica has; nothing for a batch that is not split."""
    for leaf in keras.tree.flatten(batch):
        if isinstance(leaf, tf.distribute.DistributedValues) and hasattr(leaf.values[0], "shape"):
            return [int(part.shape[0]) for part in leaf.values]
    return []


def _rows(batch: Any) -> int | None:
    for leaf in keras.tree.flatten(batch):
        shape: tuple[Any, ...] = tuple(getattr(leaf, "shape", ()))
        if shape and shape[0] is not None:
            return int(shape[0])
    return None


def _always_even(iterator: Any) -> bool:
    """Say whether every batch has the same number of rows on every replica, by its type."""
    specs = tf.nest.flatten(getattr(iterator, "element_spec", None), expand_composites=True)
    shapes = [spec.shape for spec in specs if isinstance(spec, tf.TensorSpec) and spec.shape.rank]
    return bool(shapes) and all(shape[0] is not None for shape in shapes)


# --- objects ----------------------------------------------------------------------------------


def reachable(namespace: Namespace) -> list[Any]:
    """Return the models, layers, optimizers and metrics of a namespace, models first.

    Also those in containers, and in objects of the person's own classes.
    """
    found: dict[int, Any] = {}
    seen: set[int] = set()

    def look(values: Iterable[Any], depth: int) -> None:
        for value in values:
            if id(value) in seen:
                continue
            seen.add(id(value))
            if isinstance(value, _KINDS):
                found[id(value)] = value
            elif depth:
                look(_held(value), depth - 1)

    names = [name for name in namespace if not name.startswith("_") and name not in _HISTORY]
    look([namespace[name] for name in names], _DEPTH)
    return sorted(found.values(), key=lambda item: not isinstance(item, keras.Model))


_KINDS = (keras.Layer, keras.optimizers.Optimizer, keras.metrics.Metric)
_HISTORY = ("In", "Out")


def _held(value: Any) -> list[Any]:
    """Return what a container or an object of the person's own classes holds."""
    if type(value).__module__ == "__main__":
        value = getattr(value, "__dict__", {})
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, (list, tuple, set, frozenset)) else []


def _is_outside(variable: Any, strategy: Any) -> bool:
    value = variable.value
    return isinstance(value, tf.Variable) and not strategy.extended.variable_created_in_scope(value)


def _join(item: Any, strategy: Any, *, changed: bool) -> None:
    """Tell a model and its optimizer which strategy they belong to, as their making would."""
    optimizers = [item] if isinstance(item, keras.optimizers.Optimizer) else []
    if isinstance(item, keras.Layer):
        for layer in item._flatten_layers():  # noqa: SLF001
            if isinstance(layer, keras.Model):
                layer._distribute_strategy = strategy  # noqa: SLF001
                optimizers += [layer.optimizer] if getattr(layer, "optimizer", None) else []
    if changed and isinstance(item, keras.Model):
        # Traced with the old variables.
        item.train_function = item.test_function = item.predict_function = None
    for optimizer in optimizers:
        for each in filter(None, (optimizer, getattr(optimizer, "inner_optimizer", None))):
            each._distribution_strategy = strategy  # noqa: SLF001
            if each.built:
                # Keras finds a variable's place by the number of its tf.Variable.
                each._trainable_variables_indices = {  # noqa: SLF001
                    each._var_key(variable): index  # noqa: SLF001
                    for index, variable in enumerate(each._trainable_variables)  # noqa: SLF001
                }


def _refuse_raw_variables(item: Any, strategy: Any) -> None:
    """Refuse a layer that holds a tf.Variable of its own, which Keras does not know."""
    if not isinstance(item, keras.Layer):
        return
    for layer in item._flatten_layers():  # noqa: SLF001
        for name, value in vars(layer).items():
            if isinstance(value, tf.Variable) and not strategy.extended.variable_created_in_scope(
                value
            ):
                raise ValueError(
                    f"{layer.name}.{name} is a tf.Variable that was made outside of the "
                    "strategy, and Keras cannot move it: make it with self.add_weight, or make "
                    f"{item.name} in this cell"
                )


def _refuse_other_strategy(item: Any, outside: list[Any], strategy: Any) -> None:
    for variable in outside:
        other = getattr(variable.value, "distribute_strategy", None)
        if other is not None and other is not strategy and other.num_replicas_in_sync > 1:
            raise ValueError(
                f"{item.name} belongs to another strategy ({type(other).__name__}): make it in "
                f"this cell, or {tensorflow_adapter.ONE_STRATEGY}"
            )


def _clipping(optimizer: Any) -> str:
    names = ("clipnorm", "clipvalue", "global_clipnorm")
    return next(
        (f"{n}={value:g}" for n in names if (value := getattr(optimizer, n, None)) is not None), ""
    )
