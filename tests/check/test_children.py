"""Children that end well, hang, crash, are interrupted: nothing is left, and a sentence says it."""

import os
import signal
import sys
import threading

import psutil
import pytest

from tests.check.conftest import say
from tpu_magic.check import children


def run(program, limit_s=30.0, messages=None):
    kept = [] if messages is None else messages
    return children.run([sys.executable, "-c", program], os.environ, limit_s, kept.append)


def test_messages_arrive_and_other_output_is_kept_apart():
    messages = []
    ended = run(
        f"print('noise', flush=True)\n{say(event='a', n=1)}\n{say(event='b')}", 30, messages
    )
    assert messages == [{"event": "a", "n": 1}, {"event": "b"}]
    assert ended.ok
    assert ended.said == ("noise",)


def test_a_message_after_unfinished_native_output_is_read():
    messages = []
    run(
        f"import sys; sys.stderr.write('I0000 native'); sys.stderr.flush()\n{say(event='a')}",
        30,
        messages,
    )
    assert messages == [{"event": "a"}]


def test_a_hang_is_ended_with_what_it_started():
    program = (
        "import subprocess, sys, time\n"
        "grandchild = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(grandchild.pid, flush=True)\ntime.sleep(600)"
    )
    ended = run(program, 3.0)
    assert not ended.in_time
    assert "did not finish in 3 s" in ended.sentence("the compiler", 3.0)
    assert "--time-limit" in ended.sentence("the compiler", 3.0)
    gone, alive = psutil.wait_procs(_processes([int(ended.said[0])]), timeout=10)
    assert not alive, gone


def _processes(numbers):
    return [psutil.Process(number) for number in numbers if psutil.pid_exists(number)]


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import os, signal; print('last words', flush=True); os.kill(os.getpid(), signal.SIGABRT)",
         "the compiler crashed with SIGABRT: last words"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "ran out of memory"),
        ("raise SystemExit(3)", "the compiler ended with status 3"),
    ],
)  # fmt: skip
def test_an_end_is_a_sentence(program, words):
    ended = run(program)
    assert not ended.ok
    assert words in ended.sentence("the compiler", 30)


def test_an_interrupt_leaves_no_process():
    started = []
    program = (
        "import json, os, time\n"
        f"print({children.MARK!r} + json.dumps({{'pid': os.getpid()}}), flush=True)\n"
        "time.sleep(600)"
    )

    def message(said):
        started.append(said["pid"])
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        children.run([sys.executable, "-c", program], os.environ, 60, message)
    assert not psutil.pid_exists(started[0])


def test_the_child_is_told_when_its_parent_is_gone():
    # Its standard input is open as long as the parent lives, and then closed.
    messages = []
    program = f"import sys\n{say(event='up')}\nsys.stdin.read()\n{say(event='closed')}"
    done = threading.Event()
    threading.Thread(target=lambda: (run(program, 2.0, messages), done.set())).start()
    assert done.wait(30)
    assert messages == [{"event": "up"}]


def test_a_childs_peak_is_its_own_and_not_that_of_a_large_notebook():
    notebook = (
        "import subprocess, sys\nheld = bytearray(400 << 20)\n"
        "peak = 'from tpu_magic.check.child_compiler import peak_bytes; print(peak_bytes())'\n"
        "print(subprocess.check_output([sys.executable, '-c', peak], text=True), flush=True)"
    )
    ended = run(notebook)
    assert 1 << 20 < int(ended.said[0]) < 200 << 20
