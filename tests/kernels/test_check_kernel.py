"""`%%tpu_check` in a real kernel: its verdict, an interrupt, and nothing left behind."""

import contextlib
import time

import psutil
import pytest

from tests.check.conftest import needs_compiler

pytestmark = [pytest.mark.kernel, pytest.mark.torch, needs_compiler]
MIME = "application/vnd.tpu-magic.check-report+json"
CELL = """\
%%tpu_check --target v5e-1 -o report
for i in range(90):
    opt.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    opt.step()
"""


def test_a_cell_is_checked_and_an_interrupt_leaves_no_child(kernel):
    if kernel.run("__import__('importlib.util').util.find_spec('libtpu') is None").value == "True":
        pytest.skip("the TPU compiler is not in this environment")
    kernel.run(
        "import torch\nnet = torch.nn.Linear(256, 256)\nopt = torch.optim.Adam(net.parameters())\n"
        "x = torch.randn(64, 256)\nbefore = net.weight.sum().item()"
    ).check()
    reply = kernel.run(CELL, timeout=240).check()
    (report,) = [shown[MIME] for shown in reply.displays if MIME in shown]
    assert report["fits"] is True
    assert report["programs"][0]["line"] == 6
    assert kernel.run("net.weight.sum().item() == before and not opt.state").value == "True"

    kernel_process = psutil.Process(kernel.manager.provisioner.process.pid)
    message = kernel.send(CELL)
    child = _recording(kernel_process)
    kernel.manager.interrupt_kernel()
    reply = kernel.receive(message, timeout=60)
    assert reply.ename == "KeyboardInterrupt"
    psutil.wait_procs([child], timeout=20)
    assert not child.is_running()


def _recording(process):
    """Return the child that records the cell, once it is there."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for child in process.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # it ended just now
                if any("tpu_magic.check.child" in word for word in child.cmdline()):
                    return child
    raise AssertionError("no child was started")
