"""P35: editors skip cells under unknown magics; `%tpu_run on` keeps code free of them."""

from __future__ import annotations

import ast

NOTEBOOK = [
    "import torch",
    "size = 4",
    "def make():\n    return torch.Thing()",
    "made = make()",
    "made",
]


def test_a_notebook_is_converted_by_one_line_and_stays_plain_python(fake_shell):
    fake_shell.run("%tpu_run on")
    for cell in NOTEBOOK:
        ast.parse(cell)
        fake_shell.run(cell)
    assert fake_shell.fake.events.count("enter") == 2
    fake_shell.run("%tpu_run off")
    fake_shell.run(NOTEBOOK[-1])
    assert fake_shell.fake.events.count("enter") == 2


def test_help_and_completion_work_inside_a_cell(fake_shell, capsys):
    fake_shell.run("%%tpu_run -q\nlen?")
    assert "number of items" in capsys.readouterr().out
