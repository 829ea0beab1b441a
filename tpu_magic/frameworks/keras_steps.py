"""The train, test and predict functions of models, wrapped while a cell runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras

from tpu_magic.frameworks.keras_cell import KerasCell
from tpu_magic.frameworks.patches import replaced

KINDS = ("train", "test", "predict")


class ModelStep:
    """A function of a model that runs steps, as a cell calls it.

    Attributes
    ----------
    function
        Keras's own, which the model gets back after the cell with what it has compiled.
    model, kind, cell
        Whose it is, which of `KINDS`, and where its steps are counted.
    """

    def __init__(
        self, function: Callable[..., Any], model: Any, kind: str, cell: KerasCell
    ) -> None:
        self.function = function
        self.model = model
        self.kind = kind
        self.cell = cell

    def __call__(self, *args: Any) -> Any:
        """Run as many steps as one execution has; the same values as `function` gives."""
        raise NotImplementedError


@contextmanager
def wrapped_steps(cell: KerasCell, wrap: Callable[..., ModelStep]) -> Iterator[None]:
    """Wrap the functions that models of the cell make; on leaving, give them their own back.

    Parameters
    ----------
    wrap
        Makes a step of a function, its model, the kind, and the cell.
    """
    wrapped: list[tuple[Any, str, ModelStep]] = []

    def maker(kind: str, original: Callable[..., Any]) -> Callable[..., Any]:
        attribute = f"{kind}_function"

        @functools.wraps(original)
        def make(model: Any, *args: Any, **kwargs: Any) -> Any:
            made = original(model, *args, **kwargs)
            function = getattr(model, attribute)
            if cell.is_here() and not isinstance(function, ModelStep):
                step = wrap(function, model, kind, cell)
                setattr(model, attribute, step)
                wrapped.append((model, attribute, step))
            return made

        return make

    makers = {f"make_{kind}_function": functools.partial(maker, kind) for kind in KINDS}
    try:
        with replaced(keras.Model, makers):
            yield
    finally:
        for model, attribute, step in wrapped:
            if getattr(model, attribute) is step:
                setattr(model, attribute, step.function)
