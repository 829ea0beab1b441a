"""P28: the value of the last expression was not shown, or a semicolon was ignored."""

from __future__ import annotations

import pytest

SHOWN = ["x + 1", "x + 1  # a comment; with a semicolon", "x + 1\n# a comment;"]
QUIET = ["x + 1;", "x + 1;  # a comment", "x + 1 ;", "x + 1;\n# a comment", "y = x + 1"]


@pytest.mark.parametrize("last", SHOWN)
def test_the_value_is_shown(fake_shell, capsys, last):
    fake_shell.run(f"%%tpu_run -q\nx = 41\n{last}")
    assert capsys.readouterr().out.strip().endswith(": 42")


@pytest.mark.parametrize("last", QUIET)
def test_a_semicolon_silences_it(fake_shell, capsys, last):
    fake_shell.run(f"%%tpu_run -q\nx = 41\n{last}")
    assert capsys.readouterr().out == ""


def test_rich_values_are_displayed_by_their_own_formatter(fake_shell):
    class Frame:
        def _repr_html_(self):
            return "<b>frame</b>"

    seen = []
    fake_shell.user_ns["frame"] = Frame()
    fake_shell.displayhook.write_format_data = lambda data, md=None: seen.append(data)
    try:
        fake_shell.run("%%tpu_run -q\nframe")
    finally:
        del fake_shell.displayhook.write_format_data
    assert seen[0]["text/html"] == "<b>frame</b>"
