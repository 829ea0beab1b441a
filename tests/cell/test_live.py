"""The line that tells how a long cell is going, and leaves nothing behind."""

from __future__ import annotations

import io
import threading

import pytest

from tests.support.fake_framework import Fake, wait_for
from tpu_magic.cell import live
from tpu_magic.cell.meter import Meter
from tpu_magic.frameworks.base import CellFacts


class Screen:
    """A screen that remembers what was on it."""

    def __init__(self):
        self.lines = []
        self.cleared = threading.Event()

    def show(self, line):
        self.lines.append(line)

    def clear(self):
        self.cleared.set()


def meter(fake, facts, now):
    return Meter(fake, facts, lambda: now[0], started=0.0, connected=1.0)


def test_the_line_tells_time_steps_rate_and_compiles():
    fake, facts, now = Fake(), CellFacts(), [1.0]
    measured = meter(fake, facts, now)
    now[0] = 3.0
    assert live.describe(measured) == "2.00 s"
    facts.steps, facts.examples, fake.compiles = 12, 600, 1
    assert live.describe(measured) == "2.00 s · step 12 · 300 examples/s · 1 compile"
    fake.compiles = 2
    assert live.describe(measured).endswith("2 compiles")


def test_a_line_is_shown_again_and_again_and_taken_away():
    numbers, screen = iter(range(1000)), Screen()
    line = live.LiveLine(lambda: str(next(numbers)), screen, first_s=0.0, every_s=0.001)
    wait_for(lambda: len(screen.lines) >= 3)
    assert not screen.cleared.is_set()
    line.stop()
    assert screen.lines[:3] == ["0", "1", "2"]
    assert screen.cleared.is_set()
    assert line._thread not in threading.enumerate()


def test_a_short_cell_shows_and_clears_nothing():
    screen = Screen()
    live.LiveLine(lambda: "never", screen, first_s=1000.0, every_s=1.0).stop()
    assert screen.lines == []
    assert not screen.cleared.is_set()


def test_a_line_that_cannot_be_read_does_not_hold_up_the_end():
    def broken():
        raise RuntimeError("no counters")

    screen = Screen()
    line = live.LiveLine(broken, screen, first_s=0.0, every_s=0.0)
    wait_for(lambda: not line._thread.is_alive())
    line.stop()
    assert screen.lines == []


def test_at_most_two_lines_a_second():
    assert live.EVERY_S >= 0.5


def test_a_notebook_display_is_updated_in_place_and_emptied(monkeypatch):
    published = []
    monkeypatch.setattr(live, "display", lambda data, **how: published.append((data, how)))
    screen = live.NotebookScreen()
    screen.clear()
    assert published == []
    for line in ("one", "two"):
        screen.show(line)
    screen.clear()
    assert [data for data, _ in published] == [{"text/plain": "one"}, {"text/plain": "two"}, {}]
    assert [how["update"] for _, how in published] == [False, True, True]
    assert len({how["display_id"] for _, how in published}) == 1


def test_a_terminal_line_is_written_over_and_erased():
    stream = io.StringIO()
    screen = live.TerminalScreen(stream)
    screen.show("one")
    screen.show("two")
    screen.clear()
    assert stream.getvalue() == "\r\x1b[2Kone\r\x1b[2Ktwo\r\x1b[2K"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "shell", "kind"),
    [
        (io.StringIO(), object(), type(None)),
        (Terminal(), object(), live.TerminalScreen),
        (io.StringIO(), type("Kernel", (), {"kernel": 1})(), live.NotebookScreen),
    ],
)
def test_the_screen_is_where_somebody_looks(monkeypatch, stream, shell, kind):
    monkeypatch.setattr("sys.stderr", stream)
    assert type(live.screen_for(shell)) is kind


def test_a_long_cell_is_told_and_a_setting_turns_it_off(fake_shell, monkeypatch):
    screen = Screen()
    monkeypatch.setattr(live, "screen_for", lambda shell: screen)
    monkeypatch.setattr(live, "FIRST_S", 0.0)
    fake_shell.user_ns.update(wait_for=wait_for, screen=screen)
    fake_shell.run("%%tpu_run -q\nwait_for(lambda: screen.lines)")
    assert screen.cleared.is_set()
    screen.lines.clear()
    fake_shell.run("%config TpuMagics.live = False")
    fake_shell.run(
        "%%tpu_run -q\nimport threading\nnames = [t.name for t in threading.enumerate()]"
    )
    fake_shell.run("%config TpuMagics.live = True")
    assert screen.lines == []
    assert not [name for name in fake_shell.user_ns["names"] if "tpu_magic" in name]
