"""Notebooks that nobody watches: nbclient, `nbconvert --execute` and papermill, and their errors."""

from __future__ import annotations

import json
import subprocess
import sys

import nbformat
import pytest
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from tests.support.kernels import ROOT

pytestmark = pytest.mark.kernel

SETUP = (
    "%load_ext tpu_magic\nfrom tests.support import fake_framework\n"
    "fake = fake_framework.install()\nimport torch"
)


def _notebook(*cells):
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])


def _execute(notebook, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    manager = AsyncKernelManager()
    manager.kernel_spec.argv = [
        sys.executable,
        "-m",
        "ipykernel_launcher",
        "-f",
        "{connection_file}",
    ]
    return NotebookClient(notebook, km=manager, timeout=120).execute()


def test_nbclient_keeps_value_report_and_order(monkeypatch):
    done = _execute(_notebook(SETUP, "%%tpu_run\nprint('out')\n6 * 7"), monkeypatch)
    outputs = done.cells[1].outputs
    assert [output.output_type for output in outputs] == [
        "stream",
        "execute_result",
        "display_data",
    ]
    assert outputs[1].data["text/plain"] == "42"
    assert "application/vnd.tpu-magic.cell-report+json" in outputs[2].data


def test_a_late_error_stops_the_notebook(monkeypatch):
    late = "def late(): raise RuntimeError('late')\nfake.at_finish = late"
    notebook = _notebook(SETUP, late, "%%tpu_run\n1", "ran = True")
    with pytest.raises(CellExecutionError, match="late"):
        _execute(notebook, monkeypatch)
    assert notebook.cells[3].execution_count is None


def test_the_live_line_leaves_nothing_in_the_saved_notebook(monkeypatch):
    notebook = _notebook(
        SETUP + "\nfrom tpu_magic.cell import live\nlive.FIRST_S = 0.0\nlive.EVERY_S = 0.001",
        "%%tpu_run -q\nfrom tests.support.fake_framework import wait_for\n"
        "import threading\nseen = []\nshow = live.NotebookScreen.show\n"
        "live.NotebookScreen.show = lambda screen, line: (show(screen, line), seen.append(line))\n"
        "wait_for(lambda: len(seen) > 2)\nprint('done')",
    )
    done = _execute(notebook, monkeypatch)
    shown = [output for output in done.cells[1].outputs if output.output_type != "stream"]
    assert [output.data for output in shown] == [{}]
    assert done.cells[1].outputs[-1].text == "done\n"
    nbformat.validate(done)


def test_nbconvert_executes_a_notebook_with_a_magic(tmp_path, monkeypatch):
    pytest.importorskip("nbconvert")
    from jupyter_client.kernelspec import KernelSpecManager

    if "python3" not in KernelSpecManager().find_kernel_specs():
        pytest.skip("no python3 kernel is registered here")
    path = tmp_path / "n.ipynb"
    nbformat.write(_notebook(SETUP, "%tpu_run on", "torch.Thing and 5"), path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    subprocess.run(
        [sys.executable, "-m", "nbconvert", "--execute", "--to", "notebook", "--inplace",
         str(path)],
        check=True, capture_output=True, timeout=200,
    )  # fmt: skip
    outputs = json.loads(path.read_text())["cells"][2]["outputs"]
    assert [output["output_type"] for output in outputs] == ["execute_result", "display_data"]


def test_papermill_keeps_parameters_reports_and_the_error_that_stops_it(tmp_path, monkeypatch):
    source, done = tmp_path / "in.ipynb", tmp_path / "out.ipynb"
    notebook = _notebook(
        SETUP, "rate = 1", "%%tpu_run\ntorch.Thing and rate * 2", "%%tpu_run\n1 / 0", "rate"
    )
    notebook.cells[1].metadata["tags"] = ["parameters"]
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "", "language": "python"}
    nbformat.write(notebook, source)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "papermill", "--no-progress-bar",
         "-p", "rate", "21", str(source), str(done)],
        check=False, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert ran.returncode != 0
    assert "ZeroDivisionError" in ran.stderr
    cells = [cell for cell in json.loads(done.read_text())["cells"] if cell["cell_type"] == "code"]
    on_device, failed, after = cells[-3:]
    value, report = on_device["outputs"]
    assert value["data"]["text/plain"] == ["42"]
    assert "application/vnd.tpu-magic.cell-report+json" in report["data"]
    errors = [output for output in failed["outputs"] if output["output_type"] == "error"]
    assert [error["ename"] for error in errors] == ["ZeroDivisionError"]
    assert after["execution_count"] is None
