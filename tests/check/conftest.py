"""What the tests of the check share: the real compiler, where it is installed."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest

from tpu_magic.check import cache, capture, command
from tpu_magic.check.options import PARSER, CheckOptions

needs_compiler = pytest.mark.skipif(
    find_spec("libtpu") is None or find_spec("jax") is None,
    reason="needs the TPU compiler: jax and libtpu",
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Keep the answers of a test apart from any other's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cache.folder()


@pytest.fixture
def check(shell, tmp_path):
    """Return a function that checks a cell and gives its report."""

    def run(cell, line=""):
        wanted = PARSER.parse_as(CheckOptions, line.split())
        folder = tmp_path / "check"
        folder.mkdir(exist_ok=True)
        report = command.check(shell, cell, wanted, folder, command.Progress())
        assert type(report).from_json(report.to_json()) == report
        return report

    return run


@pytest.fixture
def record(shell, tmp_path):
    """Return a function that records a cell in a child and gives what was seen."""

    def run(cell, framework="torch", devices=1, precision="default"):
        return capture.capture(
            capture.read_cell(shell, cell),
            framework,
            devices,
            {"precision": precision},
            folder=tmp_path / "record",
            limit_s=240,
        )

    return run


def say(**message):
    """Return a program text that sends a message as a child does."""
    from tpu_magic.check.children import MARK

    return f"print({MARK + json.dumps(message)!r}, flush=True)"
