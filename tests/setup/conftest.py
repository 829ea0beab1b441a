"""Fixtures of setup: a world of doubles, and pretended packages and modules."""

from __future__ import annotations

import sys

import pytest

from tests.support.setups import GPU, PLAIN, V5E, FakeAdapter, FakePackages, make_world, situation


@pytest.fixture
def world(monkeypatch, tmp_path):
    return make_world(monkeypatch, tmp_path / "cache")


@pytest.fixture
def make_situation():
    return situation


@pytest.fixture
def places():
    return {"plain": PLAIN, "v5e": V5E, "gpu": GPU}


@pytest.fixture
def fake_packages(monkeypatch):
    return lambda installed, requires=None: FakePackages(monkeypatch, installed, requires)


@pytest.fixture
def fake_adapter():
    return FakeAdapter


@pytest.fixture
def loaded(monkeypatch):
    """Pretend that a module is loaded."""

    def load(name, version=None):
        module = type(sys)(name)
        if version is not None:
            module.__version__ = version
        monkeypatch.setitem(sys.modules, name, module)

    return load
