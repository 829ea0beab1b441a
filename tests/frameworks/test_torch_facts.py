"""The facts of a cell: which line read, compiled, kept; what the environment does."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch


def facts_of(shell, cell, options=""):
    seen = []
    engine = shell.tpu_cell
    enter = type(engine).end

    def end(self, *value):
        seen.append(self._active.session.facts)
        return enter(self, *value)

    type(engine).end = end
    try:
        shell.run(f"%%tpu_run -q -o report {options}\n{cell}")
    finally:
        type(engine).end = enter
    return seen[-1]


def test_reads_are_counted_by_their_line(torch_shell):
    torch_shell.run(
        "import torch\nnet = torch.nn.Linear(3, 2)\ndef look(t):\n    return t.sum().item()"
    )
    facts = facts_of(
        torch_shell,
        "out = net(torch.ones(4, 3))\nfor _ in range(3):\n    look(out)\n    out.detach().numpy()\nout.cpu()\n2 + 2",
    )
    assert facts.read_lines == {4: 3, 5: 3, 6: 1}


def test_compiles_name_their_line_and_shapes(torch_shell):
    torch_shell.run(
        "import torch\nnet = torch.nn.Linear(3, 2)\nopt = torch.optim.SGD(net.parameters(), lr=0.1)"
    )
    facts = facts_of(
        torch_shell,
        "for n in (6, 8, 10):\n    net(torch.ones(n, 3)).sum().backward()\n    opt.step()",
    )
    assert {item.line for item in facts.compiled} == {4}
    assert {item.shapes for item in facts.compiled} == {"(6, 3)", "(8, 3)", "(10, 3)"}
    assert len(facts.compiled) == torch_shell.user_ns["report"].compiles
    assert facts.steps == 3
    assert facts.products == [("net.weight", (2, 3))]


def test_a_kept_model_is_the_reason_that_nothing_ran(torch_shell):
    torch_shell.run("import torch\nnet = torch.nn.Linear(3, 2)")
    facts_of(torch_shell, "x = 1\nout = net(torch.zeros(2, 3))", "--keep net")
    report = torch_shell.user_ns["report"]
    assert not report.reached_device
    assert report.unreached_reason == "net was kept on the host by --keep (called in line 3)"
    assert torch_shell.user_ns["out"].device.type == "cpu"


def test_float64_is_named(torch_shell):
    torch_shell.run("import torch\nnet = torch.nn.Linear(3, 2).double()")
    facts = facts_of(torch_shell, "out = net(torch.zeros(2, 3, dtype=torch.float64))")
    assert facts.float64 == ["net"]


def test_stored_as_bf16_is_said():
    from tpu_magic.frameworks import torch_facts

    said = torch_facts.notes({"XLA_USE_BF16": "1", "XLA_DOWNCAST_BF16": "0"})
    assert len(said) == 1
    assert "XLA_USE_BF16" in said[0]
    assert "dtype still says float32" in said[0]
    assert torch_facts.notes({}) == []


def test_the_device_was_busy_for_a_part_of_the_cell(torch_shell):
    torch_shell.run("import torch\nA = torch.randn(300, 300)")
    facts = facts_of(
        torch_shell, "B = A\nfor _ in range(4):\n    B = torch.tanh(A @ B)\nB.sum().item()"
    )
    assert 0 < facts.execute_s < torch_shell.user_ns["report"].wall_s


def test_examples_are_the_rows_that_were_trained_on(torch_shell):
    torch_shell.run(
        "import torch\nfrom torch.utils.data import DataLoader\n"
        "net = torch.nn.Linear(3, 1)\nopt = torch.optim.SGD(net.parameters(), lr=0.01)\n"
        "train, valid = DataLoader(torch.ones(24, 3), batch_size=4), DataLoader(torch.ones(30, 3), 10)"
    )
    torch_shell.run(
        "%%tpu_run -q -o report\n"
        "for _ in range(2):\n"
        "    for index, x in enumerate(train, 1):\n"
        "        net(x).sum().backward()\n"
        "        if index % 3 == 0:  # two steps of three batches\n"
        "            opt.step(); opt.zero_grad()\n"
        "    for x in valid:\n"
        "        with torch.no_grad(): net(x)"
    )
    report = torch_shell.user_ns["report"]
    assert (report.steps, report.examples) == (4, 2 * 24)
