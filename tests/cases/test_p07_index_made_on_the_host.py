"""P07, P43, P48, P62: operands made on the host, scripted modules, device names, views."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("rows", [1, 2, 3, 5])
def test_an_embedding_takes_an_index_made_on_the_host(torch_shell, rows):
    """Rows that do not divide over the devices once ended the process in backward."""
    torch_shell.run(
        f"%%tpu_run -q\nimport torch\nemb = torch.nn.Embedding(10, 3)\n"
        f"out = emb(torch.arange({rows}))\nout.sum().backward()\n"
        "grad = emb.weight.grad.sum(1).tolist()"
    )
    assert torch_shell.user_ns["grad"] == [3.0] * rows + [0.0] * (10 - rows)


def test_a_scripted_module_runs_several_times_and_backward(torch_shell):
    torch_shell.run("import torch, warnings\nwarnings.simplefilter('ignore')")
    torch_shell.run(
        "%%tpu_run -q\n"
        "parts = torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)\n"
        "m = torch.jit.script(torch.nn.Sequential(*parts))\n"
        "x = torch.randn(3, 2, device='xla')\n"
        "values = [float(m(x).sum()) for _ in range(4)]\n"
        "m(x).pow(2).sum().backward()\nhas_grad = m[0].weight.grad is not None"
    )
    assert torch_shell.user_ns["values"] == pytest.approx([0.0] * 4, abs=1e-4)
    assert torch_shell.user_ns["has_grad"]


def test_the_name_xla_works_in_a_cell(torch_shell):
    torch_shell.run("%%tpu_run -q\nimport torch\nx = torch.ones(1).to('xla')\nkind = x.device.type")
    assert torch_shell.user_ns["kind"] == "xla"


def test_a_view_stays_linked_to_its_tensor(torch_shell):
    torch_shell.run(
        "%%tpu_run -q\nimport torch, torch_xla\n"
        "x = torch.zeros(1, 4, device='xla'); v = x.view(4, 1); torch_xla.sync(); v[0][0] = 1\n"
        "row = torch.zeros(40, 2, device='xla'); part = row[3:5]; part += 2; part[0, 1] = 7\n"
        "seen, rows = x.tolist(), row[2:6].tolist()"
    )
    assert torch_shell.user_ns["seen"] == [[1.0, 0.0, 0.0, 0.0]]
    assert torch_shell.user_ns["rows"] == [[0.0, 0.0], [2.0, 7.0], [2.0, 2.0], [0.0, 0.0]]
