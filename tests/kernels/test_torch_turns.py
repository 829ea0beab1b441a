"""Programs on virtual devices: never more in flight than XLA's CPU devices can take."""

from __future__ import annotations

import ast
import sys

import pytest

from tests.support.kernels import Kernel

pytestmark = [pytest.mark.kernel, pytest.mark.torch]

# Counts, at each hand-over, the programs that were handed over since the last wait.
COUNT = """
import torch, torch_xla
from torch_xla.core import xla_model
flying, most = 0, 0
def counted(call, change):
    def counting(*args, **kwargs):
        global flying, most
        flying = change(flying)
        most = max(most, flying)
        return call(*args, **kwargs)
    return counting
torch_xla._XLAC._xla_step_marker = counted(torch_xla._XLAC._xla_step_marker, lambda n: n + 1)
xla_model.wait_device_ops = counted(xla_model.wait_device_ops, lambda n: 0)
x, net = torch.randn(64, 64), torch.nn.Linear(64, 64)
"""
CELLS = {
    "our steps": "%%tpu_run\nwith torch.no_grad():\n    outs = [net(x) for _ in range(30)]",
    "the person's steps": "%%tpu_run\nouts = []\nfor _ in range(30):\n"
    "    outs.append(net(x))\n    torch_xla.sync()",
    "a timing": "%tpu_timeit -q -r 3 --mode throughput net(x)",
}


@pytest.fixture(scope="module", params=[1, 4], ids="{0} devices".format)
def counting(request):
    """Return a kernel in which programs in flight are counted, and its number of devices."""
    pytest.importorskip("torch_xla")
    with Kernel(sys.executable, devices=request.param) as kernel:
        kernel.run("%load_ext tpu_magic\n%config TpuMagics.live = False").check()
        kernel.run(COUNT).check()
        kernel.run("%%tpu_run\nnet(x)").check()
        yield kernel, request.param


@pytest.mark.parametrize("name", CELLS)
def test_virtual_devices_take_one_program_at_a_time(counting, name):
    kernel, devices = counting
    kernel.run("flying = most = 0").check()
    kernel.run(CELLS[name]).check()
    most = ast.literal_eval(kernel.run("most").check().value)
    # One device has nothing to exchange: there the host runs ahead, as on a TPU.
    assert most == 1 if devices > 1 else most > 1
