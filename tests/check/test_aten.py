"""torch without torch_xla: recorded as ATen operations, done again in the compiler's environment."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.check.conftest import needs_compiler
from tests.check.training import BATCH, CELL, NETWORK, SIZE, state
from tests.setup.test_real_environments import Environment
from tpu_magic.check import environment

torch = pytest.importorskip("torch")
pytest.importorskip("torch_xla")
pytest.importorskip("cloudpickle")
pytestmark = [pytest.mark.torch, needs_compiler]

CONVOLUTIONS = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3), nn.GroupNorm(4, 64), nn.GELU(), nn.Flatten(), nn.LayerNorm(64 * 14 * 14),
    nn.Dropout(0.1), nn.Linear(64 * 14 * 14, 10),
)
opt = torch.optim.Adam(net.parameters())
X, Y = torch.randn(512, 3, 32, 32), torch.randint(0, 10, (512,))
"""
LOOP = """
for step in range(50):
    rows = torch.randperm(512)[:256]
    opt.zero_grad()
    loss = nn.functional.cross_entropy(net(X[rows]), Y[rows])
    loss.backward()
    opt.step()
"""
RECURRENT = """
import torch
from torch import nn
words, memory, head = nn.Embedding(500, 64), nn.LSTM(64, 64, batch_first=True), nn.Linear(64, 500)
every = [*words.parameters(), *memory.parameters(), *head.parameters()]
opt = torch.optim.SGD(every, lr=0.1, momentum=0.9)
text = torch.randint(0, 500, (64, 9))
"""
READING = """
for epoch in range(50):
    opt.zero_grad()
    found = head(memory(words(text[:, :-1]))[0])
    loss = nn.functional.cross_entropy(found.flatten(0, 1), text[:, 1:].flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(every, 1.0)
    opt.step()
    print(loss)
"""


@pytest.fixture
def without_xla(monkeypatch):
    """Return a function that makes this torch one with no torch_xla beside it."""
    return lambda: monkeypatch.setattr(environment, "torch_is_alone", lambda: True)


@pytest.mark.parametrize(
    "case",
    [
        (NETWORK, "train(90)", ""),
        (NETWORK, "train(90)", "--target v5e-4"),
        (CONVOLUTIONS, LOOP, ""),
        (CONVOLUTIONS, "net.eval()\nwith torch.no_grad():\n    found = net(X).argmax(1)", ""),
        (RECURRENT, READING, ""),
    ],
)
def test_both_ways_agree(shell, check, without_xla, case):
    made, cell, line = case
    shell.run(made)
    with_xla = check(cell, line)
    without_xla()
    alone = check(cell, line)
    first, second = with_xla.programs[0], alone.programs[0]
    assert second.name == first.name
    assert second.trains == first.trains
    assert alone.fits
    assert alone.arguments_bytes == pytest.approx(with_xla.arguments_bytes, rel=0.02)
    assert alone.flops == pytest.approx(with_xla.flops, rel=0.02)
    assert second.matrix_flops == pytest.approx(first.matrix_flops, rel=0.001)
    assert alone.aliased_bytes == pytest.approx(with_xla.aliased_bytes, rel=0.02)
    assert {item.place for item in second.buffers} & {item.place for item in first.buffers} - {""}
    assert [item.partition(" (")[2] for item in alone.reads] == [
        item.partition(" (")[2] for item in with_xla.reads
    ]


def test_nothing_is_touched(shell, check, without_xla, tmp_path):
    kept = tmp_path / "kept.pt"
    kept.write_text("mine")
    shell.run(NETWORK)
    shell.run(f"FILE = {str(kept)!r}")
    before = state(shell, kept)
    without_xla()
    report = check(CELL)
    assert state(shell, kept) == before
    assert report.fits
    assert any("kept.pt" in text for text in report.refused)


def test_a_large_batch_takes_no_memory(shell, check, without_xla):
    shell.run("import torch\nw = torch.ones(1024, 8)")
    without_xla()
    report = check("x = torch.randn(2**20, 1024)\ny = x @ w")
    batch = 2**20 * 1024 * 4
    assert report.arguments_bytes == pytest.approx(batch, rel=0.02)
    assert report.capture_peak_bytes < batch / 2


def test_without_the_torch_that_makes_programs_it_says_how_to_get_it(
    shell, check, without_xla, monkeypatch
):
    from IPython.core.error import UsageError

    compiler = {"jax": "0.10.2", "jaxlib": "0.10.2", "libtpu": "0.0.42.1", "numpy": "2.4.6"}
    monkeypatch.setattr(environment, "_versions", lambda python: compiler)
    shell.run("import torch\nw = torch.ones(8, 8)")
    without_xla()
    with pytest.raises(UsageError, match=r"torch 2\.9 and torch_xla: %tpu_setup --compiler"):
        check("w @ w")


def test_autocast_is_refused_in_one_line(shell, check, without_xla):
    from IPython.core.error import UsageError

    shell.run("import torch\nw = torch.ones(8, 8)")
    without_xla()
    with pytest.raises(UsageError, match="make the model bfloat16"):
        check("w @ w", "--precision bf16")


PROGRAM = """
import json, sys
from pathlib import Path
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
from tests.check.training import NETWORK, state
config = Config()
config.HistoryManager.enabled = False
shell = InteractiveShell.instance(config=config)
shell.run = lambda code: shell.run_cell(code).raise_error()
shell.run("%load_ext tpu_magic")
shell.run(NETWORK)
before = state(shell)
shell.run("%%tpu_check -q -o report\\ntrain(90)")
report = shell.user_ns.pop("report")
assert state(shell) == before
print("\\nREPORT" + json.dumps([shell.user_ns["torch"].__version__, report.to_json()]))
"""


@pytest.mark.slow
@pytest.mark.skipif(
    "TPU_MAGIC_REAL_INSTALLS" not in os.environ, reason="TPU_MAGIC_REAL_INSTALLS is not set"
)
@pytest.mark.timeout(1800)
def test_a_real_torch_that_no_torch_xla_was_made_for(tmp_path, shell, check):
    from tpu_magic.check.verdict import CheckReport

    alone = Environment(tmp_path)
    alone.add("torch==2.13.0", "ipython", "psutil", "packaging", "numpy", "cloudpickle", "pytest")
    # The compiler's environment: this one, which has torch 2.9 and torch_xla.
    name = f"compiler-py{sys.version_info[0]}{sys.version_info[1]}"
    python = tmp_path / "cache/tpu_magic" / name / "bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    done = subprocess.run(
        [alone.python, "-c", PROGRAM],
        check=False,
        capture_output=True,
        text=True,
        timeout=900,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        },
    )
    assert done.returncode == 0, done.stderr
    version, text = json.loads(done.stdout.rpartition("REPORT")[2])
    report = CheckReport.from_json(text)
    assert version.startswith("2.13.")
    shell.run(NETWORK)
    here = check("train(90)")
    assert report.fits
    assert report.arguments_bytes == pytest.approx(
        (3 * 2 * SIZE * SIZE + 2 * BATCH * SIZE) * 4, rel=0.02
    )
    assert report.flops == pytest.approx(here.flops, rel=0.02)
    assert report.programs[0].matrix_flops == 5 * 2 * BATCH * SIZE * SIZE
    assert report.programs[0].name.endswith("→ opt.step()")
