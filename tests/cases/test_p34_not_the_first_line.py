"""P34: a cell magic below a comment gave a message that misled."""

from __future__ import annotations

import pytest
from IPython.core.error import UsageError


@pytest.mark.parametrize("above", ["# my comment\n", "import os\n", "%time 1\n"])
def test_the_message_says_where_the_magic_must_stand(fake_shell, above):
    with pytest.raises(UsageError, match="%%tpu_run must be the first line of the cell"):
        fake_shell.run(f"{above}%%tpu_run --framework torch\n1")


def test_blank_lines_above_do_no_harm(fake_shell):
    assert fake_shell.run("\n\n%%tpu_run -q\n5") == 5


@pytest.mark.parametrize("body", ["", "\n", "\n   \n\n"])
def test_an_empty_body_names_the_magic(fake_shell, body):
    with pytest.raises(UsageError, match="%%tpu_run has no code below it"):
        fake_shell.run(f"%%tpu_run --framework torch{body}")


def test_the_line_magic_with_code_on_it_explains(fake_shell):
    with pytest.raises(UsageError, match="make %%tpu_run its first line"):
        fake_shell.run("%tpu_run --framework torch")
