"""P08: an error inside a cell magic did not stop the next queued cells."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.kernel


def test_time_below_and_above_answers_as_it_does_over_a_plain_cell(fake_kernel):
    # IPython 7.34's %%time shows the error of its body and answers ok, later ones pass it on.
    plain = fake_kernel.run("%%time\n1/0")
    for cell in ("%%time\n%%tpu_run\n1/0", "%%tpu_run\n%%time\n1/0"):
        reply = fake_kernel.run(cell)
        assert (reply.status, reply.ename) == (plain.status, plain.ename)
        assert reply.errors_shown == 1
    assert fake_kernel.run("fake.events.count('leave')").value == "2"


@pytest.mark.parametrize(
    "cell",
    [
        "%%tpu_run --framework torch\n1/0",
        "%%tpu_run --framework torch\nimport asyncio\nawait asyncio.sleep(0)\n1/0",
        "%%tpu_run\ndef deep(n): return deep(n - 1) if n else 1/0\ndeep(20)",
        "get_ipython().run_cell_magic('tpu_run', '', '1/0')",
    ],
)
def test_the_reply_is_the_error_and_what_is_queued_does_not_run(fake_kernel, cell):
    first, second = fake_kernel.send(cell), fake_kernel.send("ran = True")
    reply = fake_kernel.receive(first)
    assert (reply.status, reply.ename) == ("error", "ZeroDivisionError")
    assert reply.errors_shown == 1
    assert fake_kernel.receive(second).status == "aborted"
    assert fake_kernel.run("fake.events.count('leave')").value == "1"
