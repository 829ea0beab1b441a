"""Cells typed in terminal IPython, key by key, as a person types them."""

from __future__ import annotations

import os
import re
import sys

import pytest

from tests.conftest import OTHER_PYTHON
from tests.support.kernels import ROOT

pexpect = pytest.importorskip("pexpect")
pytestmark = pytest.mark.terminal

TIMEOUT = 20
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\x08|\r")


class Terminal:
    """IPython in a terminal, without colours."""

    def __init__(self, python, tmp_path):
        self.child = pexpect.spawn(
            python,
            ["-m", "IPython", "--no-banner", "--colors=NoColor", "--no-confirm-exit",
             "--TerminalInteractiveShell.term_title=False",
             "--TerminalInteractiveShell.autoindent=False",
             "--HistoryManager.enabled=False"],
            env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm",
                 "IPYTHONDIR": str(tmp_path)},
            encoding="utf-8", timeout=TIMEOUT, dimensions=(60, 200),
        )  # fmt: skip
        self.number = 0
        self.prompted()

    def prompted(self):
        """Wait for the next prompt; return what was shown before it."""
        self.number += 1
        self.child.expect_exact(f"In [{self.number}]:")
        return ANSI.sub("", self.child.before)

    def enter(self, *lines):
        """Type a line, or the lines of a cell, which ends with two empty ones."""
        *before, last = [*lines, "", ""] if len(lines) > 1 else lines
        for line in before:
            self.child.send(line + "\r")
            self.child.expect_exact("...:")
        self.child.send(last + "\r")

    def type(self, *lines):
        """Type a cell and return what it shows."""
        self.enter(*lines)
        return self.prompted()


def _pythons():
    yield pytest.param(sys.executable, id="this-python")
    if OTHER_PYTHON:
        yield pytest.param(OTHER_PYTHON, id="colab-python")


@pytest.fixture(params=_pythons())
def terminal(request, tmp_path):
    terminal = Terminal(request.param, tmp_path)
    terminal.type("%load_ext tpu_magic")
    terminal.type("from tests.support import fake_framework; fake = fake_framework.install()")
    yield terminal
    terminal.child.close(force=True)


def test_a_cell_is_typed_run_and_stopped_like_any_other(terminal):
    shown = terminal.type("%%tpu_run", "x = 41", "x + 1")
    assert re.search(r"Out\[3\]: 42", shown)
    assert "XLA CPU × 2 · not a TPU" in shown

    # A block inside the cell is typed to its end too.
    shown = terminal.type("%%tpu_run -q", "for i in (5, 6):", "    print('i', i)")
    assert "i 5" in shown
    assert "i 6" in shown

    shown = terminal.type("%%tpu_run -q", "y = 1", "y/0")
    assert "ZeroDivisionError" in shown
    assert re.search(r"-+> 3 y/0", shown)
    assert "tpu_magic/" not in shown

    shown = terminal.type("print(fake.events.count('enter'), fake.events.count('leave'))")
    assert "3 3" in shown

    # Stopped while it runs, and the next one works.
    terminal.enter("%%tpu_run -q", "import time", "print('run' + 'ning'); time.sleep(100)")
    terminal.child.expect_exact("running")
    terminal.child.sendintr()
    assert "KeyboardInterrupt" in terminal.prompted()
    assert "Out[8]: 7" in terminal.type("%%tpu_run -q", "7")


def test_a_long_cell_tells_how_it_is_going_and_erases_it(terminal):
    terminal.type("from tpu_magic.cell import live; live.FIRST_S = 0.0; live.EVERY_S = 0.01")
    terminal.type("fake.at_finish = lambda: fake_framework.wait_for_snapshots(fake, 3)")
    terminal.enter("%%tpu_run -q", "fake.session.facts.steps = 12")
    terminal.child.expect(r"\r\x1b\[2K[\d.]+ [^\r]*s · step 12\r")
    terminal.child.expect(r"\r\x1b\[2K(?!\d)")
    terminal.prompted()
