"""Steps of Keras on TensorFlow: batches that do not divide, and those that are known to."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow.trainer import TFEpochIterator
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from tensorflow.python.data.ops import multi_device_iterator_ops

from tpu_magic.frameworks.keras_cell import KerasCell, replaced
from tpu_magic.frameworks.keras_steps import ModelStep, wrapped_steps


@contextmanager
def feeding(cell: KerasCell, replicas: int) -> Iterator[None]:
    """Run the steps of a cell's models with batches that each replica can take."""
    ahead = Ahead(replicas)

    def wrap(function: Any, model: Any, kind: str, cell: KerasCell) -> ModelStep:
        if kind == "predict":
            return PredictStep(function, model, kind, cell)
        return Step(function, model, kind, cell, replicas=replicas, ahead=ahead)

    with ExitStack() as undo:
        undo.enter_context(wrapped_steps(cell, wrap))
        if replicas > 1:
            build = {"_maybe_symbolic_build": functools.partial(_built_whole, cell)}
            undo.enter_context(replaced(keras.Model, build))
        epochs = {"_enumerate_iterator": functools.partial(ahead.looking, cell)}
        undo.enter_context(replaced(TFEpochIterator, epochs))
        arrays = {"get_tf_dataset": functools.partial(_untuned, cell)}
        undo.enter_context(replaced(ArrayDataAdapter, arrays))
        buffers = {"_create_device_dataset": functools.partial(_untuned, cell)}
        undo.enter_context(replaced(multi_device_iterator_ops, buffers))
        yield


def _untuned(cell: KerasCell, original: Callable[..., Any]) -> Callable[..., Any]:
    """Make the patch by which a pipeline of Keras's or TensorFlow's own is not tuned as it runs.

    Tuning takes a thread an iterator, which sleeps up to a minute at a time. An iterator that is
    not run to its end, as of a fit that is interrupted or fails, waits for that sleep when it is
    dropped, whenever Python drops it: seen for 8 to 74 s, with Keras by hand as well. In the
    pipelines of arrays and in the replicas' buffers there is nothing to tune.
    """

    @functools.wraps(original)
    def untuned(*args: Any, **kwargs: Any) -> Any:
        dataset = original(*args, **kwargs)
        if not cell.is_here():
            return dataset
        options = tf.data.Options()
        options.autotune.enabled = False
        return dataset.with_options(options)

    return untuned


class Ahead:
    """What is known of the next batches before they are fetched.

    A batch that is fetched by us can be looked at and timed; with several replicas that costs a
    tenth of a small step. Where its rows are known beforehand, Keras's own way is taken.
    """

    def __init__(self, replicas: int) -> None:
        self._replicas = replicas
        self._iterator: Any = None
        self._epochs: Any = None

    def looking(self, cell: KerasCell, original: Callable[..., Any]) -> Callable[..., Any]:
        """Make the patch by which an epoch tells which batches it is about to run."""

        @functools.wraps(original)
        def _enumerate_iterator(epochs: Any) -> Iterator[Any]:
            for begin, end, iterator in original(epochs):
                if cell.is_here():
                    self._iterator, self._epochs = iterator, epochs
                yield begin, end, iterator

        return _enumerate_iterator

    def even_rows(self, iterator: Any, many: int) -> list[int] | None:
        """Return the rows of the next `many` batches if every replica gets as many of them.

        None where that is not so or not known; an empty list where it is so by the iterator's
        type, and only the number of batches is not known.
        """
        by_type = self._replicas == 1 or _always_even(iterator)
        rows = self._rows(many) if iterator is self._iterator else None
        if many > 1:
            # TensorFlow's own loop over steps fails on batches that could be uneven.
            return (rows or []) if by_type else None
        if rows is None or self._replicas == 1:
            return rows
        # The last rows are dealt out by the size of a whole batch: to the first replicas only.
        full = self._epochs.data_adapter.batch_size
        return rows if rows == [full] and full % self._replicas == 0 else None

    def _rows(self, many: int) -> list[int] | None:
        """Return the rows of the batches that are next, for data in arrays."""
        data = self._epochs.data_adapter
        if not isinstance(data, ArrayDataAdapter):
            return None
        full, rest, last = data.batch_size, data.partial_batch_size, data.num_batches - 1
        first = self._epochs._steps_seen - many  # noqa: SLF001 - those before this execution
        following = range(first, min(first + many, data.num_batches))
        return [rest if rest and number == last else full for number in following]


def _always_even(iterator: Any) -> bool:
    """Say whether every batch has the same number of rows on every replica, by its type."""
    specs = tf.nest.flatten(getattr(iterator, "element_spec", None), expand_composites=True)
    shapes = [spec.shape for spec in specs if isinstance(spec, tf.TensorSpec) and spec.shape.rank]
    return bool(shapes) and all(shape[0] is not None for shape in shapes)


class Step(ModelStep):
    """A train or test function of a model, fed with batches that each replica can take."""

    def __init__(self, *step: Any, replicas: int, ahead: Ahead) -> None:
        super().__init__(*step)
        self._replicas = replicas
        self._ahead = ahead

    def __call__(self, iterator: Any) -> Any:
        """Run as many steps as one execution has; the same values as `function` gives."""
        __tracebackhide__ = True
        many = self.model.steps_per_execution
        even = self._ahead.even_rows(iterator, many)
        if even is not None:
            # As Keras does it: fetching is part of the program, and so is the loop over steps.
            outputs = self.function(iterator)
            self.cell.not_fetched_here()
            if not even:
                self.cell.not_counted()
            for rows in even:
                self.cell.count(self.kind, rows, whole=False)
            return outputs
        started = time.perf_counter()
        batches = list(itertools.islice(iterator, many))
        self.cell.facts.input_wait_s += time.perf_counter() - started
        if not batches:
            raise StopIteration
        outputs = None
        for batch in batches:
            shares = _shares(batch)
            uneven = len(set(shares)) > 1
            outputs = self._run_whole(batch) if uneven else self.function(iter([batch]))
            count = sum(shares) if shares else _rows(batch)
            alone = self._replicas > 1 and len(shares) < self._replicas
            self.cell.count(self.kind, count, whole=uneven or alone)
        return outputs

    def _run_whole(self, batch: Any) -> Any:
        """Run a step in which each replica has all rows.

        The mean over the replicas is then the gradient of one device, whatever the number of
        rows. Metrics add up over replicas, so that only the first one's may count.
        """
        __tracebackhide__ = True
        others = [
            part
            for variable in self.model.metrics_variables
            for part in getattr(variable.value, "values", ())[1:]
        ]
        before = [part.read_value() for part in others]
        outputs = self.function(iter([whole(batch)]))
        for part, value in zip(others, before, strict=True):
            part.assign(value)
        return outputs


class PredictStep(ModelStep):
    """A predict function: rows are independent, so that any split gives the right values."""

    def __call__(self, data: Any) -> Any:
        """Predict a list of batches."""
        __tracebackhide__ = True
        outputs = self.function(data)
        for batch in data:
            shares = _shares(batch)
            self.cell.count(self.kind, sum(shares) if shares else _rows(batch), whole=False)
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
