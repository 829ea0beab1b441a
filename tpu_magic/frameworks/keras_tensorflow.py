"""Keras on TensorFlow: variables onto every replica in place, and batches that do not divide.

What Keras does by itself (seen with keras 3.15, tensorflow 2.21, 4 replicas): a model from
before the scope stops with an empty AssertionError, a first batch that does not divide on AddN,
and a last batch smaller than the replicas turns every weight into NaN.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from tpu_magic.frameworks import tensorflow as tensorflow_adapter
from tpu_magic.frameworks.keras_cell import KerasCell, variables_of
from tpu_magic.frameworks.keras_tensorflow_steps import feeding
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
        self._made = 0

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
            undo.enter_context(feeding(cell, self.replicas))
            self._made = self._adapter.tensors_made()
            yield

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
                if variable.value.synchronization == tf.VariableSynchronization.ON_READ:
                    # The replicas' parts add up (metrics): each must hold its share only.
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

    def computed(self) -> bool:
        """Say whether an operation outside of a program ran; asking takes a number."""
        return self._adapter.tensors_made() > self._made + 1


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
