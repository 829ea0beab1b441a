"""P12: what is saved in a cell loads where there is no torch_xla, sharing kept."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.torch

LOADS = """
import sys, torch
found = torch.load(sys.argv[1], weights_only=True)
assert "torch_xla" not in sys.modules
state, optim, extra = found["net"], found["opt"], found["extra"]
assert {t.device.type for t in state.values()} == {"cpu"}
assert state["a.weight"].data_ptr() == state["b.weight"].data_ptr()
assert state["a.weight"].untyped_storage().data_ptr() == state["b.weight"].untyped_storage().data_ptr()
assert extra.dtype is torch.bfloat16 and extra.tolist() == [1.0, 2.0]
assert all(v.device.type == "cpu" for s in optim["state"].values() for v in s.values())
print(state["a.weight"].sum().item())
"""


def test_a_state_dict(torch_shell, tmp_path):
    path = tmp_path / "w.pt"
    torch_shell.user_ns["path"] = str(path)
    torch_shell.run(
        "import torch\nnet = torch.nn.ModuleDict(dict(a=torch.nn.Linear(2, 2), b=torch.nn.Linear(2, 2)))\n"
        "net['b'].weight = net['a'].weight\nopt = torch.optim.Adam(net.parameters())"
    )
    torch_shell.run(
        "%%tpu_run -q\n"
        "net['b'](net['a'](torch.ones(1, 2))).sum().backward(); opt.step()\n"
        "extra = torch.tensor([1.0, 2.0], device='cuda', dtype=torch.bfloat16)\n"
        "torch.save({'net': net.state_dict(), 'opt': opt.state_dict(), 'extra': extra}, path)\n"
        "total = net['a'].weight.sum().item()"
    )
    printed = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LOADS, str(path)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert printed.returncode == 0, printed.stderr
    assert float(printed.stdout) == pytest.approx(torch_shell.user_ns["total"], abs=1e-6)
    assert torch_shell.user_ns["net"]["a"].weight.device.type == "xla"
