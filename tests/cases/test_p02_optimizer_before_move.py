"""P02, P13, P14: after a move the optimizer, ties, hooks and references are still the right ones."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch


def test_an_optimizer_made_before_the_move_trains(torch_shell):
    torch_shell.run(
        "import torch\nnet = torch.nn.Linear(2, 1)\nref = net.weight\n"
        "opt = torch.optim.Adam(net.parameters(), lr=1.0)\n"
        "sched = torch.optim.lr_scheduler.StepLR(opt, 1)\n"
        "net(torch.ones(4, 2)).sum().backward(); opt.step()\nbefore = net.weight.detach().clone()"
    )
    torch_shell.run(
        "%%tpu_run -q\n"
        "net(torch.ones(4, 2)).sum().backward()\nopt.step()\nsched.step()\n"
        "changed = not torch.equal(before, net.weight.detach().cpu())"
    )
    space = torch_shell.user_ns
    net, opt = space["net"], space["opt"]
    assert space["changed"]
    assert net.weight is space["ref"] is opt.param_groups[0]["params"][0]
    assert net.weight.device.type == "xla"
    assert float(opt.state[net.weight]["step"]) == 2
    assert opt.state[net.weight]["exp_avg"].device.type == "xla"
    assert opt.param_groups[0]["lr"] == pytest.approx(0.1)


def test_tied_weights_are_one_there_and_back(torch_shell):
    torch_shell.run(
        "import torch, tpu_magic\n"
        "class Tiny(torch.nn.Module):\n"
        "    def __init__(s):\n"
        "        super().__init__()\n"
        "        s.e = torch.nn.Embedding(5, 3); s.h = torch.nn.Linear(3, 5, bias=False)\n"
        "        s.h.weight = s.e.weight\n"
        "        s.shared = torch.nn.Parameter(torch.zeros(5, 3)); s.shared.data = s.e.weight.data\n"
        "    def forward(s, i): return s.h(s.e(i)) + s.shared.sum()\n"
        "t = Tiny()\nopt = torch.optim.SGD(t.parameters(), lr=0.1)"
    )
    torch_shell.run("%%tpu_run -q\nt(torch.arange(3)).sum().backward(); opt.step()")
    t, space = torch_shell.user_ns["t"], torch_shell.user_ns
    assert t.h.weight is t.e.weight
    assert len(list(t.parameters())) == 2
    assert t.e.weight.device.type == "xla"
    torch_shell.run("tpu_magic.to_host(t, opt)")
    assert t.h.weight is t.e.weight
    assert [id(item) for item in space["opt"].param_groups[0]["params"]] == [
        *map(id, t.parameters())
    ]
    assert t.shared.data_ptr() == t.e.weight.data_ptr()
    assert {item.device.type for item in t.parameters()} == {"cpu"}


def test_hooks_gradients_and_references_travel(torch_shell):
    torch_shell.run(
        "import torch\nhits = []\nlin = torch.nn.Linear(2, 1)\nref = lin.weight\nlisted = list(lin.parameters())\n"
        "lin.weight.register_hook(lambda g: hits.append(1))\n"
        "lin(torch.ones(1, 2)).sum().backward()\ngrad = lin.weight.grad"
    )
    torch_shell.run("%%tpu_run -q\nlin(torch.ones(1, 2)).sum().backward()")
    space = torch_shell.user_ns
    assert space["ref"] is space["lin"].weight is space["listed"][0]
    assert space["hits"] == [1, 1]
    assert space["lin"].weight.grad is space["grad"]
    assert space["grad"].cpu().tolist() == [[2.0, 2.0]]


@pytest.mark.parametrize("option", ["fused=True", "capturable=True", "foreach=True"])
def test_special_optimizers_step_and_keep_their_options(torch_shell, option):
    torch_shell.run(
        "import torch, copy\ntorch.manual_seed(0)\nnet = torch.nn.Linear(2, 1)\ntwin = copy.deepcopy(net)\n"
        "x = torch.randn(4, 2)\n"
        "def steps(net, opt):\n"
        "    for _ in range(3):\n"
        "        opt.zero_grad(); net(x).pow(2).sum().backward(); opt.step()\n"
        "plain = torch.optim.Adam(twin.parameters(), lr=0.1)\nsteps(twin, plain)"
    )
    torch_shell.run(
        f"%%tpu_run -q -o report\nopt = torch.optim.Adam(net.to('cuda').parameters(), lr=0.1, {option})\nsteps(net, opt)\n"
        "weight = net.weight.cpu()"
    )
    space = torch_shell.user_ns
    name, _, value = option.partition("=")
    assert str(space["opt"].param_groups[0][name]) == value
    assert (space["weight"] - space["twin"].weight).abs().max() < 1e-5
    assert space["report"].host_reads == 1
