"""Keras on JAX: one distribution over all devices, and steps that leave a model whole.

What Keras does by itself (seen with keras 3.15, jax 0.10, 4 devices): a model from before the
distribution fails, a batch that does not divide raises, and then the model has no weights any
more, since they were taken out of it for the epoch.
"""

from __future__ import annotations

import functools
import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import jax
import keras
from keras.src.backend.jax import distribution_lib

from tpu_magic.frameworks.jax_evidence import Evidence
from tpu_magic.frameworks.keras_cell import KerasCell, variables_of
from tpu_magic.frameworks.keras_steps import ModelStep, wrapped_steps
from tpu_magic.frameworks.patches import replaced
from tpu_magic.interrupts import Held

if TYPE_CHECKING:
    from tpu_magic.frameworks.base import Namespace
    from tpu_magic.frameworks.jax import Jax

# The order in which Keras keeps a model's state, and what each kind of step has of it.
_STATE = (
    "trainable_variables",
    "non_trainable_variables",
    "optimizer_variables",
    "metrics_variables",
)
_OF_KIND = {
    "train": _STATE,
    "test": (*_STATE[:2], _STATE[3]),
    "predict": _STATE[:2],
}


class OnJax:
    """What JAX does for a cell of Keras code. `frameworks.keras_cell.Below`."""

    def __init__(self, adapter: Jax) -> None:
        self.replicas = adapter.devices().count
        self._adapter = adapter
        self._evidence = Evidence(adapter.counters)
        self._distribution: Any = None
        self.whole_steps = WholeSteps()

    @contextmanager
    def running(self, cell: KerasCell, namespace: Namespace) -> Iterator[None]:
        """Run the cell under the distribution; the person's own is left in force."""
        precision = cell.facts.precision
        self._distribution = keras.distribution.distribution()
        with ExitStack() as undo:
            undo.enter_context(
                self._adapter.precision("default" if precision == "bf16" else precision)
            )
            if self._distribution is not None:
                cell.say(f"your own distribution is in force: {self._distribution}")
            elif self.replicas > 1:
                self._distribution = _over_all(self.replicas)
                undo.enter_context(self._distribution.scope())
            undo.enter_context(self._evidence.gathering())
            undo.enter_context(wrapped_steps(cell, functools.partial(Step, below=self)))
            state = {"_get_jax_state": functools.partial(_kept_state, cell, self.whole_steps)}
            undo.enter_context(replaced(keras.Model, state))
            undo.enter_context(
                replaced(distribution_lib, {"distribute_data_input": _whole_if_uneven})
            )
            yield

    def take(self, item: Any) -> int:
        """Put every variable on all devices; objects, ties and optimizer state stay as they are."""
        if self._distribution is None:
            return 0
        mesh = set(self._distribution.device_mesh.backend_mesh.devices.flat)
        elsewhere = [
            each
            for each in variables_of(item)
            if isinstance(each.value, jax.Array) and each.value.sharding.device_set != mesh
        ]
        for variable in elsewhere:
            # `_layout` is what Keras itself sets for a variable made under a distribution.
            variable._layout = self._distribution.get_variable_layout(variable)  # noqa: SLF001
            variable.assign(variable.value)
        if elsewhere and isinstance(item, keras.Model):
            # Compiled for the variables' old places.
            item.train_function = item.test_function = item.predict_function = None
        return len(elsewhere)

    @contextmanager
    def entered(self, model: Any) -> Iterator[None]:
        """Keep interrupts out of steps; after an error, put the last whole step's state back."""
        try:
            with self.whole_steps:
                yield
        except BaseException:
            with Held(deliver=False):
                model.jax_state_sync()
                model._jax_state = None  # noqa: SLF001 - as Keras does at the end of fit
            raise

    def notes(self, model: Any) -> list[str]:
        """Return nothing: on JAX the numbers are those of one device, batch norm included."""
        return []

    def computed(self) -> bool:
        """Say whether jax left anything of a computation."""
        return self._evidence.found()


class WholeSteps:
    """A context in which an interrupt that comes in a step is raised at the step's end.

    The handler is put in place once for all steps: twice a step would cost more than the rest.
    """

    def __init__(self) -> None:
        self._in_step = False
        self._came = False
        self._before: Any = None

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if callable(before):  # else nobody's: there is no KeyboardInterrupt to hold
                self._before = before
                signal.signal(signal.SIGINT, self._interrupted)

    def __exit__(self, *_: object) -> None:
        before, self._before = self._before, None
        if before is not None and signal.getsignal(signal.SIGINT) == self._interrupted:
            signal.signal(signal.SIGINT, before)

    @contextmanager
    def step(self) -> Iterator[None]:
        """Run a step as a whole."""
        self._in_step = True
        try:
            yield
        finally:
            self._in_step = False
            came, self._came = self._came, False
            if came:
                raise KeyboardInterrupt

    def _interrupted(self, number: int, frame: Any) -> None:
        if self._in_step:
            self._came = True
        elif self._before is not None:
            self._before(number, frame)


class Step(ModelStep):
    """A train, test or predict function of a model, which cannot lose the model's state.

    jax donates the state to each step: between the call and the return, nobody has it. So
    batches are fetched before, and an interrupt waits until the new state is in the model.
    """

    def __init__(self, *step: Any, below: OnJax) -> None:
        super().__init__(*step)
        self._below = below

    def __call__(self, state: Any, iterator: Iterator[Any]) -> Any:
        """Run as many steps as one execution has; the same values as `function` gives."""
        __tracebackhide__ = True
        started = time.perf_counter()
        batches = list(itertools.islice(iterator, self.model.steps_per_execution))
        self.cell.facts.input_wait_s += time.perf_counter() - started
        if not batches:
            raise StopIteration
        # Predictions of several steps are joined by Keras's own function.
        groups = [batches] if self.kind == "predict" else [[batch] for batch in batches]
        outputs = None
        for group in groups:
            with self._below.whole_steps.step():
                outputs, state = self.function(state, iter(group))
                _keep(self.model, _OF_KIND[self.kind], state)
        for batch in batches:
            rows = _rows(batch)
            uneven = rows is not None and rows % self._below.replicas != 0
            self.cell.count(self.kind, rows, whole=uneven)
        return outputs, state


def _keep(model: Any, names: Sequence[str], state: Any) -> None:
    """Let a model have its state.

    Past Keras's own `__setattr__`, which looks at every array in it for layers to track: with
    small models that was 4 % of a step.
    """
    vars(model)["_jax_state"] = dict(zip(names, state, strict=True))


def _kept_state(
    cell: KerasCell, whole: WholeSteps, original: Callable[..., Any]
) -> Callable[..., Any]:
    """Make the patch that lets a model keep the state that is taken out of its variables."""

    @functools.wraps(original)
    def _get_jax_state(model: Any, **asked: bool) -> Any:
        if not (cell.is_here() and asked.get("purge_model_variables")):
            return original(model, **asked)
        names = [name for name in _STATE if asked.get(name)]
        with whole.step():
            state = original(model, **asked)
            _keep(model, names, state)
            model._jax_state_synced = False  # noqa: SLF001
        return state

    return _get_jax_state


def _whole_if_uneven(original: Callable[..., Any]) -> Callable[..., Any]:
    """Make the patch that gives every device the whole of a batch which does not divide.

    The program is then the one of a single device, run on each: the same numbers, batch
    statistics included, for any number of rows.
    """

    @functools.wraps(original)
    def distribute_data_input(batch: Any, layout: Any, *args: Any, **kwargs: Any) -> Any:
        sharding = getattr(layout, "backend_layout", layout)
        shape = getattr(batch, "shape", ())
        if not shape or jax.process_count() > 1 or _divides(shape[0], sharding):
            return original(batch, layout, *args, **kwargs)
        everywhere = jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec())
        return jax.device_put(batch, everywhere)

    return distribute_data_input


def _divides(rows: int, sharding: Any) -> bool:
    axis = sharding.spec[0] if sharding.spec else None
    return axis is None or rows % sharding.mesh.shape[axis] == 0


@functools.cache
def _over_all(count: int) -> Any:
    """Return the distribution over all devices, one in a process."""
    devices = keras.distribution.list_devices()
    assert len(devices) == count, (devices, count)  # noqa: S101 - one runtime, one number
    return keras.distribution.DataParallel(devices=devices)


def _rows(batch: Any) -> int | None:
    shapes = (leaf.shape for leaf in jax.tree_util.tree_leaves(batch) if hasattr(leaf, "shape"))
    return next((int(shape[0]) for shape in shapes if shape), None)
