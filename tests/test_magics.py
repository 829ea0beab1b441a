"""The magics as a person meets them: listed, helped, refused in words, loaded and unloaded."""

from __future__ import annotations

import subprocess
import sys

import pytest
from IPython.core.error import UsageError

from tests.support.untouched import untouched


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_the_magics_are_listed_and_complete(shell, capsys):
    shell.run("%lsmagic")
    shown = capsys.readouterr().out
    assert "%%tpu_run" in shown
    assert "%tpu_run" in shown
    _, found = shell.complete("%%tpu_r")
    assert "%%tpu_run" in found
    _, found = shell.complete("%tpu_")
    assert {"%tpu_run", "%tpu_setup", "%tpu_timeit", "%tpu_info"} <= set(found)


def test_settings_are_shown_by_config(shell, capsys):
    shell.run("%config TpuMagics")
    shown = capsys.readouterr().out
    for name in ("show_reports", "live", "install_without_asking"):
        assert f"TpuMagics.{name}" in shown


def test_reports_can_be_turned_off_for_good(fake_shell, capsys):
    fake_shell.run("%config TpuMagics.show_reports = False")
    fake_shell.run("%%tpu_run\n1;")
    assert "XLA CPU" not in capsys.readouterr().out
    fake_shell.run("%config TpuMagics.show_reports = True")
    fake_shell.run("%%tpu_run\n1;")
    assert "XLA CPU" in capsys.readouterr().out


@pytest.mark.parametrize("above", ["# my comment\n", "x = 1\n", "if True:\n    "])
def test_a_magic_that_is_not_the_first_line_says_so(shell, above):
    with pytest.raises(UsageError, match="%%tpu_run must be the first line of the cell"):
        shell.run(f"{above}%%tpu_run --framework torch\n1")


@pytest.mark.parametrize("line", ["", "of", "--framework torch", "off now"])
def test_the_switch_says_what_it_takes(shell, line):
    with pytest.raises(UsageError, match="takes `on"):
        shell.run(f"%tpu_run {line}")


def test_the_switch_refuses_bad_options_at_once(shell):
    with pytest.raises(UsageError, match="did you mean 'torch'"):
        shell.run("%tpu_run on --framework trch")
    assert shell.tpu_cell.automatic is None


@pytest.mark.parametrize("line", ["%tpu_run --help", "%tpu_run on --help", "%%tpu_run --help\n1"])
def test_help_is_printed_and_nothing_else_happens(fake_shell, capsys, line):
    fake_shell.run(line)
    assert "--precision" in capsys.readouterr().out
    assert fake_shell.fake.events == []
    assert fake_shell.tpu_cell.automatic is None


def test_loading_twice_is_loading_once(fake_shell):
    with untouched(fake_shell):
        fake_shell.extension_manager.loaded.discard("tpu_magic")
        fake_shell.run("%load_ext tpu_magic")


def test_loading_imports_no_framework_and_none_of_the_heavy():
    code = (
        "import sys\nfrom IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell()\nbefore = set(sys.modules)\n"
        "shell.run_line_magic('load_ext', 'tpu_magic')\n"
        "print(sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    loaded = done.stdout
    for package in ("torch", "numpy", "jax", "tensorflow", "keras", "packaging", "psutil"):
        assert f"'{package}'" not in loaded
