"""What a step of a person's own returns, as its metrics have it over all replicas.

On a replica a metric's result is that of its own rows. Keras asks the metrics themselves at the
end of an epoch, but only where the names of what a step returns are those of all its metrics.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import keras

from tpu_magic.frameworks.patches import replaced

_FROM = "_tpu_magic_results"


class Logs(dict[str, Any]):
    """What a step returned, and which metrics it asked for that."""

    def __init__(self, values: dict[str, Any], asked: dict[str, Any]) -> None:
        super().__init__(values)
        self.asked = asked


def logs_of(function: Callable[..., Any], outputs: Any) -> Any:
    """Return what a train or test function returned, with the metrics that it asked for it."""
    if isinstance(outputs, Logs):
        return outputs
    asked = vars(function).get(_FROM, {})
    return Logs(outputs, asked) if asked and isinstance(outputs, dict) else outputs


@contextmanager
def results_of_all_replicas() -> Iterator[None]:
    """Let steps that are traced note which metrics they ask, and epochs ask those again."""
    patches = {"_make_function": _noting, "_get_metrics_result_or_logs": _asking}
    with replaced(keras.Model, patches):
        yield


def _noting(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _make_function(model: Any, step_function: Callable[..., Any]) -> Any:
        asked: dict[str, Any] = {}

        @functools.wraps(step_function)
        def step(data: Any) -> Any:
            with _results(model.metrics) as results:
                outputs = step_function(data)
            if isinstance(outputs, dict):
                asked.update(
                    (name, metric)
                    for name, value in outputs.items()
                    for metric, result in results
                    if value is result
                )
            return outputs

        function = original(model, step)
        vars(function)[_FROM] = asked
        return function

    return _make_function


def _asking(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _get_metrics_result_or_logs(model: Any, logs: Any) -> Any:
        chosen = original(model, logs)
        if not isinstance(chosen, Logs):
            return chosen
        return {**chosen, **{name: metric.result() for name, metric in chosen.asked.items()}}

    return _get_metrics_result_or_logs


@contextmanager
def _results(metrics: list[Any]) -> Iterator[list[tuple[Any, Any]]]:
    """Note the results that metrics are asked for."""
    found: list[tuple[Any, Any]] = []

    def noting(metric: Any, original: Callable[[], Any]) -> Callable[[], Any]:
        def result() -> Any:
            found.append((metric, original()))
            return found[-1][1]

        return result

    with ExitStack() as undo:
        for metric in metrics:
            # Not through setattr: Keras would track the function.
            vars(metric)["result"] = noting(metric, metric.result)
            undo.callback(vars(metric).pop, "result", None)
        yield found
