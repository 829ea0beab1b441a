"""Recording the programs of Keras: `fit`, `evaluate` and `predict` on the JAX backend.

A model travels as a `.keras` file does, so one of any backend is recorded on JAX, which is
how Keras runs on today's TPUs. `fit` is left once its steps bring nothing new.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tpu_magic.check import child_jax
from tpu_magic.check.child import Enough, Seen, Task, replaced
from tpu_magic.check.loops import Rounds
from tpu_magic.check.places import Person
from tpu_magic.check.refuse import Refusals

# Steps of `fit` with nothing new after which it is left.
STEADY = 3
_TRAINER = "keras.src.backend.jax.trainer"
_LOOPS = ("fit", "evaluate", "predict")


class Capture(child_jax.Capture):
    """Records the programs of one Keras cell. `child.Capture`."""

    def __init__(
        self, task: Task, seen: Seen, rounds: Rounds, person: Person, refusals: Refusals
    ) -> None:
        super().__init__(task, seen, rounds, person, refusals)
        os.environ["KERAS_BACKEND"] = "jax"
        import keras

        if task.devices > 1:
            devices = keras.distribution.list_devices()
            keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices))
        if task.options["precision"] == "bf16":
            keras.mixed_precision.set_global_policy("mixed_bfloat16")
        self._model = keras.Model

    @contextmanager
    def running(self, namespace: dict[str, Any]) -> Iterator[None]:
        """Run the cell with the loops of Keras left at their steady step."""
        trainer = importlib.import_module(_TRAINER)
        with ExitStack() as undo:
            for name in _LOOPS:
                left_early = self._left_early(name, getattr(self._model, name))
                undo.enter_context(replaced(self._model, name, left_early))
            # Keras took `jax.jit` when it was imported.
            undo.enter_context(replaced(trainer, "jit", self.recording_jit))
            undo.enter_context(super().running(namespace))
            yield

    def _left_early(self, name: str, original: Any) -> Any:
        @functools.wraps(original)
        def loop(model: Any, *args: Any, **kwargs: Any) -> Any:
            kwargs.setdefault("verbose", 0)
            if not model.jit_compile and not model.run_eagerly:
                # "auto" was decided by the notebook's backend; on a TPU the step is compiled.
                model.jit_compile = True
            # What evaluate and predict return is as long as the data: they go to the end.
            was, self.patience = self.patience, STEADY if name == "fit" else None
            before, self.since_new = len(self._seen.programs), 0
            try:
                return original(model, *args, **kwargs)
            except Enough:
                self._seen.note(f"{name}: left at its steady step")
                return model.history
            finally:
                self.patience, self.since_new = was, 0
                for program in self._seen.programs[before:]:
                    program.trains = name == "fit"

        return loop
