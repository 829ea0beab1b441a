"""A framework that was replaced on disk is noticed, and noticing costs next to nothing."""

from __future__ import annotations

import os
import sys
import types

from tpu_magic.cell.stale import StaleWatch


def test_it_is_asked_again_only_after_an_install_or_an_import(tmp_path, monkeypatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
    asked, stale = [], []
    watch = StaleWatch(lambda: asked.append(1) or list(stale))
    assert watch.problem() is None
    assert watch.problem() is None
    assert len(asked) == 1
    stale.append("torch")
    os.utime(folder, ns=(1, 1))  # what pip does to it, at another time
    sentence = watch.problem()
    assert sentence.startswith("torch was replaced on disk while this kernel runs: restart")
    assert watch.problem() == sentence
    assert len(asked) == 2
    monkeypatch.setitem(sys.modules, "libtpu", types.ModuleType("libtpu"))
    watch.problem()
    assert len(asked) == 3


def test_a_folder_that_is_gone_does_no_harm(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "dist-packages")])
    assert StaleWatch(list).problem() is None


def test_a_package_of_another_version_than_its_files_is_stale(monkeypatch):
    module = types.ModuleType("numpy")
    module.__version__ = "0.1"
    monkeypatch.setitem(sys.modules, "numpy", module)
    assert "numpy was replaced" in StaleWatch().problem()
