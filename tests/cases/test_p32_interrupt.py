"""P32: an interrupt was swallowed, the next cells ran, or the device was stuck afterwards."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.kernel, pytest.mark.torch]


def test_stop_in_a_training_loop_stops_run_all_and_training_goes_on_afterwards(kernel):
    kernel.run("import torch\nfrom torch import nn").check()
    kernel.run(
        "%%tpu_run -q\nnet = nn.Linear(64, 1)\nopt = torch.optim.SGD(net.parameters(), 1e-3)\n"
        "def step():\n    opt.zero_grad()\n    net(torch.ones(32, 64)).pow(2).mean().backward()\n"
        "    opt.step()\nstep()"
    ).check()
    first = kernel.send("%%tpu_run -q\nstep()\nprint('go', flush=True)\nwhile True:\n    step()")
    second = kernel.send("ran = True")
    kernel.wait_for_output(first, "go")
    kernel.interrupt()
    reply = kernel.receive(first)
    assert (reply.status, reply.ename) == ("error", "KeyboardInterrupt")
    assert kernel.receive(second).status == "aborted"
    after = kernel.run(
        "%%tpu_run -q\nbefore = net.weight.detach().cpu().clone()\nstep()\n"
        "bool((net.weight.detach().cpu() != before).any())"
    ).check()
    assert after.value == "True"
