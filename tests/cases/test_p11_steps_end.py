"""P10, P11: steps end without the person's doing, and reads are counted where they are."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch

PREPARE = (
    "import torch\nnet = torch.nn.Linear(4, 1)\nx = torch.randn(8, 4)\n"
    "opt = torch.optim.SGD(net.parameters(), lr=0.01)"
)
LOOP = (
    "%%tpu_run -q -o report\nfor _ in range(20):\n    opt.zero_grad()\n"
    "    loss = net(x).pow(2).sum()\n    loss.backward()\n{read}    opt.step()"
)


def test_a_plain_loop_is_steps_and_not_one_program(torch_shell):
    torch_shell.run(PREPARE)
    torch_shell.run(LOOP.format(read=""))
    report = torch_shell.user_ns["report"]
    assert report.steps == 20
    assert report.compiles <= 3
    assert report.host_reads == 0


def test_reads_in_the_loop_are_counted_and_right(torch_shell):
    torch_shell.run(PREPARE + "\nlosses = []")
    torch_shell.run(LOOP.format(read="    losses.append(loss.item())\n"))
    report, losses = torch_shell.user_ns["report"], torch_shell.user_ns["losses"]
    assert report.host_reads == 20
    assert losses == sorted(losses, reverse=True)
    assert len(set(losses)) == 20
