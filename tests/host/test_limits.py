from __future__ import annotations

from tpu_magic.host.limits import Limits, limits

GOOD = Limits(65536, 8 * 2**30, "always", 100 * 2**30)


def test_a_good_host_is_not_talked_about():
    assert GOOD.sentences(tpu=True) == []


def test_each_limit_is_said_with_its_cure():
    small = Limits(1024, 64 * 2**20, "madvise", 2**30)
    files, memory, disk, pages = small.sentences(tpu=True)
    assert "1024" in files
    assert "ulimit" in files
    assert "64 MiB" in memory
    assert "1.0 GiB" in disk
    assert "madvise" in pages


def test_huge_pages_matter_on_a_tpu_only():
    assert Limits(65536, 8 * 2**30, "never", 100 * 2**30).sentences(tpu=False) == []


def test_what_cannot_be_read_is_none_and_not_talked_about(tmp_path):
    found = limits(tmp_path, tmp_path / "missing")
    assert (found.shared_memory_bytes, found.huge_pages, found.disk_free_bytes) == (None,) * 3
    assert Limits(None, None, None, None).sentences(tpu=True) == []


def test_the_chosen_mode_of_huge_pages_is_the_one_in_brackets(tmp_path):
    path = tmp_path / "sys/kernel/mm/transparent_hugepage/enabled"
    path.parent.mkdir(parents=True)
    path.write_text("always [madvise] never\n")
    assert limits(tmp_path).huge_pages == "madvise"


def test_this_process_has_a_limit_and_a_disk():
    found = limits()
    assert found.open_files is None or found.open_files > 0
    assert found.disk_free_bytes > 0
