"""examples/check.ipynb, as a person runs it: a verdict of the real compiler, and nothing trained."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest

from tests.support.kernels import Kernel

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "check.ipynb"
needs_all = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("jax", "libtpu", "torch_xla", "cloudpickle")),
    reason="needs the TPU compiler, and torch_xla",
)


def code_cells():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


@needs_all
@pytest.mark.kernel
@pytest.mark.torch
@pytest.mark.timeout(600)
def test_it_runs_and_trains_nothing(tmp_path):
    with Kernel(sys.executable, XDG_CACHE_HOME=str(tmp_path)) as kernel:
        replies = [kernel.run(cell, timeout=300).check() for cell in code_cells()]
        step = "report.programs[0]"
        values = f"{step}.arguments_bytes, {step}.matrix_flops, {step}.line, len(optimizer.state)"
        told = f"print(__import__('json').dumps([{values}]))"
        arguments, operations, line, states = json.loads(kernel.run(told).check().stdout)
    shown = replies[1].displays[-1]["text/plain"]
    assert shown.startswith("fits v5e-1: ")
    weights = 2 * 1024 * 4096 + 4096 + 1024
    # Weights and both moments, and the batch.
    assert arguments == pytest.approx(4 * (3 * weights + 256 * 1024), rel=0.02)
    assert operations == 5 * 2 * 256 * 1024 * 4096
    assert (line, states) == (7, 0)
