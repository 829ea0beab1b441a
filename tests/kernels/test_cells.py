"""A cell stays a cell, in real kernels: every frontend sees what a plain cell gives."""

from __future__ import annotations

import re

import pytest

from tests.support.kernels import ANSI

pytestmark = pytest.mark.kernel


def _lines(reply):
    return ANSI.sub("", reply.traceback).splitlines()


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("x = 41\nx + 1", "42"),
        ("x = 41\nx + 1;", ""),
        ("x = 41\nx + 1;  # a comment", ""),
        ("x = 41", ""),
        ("import asyncio\nawait asyncio.sleep(0)\nz = 1\nz", "1"),
        ("async def g():\n    yield 3\n[i async for i in g()]", "[3]"),
        ("async def g():\n    yield 4\nasync for i in g():\n    pass\ni", "4"),
        ("class C:\n    async def __aenter__(self): return 5\n"
         "    async def __aexit__(self, *_): pass\nasync with C() as c:\n    pass\nc", "5"),
        ("words = %sx echo one two\nwords.n", "'one two'"),
        ("%timeit -n1 -r1 -q pass\n6", "6"),
        ("    a = 7\n    a", "7"),
        ("from __future__ import annotations  # first\ndef f(x: nowhere): pass\n"
         "f.__annotations__['x']", "'nowhere'"),
        ("'''doc'''\nfrom __future__ import (\n    annotations,\n); import asyncio\n"
         "def f(x: no): pass\nawait asyncio.sleep(0)\nf.__annotations__", "{'x': 'no'}"),
        ("import inspect\ndef f(x):\n    return x + 1\ninspect.getsource(f)",
         "'def f(x):\\n    return x + 1\\n'"),
        ("import functools, inspect\n@functools.lru_cache\ndef f(x):\n    return x\n"
         "inspect.getsource(f).splitlines()[0]", "'@functools.lru_cache'"),
        ("import inspect\nclass K:\n    def m(self):\n        return 1\ninspect.getsource(K.m)",
         "'    def m(self):\\n        return 1\\n'"),
        ("import pickle\nclass P:\n    pass\npickle.loads(pickle.dumps(P())).__class__.__module__",
         "'__main__'"),
        ("def f():\n    global made\n    made = [i * k for i in (1, 2)]\nk = 3\nf()\ndel f\nmade",
         "[3, 6]"),
        ("%%time\n8", "8"),
        ("\n%%time\n9", "9"),
    ],
)  # fmt: skip
def test_the_value_is_that_of_a_plain_cell(fake_kernel, body, value):
    reply = fake_kernel.run(f"%%tpu_run -q\n{body}").check()
    assert reply.value == value
    events = fake_kernel.run("fake.events").value
    assert (
        events == "['connect', 'enter', 'finish', 'leave']" or "%%time" in body or "%timeit" in body
    )


def test_help_in_the_body_and_of_the_magic(fake_kernel):
    inner = fake_kernel.run("%%tpu_run -q\nlen?")
    assert inner.status == "ok"
    own = fake_kernel.run("%%tpu_run?")
    assert own.status == "ok"
    text = fake_kernel.run("%%tpu_run --help\nraise SystemExit").check().stdout
    assert "--precision" in text
    assert "--repeat" in text


@pytest.mark.parametrize("above", ["%%time", "%%capture", "%%prun -q", "%%capture seen\n%%time"])
def test_magics_above_run_the_cell_on_the_device(fake_kernel, above):
    fake_kernel.run(f"{above}\n%%tpu_run -q\nmade = 5").check()
    reply = fake_kernel.run("made, fake.events")
    assert reply.value == "(5, ['connect', 'enter', 'finish', 'leave'])"


def test_time_above_and_below_shows_the_wait_for_the_device(fake_kernel):
    fake_kernel.run("import time\nfake.at_finish = lambda: time.sleep(0.2)").check()
    for cell in ("%%time\n%%tpu_run -q\n1", "%%tpu_run -q\n%%time\n1"):
        shown = fake_kernel.run(cell).check().stdout
        milliseconds = float(re.search(r"Wall time: ([\d.]+) ms", shown).group(1))
        assert milliseconds >= 200


def test_out_history_and_counter_advance_once(fake_kernel):
    before = fake_kernel.run("1").count
    reply = fake_kernel.run("%%tpu_run -q\nobj = [1]\nobj").check()
    assert reply.count == before + 1
    assert fake_kernel.run("_ is obj").value == "True"
    source = "get_ipython().history_manager.input_hist_raw"
    kept = fake_kernel.run(f"Out[{before + 1}] is obj, {source}[{before + 1}]").value
    assert kept == "(True, '%%tpu_run -q\\nobj = [1]\\nobj')"


def test_an_error_is_the_cells_with_its_line_and_stops_run_all(fake_kernel):
    first = fake_kernel.send("%%tpu_run -q\na = 1\n\n1/0")
    second = fake_kernel.send("ran = True")
    reply = fake_kernel.receive(first)
    assert (reply.status, reply.ename, reply.errors_shown) == ("error", "ZeroDivisionError", 1)
    assert any(re.match(r"-+> 4 1/0", line) for line in _lines(reply))
    assert "tpu_magic/" not in reply.traceback
    assert fake_kernel.receive(second).status == "aborted"
    assert fake_kernel.run("'ran' in globals()").value == "False"


def test_a_late_error_stops_run_all_at_the_last_line(fake_kernel):
    fake_kernel.run("def late(): raise RuntimeError('late')\nfake.at_finish = late").check()
    first = fake_kernel.send("%%tpu_run -q\na = 1\n\na + 1")
    second = fake_kernel.send("ran = True")
    reply = fake_kernel.receive(first)
    assert (reply.status, reply.ename, reply.errors_shown) == ("error", "RuntimeError", 1)
    shown = _lines(reply)
    assert any(re.match(r"-+> 4 a \+ 1", line) for line in shown)
    assert "skipping hidden" not in reply.traceback
    assert "tpu_magic/" not in reply.traceback
    assert fake_kernel.receive(second).status == "aborted"


def test_a_usage_error_stops_run_all_too(fake_kernel):
    first = fake_kernel.send("%%tpu_run --presicion high\nx = 1")
    second = fake_kernel.send("ran = True")
    reply = fake_kernel.receive(first)
    assert (reply.status, reply.ename) == ("error", "UsageError")
    assert fake_kernel.receive(second).status == "aborted"


def test_tb_and_debug_land_in_the_persons_frame(fake_kernel):
    fake_kernel.run("%%tpu_run -q\ndef inner(depth):\n    return 1 / depth\ninner(0)")
    shown = ANSI.sub("", fake_kernel.run("%tb").stdout + "")
    frames = fake_kernel.run(
        "import sys, traceback\n"
        "[(f.lineno, f.line) for f in traceback.extract_tb(sys.last_traceback)][-2:]"
    ).value
    assert frames == "[(4, 'inner(0)'), (3, 'return 1 / depth')]"
    assert "tpu_magic/" not in shown


def test_a_silent_cell_and_one_without_history(fake_kernel):
    fake_kernel.run("%%tpu_run\nquiet = 1", silent=True)
    reply = fake_kernel.run("%%tpu_run -q\nquiet + 1", store_history=False)
    assert reply.value == "2"
    assert (
        fake_kernel.run("fake.events.count('leave'), fake.events.count('enter')").value == "(2, 2)"
    )


def test_a_report_is_shown_after_the_cell_as_text_html_and_data(fake_kernel):
    reply = fake_kernel.run("%%tpu_run\n1").check()
    (report,) = reply.reports
    assert report["framework"] == "torch"
    shown = reply.displays[-1]
    assert "XLA CPU × 2 · not a TPU" in shown["text/plain"]
    assert "XLA CPU × 2 · not a TPU" in shown["text/html"]


def test_interactivity_last_expr_or_assign(fake_kernel):
    fake_kernel.run("%config InteractiveShell.ast_node_interactivity = 'last_expr_or_assign'")
    try:
        assert fake_kernel.run("%%tpu_run -q\ny = 5").value == "5"
    finally:
        fake_kernel.run("%config InteractiveShell.ast_node_interactivity = 'last_expr'")


# --- interrupts ---------------------------------------------------------------------------

# ipykernel 6.17 notices an interrupt of a plain `await` only when its loop wakes up.
INTERRUPTED = {
    "in the code": "%%tpu_run -q\nprint('go', flush=True)\nimport time\ntime.sleep(100)",
    "awaiting": "%%tpu_run -q\nimport asyncio\nprint('go', flush=True)\n"
    "while True:\n    await asyncio.sleep(0.01)",
    "in the final wait": "%%tpu_run -q\nfake.at_finish = hang\n1",
    "while connecting": "%%tpu_run -q\n1",
}


@pytest.mark.parametrize("moment", INTERRUPTED)
def test_an_interrupt_fails_the_cell_and_the_next_one_works(fake_kernel, moment):
    fake_kernel.run(
        "import time\ndef hang():\n    print('go', flush=True)\n    time.sleep(100)\n"
        f"{'fake.at_connect = hang' if moment == 'while connecting' else ''}"
    ).check()
    first = fake_kernel.send(INTERRUPTED[moment])
    second = fake_kernel.send("ran = True")
    fake_kernel.wait_for_output(first, "go")
    fake_kernel.interrupt()
    reply = fake_kernel.receive(first)
    assert reply.status == "error"
    assert reply.ename in ("KeyboardInterrupt", "CancelledError")
    assert fake_kernel.receive(second).status == "aborted"
    fake_kernel.run("fake.at_finish = fake.at_connect = lambda: None").check()
    assert (
        fake_kernel.run("fake.events.count('enter') == fake.events.count('leave')").value == "True"
    )
    assert fake_kernel.run("%%tpu_run -q\n6 * 7").check().value == "42"


def test_an_interrupt_while_leaving_is_an_error_reply(fake_kernel):
    fake_kernel.run(
        "import signal\nfake.at_leave = lambda: signal.raise_signal(signal.SIGINT)"
    ).check()
    first = fake_kernel.send("%%tpu_run -q\n1")
    second = fake_kernel.send("ran = True")
    reply = fake_kernel.receive(first)
    assert (reply.status, reply.ename, reply.errors_shown) == ("error", "KeyboardInterrupt", 1)
    assert fake_kernel.receive(second).status == "aborted"


# --- a subshell ---------------------------------------------------------------------------


def test_a_cell_in_a_subshell_meanwhile_is_a_plain_cell(fake_kernel):
    supported = fake_kernel.client.kernel_info(reply=True, timeout=60)["content"]
    if "kernel subshells" not in supported.get("supported_features", ()):
        pytest.skip("this ipykernel has no subshells")
    control = fake_kernel.client.control_channel
    message = fake_kernel.client.session.msg("create_subshell_request")
    control.send(message)
    subshell = fake_kernel.client.get_control_msg(timeout=60)["content"]["subshell_id"]
    first = fake_kernel.send(
        "%%tpu_run -q\nimport threading\nevent = threading.Event()\nprint('go', flush=True)\n"
        "event.wait(60)"
    )
    fake_kernel.wait_for_output(first, "go")
    request = fake_kernel.client.session.msg(
        "execute_request",
        {"code": "other = 1\nevent.set()", "silent": False, "store_history": True,
         "user_expressions": {}, "allow_stdin": False, "stop_on_error": True},
    )  # fmt: skip
    request["header"]["subshell_id"] = subshell
    fake_kernel.client.shell_channel.send(request)
    reply = fake_kernel.receive(first)
    assert (reply.status, reply.value) == ("ok", "True")
    assert fake_kernel.run("fake.events").value == "['connect', 'enter', 'finish', 'leave']"
