"""P18: libtpu aborts (permission, chip state): in a child, so that kernel and variables survive."""

from __future__ import annotations

from functools import partial

import pytest
from IPython.core.error import UsageError

from tests.support.setups import make_world
from tpu_magic.setup.verify import verify

ABORT = """
import os, sys
sys.stderr.write("F0000 tpu_driver.cc] Failed to open /dev/accel0: Permission denied\\n")
sys.stderr.flush()
os.abort()
"""


def test_signal_and_cause_are_told_and_the_kernel_lives(monkeypatch, tmp_path, shell):
    world = make_world(monkeypatch, tmp_path)
    shell.run("kept = 41")
    tools = world.tools()
    monkeypatch.setattr(
        world,
        "tools",
        lambda: type(tools)(**{**vars(tools), "verify": partial(verify, program=ABORT)}),
    )
    with pytest.raises(UsageError) as error:
        world.magic(shell, "--framework torch")
    assert "SIGABRT" in str(error.value)
    assert "device node" in str(error.value)
    assert shell.run("kept + 1") == 42
    assert world.adapter.calls == []
