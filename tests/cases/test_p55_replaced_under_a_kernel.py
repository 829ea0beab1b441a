"""P55: wheels replaced under a living kernel: seen, said, and a restart asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.setups import make_world
from tpu_magic.setup import versions

PROGRAM = """
import pathlib, shutil, sys
import torch
from tpu_magic.setup import versions

folder = pathlib.Path(sys.argv[1])
assert versions.stale_modules() == [], versions.stale_modules()
shutil.rmtree(folder / "torch-2.8.0.dist-info")
info = folder / "torch-2.9.0.dist-info"
info.mkdir()
(info / "METADATA").write_text("Metadata-Version: 2.1\\nName: torch\\nVersion: 2.9.0\\n")
(folder / "torch.py").write_text("__version__ = '2.9.0'\\n")
import importlib
importlib.invalidate_caches()
assert versions.stale_modules() == ["torch"], versions.stale_modules()
"""


def test_files_that_change_under_a_loaded_module_are_noticed(tmp_path):
    (tmp_path / "torch.py").write_text("__version__ = '2.8.0+cpu'\n")
    info = tmp_path / "torch-2.8.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.8.0\n")
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{Path.cwd()}"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env=environ,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def world(monkeypatch, tmp_path):
    made = make_world(monkeypatch, tmp_path)
    made.install(torch="2.13.0")
    module = type(sys)("torch")
    module.__version__ = "2.13.0"
    monkeypatch.setitem(sys.modules, "torch", module)
    return made


def test_without_consent_a_loaded_package_is_not_touched(world, shell):
    report = world.magic(shell, "--framework torch --version 2.9")
    assert (report.installed, report.restart_needed, world.packages.commands) == ((), False, [])


def test_with_consent_it_is_replaced_and_the_restart_asked_for_until_it_happens(world, shell):
    report = world.magic(shell, "--framework torch --version 2.9 --yes")
    assert "torch==2.9.0+cpu" in report.installed
    assert report.restart_needed
    assert "variables will be lost" in str(report).splitlines()[0]
    assert versions.stale_modules() == ["torch"]
    again = world.magic(shell, "--framework torch")
    assert again.restart_needed
    assert not again.connected
