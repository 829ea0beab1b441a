"""P01: torch and torch_xla of different releases are told apart before anything imports them."""

from __future__ import annotations

import importlib.metadata
import sys

import pytest

from tests.support.setups import make_world
from tpu_magic.setup.signatures import explain


@pytest.fixture
def mismatched(monkeypatch, tmp_path):
    world = make_world(monkeypatch, tmp_path)
    fake = {"torch": "2.8.0+cpu", "torch_xla": "2.9.0"}
    real = world.packages.installed
    real.clear()
    version = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: fake.get(name) or version(name))
    return world


def test_one_line_names_both_and_the_plan_the_command(mismatched, shell):
    report = mismatched.magic(shell, "--framework torch --check")
    expected = (
        "torch 2.8.0 and torch_xla 2.9.0 are different releases; torch_xla 2.9.0 needs torch 2.9.x"
    )
    assert expected in report.reasons
    assert report.plan[-1].endswith("torch_xla==2.8.1")
    assert "torch_xla" not in sys.modules


def test_a_broken_import_is_explained_instead_of_a_mangled_name():
    error = (
        "ImportError: /lib/_XLAC.cpython-311-x86_64-linux-gnu.so: undefined symbol: "
        "_ZN5torch4lazy13MetricFnValueB5cxx11Ed"
    )
    assert "different releases" in explain(error).cause
