"""Where a model is: on every replica while a cell runs, on one device between the cells.

Its variables become variables of the strategy in place, with the person's own variable as the
first replica's part, which they are again after the cell. So a plain cell is plain Keras, with
any batch and any optimizer; and what was traced with that variable before, as a `tf.function` of
an earlier cell, reads and writes the weights of the model all along.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from tpu_magic.frameworks import tensorflow as tensorflow_adapter
from tpu_magic.frameworks.keras_cell import optimizers_of, variables_of
from tpu_magic.frameworks.keras_steps import KINDS
from tpu_magic.frameworks.patches import replaced
from tpu_magic.interrupts import Held

_FUNCTIONS = tuple(f"{kind}_function" for kind in KINDS)
# What is kept between the cells: on a model what it compiled for all replicas, on a Keras variable
# its variable of the strategy.
_KEPT = "_tpu_magic_on_replicas"
_PART = "part_on_a_replica"


@dataclass
class _Alone:
    """What a model is between the cells."""

    model: Any
    compiled: tuple[Any, ...]
    functions: dict[str, Any]
    jit_compile: bool = False


class Place:
    """The replicas of a strategy, and who is on them in this cell."""

    def __init__(self, strategy: Any) -> None:
        self._strategy = strategy
        self._items: dict[int, Any] = {}
        self._alone: dict[int, _Alone] = {}
        self._scoped: list[Any] = []

    def begin(self, items: Iterable[Any]) -> None:
        """Note who is of the strategy already: made in its scope by hand, and left in it."""
        self._scoped = [each for each in items if _is_of(each, self._strategy)]

    def take(self, item: Any) -> int:
        """Take a model, layer, optimizer or metric onto the replicas, in place.

        Returns
        -------
        int
            The number of variables that were not there yet.

        Raises
        ------
        ValueError
            When something cannot be taken, naming it; nothing is changed then.
        """
        outside = [each for each in variables_of(item) if self._is_outside(each)]
        new = [each for each in outside if self._kept(each) is None]
        _refuse_raw_variables(item, self._strategy)
        _refuse_other_strategy(item, new, self._strategy)
        with Held(), self._strategy.scope():
            for variable in outside:
                self._spread(variable)
            self.join(item)
        return len(new)

    def join(self, item: Any) -> None:
        """Tell a model and its optimizers that they are the strategy's, as their making does."""
        self._items[id(item)] = item
        for optimizer in optimizers_of(item):
            _tell(optimizer, self._strategy)
        for model in _models_of(item):
            if id(model) not in self._alone:
                functions = {name: getattr(model, name) for name in _FUNCTIONS}
                self._alone[id(model)] = _Alone(model, _compiled(model), functions)
                if model._distribute_strategy is not self._strategy:  # noqa: SLF001
                    compiled, functions = vars(model).pop(_KEPT, ((), {}))
                    _give(model, functions if _is_same(compiled, _compiled(model)) else {})
                    model._distribute_strategy = self._strategy  # noqa: SLF001
            if model.jit_compile:
                # XLA takes no step that spans the devices of a MirroredStrategy.
                self._alone[id(model)].jit_compile, model.jit_compile = True, False

    def compiles_with_xla(self, model: Any) -> bool:
        """Say whether a model was to be compiled with XLA, which it is not here."""
        return id(model) in self._alone and self._alone[id(model)].jit_compile

    def leave(self, items: Iterable[Any] = ()) -> None:
        """Let all who are here, and `items`, compute on one device again.

        Between the cells nobody takes care of batches that do not divide, and a loop of the
        person's own is one device's.
        """
        with Held(), self._strategy.scope():
            for item in items:
                self.join(item)
            stay = {id(part) for item in self._scoped for part in _parts_of(item)}
            for part in (part for item in self._items.values() for part in _parts_of(item)):
                if id(part) not in stay and isinstance(part, keras.Variable):
                    _gather(part)
        for item in self._items.values():
            for optimizer in optimizers_of(item):
                if id(optimizer) not in stay:
                    _tell(optimizer, tf.distribute.get_strategy())
        for alone in self._alone.values():
            model, compiled = alone.model, _compiled(alone.model)
            if id(model) not in stay:
                functions = {name: getattr(model, name) for name in _FUNCTIONS}
                vars(model)[_KEPT] = (compiled, functions)
                _give(model, alone.functions if _is_same(compiled, alone.compiled) else {})
                model._distribute_strategy = None  # noqa: SLF001
            if alone.jit_compile:
                model.jit_compile = True
        self._items.clear()
        self._alone.clear()
        self._scoped.clear()

    def _is_outside(self, variable: Any) -> bool:
        return _is_outside(variable.value, self._strategy)

    def _kept(self, variable: Any) -> Any:
        """Return the variable of the strategy that a Keras variable was before."""
        kept = vars(variable).get(_KEPT)
        return kept if kept is not None and kept.values[0] is variable.value else None

    def _spread(self, variable: Any) -> None:
        """Make a variable one of the strategy's; the Keras variable that holds it stays."""
        if (kept := self._kept(variable)) is not None:
            variable._value = kept  # noqa: SLF001
        else:
            own, value = variable.value, variable.value.read_value()
            with _as_first_part(own, self._strategy):
                # What the variable does when it is made: here with the value it has. A layer that
                # is frozen now may be trained later, and a tape asks the parts.
                frozen, variable._trainable = not variable.trainable, True  # noqa: SLF001
                variable._value = None  # noqa: SLF001
                variable._initialize(value)  # noqa: SLF001
                variable._trainable = not frozen  # noqa: SLF001
        _even_out(variable.value)


@contextmanager
def _as_first_part(own: Any, strategy: Any) -> Iterator[None]:
    """Let the variable that is made next have `own` as its part on the first replica.

    Not where the first replica is on another device than `own`, as on a TPU.
    """
    first = tf.DeviceSpec.from_string(strategy.extended.worker_devices[0])
    is_there = tf.DeviceSpec.from_string(own.device) == first

    def create(original: Callable[..., Any]) -> Callable[..., Any]:
        def _create_variable(extended: Any, make: Callable[..., Any], **kwargs: Any) -> Any:
            firsts = iter([own])

            def part(**details: Any) -> Any:
                for part in firsts:
                    return part if is_there else make(**details)
                # TensorFlow takes half a millisecond for a name that it has not seen.
                return make(**{**details, "name": _PART})

            return original(extended, part, **kwargs)

        return _create_variable

    with replaced(type(strategy.extended), {"_create_variable": create}):
        yield


# --- the parts of a variable ----------------------------------------------------------------------


def _even_out(value: Any) -> None:
    """Give all replicas what the first one has; of what is added up, the others have none."""
    first, *others = value.values
    is_sum = value.aggregation == tf.VariableAggregation.SUM and _is_read_together(value)
    given = tf.zeros_like(first) if is_sum else first.read_value()
    for part in others:
        part.assign(given, read_value=False)


def _gather(variable: Any) -> None:
    """Let a Keras variable be the first replica's part, with the value of all of them."""
    value = variable.value
    if not isinstance(value, tf.distribute.DistributedValues):
        return
    if _is_read_together(value):
        value.values[0].assign(value.read_value())
    vars(variable)[_KEPT], variable._value = value, value.values[0]  # noqa: SLF001


def _is_read_together(value: Any) -> bool:
    """Say whether a value is that of all parts, as a metric's is, and a moving average's."""
    return bool(value.synchronization == tf.VariableSynchronization.ON_READ)


# --- models ---------------------------------------------------------------------------------------


def _models_of(item: Any) -> list[Any]:
    layers = item._flatten_layers() if isinstance(item, keras.Layer) else ()  # noqa: SLF001
    return [layer for layer in layers if isinstance(layer, keras.Model)]


def _parts_of(item: Any) -> list[Any]:
    """Return all that has a place of its own: variables, optimizers and models."""
    return [*variables_of(item), *optimizers_of(item), *_models_of(item)]


def _is_of(item: Any, strategy: Any) -> bool:
    """Say whether an object was made in a strategy's scope."""
    told = [getattr(each, "_distribute_strategy", None) for each in _models_of(item)]
    told += [getattr(each, "_distribution_strategy", None) for each in optimizers_of(item)]
    told += [getattr(each.value, "distribute_strategy", None) for each in variables_of(item)]
    return any(each is strategy for each in told)


def _tell(optimizer: Any, strategy: Any) -> None:
    """Tell an optimizer which strategy it belongs to, as its making does."""
    optimizer._distribution_strategy = strategy  # noqa: SLF001
    if optimizer.built:
        # Keras finds a variable's place by the number of its tf.Variable.
        optimizer._trainable_variables_indices = {  # noqa: SLF001
            optimizer._var_key(variable): index  # noqa: SLF001
            for index, variable in enumerate(optimizer._trainable_variables)  # noqa: SLF001
        }


def _give(model: Any, functions: dict[str, Any]) -> None:
    for name in _FUNCTIONS:
        setattr(model, name, functions.get(name))


def _compiled(model: Any) -> tuple[Any, ...]:
    """Return what a model's functions were traced for; `compile` makes all of it anew."""
    names = ("optimizer", "_compile_loss", "_compile_metrics")
    return tuple(getattr(model, name, None) for name in names)


def _is_same(these: tuple[Any, ...], those: tuple[Any, ...]) -> bool:
    return len(these) == len(those) and all(map(operator.is_, these, those))


def _is_outside(value: Any, strategy: Any) -> bool:
    """Say whether a variable is on one device only; a part of the strategy's is as well."""
    if isinstance(value, tf.distribute.DistributedValues):
        return not strategy.extended.variable_created_in_scope(value)
    return isinstance(value, tf.Variable)


def _refuse_raw_variables(item: Any, strategy: Any) -> None:
    """Refuse a layer that holds a tf.Variable of its own, which Keras does not know."""
    if not isinstance(item, keras.Layer):
        return
    for layer in item._flatten_layers():  # noqa: SLF001
        for name, value in vars(layer).items():
            if _is_outside(value, strategy):
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
