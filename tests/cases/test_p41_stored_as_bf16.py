"""P41: a variable that stores float32 as bfloat16 is said in the report."""

from __future__ import annotations

import sys

import pytest

from tests.support.kernels import Kernel

pytestmark = [pytest.mark.torch, pytest.mark.kernel]


def test_xla_use_bf16_is_said_in_the_report():
    with Kernel(sys.executable, devices=1, XLA_USE_BF16="1") as kernel:
        kernel.run("%load_ext tpu_magic").check()
        reply = kernel.run("%%tpu_run\nimport torch\ny = torch.ones(2, 2) @ torch.eye(2)").check()
        shown = reply.displays[0]["text/plain"]
    assert "XLA_USE_BF16 is set" in shown
    assert "--precision bf16" in shown
