"""examples/keras.ipynb, as a person runs it, on four devices of the backend that is here."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import nbformat
import pytest

from tests.support.kernels import Kernel

pytest.importorskip("sklearn")

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "keras.ipynb"


def code_cells():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.kernel
@pytest.mark.timeout(600)
def test_it_runs_learns_and_its_file_loads_without_a_strategy():
    with Kernel(sys.executable, KERAS_BACKEND="jax", TF_CPP_MIN_LOG_LEVEL="3") as kernel:
        replies = {cell: kernel.run(cell, timeout=300).check() for cell in code_cells()}
        (training,) = next(r for cell, r in replies.items() if "-o training" in cell).reports
        values = "print(__import__('json').dumps([accuracy, again.count_params()]))"
        accuracy, parameters = json.loads(kernel.run(values).check().stdout)
    assert accuracy > 0.95
    # 1347 rows in batches of 64 are 22 steps an epoch
    assert (training["steps"], training["examples"]) == (10 * 22, 10 * 1347)
    assert (training["framework"], training["num_devices"]) == ("keras", 4)
    # 3·3·32 + 4·32, 3·3·32·64 + 64, and 4·4·64·10 + 10
    assert parameters == 288 + 128 + 18432 + 64 + 10240 + 10
    assert training["moved"][0].startswith("model (")
