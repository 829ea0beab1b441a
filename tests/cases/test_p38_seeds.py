"""P38: seeds make device numbers repeatable; nobody else's are changed."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch

DRAW = (
    "import torch\ndrop = torch.nn.Dropout(0.5)\nout = drop(torch.ones(64).cuda()).cpu().tolist()"
)
SEEDED = DRAW.replace("drop = ", "torch.manual_seed(3); drop = ", 1)


def drawn(shell, options, source):
    shell.run(f"%%tpu_run -q {options}\n{source}")
    return shell.user_ns["out"]


def test_seeding_repeats_and_not_seeding_does_not(torch_shell):
    assert drawn(torch_shell, "--seed 3", DRAW) == drawn(torch_shell, "--seed 3", DRAW)
    assert drawn(torch_shell, "", SEEDED) == drawn(torch_shell, "", SEEDED)
    assert drawn(torch_shell, "--seed 3", DRAW) != drawn(torch_shell, "--seed 4", DRAW)
    assert drawn(torch_shell, "", DRAW) != drawn(torch_shell, "", DRAW)


def test_the_device_s_own_generator_repeats(torch_shell):
    source = "import torch\nout = []\nfor _ in range(2):\n    torch.manual_seed(0); out.append(torch.rand(3, device='xla').cpu().tolist())"
    first, second = drawn(torch_shell, "", source)
    assert first == second


def test_the_host_s_generator_is_not_consumed(torch_shell):
    import torch

    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    torch_shell.run(
        "%%tpu_run -q\nimport torch\nz = torch.ones(4, 4) @ torch.ones(4, 4)\nz[0, 0].item()"
    )
    assert torch.equal(torch.rand(3), expected)
