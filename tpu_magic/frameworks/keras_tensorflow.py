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

from tpu_magic.frameworks.keras_cell import KerasCell
from tpu_magic.frameworks.keras_tensorflow_place import Place
from tpu_magic.frameworks.keras_tensorflow_steps import feeding
from tpu_magic.frameworks.tensorflow import no_reduction_logged
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
        self._place = Place(adapter.strategy)
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
            undo.enter_context(no_reduction_logged())
            if self.replicas > 1:
                self._place.begin(reachable(namespace))
                undo.callback(lambda: self._place.leave(reachable(namespace)))
            undo.enter_context(self._adapter.scope())
            if self.replicas > 1:
                for item in reachable(namespace):
                    cell.take_if_possible(item)
            undo.enter_context(feeding(cell, self.replicas))
            self._made = self._adapter.tensors_made()
            yield

    def take(self, item: Any) -> int:
        """Make every variable one of the strategy's; the objects that hold them stay the same."""
        return 0 if self.replicas == 1 else self._place.take(item)

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
        draw = [each for each in layers if _draws(each)]
        said = []
        if norms:
            said.append(
                f"batch normalization ({render.count(len(norms), 'layer')}) uses the statistics of "
                "each replica's share, so the numbers differ from one device's: "
                "BatchNormalization(synchronized=True) uses the whole batch's"
            )
        if draw:
            kinds = ", ".join(sorted({type(each).__name__ for each in draw}))
            said.append(
                f"random numbers ({render.count(len(draw), 'layer')}: {kinds}) are drawn on each "
                "replica for its rows, so the numbers differ from one device's"
            )
        if self._place.compiles_with_xla(model):
            said.append(
                "jit_compile: TensorFlow cannot compile a step of several replicas with XLA, so "
                "it ran without (--devices 1 runs with it)"
            )
        if said:
            _told.add(model)
        return said

    def computed(self) -> bool:
        """Say whether an operation outside of a program ran; asking takes a number."""
        return self._adapter.tensors_made() > self._made + 1


def _draws(layer: Any) -> bool:
    """Say whether a layer draws random numbers; cells of recurrent layers may only be able to."""
    rates = [getattr(layer, name, None) for name in ("dropout", "recurrent_dropout")]
    generators = layer._seed_generators  # noqa: SLF001
    return bool(generators) and (rates == [None, None] or any(rates))


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
