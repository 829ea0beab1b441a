"""A cell of Keras code: what it enters, counts and says, on whatever backend."""

from __future__ import annotations

import functools
import inspect
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import keras
from IPython.core.error import UsageError

from tpu_magic.frameworks.base import CellFacts
from tpu_magic.frameworks.patches import replaced
from tpu_magic.report import render

if TYPE_CHECKING:
    from tpu_magic.frameworks.base import Adapter, Namespace
    from tpu_magic.options import RunOptions

# The ways into a model's training, evaluation and prediction.
_ENTRIES = (
    "fit",
    "evaluate",
    "predict",
    "train_on_batch",
    "test_on_batch",
    "predict_on_batch",
)
_KERAS_BATCH = 32  # the batch_size of Keras where none is given
_HERE = str(Path(__file__).parent)
NOTHING_RAN = "it trained, evaluated and predicted nothing, and no operation ran"
NO_KEEP = (
    "--keep is for torch, where objects move: a Keras model that must not be taken onto the "
    "devices belongs in a cell without the magic"
)


class Below(Protocol):
    """What a backend does for a cell of Keras code."""

    replicas: int

    def running(self, cell: KerasCell, namespace: Namespace) -> AbstractContextManager[None]:
        """Return the context of the cell: scope, and the backend's part of the patches."""
        ...

    def take(self, item: Any) -> int:
        """Take a model, layer, optimizer or metric onto the devices, in place.

        Returns the number of variables that were not there yet.

        Raises
        ------
        ValueError
            When something cannot be taken, naming it; nothing is changed then.
        """
        ...

    def entered(self, model: Any) -> AbstractContextManager[None]:
        """Return the context of a call of fit and its like; it leaves the model whole."""
        ...

    def notes(self, model: Any) -> list[str]:
        """Return what makes a model's numbers differ from one device's, once for a model."""
        ...

    def computed(self) -> bool:
        """Say whether anything was computed since the cell began."""
        ...


class KerasCell:
    """The session of one cell. `frameworks.base.CellSession`."""

    def __init__(self, adapter: Adapter, below: Below, options: RunOptions) -> None:
        if options.keep:
            raise UsageError(NO_KEEP)
        self.facts = CellFacts(precision=options.precision, unreached_reason=NOTHING_RAN)
        self._adapter = adapter
        self._before = adapter.counters()
        self._below = below
        self._options = options
        self._thread = threading.get_ident()
        self._namespace: Namespace = {}
        self._depth = 0
        self._steps: Counter[str] = Counter()
        self._rows: Counter[str] = Counter()
        self._sizes: Counter[int] = Counter()
        self._whole: Counter[int] = Counter()
        self._uncounted = False
        self._finished = False
        self._said: list[str] = []

    # --- the cell's life ------------------------------------------------------------------

    @contextmanager
    def running(
        self,
        namespace: Namespace,
        inside: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> Iterator[KerasCell]:
        """Run the cell: everything that is changed here is undone on the way out."""
        self._namespace = namespace
        if self._options.seed is not None:
            keras.utils.set_random_seed(self._options.seed)
        with ExitStack() as undo:
            undo.callback(self._forget)
            if self._options.precision == "bf16":
                undo.enter_context(_policy("mixed_bfloat16"))
            undo.enter_context(inside())
            undo.enter_context(self._below.running(self, namespace))
            entries = {name: functools.partial(self._entry, name) for name in _ENTRIES}
            undo.enter_context(replaced(keras.Model, entries))
            yield self

    def finish(self) -> None:
        """Wait until the devices are done."""
        self._look()
        self._finished = True
        started = time.perf_counter()
        self._adapter.wait()
        self.facts.device_wait_s += time.perf_counter() - started
        self._summarise()

    def _look(self) -> None:
        """See whether anything ran, before anything of ours does."""
        self.facts.reached_device = bool(self._steps) or self._uncounted or self._below.computed()

    def _summarise(self) -> None:
        facts = self.facts
        facts.trace_s = self._adapter.counters().since(self._before).trace_s
        self._progress()
        common = self._sizes.most_common(1)
        facts.global_batch = common[0][0] if common else None
        facts.notes = [*self._said, *self._uneven_note(), *_backend_note()]

    def _forget(self) -> None:
        """Hold nothing of the person's after the cell."""
        if not self._finished:  # it failed
            self._look()
        self._summarise()
        self._namespace = {}

    # --- what the backend's part tells -----------------------------------------------------

    def is_here(self) -> bool:
        """Say whether this is the cell's thread; others train as they would without us."""
        return threading.get_ident() == self._thread

    def count(self, kind: str, rows: int | None, *, whole: bool) -> None:
        """Count a step of `train`, `test` or `predict`; whole: every replica had all its rows."""
        self._steps[kind] += 1
        if rows is None:
            self._uncounted = True
            return
        self._rows[kind] += rows
        self._sizes[rows] += 1
        if whole:
            self._whole[rows] += 1
        self._progress()

    def not_counted(self) -> None:
        """Note that steps ran which nobody could count."""
        self._uncounted = True

    def not_fetched_here(self) -> None:
        """Note that a program fetched its batches itself, so that their wait was not seen."""
        self.facts.input_unseen = True

    def _progress(self) -> None:
        """Tell steps and rows: of the training if there was any, else of all."""
        steps, rows = self._steps["train"], self._rows["train"]
        if not steps:
            steps, rows = sum(self._steps.values()), sum(self._rows.values())
        known = not self._uncounted
        self.facts.steps, self.facts.examples = (
            (steps or None, rows or None) if known else (None, None)
        )

    def take(self, item: Any) -> None:
        """Take an object onto the devices, and remember its name."""
        if taken := self._below.take(item):
            name = self._name_of(item)
            self.facts.moved.append(f"{name} ({render.count(taken, 'variable')})")

    def take_if_possible(self, item: Any) -> None:
        """Take an object that the cell may not even use; say what stands against it."""
        try:
            self.take(item)
        except ValueError as error:
            self.facts.not_followed.append(f"{self._name_of(item)}: {error}")

    def say(self, *sentences: str) -> None:
        """Show sentences in the report, each once."""
        self._said += [each for each in sentences if each not in self._said]

    def _name_of(self, item: Any) -> str:
        names = (name for name, value in self._namespace.items() if value is item)
        public = [name for name in names if not name.startswith("_")]
        return public[0] if public else str(getattr(item, "name", type(item).__name__))

    # --- fit and its like --------------------------------------------------------------------

    def _entry(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def enter(model: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if self._depth or not self.is_here():
                return original(model, *args, **kwargs)
            self.take(model)
            self.say(*self._below.notes(model))
            if name == "fit":
                self.say(*unseen_rows(original, model, args, kwargs))
            self._depth += 1
            try:
                with self._below.entered(model):
                    return original(model, *args, **kwargs)
            except Exception as error:  # noqa: BLE001 - raised again
                # Keras cuts its own frames; one of ours would be the last, which is shown.
                raise error.with_traceback(_without_ours(error.__traceback__))  # noqa: B904
            finally:
                self._depth -= 1

        return enter

    def _uneven_note(self) -> list[str]:
        """Say once which batches could not be split, and what became of them."""
        if not self._whole:
            return []
        replicas, batches = self._below.replicas, sum(self._whole.values())
        sizes = " or ".join(f"{rows}" for rows in sorted(self._whole))
        what = "1 batch" if batches == 1 else f"{batches} batches"
        rows = "row" if sizes == "1" else "rows"
        ways = f"batch sizes that are multiples of {replicas} split"
        if self._steps["train"]:
            ways += ", and dataset.batch(N, drop_remainder=True) trains without the last one"
        return [
            f"{what} of {sizes} {rows} cannot be split over {replicas} replicas: each computed "
            f"the whole of it (one device's numbers, at one device's speed); {ways}"
        ]


def variables_of(item: Any) -> list[Any]:
    """Return the variables of a model (with its optimizers' and metrics'), layer or optimizer."""
    found = [*item.variables]
    if isinstance(item, keras.Model):
        found += item.metrics_variables
    for optimizer in optimizers_of(item):
        found += optimizer.variables
    return list({id(each): each for each in found}.values())


def optimizers_of(item: Any) -> list[Any]:
    """Return an optimizer, or those of a model and of the models inside, with what they wrap."""
    holders = item._flatten_layers() if isinstance(item, keras.Layer) else ()  # noqa: SLF001
    models = [each for each in holders if isinstance(each, keras.Model)]
    found = [item, *(value for model in models for value in vars(model).values())]
    optimizers = [each for each in found if isinstance(each, keras.optimizers.Optimizer)]
    inner = [getattr(each, "inner_optimizer", None) for each in optimizers]
    return list({id(each): each for each in (*optimizers, *inner) if each is not None}.values())


def unseen_rows(
    fit: Callable[..., Any], model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[str]:
    """Say when `steps_per_epoch` leaves most rows of an array out of the training."""
    try:
        given = inspect.signature(fit).bind(model, *args, **kwargs).arguments
        rows = given["x"].shape[0]
    except (TypeError, KeyError, AttributeError, IndexError):
        return []  # no array, or a mistake that fit itself names
    steps = given.get("steps_per_epoch")
    if steps is None or rows is None:
        return []
    batch, epochs = given.get("batch_size") or _KERAS_BATCH, given.get("epochs", 1)
    seen = steps * batch * epochs
    if seen * 2 >= rows:
        return []
    return [
        f"steps_per_epoch={steps} trains on {seen:,} of {rows:,} rows: leave it away to train "
        "on all of them in each epoch".replace(",", " ")
    ]


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of this package."""
    kept = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_HERE):
            kept.append(trace)
        trace = trace.tb_next
    rest = None
    for part in reversed(kept):
        rest = TracebackType(rest, part.tb_frame, part.tb_lasti, part.tb_lineno)
    return rest


@contextmanager
def _policy(name: str) -> Iterator[None]:
    """Make layers of the cell with a dtype policy, unless the person sets another one."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        if keras.config.dtype_policy().name == name:
            keras.config.set_dtype_policy(before)


def _backend_note() -> list[str]:
    """Say when KERAS_BACKEND was set too late to have an effect."""
    wanted, running = os.environ.get("KERAS_BACKEND"), keras.config.backend()
    if wanted is None or wanted == running:
        return []
    return [
        f"KERAS_BACKEND is {wanted!r}, but keras was loaded with {running} before it was set: "
        "restart the kernel and set it first"
    ]
