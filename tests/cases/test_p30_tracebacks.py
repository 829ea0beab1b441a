"""P30: tracebacks inside magics had noise, made-up file names and no source line."""

from __future__ import annotations

import re
import traceback

import pytest

from tests.support.kernels import ANSI


def test_the_line_counts_with_the_magic_line_and_shows_its_source(fake_shell):
    with pytest.raises(ZeroDivisionError) as caught:
        fake_shell.run("%%tpu_run --framework torch\na = 1\n\n1/0            # line 4")
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.lineno, last.line) == (4, "1/0            # line 4")


def test_cause_context_and_notes_are_kept(fake_shell):
    with pytest.raises(KeyError) as caught:
        fake_shell.run(
            "%%tpu_run\ntry:\n    1/0\nexcept ZeroDivisionError as e:\n"
            "    new = KeyError('k')\n    new.__notes__ = ['a note']\n    raise new from e"
        )
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.__notes__ == ["a note"]


@pytest.mark.kernel
@pytest.mark.parametrize("on", [False, True])
def test_what_a_person_sees_is_their_own_frames(fake_kernel, on):
    if on:
        fake_kernel.run("%tpu_run on").check()
    first = "torch" if on else "%%tpu_run --framework torch"
    reply = fake_kernel.run(f"{first}\ndef f(x):\n    return 1 / x\n\nf(0)")
    fake_kernel.run("%tpu_run off").check()
    shown = ANSI.sub("", reply.traceback)
    assert re.search(r"-+> 5 f\(0\)", shown)
    assert re.search(r"-+> 3 +return 1 / x", shown)
    for noise in ("tpu_magic/", "skipping hidden", "<string>", "timed exec"):
        assert noise not in shown
