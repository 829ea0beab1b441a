"""Cells of real torch in real kernels: what only the device can show."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.kernel, pytest.mark.torch]


def test_a_runtime_that_was_started_by_the_person_is_named_with_its_cell(kernel):
    started = kernel.run("import torch, torch_xla\ntorch_xla.device()\nget_ipython()").check()
    reply = kernel.run(
        "%%tpu_run\nnet = torch.nn.Linear(4, 2)\nout = net(torch.ones(8, 4))"
    ).check()
    (report,) = reply.reports
    note = f"1 of 2 devices: the runtime was started in cell {started.count};"
    assert note in report["device_note"]

    # A plain cell that fails on what was moved gets its own error and one line of help.
    failed = kernel.run("net(torch.ones(8, 4))")
    assert (failed.status, failed.ename) == ("error", "RuntimeError")
    assert failed.errors_shown == 1
    (line,) = failed.stdout.strip().splitlines()
    assert "net" in line
    assert "%%tpu_run" in line
    assert "tpu_magic.to_host" in line
    assert kernel.run("1/0").stdout == ""
