"""The status line follows the kernel of the notebook in front, whatever happens to it."""

from __future__ import annotations

import re

import pytest

from tests.browser.conftest import FAKE

pytestmark = pytest.mark.browser

RUNNING = "%%tpu_run -q\nfake.session.facts.steps = 7\n"


def test_a_kernel_without_the_extension_is_told_as_such(lab):
    lab.open("plain.ipynb", "1")
    lab.says("no tpu_magic")
    assert "%load_ext tpu_magic" in lab.status.get_attribute("title")


def test_the_line_follows_a_cell_while_the_kernel_is_busy(lab, gate):
    lab.open("busy.ipynb", FAKE, RUNNING + gate.code)
    lab.run(0)
    lab.says("tpu_magic · not connected")
    lab.run(1, wait=False)
    lab.says(re.compile(r"XLA CPU × 2 · not a TPU · step 7"))
    gate.open()
    lab.says("XLA CPU × 2 · not a TPU")


def test_a_page_that_is_reloaded_while_a_cell_runs_goes_on_following(lab, gate):
    lab.open("reload.ipynb", FAKE, RUNNING + gate.code)
    lab.run(0)
    lab.run(1, wait=False)
    lab.says(re.compile("step 7"))
    lab.page.reload()
    lab.says(re.compile("step 7"))
    gate.open()
    lab.says("XLA CPU × 2 · not a TPU")


def test_a_restart_forgets_what_was_on_the_device(lab):
    lab.open("restart.ipynb", FAKE, "%%tpu_run -q\n1")
    lab.run(0)
    lab.run(1)
    lab.says("XLA CPU × 2 · not a TPU")
    lab.page.evaluate(
        "() => { void window.jupyterapp.commands.execute('notebook:restart-kernel') }"
    )
    lab.page.locator(".jp-Dialog .jp-mod-accept").click()
    lab.says("no tpu_magic")
    lab.ready()
    lab.run(0)
    lab.says("tpu_magic · not connected")


def test_a_kernel_that_dies_takes_its_device_with_it(lab):
    lab.open("death.ipynb", FAKE, "%%tpu_run -q\n1", "import os\nos._exit(1)")
    lab.run(0)
    lab.run(1)
    lab.says("XLA CPU × 2 · not a TPU")
    lab.run(2, wait=False)
    lab.says(re.compile("kernel (restarting|died)|no tpu_magic"))
    # The server starts it anew.
    lab.says("no tpu_magic")


def test_a_kernel_that_is_gone_leaves_nothing(lab):
    lab.open("gone.ipynb", "1")
    lab.says("no tpu_magic")
    lab.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    lab.status.wait_for(state="hidden")


def test_each_notebook_has_its_own_line(lab, gate):
    lab.open("other.ipynb", "1")
    lab.open("first.ipynb", FAKE, RUNNING + gate.code)
    lab.run(0)
    lab.run(1, wait=False)
    lab.says(re.compile("step 7"))
    lab.page.evaluate(
        "() => window.jupyterapp.commands.execute('docmanager:open', {path: 'other.ipynb'})"
    )
    lab.says("no tpu_magic")
    lab.page.get_by_role("tab", name="first.ipynb").click()
    lab.says(re.compile("step 7"))
    gate.open()
    lab.says("XLA CPU × 2 · not a TPU")


def test_a_kernel_that_falls_silent_is_marked(lab):
    lab.open(
        "silent.ipynb",
        FAKE,
        "%%tpu_run -q\nimport os, signal, threading\nfake.session.facts.steps = 7\n"
        "threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGSTOP)).start()\n"
        "threading.Event().wait(30)",
    )
    lab.run(0)
    lab.run(1, wait=False)
    lab.says(re.compile(r"step 7.* · no news for \d+ s"))
    assert lab.page.locator(".tpu-Status[data-look=stale]").count() == 1


def test_unloading_is_told(lab):
    lab.open("unload.ipynb", FAKE, "%unload_ext tpu_magic")
    lab.run(0)
    lab.says("tpu_magic · not connected")
    lab.run(1)
    lab.says("no tpu_magic")


def test_a_training_cell_of_torch_on_four_devices_is_followed(lab):
    pytest.importorskip("torch_xla")
    lab.open(
        "train.ipynb",
        "%load_ext tpu_magic",
        "import torch\nfrom torch import nn\n"
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))\n"
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "rows = TensorDataset(torch.randn(4000, 64), torch.randint(0, 4, (4000,)))",
        "%%tpu_run\nfor epoch in range(24):\n"
        "    for x, y in DataLoader(rows, batch_size=32):\n"
        "        optimizer.zero_grad()\n"
        "        nn.functional.cross_entropy(net(x), y).backward()\n"
        "        optimizer.step()",
    )
    lab.run(0)
    lab.run(1)
    lab.run(2, wait=False)
    lab.says(re.compile("starting|compiling|step"))
    # Importing torch takes long where there is no bytecode of it.
    going = re.compile(r"XLA CPU × 4 · not a TPU · step \d+ · [\d.]+ it/s")
    first = lab.says(going, timeout_ms=200_000)
    shown = re.search(r"step (\d+)", first).group(1)
    second = lab.says(re.compile(rf"step (?!{shown}\b)\d+ · "))
    assert int(re.search(r"step (\d+)", second).group(1)) > int(shown)
    lab.says("XLA CPU × 4 · not a TPU")


def test_notebook_7_has_the_line_in_its_toolbar(notebook7, gate):
    notebook7.open("seven.ipynb", FAKE, RUNNING + gate.code)
    notebook7.run(0)
    notebook7.says("tpu_magic · not connected")
    notebook7.run(1, wait=False)
    notebook7.says(re.compile(r"XLA CPU × 2 · not a TPU · step 7"))
    gate.open()
    notebook7.says("XLA CPU × 2 · not a TPU")
