from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tpu_magic.frameworks import adapter
from tpu_magic.setup import child, verify
from tpu_magic.setup.verify import child_environ, exit_in_words

ANSWER = (
    "import json, sys\n"
    "print('noise'); print({mark!r} + json.dumps("
    "{{'device': 'TPU', 'count': 8, 'total': {total}, 'expected': 5}}))\n"
)


def answer(total):
    return ANSWER.format(mark=verify.MARK, total=total)


def use(places, program, adapter="torch", place="plain", **more):
    return verify.verify(adapter, places[place], program=program, **more)


def test_a_right_answer(places):
    assert use(places, answer(5)) == verify.Verdict(True, "TPU", 8, "")


def test_a_wrong_product_is_a_failure_with_both_numbers(places):
    found = use(places, answer(4))
    assert not found.ok
    assert "4 instead of 5" in found.message


def test_the_child_is_told_which_adapter(places):
    program = f"import sys; assert sys.argv[1] == 'jax'\n{answer(5)}"
    assert use(places, program, adapter="jax").ok


def test_an_abort_is_named_and_the_kernel_survives(places):
    found = use(places, "import os; print('Check failed: libtpu', flush=True); os.abort()")
    assert not found.ok
    assert "SIGABRT" in found.message
    assert "Check failed" in found.message


def test_a_known_error_is_answered_with_its_cure(places):
    found = use(places, "raise OSError('libtpu not found')")
    assert "%tpu_setup" in found.message
    assert "status 1" in found.message


def test_a_silent_end_is_said(places):
    assert use(places, "import os; os._exit(1)").message == "it ended with status 1"
    assert use(places, "").message == "it ended without an answer"


def test_an_exit_after_the_answer_still_counts_as_failure(places):
    assert not use(places, answer(5) + "sys.exit(3)").ok


def test_a_child_that_hangs_is_ended_with_its_children(places, tmp_path):
    pid_file = tmp_path / "pid"
    program = (
        "import subprocess, sys, time\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pid_file)!r}, 'w').write(str(p.pid))\n"
        "print('waiting for 10.0.0.2', flush=True); time.sleep(600)\n"
    )
    found = use(places, program, timeout_s=3)
    assert "did not finish in 3 s" in found.message
    assert "waiting for 10.0.0.2" in found.message
    pid = int(pid_file.read_text())
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            break
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_an_interrupt_ends_the_child(places, monkeypatch):
    started = []
    real = verify.subprocess.Popen.communicate

    def interrupted(self, *words, **more):
        started.append(self)
        monkeypatch.setattr(verify.subprocess.Popen, "communicate", real)
        raise KeyboardInterrupt

    monkeypatch.setattr(verify.subprocess.Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        use(places, "import time; time.sleep(600)")
    assert started[0].returncode == -9


def test_ending_a_child_that_has_ended_is_no_error():
    class Gone:
        pid = 2**22 + 1  # above the largest process number

    verify._end(Gone())


def test_the_child_asks_nobody_and_loads_nothing_by_itself(places):
    environ = child_environ(places["plain"], {})
    assert environ == {
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "TPU_SKIP_MDS_QUERY": "1",
        "PJRT_DEVICE": "CPU",
        "JAX_PLATFORMS": "cpu",
    }
    assert "PJRT_DEVICE" not in child_environ(places["v5e"], {})
    assert "JAX_PLATFORMS" not in child_environ(places["gpu"], {})


def test_on_google_hosts_the_metadata_server_is_asked(places):
    import dataclasses

    vm = dataclasses.replace(places["v5e"], environment="cloud-tpu-vm")
    assert "TPU_SKIP_MDS_QUERY" not in child_environ(vm, {})


def test_what_the_person_set_stays(places):
    assert child_environ(places["plain"], {"PJRT_DEVICE": "TPU"})["PJRT_DEVICE"] == "TPU"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (-6, "it was ended by SIGABRT"),
        (134, "it was ended by SIGABRT"),
        (-9, "it was ended by SIGKILL"),
        (139, "it was ended by SIGSEGV"),
        (1, "it ended with status 1"),
        (255, "it ended with status 255"),
        (0, "it ended without an answer"),
    ],
)
def test_exit_in_words(status, words):
    assert exit_in_words(status) == words


def test_the_expected_sum_is_that_of_the_product():
    size = child.SIZE
    a = [[(i + 2 * j) % 5 for j in range(size)] for i in range(size)]
    product = [
        sum(a[i][k] * a[k][j] for k in range(size)) for i in range(0, size, 37) for j in (0, 5)
    ]
    # Rows repeat with period 5 in both directions, so whole product from its 25 entries.
    total = sum(
        sum(a[i][k] * a[k][j] for k in range(size))
        * len(range(i, size, 5))
        * len(range(j, size, 5))
        for i in range(5)
        for j in range(5)
    )
    assert child.expected() == total
    assert max(product) < 2**24  # exact in float32


def test_both_sides_use_the_same_mark():
    assert child.MARK == verify.MARK


@pytest.mark.torch
def test_torch_on_xla_really_computes_in_a_child(places):
    pytest.importorskip("torch_xla")
    found = verify.verify("torch", places["plain"], {**os.environ, "CPU_NUM_DEVICES": "2"})
    assert found == verify.Verdict(True, "CPU", 2, "")


@pytest.mark.torch
@pytest.mark.parametrize(
    ("adapter", "package"),
    [
        ("torch-eager", "torch"),
        ("jax", "jax"),
        ("keras", "keras"),
        ("tf", "tensorflow"),
    ],
)
def test_what_is_installed_really_computes_in_a_child(places, adapter, package):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    found = verify.verify(adapter, places["plain"])
    assert found == verify.Verdict(True, "CPU", 1, "")


def test_the_child_needs_no_tpu_magic():
    text = Path(child.__file__).read_text(encoding="utf-8")
    assert "import tpu_magic" not in text
    assert "from tpu_magic" not in text


HERE = """
import sys
from tpu_magic.frameworks import adapter
from tpu_magic.setup import verify
each = adapter(sys.argv[1])
each.connect(simulate=2)
print(verify.verify_here(each))
"""


@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "package", "kind"),
    [
        ("torch", "torch_xla", "XLA CPU"),
        ("jax", "jax", "XLA CPU"),
        ("keras", "keras", "XLA CPU"),
        ("tf", "tensorflow", "CPU (TensorFlow)"),
    ],
)
def test_what_is_connected_really_computes_here(name, package, kind):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    done = subprocess.run(
        [sys.executable, "-c", HERE, name],
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(verify.Verdict(True, kind, 2, ""))


def test_plain_python_and_eager_torch_multiply_as_well():
    rows = [[1.0, 2.0], [3.0, 4.0]]
    assert adapter("plain").square(rows) == [[7.0, 10.0], [15.0, 22.0]]
    if importlib.util.find_spec("torch") is not None:
        assert adapter("torch-eager").square(rows) == [[7.0, 10.0], [15.0, 22.0]]
