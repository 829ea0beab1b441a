"""P43: scripted modules move and run, with their backward, more often than the profiler looks."""

import pytest


def test_a_scripted_module_of_the_cell_runs_and_learns(torch_shell):
    shell = torch_shell
    shell.run("""%%tpu_run -q
import torch
torch.manual_seed(0)
model = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.SiLU()))
sums = [float(model(torch.ones(3, 2)).sum()) for _ in range(4)]
model(torch.ones(3, 2)).sum().backward()
gradient = model[0].weight.grad.cpu()
""")
    import torch

    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.SiLU())
    out = plain(torch.ones(3, 2)).sum()
    out.backward()
    assert shell.user_ns["sums"] == pytest.approx([float(out.detach())] * 4, rel=1e-5)
    torch.testing.assert_close(shell.user_ns["gradient"], plain[0].weight.grad)


def test_an_own_backward_is_kept(torch_shell):
    shell = torch_shell
    shell.run("""%%tpu_run -q
import torch
class Triple(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 3
    @staticmethod
    def backward(context, gradient):
        return gradient * 7
w = torch.ones(4, requires_grad=True)
Triple.apply(w * torch.arange(4.0)).sum().backward()
gradient = w.grad.cpu()
""")
    assert shell.user_ns["gradient"].tolist() == [0.0, 7.0, 14.0, 21.0]
