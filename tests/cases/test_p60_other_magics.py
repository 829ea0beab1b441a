"""P60: other magics in or around the cell."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("order", ["%%time\n%%tpu_run -q", "%%tpu_run -q\n%%time"])
def test_both_stacking_orders_and_lines_inside_work(fake_shell, order, capfd):
    fake_shell.run(f"{order}\n%time y = 1\n!echo hi")
    shown = capfd.readouterr().out
    assert shown.count("Wall time") == 2
    assert "hi" in shown
    assert fake_shell.user_ns["y"] == 1
    assert fake_shell.fake.events[-1] == "leave"


def test_capture_keeps_what_the_cell_printed_and_its_report(fake_shell):
    fake_shell.run("%%capture seen\n%%tpu_run\nprint('out')")
    seen = fake_shell.user_ns["seen"]
    assert seen.stdout.startswith("out")
    assert fake_shell.fake.events[-1] == "leave"


def test_a_profile_shows_the_persons_functions(fake_shell, capsys):
    fake_shell.run("%%prun -q -T /dev/null\n%%tpu_run -q\ndef mine(): return 1\nmine()")
    fake_shell.run("%%tpu_run -q\n%prun mine()")
    assert "(mine)" in capsys.readouterr().out


def test_other_languages_inside_are_refused_by_nobody(fake_shell, capfd):
    fake_shell.run("%%tpu_run -q\n%%bash\necho from bash")
    assert "from bash" in capfd.readouterr().out
