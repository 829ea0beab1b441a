"""The options of the magics are offered, in every front end that asks IPython."""

from __future__ import annotations

import pytest
from IPython.core.completer import provisionalcompleter


def _offered(shell, line):
    with provisionalcompleter():
        return {found.text for found in shell.Completer.completions(line, len(line))}


@pytest.mark.parametrize(
    ("line", "among"),
    [
        ("%%tpu_run --se", {"--seed"}),
        ("%%tpu_run --", {"--devices", "--framework", "--require-tpu"}),
        ("%%tpu_timeit --m", {"--mode"}),
        ("%tpu_timeit --", {"--include-transfer"}),
        ("%%tpu_compare --", {"--label"}),
        ("%%tpu_check --t", {"--target"}),
        ("%tpu_run o", {"on", "off"}),
        ("%tpu_run on --se", {"--seed"}),
    ],
)
def test_options_are_offered(shell, line, among):
    assert among <= _offered(shell, line)


def test_code_on_the_line_is_left_to_other_completers(shell):
    shell.user_ns["modulo"] = 1
    line = "%tpu_timeit mod"
    assert not [each for each in _offered(shell, line) if each.startswith("-")]


def test_unloading_takes_it_back(shell):
    shell.run_line_magic("unload_ext", "tpu_magic")
    assert "--seed" not in _offered(shell, "%%tpu_run --se")
    shell.run_line_magic("load_ext", "tpu_magic")


@pytest.mark.kernel
def test_a_kernel_offers_them_in_the_first_line_of_a_cell(kernel):
    code = "%%tpu_run --se\nloss = 1"
    reply = kernel.client.complete(code, 14, reply=True, timeout=60)["content"]
    assert "--seed" in reply["matches"]
    assert (reply["cursor_start"], reply["cursor_end"]) == (10, 14)
