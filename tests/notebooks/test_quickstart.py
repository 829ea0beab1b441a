"""examples/quickstart.ipynb, as a person runs it: on four devices, and the same on one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import nbformat
import pytest

from tests.support.kernels import Kernel

pytest.importorskip("torch_xla")
pytest.importorskip("sklearn")

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "quickstart.ipynb"
# The runtime's own word for how an array lies on the devices.
SHARDINGS = """
import torch_xla
spec = torch_xla._XLAC._get_xla_sharding_spec
images, targets = [], []
"""
LOOK = """%%tpu_run -q
x, y = next(iter(loader))
images, targets = spec(x), spec(y)
parameters = {spec(parameter) for parameter in net.parameters()}
"""


def code_cells():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def run_all(kernel, devices):
    """Run the notebook with a number of devices; return the replies by their cell's text."""
    cells = [cell.replace("--simulate 4", f"--simulate {devices}") for cell in code_cells()]
    return {cell: kernel.run(cell, timeout=300).check() for cell in cells}


def reply_to(replies, words):
    (reply,) = [reply for cell, reply in replies.items() if words in cell]
    return reply


def values(kernel, expression):
    return json.loads(kernel.run(f"print(__import__('json').dumps({expression}))").check().stdout)


@pytest.fixture(scope="module")
def four():
    with Kernel(sys.executable, devices=1) as kernel:
        yield kernel, run_all(kernel, 4)


@pytest.mark.timeout(600)
def test_not_one_line_names_a_device():
    plain = [cell for cell in code_cells() if not cell.startswith("%load_ext")]
    for word in ("device", "cuda", "xla", ".to(", "mark_step", "sync"):
        assert not any(word in cell for cell in plain)


@pytest.mark.timeout(600)
def test_it_learns_the_digits(four):
    kernel, _ = four
    assert values(kernel, "accuracy") >= 0.97


@pytest.mark.timeout(600)
def test_the_report_says_what_ran_where(four):
    _, replies = four
    (report,) = reply_to(replies, "-o training").reports
    assert report["framework"] == "torch"
    assert report["num_devices"] == 4
    assert (report["on_tpu"], report["simulated"]) == (False, True)
    assert report["global_batch"] == 64
    # 1347 training rows in batches of 64 are 22 steps an epoch
    assert report["steps"] == 12 * 22
    assert report["examples"] == 12 * 1347
    assert report["moved"] == ["net (14 parameters)"]
    parts = ("trace_s", "compile_s", "input_wait_s", "device_wait_s", "other_s")
    assert sum(report[part] for part in parts) == pytest.approx(report["wall_s"])
    assert all(report[part] >= 0 for part in parts)
    text = reply_to(replies, "-o training").displays[-1]["text/plain"]
    assert "XLA CPU × 4 · not a TPU · global 64 = 4 × 16" in text


@pytest.mark.timeout(600)
def test_every_device_has_its_share(four):
    kernel, _ = four
    kernel.run(SHARDINGS).check()
    kernel.run(LOOK).check()
    assert values(kernel, "[images, targets]") == [
        "{devices=[4,1,1,1]0,1,2,3}",
        "{devices=[4]0,1,2,3}",
    ]
    assert values(kernel, "sorted(parameters)") == ["{replicated}"]


@pytest.mark.timeout(600)
def test_the_timing_is_of_the_device(four):
    kernel, _ = four
    timing = values(kernel, "forward.to_dict()")
    assert timing["num_devices"] == 4
    assert timing["on_tpu"] is False
    assert timing["first_call_s"] > timing["median"] > 0
    assert "not-a-tpu" in {item["code"] for item in timing["suspicions"]}


@pytest.mark.timeout(600)
def test_four_devices_lose_what_one_does(four):
    kernel, _ = four
    first_ten = values(kernel, "[float(loss) for loss in losses[:10]]")
    with Kernel(sys.executable, devices=1) as one:
        run_all(one, 1)
        assert values(one, "training.num_devices") == 1
        expected = values(one, "[float(loss) for loss in losses[:10]]")
    assert first_ten == pytest.approx(expected, abs=1e-4)
