"""Tensors of kinds that the device has not: sparse and quantised ones stay, and it is said."""

from __future__ import annotations

import pytest

from tests.support.pasted import run_both

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:.*quantiz"),
    pytest.mark.filterwarnings("ignore:.*sparse"),
]

GRAPH = """
import torch
import torch.nn.functional as F
from torch import nn
class Layer(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(i, o) * 0.3)
    def forward(self, x, adjacency):
        return torch.spmm(adjacency, x @ self.weight)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = Layer(5, 8), Layer(8, 3)
    def forward(self, x, adjacency):
        return self.two(F.relu(self.one(x, adjacency)), adjacency)
A = ((torch.rand(12, 12) > 0.7).float() / 4).to_sparse()
X, Y = torch.randn(12, 5), torch.randint(0, 3, (12,))
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
"""


def test_a_graph_network_with_a_sparse_matrix_trains(torch_shell):
    both = run_both(
        torch_shell,
        GRAPH,
        """
        for _ in range(10):
            opt.zero_grad(); loss = F.cross_entropy(net(X, A), Y); loss.backward(); opt.step()
        loss = loss.item()
        """,
    )
    both.check_same("net", "loss")
    assert both.report.steps == 10
    assert any("sparse" in note for note in both.report.notes)
    assert both.device["A"].layout is both.host["A"].layout


def test_a_quantised_model_stays_and_it_is_said(torch_shell):
    both = run_both(
        torch_shell,
        """
        import torch
        from torch import nn
        net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        small = torch.ao.quantization.quantize_dynamic(net, {nn.Linear}, dtype=torch.qint8)
        x = torch.randn(3, 4)
        """,
        "out = small(x)",
    )
    both.check_same("out")
    assert not both.report.reached_device
    assert "quantised" in both.report.unreached_reason
