"""P15: each new shape is another program; they are counted, and the values are right."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch


def test_compiles_are_counted(torch_shell):
    torch_shell.run(
        "%%tpu_run -q -o report\nimport torch\n"
        "sums = [(torch.ones(n, device='xla') * 2).sum().item() for n in (3, 4, 5, 6, 7)]"
    )
    assert torch_shell.user_ns["sums"] == [6.0, 8.0, 10.0, 12.0, 14.0]
    assert torch_shell.user_ns["report"].compiles == 5
    assert torch_shell.user_ns["report"].host_reads == 5
