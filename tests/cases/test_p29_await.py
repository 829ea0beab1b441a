"""P29: `await` under a magic was a syntax error, or failed in a cell that answered ok."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize("on", [False, True])
def test_await_works_and_its_names_are_there_in_the_next_cell(fake_kernel, on):
    if on:
        fake_kernel.run("%tpu_run on").check()
    line = "" if on else "%%tpu_run --framework torch\n"
    fake_kernel.run(f"{line}import asyncio\ntorch\nawait asyncio.sleep(0)\nz = 1").check()
    fake_kernel.run("%tpu_run off").check()
    assert fake_kernel.run("z").value == "1"
    assert fake_kernel.run("fake.events").value == "['connect', 'enter', 'finish', 'leave']"


def test_a_late_error_of_an_awaiting_cell_is_its_own(fake_kernel):
    fake_kernel.run("def late(): raise RuntimeError('late')\nfake.at_finish = late").check()
    reply = fake_kernel.run("%%tpu_run\nimport asyncio\nawait asyncio.sleep(0)")
    assert (reply.status, reply.ename) == ("error", "RuntimeError")
    assert "tpu_magic/" not in reply.traceback
