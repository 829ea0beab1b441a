"""P58: torch_xla has ended: one line, and never a torch newer than its last release."""

from __future__ import annotations

import pytest

from tests.support.setups import V5E, make_world


@pytest.fixture
def world(monkeypatch, tmp_path):
    return make_world(monkeypatch, tmp_path)


def test_one_line_names_the_last_release_and_the_successor(world, shell):
    report = world.magic(shell, "--framework torch --check")
    lines = [warning for warning in report.warnings if "ended" in warning]
    assert len(lines) == 1
    assert "2.9.0" in lines[0]
    assert "TorchTPU" in lines[0]


@pytest.mark.parametrize("installed", [{}, {"torch": "2.13.0"}, {"torch": "2.8.0"}])
def test_no_plan_offers_a_newer_torch(world, shell, installed):
    world.facts = V5E
    world.install(**installed)
    report = world.magic(shell, "--framework torch --check")
    for word in " ".join(report.plan).split():
        if word.startswith("torch=="):
            assert word == "torch==2.9.0+cpu" or installed
    assert "torch==2.13.0" not in " ".join(report.plan)
