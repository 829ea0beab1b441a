"""P19: no wheel for this Python, or pip's empty placeholder."""

from __future__ import annotations

import platform
import sys

import pytest
from IPython.core.error import UsageError

from tests.support.setups import make_world, situation
from tpu_magic.setup.plan import make_plan


@pytest.fixture
def world(monkeypatch, tmp_path):
    return make_world(monkeypatch, tmp_path)


def test_a_dry_run_prints_python_platform_pair_and_index(world, shell):
    world.install()
    report = world.magic(shell, "--framework torch --dry-run")
    python = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    assert any(python in line and platform.machine() in line for line in report.reasons)
    assert "torch==2.9.0+cpu torch_xla==2.9.0" in report.plan[-1]
    assert "https://download.pytorch.org/whl/cpu" in report.plan[-1]
    assert world.packages.commands == []


def test_the_placeholder_is_never_taken_for_a_release(world, shell):
    world.install(torch="2.9.0", torch_xla="1.0")
    report = world.magic(shell, "--framework torch --dry-run")
    assert report.plan[-1].endswith("torch_xla==2.9.0")
    assert any("placeholder" in reason for reason in report.reasons)


def test_a_python_without_a_pair_is_told_which_have_one(world, shell, monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 14, 0, "final", 0))
    world.install(torch="2.9.0")
    with pytest.raises(UsageError, match=r"has wheels for Python 3\.10 to 3\.13, this is 3\.14"):
        world.magic(shell, "--framework torch --yes")
    assert world.packages.commands == []


def test_an_old_release_on_a_new_python_names_one_that_has_wheels():
    plan = make_plan(situation({"torch": "2.6.0"}, python=(3, 12)))
    assert "3.9 to 3.11" in plan.refusal
    assert "--version 2.9" in plan.ways[0]
