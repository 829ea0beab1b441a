from __future__ import annotations

from pathlib import Path

import pytest

from tpu_magic.setup import stamp


def test_a_mark_lasts_until_the_next_boot(tmp_path):
    folder = tmp_path / "deep" / "cache"
    assert not stamp.is_verified("a", folder, "boot-1")
    stamp.mark_verified("a", folder, "boot-1")
    stamp.mark_verified("b", folder, "boot-1")
    assert stamp.is_verified("a", folder, "boot-1")
    assert stamp.is_verified("b", folder, "boot-1")
    assert not stamp.is_verified("c", folder, "boot-1")
    assert not stamp.is_verified("a", folder, "boot-2")
    stamp.mark_verified("c", folder, "boot-2")
    assert not stamp.is_verified("a", folder, "boot-2")
    assert [path.name for path in folder.iterdir()] == ["verified.json"]


def test_without_a_boot_id_nothing_counts_as_verified(tmp_path):
    stamp.mark_verified("a", tmp_path, "")
    assert not stamp.is_verified("a", tmp_path, "")


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"boot": "x"}', "\xff"])
def test_a_broken_file_counts_as_none_and_is_replaced(tmp_path, content):
    (tmp_path / "verified.json").write_text(content, encoding="latin-1")
    assert not stamp.is_verified("a", tmp_path, "boot-1")
    stamp.mark_verified("a", tmp_path, "boot-1")
    assert stamp.is_verified("a", tmp_path, "boot-1")


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "file").touch()
    stamp.mark_verified("a", tmp_path / "file", "boot-1")
    assert not stamp.is_verified("a", tmp_path / "file", "boot-1")


def test_boot_id_is_read(tmp_path):
    assert stamp.boot_id(tmp_path) == ""
    path = tmp_path / "proc/sys/kernel/random/boot_id"
    path.parent.mkdir(parents=True)
    path.write_text("8f1c\n")
    assert stamp.boot_id(tmp_path) == "8f1c"


def test_the_folder_follows_the_desktop_convention():
    assert stamp.cache_folder({"XDG_CACHE_HOME": "/c"}) == Path("/c/tpu_magic")
    assert stamp.cache_folder({}) == Path.home() / ".cache" / "tpu_magic"
