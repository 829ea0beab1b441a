"""P30: tracebacks inside magics had noise, made-up file names and no source line."""

from __future__ import annotations

import re
import traceback

import pytest

from tests.support.kernels import ANSI
from tpu_magic import tracebacks


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


# What people most often get wrong, where it is torch's own C code that raises.
MISTAKES = {
    "shapes in a module": "net(x[:, :3])",
    "shapes in plain math": "x @ x",
    "a view of another size": "net(x).view(3, 3, 3)",
    "the gradient of many values": "net(x).backward()",
    "a dataset's own error": "for _ in torch.utils.data.DataLoader([1, 2, 'a'], batch_size=3): 0",
}


@pytest.mark.kernel
@pytest.mark.torch
def test_our_frames_are_not_even_the_last_ones(kernel):
    kernel.run("import torch\nnet, x = torch.nn.Linear(20, 64), torch.randn(100, 20)").check()
    kernel.run("show = get_ipython().showtraceback").check()
    for name, code in MISTAKES.items():
        reply = kernel.run(f"%%tpu_run -q\n{code}")
        shown = ANSI.sub("", reply.traceback)
        assert reply.status == "error", name
        assert re.search(rf"-+> 2 {re.escape(code)}", shown), name
        for noise in ("tpu_magic/frameworks", "tpu_magic/cell", "skipping hidden"):
            assert noise not in shown, name
    assert kernel.run("get_ipython().showtraceback == show").check().value == "True"


def test_frames_of_ours_go_and_all_others_stay():
    def theirs(depth):
        scope["ours"](depth)

    # As if it stood in a file of ours, whose frames ask to be hidden.
    code = "def ours(n):\n    __tracebackhide__ = True\n    theirs(n - 1) if n else 1 / 0"
    scope = {"theirs": theirs}
    exec(compile(code, tracebacks.__file__, "exec"), scope)

    def names(error):
        return [frame.name for frame in traceback.extract_tb(error.__traceback__)][1:]

    with pytest.raises(ZeroDivisionError) as caught:
        theirs(1)
    assert names(caught.value) == ["theirs", "ours", "theirs", "ours"]
    tracebacks.drop_ours(caught.value)
    assert names(caught.value) == ["theirs", "theirs"]
