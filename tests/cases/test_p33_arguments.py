"""P33: quotes were kept, comments refused, braces expanded in the body."""

from __future__ import annotations

import pytest
from IPython.core.error import UsageError


@pytest.mark.parametrize(
    "line",
    [
        '--framework "torch"   # a comment here',
        "--framework='torch'",
        "--framework=torch",
        "--framework {fw}",
        "--framework $fw",
        "--framework {fw.lower()}",
    ],
)
def test_every_way_to_write_it_is_understood(fake_shell, line):
    fake_shell.user_ns["fw"] = "torch"
    assert fake_shell.run(f"%%tpu_run {line}\n3") == 3
    assert fake_shell.fake.options.framework == "torch"


def test_an_undefined_name_stays_literal(fake_shell):
    with pytest.raises(UsageError, match=r"'\{nowhere\}' is not one of auto, torch"):
        fake_shell.run("%%tpu_run --framework {nowhere}\n1")


def test_the_body_is_never_expanded(fake_shell):
    fake_shell.user_ns["fw"] = "torch"
    assert fake_shell.run("%%tpu_run\n'{fw} $fw'") == "{fw} $fw"


def test_names_of_the_tool_itself_are_not_the_persons(fake_shell):
    for name in ("self", "line", "problem"):
        with pytest.raises(UsageError, match="is not one of"):
            fake_shell.run(f"%%tpu_run --framework {{{name}}}\n1")
