"""P27: names assigned under a magic were lost, or went to a scope of their own."""

from __future__ import annotations

import pytest


def test_functions_and_comprehensions_see_new_names(fake_shell):
    fake_shell.run("%%tpu_run --framework torch\na = 1\nb = a + 1\ndef f(): return b")
    assert fake_shell.run("a, b, f()") == (1, 2, 2)
    assert fake_shell.user_ns["f"].__globals__ is fake_shell.user_ns
    assert fake_shell.run("%%tpu_run\n[a * k for k in (1, 2) if f()]") == [1, 2]


def test_global_del_star_imports_and_the_last_statement_work(fake_shell):
    fake_shell.run("%%tpu_run\nx = 1\ndef f():\n    global made\n    made = 5\nf()\ndel x")
    assert fake_shell.user_ns["made"] == 5
    assert "x" not in fake_shell.user_ns
    fake_shell.run("%%tpu_run\nfrom string import *\nlast = digits")
    assert fake_shell.user_ns["last"] == "0123456789"


@pytest.mark.parametrize("line", ["", "--repeat 2"])
def test_nothing_of_ours_stays_among_the_names(fake_shell, line):
    before = set(fake_shell.user_ns)
    fake_shell.run(f"%%tpu_run {line}\nnew = 1")
    added = {name for name in set(fake_shell.user_ns) - before if not name.startswith("_")}
    assert added == {"new"}
