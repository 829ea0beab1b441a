"""Modules and functions under `torch.compile`: they train on the device, and it is said."""

from __future__ import annotations

import pytest

from tests.support.pasted import run_both

pytestmark = pytest.mark.torch

EARLIER = """
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
x, y = torch.randn(16, 6), torch.randn(16, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
f = net
"""
TRAIN = """
for _ in range(5):
    opt.zero_grad(); loss = ((f(x) - y) ** 2).mean(); loss.backward(); opt.step()
loss = loss.item()
"""
KINDS = {
    "in an earlier cell": ("f = torch.compile(net)", ""),
    "in the cell": ("", "f = torch.compile(net)"),
    "in place": ("net.compile()", ""),
    "for a backend": ("f = torch.compile(net, backend='openxla')", ""),
}


@pytest.mark.parametrize("kind", KINDS)
def test_compiled_modules_train_with_the_numbers_of_plain_ones(torch_shell, kind):
    import torch

    earlier, inside = KINDS[kind]
    ours = "if 'get_ipython' in globals(): "  # the host's run is one without torch.compile
    both = run_both(
        torch_shell,
        EARLIER + (ours + earlier if earlier else ""),
        (ours + inside if inside else "") + TRAIN,
    )
    both.check_same("net", "loss")
    (note,) = both.report.notes
    assert "without torch.compile" in note
    assert (both.report.steps, both.report.compiles <= 3) == (5, True)
    stance = torch._dynamo.eval_frame._stance.stance
    assert stance == "default"


def test_compiled_functions_run_too(torch_shell):
    torch_shell.run(
        "import torch\nx = torch.eye(8) * 2\n@torch.compile\ndef f(a): return (a @ a).relu()"
    )
    torch_shell.run("%%tpu_run -q -o report\nout = f(x).sum().item()")
    assert torch_shell.user_ns["out"] == 32.0
    assert torch_shell.user_ns["report"].reached_device
