"""P16: tensorflow is loaded, so importing torch_xla would end the kernel: refused in words."""

from __future__ import annotations

import sys

import pytest
from IPython.core.error import UsageError

from tests.support.setups import make_world


@pytest.fixture
def world(monkeypatch, tmp_path):
    made = make_world(monkeypatch, tmp_path)
    monkeypatch.setitem(sys.modules, "tensorflow", type(sys)("tensorflow"))
    return made


def test_a_check_warns(world, shell):
    report = world.magic(shell, "--framework torch --check")
    assert any("ends the process" in warning for warning in report.warnings)


def test_connecting_is_refused_and_nothing_is_imported_or_verified(world, shell):
    with pytest.raises(UsageError, match="restart the kernel"):
        world.magic(shell, "--framework torch")
    assert (world.adapter.calls, world.verified) == ([], [])
    assert "torch_xla" not in sys.modules


def test_in_the_other_order_it_is_fine(world, shell, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_xla", type(sys)("torch_xla"))
    assert world.magic(shell, "--framework torch").connected
