"""P56: everyone who wants a libtpu is listed with what it wants."""

from __future__ import annotations

import pytest

from tests.support.setups import V5E, make_world
from tpu_magic.setup.signatures import explain

COLAB = {
    "torch": "2.9.0+cpu",
    "torch_xla": "2.9.0",
    "libtpu": "0.0.21.1",
    "jax": "0.7.2",
}
REQUIRES = {
    "torch_xla": ['libtpu==0.0.21; extra == "tpu"'],
    "jax": ['libtpu==0.0.23; extra == "tpu"'],
}


@pytest.fixture
def world(monkeypatch, tmp_path):
    made = make_world(monkeypatch, tmp_path)
    made.facts = V5E
    made.install(REQUIRES, **COLAB)
    return made


def test_a_check_lists_all_demands_and_says_who_may_suffer(world, shell):
    report = world.magic(shell, "--check")
    assert "libtpu 0.0.21.1 (wanted by torch_xla: ==0.0.21, jax: ==0.0.23)" in report.reasons
    assert any("jax (wants ==0.0.23)" in warning for warning in report.warnings)


def test_pins_that_disagree_are_no_reason_to_install(world, shell):
    assert world.magic(shell, "--framework torch --check").plan == ()


def test_the_error_of_a_libtpu_that_is_too_new_is_translated():
    error = "Unexpected PJRT_Plugin_Attributes_Args size: expected 32, got 24."
    assert "libtpu" in explain(error).cause
