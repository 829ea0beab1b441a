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

from tpu_magic.frameworks.keras_cell import KerasCell
from tpu_magic.frameworks.keras_steps import ModelStep, wrapped_steps
from tpu_magic.frameworks.keras_tensorflow_logs import logs_of, results_of_all_replicas
from tpu_magic.frameworks.keras_tensorflow_loops import on_one_replica
from tpu_magic.frameworks.keras_tensorflow_proof import judged, obstacle, obstacle_to_predictions
from tpu_magic.frameworks.keras_tensorflow_update import Split, as_one_device
from tpu_magic.frameworks.patches import replaced

_NOT_SPLIT = (
    "{model}: every replica computed the whole of each batch (one device's numbers, at one "
    "device's speed): {against}"
)
_WHOLE = "_tpu_magic_whole"


@contextmanager
def feeding(cell: KerasCell, replicas: int) -> Iterator[None]:
    """Run the steps of a cell's models with batches that each replica can take."""
    ahead = Ahead(replicas)

    split = Split()

    def wrap(function: Any, model: Any, kind: str, cell: KerasCell) -> ModelStep:
        if kind == "predict":
            return PredictStep(function, model, kind, cell, split=split)
        if replicas == 1:
            return Step(function, model, kind, cell, ahead=ahead)
        return SplitStep(function, model, kind, cell, ahead=ahead, split=split)

    with ExitStack() as undo:
        undo.enter_context(wrapped_steps(cell, wrap))
        if replicas > 1:
            build = {"_maybe_symbolic_build": functools.partial(_built_later, cell)}
            undo.enter_context(replaced(keras.Model, build))
            undo.enter_context(as_one_device(split))
            undo.enter_context(on_one_replica(cell, replicas, split))
            undo.enter_context(results_of_all_replicas())
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

        None where that is not so or not known; an empty list where it is so, and only the number
        of batches is not known.
        """
        rows = self._rows(many) if iterator is self._iterator else None
        if self._replicas == 1:
            return rows if many == 1 else rows or []
        if many > 1 or rows is None:
            # TensorFlow's own loop over steps fails on several replicas, even on even batches.
            return None
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


class Step(ModelStep):
    """A train or test function of a model on one replica."""

    def __init__(self, *step: Any, ahead: Ahead) -> None:
        super().__init__(*step)
        self._ahead = ahead

    def __call__(self, iterator: Any) -> Any:
        """Run as many steps as one execution has; the same values as `function` gives."""
        __tracebackhide__ = True
        many = self.model.steps_per_execution
        even = self._ahead.even_rows(iterator, many) if self._may_be_left_to_keras() else None
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
        return [self._step(batch) for batch in batches][-1]

    def _may_be_left_to_keras(self) -> bool:
        """Say whether a batch of even rows needs nothing of ours."""
        return True

    def _step(self, batch: Any) -> Any:
        __tracebackhide__ = True
        outputs = self.function(iter([batch]))
        self.cell.count(self.kind, _rows(batch), whole=False)
        return outputs


class SplitStep(Step):
    """A train or test function of a model on several replicas, with batches they can take."""

    def __init__(self, *step: Any, ahead: Ahead, split: Split) -> None:
        super().__init__(*step, ahead=ahead)
        self._split = split
        self._built = False

    def __call__(self, iterator: Any) -> Any:
        """Run steps whose losses and gradients are one device's."""
        __tracebackhide__ = True
        with self._split.given("shares"):
            return logs_of(self.function, super().__call__(iterator))

    def _may_be_left_to_keras(self) -> bool:
        return self._built and judged(self) == ""

    def _build(self, batch: Any) -> None:
        """Let Keras make what a model or its metrics are still to make, which no replica can."""
        __tracebackhide__ = True
        try:
            with self._split.given(""):
                self.model._symbolic_build(data_batch=batch)  # noqa: SLF001
        except RuntimeError:
            # A model that only its train_step calls the parts of: they are built already, or then.
            if _is_callable(self.model):
                raise
        self._built = True

    def _step(self, batch: Any) -> Any:
        __tracebackhide__ = True
        if not self._built:
            self._build(whole(batch))
        by_hand = not _shares(batch)  # train_on_batch and its like
        batch = _dealt(batch, self.model.distribute_strategy) if by_hand else batch
        shares = _shares(batch)
        uneven = not shares or len(set(shares)) > 1
        if uneven or self._obstacle(batch):
            with self._split.given("whole"):
                outputs = self._run_whole(batch)
        else:
            outputs = self.function(iter([batch]))
        self.cell.count(self.kind, sum(shares) if shares else _rows(batch), whole=uneven)
        if by_hand:  # whose values are shown, where those of a fit are the metrics'
            logs = logs_of(self.function, outputs)
            outputs = self.model._get_metrics_result_or_logs(logs)  # noqa: SLF001
        return outputs

    def _obstacle(self, batch: Any) -> str:
        """Return what stands against splitting this model's batches; said once in the report."""
        against = obstacle(self, self._split, batch, whole(batch))
        if against:
            _say_not_split(self, self._split, against)
        return against

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
        function = self._whole_function()
        outputs = function(iter([whole(batch)]))
        for part, value in zip(others, before, strict=True):
            part.assign(value)
        return logs_of(function, outputs)

    def _whole_function(self) -> Callable[..., Any]:
        """Return the function for whole batches: what it was traced for is not what shares are.

        It is kept on the one for shares, and lives as long.
        """
        kept = vars(self.function)
        if _WHOLE not in kept:
            step = getattr(self.model, f"{self.kind}_step")
            kept[_WHOLE] = self.model._make_function(step)  # noqa: SLF001
        return kept[_WHOLE]  # type: ignore[no-any-return]


class PredictStep(ModelStep):
    """A predict function: rows stand for themselves, or each replica predicts all of them."""

    def __init__(self, *step: Any, split: Split) -> None:
        super().__init__(*step)
        self._split = split

    def __call__(self, data: Any) -> Any:
        """Predict a list of batches."""
        __tracebackhide__ = True
        strategy = self.model.distribute_strategy
        if strategy.num_replicas_in_sync == 1:
            outputs, rows = self.function(data), [_rows(batch) for batch in data]
        else:
            # A predict_on_batch brings them whole.
            dealt = [each if _shares(each) else _dealt(each, strategy) for each in data]
            rows = [_rows(whole(batch)) for batch in dealt]
            outputs = self._predicted(dealt, rows)
        for each in rows:
            self.cell.count(self.kind, each, whole=False)
        return outputs

    def _predicted(self, batches: list[Any], rows: list[int | None]) -> Any:
        __tracebackhide__ = True
        is_split = [bool(_shares(batch)) for batch in batches]
        if all(is_split):
            against = obstacle_to_predictions(self, batches[0], whole(batches[0]))
            if not against:
                return self.function(batches)
            _say_not_split(self, self._split, against)
        # Each replica computes all rows, and the outputs of all replicas come one after another.
        parts = [
            keras.tree.map_structure(lambda values, many=many: values[:many], self.function([each]))
            for each, many in zip(map(whole, batches), rows, strict=True)
        ]
        if len(parts) == 1:
            return parts[0]
        return keras.tree.map_structure(lambda *values: tf.concat(values, 0), *parts)


def _say_not_split(step: ModelStep, split: Split, against: str) -> None:
    """Say once for a model that its batches are not split."""
    if step.model not in split.told:
        split.told.add(step.model)
        step.cell.say(_NOT_SPLIT.format(model=step.model.name, against=against))


def _built_later(cell: KerasCell, original: Callable[..., Any]) -> Callable[..., Any]:
    """Make the patch by which a model is built by its first step, not from a batch before it.

    That batch would be lost to the training where the data cannot begin again, as a generator;
    and of shuffled data, which do, the order would be another one than without a strategy.
    """

    @functools.wraps(original)
    def _maybe_symbolic_build(*args: Any, **kwargs: Any) -> Any:
        return None if cell.is_here() else original(*args, **kwargs)

    return _maybe_symbolic_build


def _is_callable(model: Any) -> bool:
    """Say whether a model has a `call`; one with a `train_step` of its own may need none."""
    return type(model).call is not keras.Model.call


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


def _dealt(batch: Any, strategy: Any) -> Any:
    """Return a batch in equal shares for the replicas, where its rows allow it."""
    rows, replicas = _rows(batch), strategy.num_replicas_in_sync
    if not rows or rows % replicas:
        return batch
    share = rows // replicas

    def deal(leaf: Any) -> Any:
        if leaf is None:
            return None
        return strategy.experimental_distribute_values_from_function(
            lambda here: tf.convert_to_tensor(leaf[here.replica_id_in_sync_group * share :][:share])
        )

    return keras.tree.map_structure(deal, batch)


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
