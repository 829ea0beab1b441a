"""`--profile` of torch cells: what is written, what is said, and what is refused."""

from __future__ import annotations

import gzip
import json
from collections import Counter

import pytest
from IPython.core.error import UsageError

pytestmark = pytest.mark.torch

PREPARE = (
    "import torch\nnet = torch.nn.Linear(64, 64)\nx = torch.ones(32, 64)\n"
    "opt = torch.optim.SGD(net.parameters(), lr=0.1)"
)
TRAIN = "for _ in range({steps}):\n    opt.zero_grad(); net(x).sum().backward(); opt.step()"


def events(root):
    """Return how often each event was recorded in the only profile of a folder."""
    (path,) = root.glob("plugins/profile/*/*.trace.json.gz")
    assert list(path.parent.glob("*.xplane.pb"))
    with gzip.open(path) as file:
        return Counter(event.get("name") for event in json.load(file)["traceEvents"])


def test_a_profile_holds_the_steps_and_operations_of_its_cell(torch_shell, tmp_path):
    torch_shell.run(PREPARE)
    torch_shell.run("%%tpu_run -q\n" + TRAIN.format(steps=3))
    torch_shell.run(f"%%tpu_run -q -o report --profile {tmp_path / 'p'}\n" + TRAIN.format(steps=7))
    found = events(tmp_path / "p")
    assert found["StepMarker"] == 7 + 1  # and the end of the cell
    assert found["dot"] >= 7
    (note,) = torch_shell.user_ns["report"].notes
    assert str(tmp_path / "p" / "plugins" / "profile") in note


def test_without_a_folder_it_lies_beside_the_notebook(torch_shell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch_shell.run(PREPARE)
    with pytest.raises(ZeroDivisionError):
        torch_shell.run("%%tpu_run -q --profile\n" + TRAIN.format(steps=1) + "\n1 / 0")
    # Also of a cell that failed; and the next one can be profiled.
    assert events(tmp_path / "tpu_profile")["StepMarker"] >= 1
    torch_shell.run("%%tpu_run -q --profile again\nnet(x)")
    assert events(tmp_path / "again")["StepMarker"] >= 1


def test_what_cannot_be_written_or_is_taken_already_is_refused(torch_shell, tmp_path):
    from torch_xla.debug import profiler

    (tmp_path / "file").touch()
    ran = "\nran = True"
    torch_shell.run("ran = False")
    with pytest.raises(UsageError, match="cannot be made"):
        torch_shell.run(f"%%tpu_run --framework torch --profile {tmp_path / 'file'}{ran}")
    profiler.start_trace(tmp_path / "own")
    try:
        with pytest.raises(UsageError, match="stop_trace"):
            torch_shell.run(f"%%tpu_run --framework torch --profile {tmp_path / 'p'}{ran}")
    finally:
        profiler.stop_trace()
    assert torch_shell.user_ns["ran"] is False
    assert torch_shell.tpu_cell.meter is None
