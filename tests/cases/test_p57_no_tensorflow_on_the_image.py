"""P57: Colab's TPU image has no tensorflow: said, with both ways on and what they cost."""

from __future__ import annotations

import pytest
from IPython.core.error import UsageError

from tests.support.setups import V5E, make_world

COLAB = {
    "torch": "2.9.0+cpu",
    "torch_xla": "2.9.0",
    "libtpu": "0.0.21.1",
    "jax": "0.7.2",
    "keras": "3.13.2",
}


@pytest.fixture
def world(monkeypatch, tmp_path):
    made = make_world(monkeypatch, tmp_path)
    made.facts = V5E
    made.install(**COLAB)
    return made


def test_keras_goes_on_jax_and_the_plan_says_what_is_missing(world, shell):
    report = world.magic(shell, "--framework keras --dry-run")
    text = " ".join(report.reasons)
    assert "tensorflow is missing" in text
    assert "Keras on JAX" in text
    assert "--framework tf" in text
    assert report.plan == ()


def test_tensorflow_itself_is_refused_with_its_consequences(world, shell):
    with pytest.raises(UsageError) as error:
        world.magic(shell, "--framework tf --yes")
    assert "--framework keras" in str(error.value)
    assert world.packages.commands == []
