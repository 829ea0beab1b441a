"""A cell of real torch leaves the process as it was, however it ends."""

from __future__ import annotations

import pytest

from tests.support.untouched import untouched

pytestmark = pytest.mark.torch

ENDINGS = {
    "well": "",
    "in an error": "1/0",
    "interrupted": "raise KeyboardInterrupt",
    "with SystemExit": "raise SystemExit(2)",
    "in a loop": "for batch in [torch.ones(2, 4)]:\n    net(batch)\n    1/0",
    "inside a module": "bad(torch.ones(2, 4))",
    "with a wrong operation": "net(torch.ones(2, 5))",
}


@pytest.mark.parametrize("options", ["", "--precision highest", "--precision bf16"])
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.filterwarnings("ignore:To exit")
def test_a_cell_leaves_everything_as_it_was(torch_shell, ending, options):
    torch_shell.run("import torch, numpy, random")
    torch_shell.run("bad = torch.nn.Linear(4, 3)\nbad.register_forward_hook(lambda *_: 1/0)")
    torch_shell.run(
        "%%tpu_run -q\nnet = torch.nn.Linear(4, 3)\nopt = torch.optim.SGD(net.parameters(), 0.1)"
    )
    step = "opt.zero_grad()\nnet(torch.ones(2, 4)).sum().backward()\nopt.step()\n"
    torch_shell.run(f"%%tpu_run -q\n{step}")
    with untouched(torch_shell):
        result = torch_shell.run_cell(f"%%tpu_run -q {options}\n{step}{ENDINGS[ending]}")
    assert result.success is (ending == "well")
    torch_shell.run(f"%%tpu_run -q -o after\n{step}")
    assert torch_shell.user_ns["after"].reached_device
