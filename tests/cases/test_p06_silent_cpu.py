"""P06: a TPU that is visible but not used, and an `xla` device that is a CPU, are never "ready"."""

from __future__ import annotations

import dataclasses

import pytest
from IPython.core.error import UsageError

from tests.support.setups import PLAIN, V5E, make_world
from tpu_magic.setup.verify import Verdict


@pytest.fixture
def world(monkeypatch, tmp_path):
    return make_world(monkeypatch, tmp_path)


def test_the_real_device_is_the_first_thing_said(world, shell):
    headline = str(world.magic(shell, "--framework torch")).splitlines()[0]
    assert headline.startswith("no TPU here: XLA CPU")
    assert "not a TPU" in headline


def test_a_tpu_that_the_framework_does_not_use_stops_the_setup(world, shell):
    world.facts = V5E
    world.install(torch="2.9.0", torch_xla="2.9.0", libtpu="0.0.21")
    world.verdict = Verdict(True, "CPU", 1, "")
    with pytest.raises(UsageError, match="a TPU is here, but torch computed on CPU"):
        world.magic(shell, "--framework torch")
    assert world.adapter.calls == []


def test_a_variable_that_hides_the_tpu_is_named(world, shell):
    world.facts = V5E
    world.environ = {"PJRT_DEVICE": "CPU"}
    world.install(torch="2.9.0", torch_xla="2.9.0", libtpu="0.0.21")
    report = world.magic(shell, "--framework torch --check")
    assert any("PJRT_DEVICE=CPU" in warning for warning in report.warnings)


def test_a_promised_tpu_that_is_missing_is_a_warning(world, shell):
    said = "COLAB_TPU_1VM=1, but no TPU chip is visible here"
    world.facts = dataclasses.replace(PLAIN, environment="colab", warnings=(said,))
    assert said in world.magic(shell, "--check").warnings


def test_require_tpu_raises(world, shell):
    with pytest.raises(UsageError, match="no TPU here"):
        world.magic(shell, "--require-tpu")
