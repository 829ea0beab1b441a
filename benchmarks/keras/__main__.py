"""Keras under the magic against the same Keras by hand: `python -m benchmarks.keras [backend]`.

By hand is what an expert writes: `DataParallel` on JAX, `MirroredStrategy` and its scope on
TensorFlow, over the same four virtual devices. Rounds of the two are interleaved in one
process, and medians are compared, so that a busy machine slows both. Processor time is
compared too: what other processes do at the same time does not count in it.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from typing import NamedTuple

BACKEND = sys.argv[1] if len(sys.argv) > 1 else "jax"
os.environ["KERAS_BACKEND"] = BACKEND
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from IPython.core.interactiveshell import InteractiveShell  # noqa: E402 - after the environment

from benchmarks.table import show  # noqa: E402
from tpu_magic.frameworks import adapter  # noqa: E402

DEVICES = 4
ROUNDS = 31
SHELL = InteractiveShell.instance()
SHELL.run_line_magic("load_ext", "tpu_magic")
SHELL.run_line_magic("config", "TpuMagics.live = False")
adapter("keras").connect(simulate=DEVICES)
MODEL = """
import keras, numpy as np
from keras import layers
rng = np.random.default_rng(0)
x = rng.normal(size=(4096, 64)).astype("float32")
y = rng.normal(size=(4096, 1)).astype("float32")
def make(depth=2, width=256):
    hidden = [layers.Dense(width, activation="relu") for _ in range(depth)]
    model = keras.Sequential([layers.Input((64,)), *hidden, layers.Dense(1)])
    model.compile("adam", "mse")
    return model
"""
FIT = "_ = {name}.fit(x, y, batch_size=64, epochs=4, verbose=0)"


class Took(NamedTuple):
    """Seconds that a cell took."""

    wall: float
    processor: float


def timed(source: str) -> Took:
    """Run a cell and return what it took, everything around it included."""
    started, computed = time.perf_counter(), time.process_time()
    SHELL.run_cell(source).raise_error()
    return Took(time.perf_counter() - started, time.process_time() - computed)


def cell(source: str) -> Took:
    """Run a cell under the magic."""
    return timed(f"%%tpu_run -q -o report --framework keras\n{source}")


def plain(source: str) -> Took:
    """Run a cell in the scope that a person enters."""
    scope = "distribution.scope()" if BACKEND == "jax" else "strategy.scope()"
    return timed(f"with {scope}:\n    {source}")


def fit() -> list[tuple[str, ...]]:
    """Compare a fit of 4 epochs of 64 steps, compiled before; what a cell costs is a row of its own."""
    if BACKEND == "jax":
        SHELL.run_cell("distribution = keras.distribution.DataParallel()").raise_error()
    else:
        SHELL.user_ns["strategy"] = adapter("tf").strategy
    plain("by_hand = make()")
    cell("ours = make()")
    plain(FIT.format(name="by_hand"))
    cell(FIT.format(name="ours"))
    pairs = []
    for number in range(ROUNDS):
        runs = [(plain, "by_hand"), (cell, "ours")]
        took = {name: run(FIT.format(name=name)) for run, name in runs[:: 1 if number % 2 else -1]}
        pairs.append([hand / own for hand, own in zip(took["by_hand"], took["ours"], strict=True)])
    rows = []
    for what, ratios in zip(("speed", "processor time"), zip(*pairs, strict=True), strict=True):
        low, middle, high = statistics.quantiles(ratios, n=4)
        quartiles = f"{low:.3f} to {high:.3f} (quartiles)"
        rows.append((f"fit, {what} against by hand", f"{middle:.3f}", quartiles))
    return rows


def empty() -> tuple[str, ...]:
    """Measure a cell that does nothing, with two models in the namespace."""
    took = [cell("pass").wall * 1e3 for _ in range(ROUNDS)]
    return "empty cell", f"{statistics.median(took):.1f} ms", f"{min(took):.1f} ms at best"


def conversion() -> tuple[str, ...]:
    """Measure taking over a trained model of 100 layers from an earlier cell."""
    SHELL.run_cell("deep = make(100, 64); deep.optimizer.build(deep.trainable_variables)")
    took = cell("_ = deep.predict_on_batch(x[:4])" if BACKEND == "jax" else "pass").wall
    (moved,) = SHELL.user_ns["report"].moved
    from tpu_magic.frameworks.keras_cell import variables_of

    count = len(variables_of(SHELL.user_ns["deep"]))
    compile_s = SHELL.user_ns["report"].compile_s or 0.0
    return "100 layers taken over", f"{took - compile_s:.2f} s", f"{moved}, {count} in all"


def main() -> None:
    SHELL.run_cell(MODEL).raise_error()
    rows = [*fit(), empty(), conversion()]
    show(f"Keras on {BACKEND}, {DEVICES} virtual devices", ("what", "figure", ""), rows)


if __name__ == "__main__":
    main()
