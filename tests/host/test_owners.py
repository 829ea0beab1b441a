from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tpu_magic.host.owners import owners

KERNEL = (
    "/usr/bin/python3 -m ipykernel_launcher -f /root/.local/share/jupyter/runtime/kernel-1a.json"
)
KNOWN = {
    41: (KERNEL, "ann", 1000.0),
    42: ("python train.py", "bob", 2000.0),
    43: ("x" * 500, "", None),
}


def process(root: Path, pid: int, *targets: str) -> None:
    folder = root / f"proc/{pid}/fd"
    folder.mkdir(parents=True)
    for number, target in enumerate(targets):
        (folder / str(number)).symlink_to(target)


def look(root: Path, **more):
    return owners(root, root / "tmp", KNOWN.__getitem__, **more)


def test_a_kernel_and_a_program_are_named_with_what_frees_the_chip(tmp_path):
    process(tmp_path, 41, "/dev/null", "/dev/accel0", "/dev/accel1")
    process(tmp_path, 42, "/dev/vfio/3")
    process(tmp_path, 44, "/dev/vfio/vfio", "/home/ann/accel0", "socket:[1]")
    (tmp_path / "proc/self").mkdir()
    held = look(tmp_path)
    kernel, program = sorted(held.owners, key=lambda owner: owner.pid)
    assert (kernel.user, kernel.kernel, kernel.nodes) == (
        "ann",
        True,
        ("/dev/accel0", "/dev/accel1"),
    )
    assert "notebook kernel" in kernel.sentence()
    assert "shut that kernel down" in kernel.sentence()
    assert "kill" not in kernel.sentence()
    assert (program.kernel, program.started, program.this_process) == (False, 2000.0, False)
    assert "pid 42" in program.sentence()
    assert held.others == held.owners


def test_this_process_is_told_that_a_restart_frees_the_chip(tmp_path):
    process(tmp_path, os.getpid(), "/dev/accel0")
    held = owners(tmp_path, tmp_path)
    (me,) = held.owners
    assert me.this_process
    assert me.started is not None
    assert held.others == ()
    assert "restarting" in me.sentence()


def test_a_long_command_is_cut(tmp_path):
    process(tmp_path, 43, "/dev/accel0")
    (owner,) = look(tmp_path).owners
    assert len(owner.command) <= 120


def test_a_process_that_ended_meanwhile_has_no_description(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    process(tmp_path, child.pid, "/dev/accel0")
    (owner,) = owners(tmp_path, tmp_path).owners
    assert (owner.command, owner.user, owner.started) == ("", "", None)


def lock(root: Path) -> Path:
    folder = root / "tmp"
    folder.mkdir()
    (folder / "libtpu_lockfile").touch()
    return folder / "libtpu_lockfile"


def test_a_lock_file_that_nobody_holds_is_stale(tmp_path):
    path = lock(tmp_path)
    process(tmp_path, 42, "/dev/null")
    held = look(tmp_path)
    assert held.lock_stale is True
    assert f"rm {path}" in held.lock_sentence()
    assert path.exists()


def test_a_lock_file_that_is_open_is_not_stale(tmp_path):
    path = lock(tmp_path)
    process(tmp_path, 42, str(path))
    held = look(tmp_path)
    assert (held.owners, held.lock_stale, held.lock_sentence()) == ((), False, None)


def test_a_lock_beside_a_holder_of_the_chip_is_not_stale(tmp_path):
    lock(tmp_path)
    process(tmp_path, 42, "/dev/accel0")
    assert look(tmp_path).lock_stale is False


def test_with_unreadable_processes_nobody_is_not_known(tmp_path, monkeypatch):
    lock(tmp_path)
    process(tmp_path, 41, "/dev/null")
    process(tmp_path, 42, "/dev/null")
    real = Path.iterdir

    def guarded(self):
        if self.parent.name == "41":
            raise PermissionError(13, "Permission denied", str(self))
        return real(self)

    monkeypatch.setattr(Path, "iterdir", guarded)
    held = look(tmp_path)
    assert (held.unreadable, held.lock_stale) == (1, None)
    assert "cannot be seen" in held.lock_sentence()


def test_no_lock_and_no_proc_is_no_error(tmp_path):
    held = look(tmp_path)
    assert (held.owners, held.unreadable, held.lock_file, held.sentences()) == ((), 0, None, [])
    assert held.lock_sentence() is None


def test_a_link_that_was_closed_meanwhile_is_skipped(tmp_path, monkeypatch):
    process(tmp_path, 42, "/dev/accel0", "/dev/accel1")
    real = Path.readlink

    def closing(self):
        if self.name == "0":
            raise FileNotFoundError(2, "gone", str(self))
        return real(self)

    monkeypatch.setattr(Path, "readlink", closing)
    assert look(tmp_path).owners[0].nodes == ("/dev/accel1",)


def test_a_process_that_vanishes_while_looked_at_is_skipped(tmp_path):
    (tmp_path / "proc/42").mkdir(parents=True)  # without fd
    assert look(tmp_path).owners == ()


def test_the_real_machine_is_looked_at_without_error():
    held = owners()
    assert held.unreadable >= 0
    assert all(owner.nodes for owner in held.owners)
