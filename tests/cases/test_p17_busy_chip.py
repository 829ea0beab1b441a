"""P17: the chip is held by another kernel, or a lock file is left over."""

from __future__ import annotations

import subprocess
import sys
import tempfile

import psutil
import pytest
from IPython.core.error import UsageError

from tests.support.setups import V5E, make_world
from tpu_magic.host.owners import owners


@pytest.fixture
def world(monkeypatch, tmp_path):
    made = make_world(monkeypatch, tmp_path / "cache")
    made.install(torch="2.9.0", torch_xla="2.9.0", libtpu="0.0.21")
    made.facts = V5E
    return made


def test_a_stale_lock_is_named_and_left_where_it_is(world, shell, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    lock = tmp_path / "libtpu_lockfile"
    lock.touch()
    world.holding = owners(tmp_path)  # a machine without processes: nobody holds it
    report = world.magic(shell, "--check")
    assert any("left over" in warning and f"rm {lock}" in warning for warning in report.warnings)
    assert lock.exists()


def test_the_holder_is_named_by_pid_and_command_and_lives_on(world, shell, tmp_path):
    command = [sys.executable, "-c", "import sys; sys.stdin.read()", "ipykernel_launcher"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as holder:
        folder = tmp_path / f"proc/{holder.pid}/fd"
        folder.mkdir(parents=True)
        (folder / "5").symlink_to("/dev/accel0")
        world.holding = owners(tmp_path, tmp_path)
        with pytest.raises(UsageError, match=f"a notebook kernel of .*pid {holder.pid}"):
            world.magic(shell, "--framework torch")
        assert psutil.Process(holder.pid).is_running()
        assert world.adapter.calls == []
        holder.communicate()
