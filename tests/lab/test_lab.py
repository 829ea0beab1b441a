"""What a kernel tells JupyterLab, in real kernels of both IPythons, with a framework of nothing."""

from __future__ import annotations

import os

import nbformat
import pytest
from nbclient import NotebookClient

from tests.lab.conftest import COMM_ID
from tests.support.kernels import ROOT

pytestmark = pytest.mark.kernel


def test_loading_says_that_the_extension_is_here(front_end):
    message = front_end.kernel.send("%unload_ext tpu_magic\n%load_ext tpu_magic")
    gone, here = front_end.until_idle(message)
    assert gone["type"] == "gone"
    assert here["v"] == 1
    assert here["status"]["cell"] is None
    assert here["status"]["recent"] == []
    assert here["status"]["host"]["total_bytes"] > here["status"]["host"]["used_bytes"] > 0


def test_a_kernel_says_what_it_is_connected_to_when_asked(front_end):
    front_end.kernel.run("%%tpu_run -q\n1").check()
    front_end.ask()
    (device,) = front_end.state()["devices"]
    assert device["label"] == "XLA CPU × 2 · not a TPU"
    assert (device["count"], device["on_tpu"], device["simulated"]) == (2, False, True)


def test_a_front_end_finds_the_comm_by_its_target(front_end):
    client = front_end.kernel.client
    message = client.comm_info("tpu_magic", reply=True, timeout=60)
    assert message["content"]["comms"] == {COMM_ID: {"target_name": "tpu_magic"}}


def test_a_busy_kernel_tells_by_itself_how_the_cell_is_going(front_end, gate):
    front_end.kernel.run("%%tpu_run -q\n1").check()
    sent = front_end.kernel.send(f"%%tpu_run -q\nfake.session.facts.steps = 7\n{gate.code}")
    state = front_end.state(lambda status: status["cell"] and status["cell"]["steps"])
    later = front_end.state()
    gate.open()
    assert state["cell"]["steps"] == 7
    assert state["cell"]["phase"] == "running"
    assert state["cell"]["magic"] == "%%tpu_run"
    assert later["cell"]["elapsed_s"] > state["cell"]["elapsed_s"]
    assert later["cell"]["steps_per_s"] == 0
    last = front_end.until_idle(sent)[-1]["status"]
    assert last["cell"] is None


def test_packets_come_at_least_every_second_while_the_kernel_is_busy(front_end, gate):
    sent = front_end.kernel.send(f"%%tpu_run -q\n{gate.code}")
    told = [front_end.packet(lambda p: p["status"]["cell"])["t"] for _ in range(4)]
    gate.open()
    front_end.until_idle(sent)
    # Four seconds would be one a second; what a loaded machine adds is not the thread's.
    assert told[-1] - told[0] < 3 * 1.0 + 2.0
    assert sorted(told) == told


def test_compiling_is_told_while_it_goes_on(front_end, gate):
    sent = front_end.kernel.send(f"%%tpu_run -q\nfake.compiling = lambda: True\n{gate.code}")
    state = front_end.state(lambda s: s["cell"] and s["cell"]["phase"] != "starting")
    gate.open()
    front_end.until_idle(sent)
    assert state["cell"]["phase"] == "compiling"


def test_connecting_is_told_before_the_cell_is_on_the_device(front_end, gate):
    sent = front_end.kernel.send(f"fake.up = False\nfake.at_connect = lambda: {gate.code}")
    front_end.until_idle(sent)
    sent = front_end.kernel.send("%%tpu_run -q\n1")
    state = front_end.state(lambda s: s["cell"] is not None)
    gate.open()
    front_end.until_idle(sent)
    front_end.kernel.run("fake.at_connect = lambda: None").check()
    assert state["cell"]["phase"] == "starting"


def test_a_cell_that_ended_is_told_as_its_report_has_it(front_end):
    sent = front_end.kernel.send("%%tpu_run -q -o cost\nfake.session.facts.steps = 3\nNone")
    last = front_end.until_idle(sent)[-1]["status"]
    (cell,) = last["recent"]
    wall = front_end.kernel.run("cost.wall_s").check().value
    assert cell["wall_s"] == float(wall)
    assert (cell["ok"], cell["steps"], cell["reached_device"]) == (True, 3, True)
    parts = ("trace_s", "compile_s", "input_wait_s", "device_wait_s", "other_s")
    assert sum(cell[name] or 0 for name in parts) == pytest.approx(cell["wall_s"])


def test_a_cell_that_failed_is_told_so(front_end):
    sent = front_end.kernel.send("%%tpu_run\n1 / 0")
    last = front_end.until_idle(sent)[-1]["status"]
    assert [cell["ok"] for cell in last["recent"]] == [False]
    assert last["cell"] is None


def test_the_last_eight_cells_are_told_newest_first(front_end):
    for number in range(10):
        front_end.kernel.run(f"%%tpu_run -q\nfake.session.facts.steps = {number + 1}").check()
    front_end.ask()
    told = [cell["steps"] for cell in front_end.state()["recent"]]
    assert told == [10, 9, 8, 7, 6, 5, 4, 3]


def test_the_cell_is_named_as_the_front_end_names_it(front_end):
    client = front_end.kernel.client
    content = {"code": "%%tpu_run -q\n1", "silent": False, "store_history": True}
    message = client.session.msg("execute_request", content)
    message["metadata"] = {"cellId": "the-cell"}
    client.shell_channel.send(message)
    last = front_end.until_idle(message["header"]["msg_id"])[-1]["status"]
    assert last["recent"][0]["id"] == "the-cell"


def test_a_plain_cell_sends_nothing(front_end):
    assert front_end.until_idle(front_end.kernel.send("sum(range(10))")) == []


def test_switching_on_is_told(front_end):
    (packet,) = front_end.until_idle(front_end.kernel.send("%tpu_run on --seed 3"))
    assert packet["status"]["automatic"] == "--seed 3"
    packets = front_end.until_idle(front_end.kernel.send("%tpu_run off"))
    assert packets[-1]["status"]["automatic"] is None


def test_a_front_end_chooses_how_often_within_limits(front_end):
    told = []
    for wish in (0.3, 60, 0, "often"):
        front_end.ask(every_s=wish)
        told.append(front_end.state()["every_s"])
    assert told == [0.3, 1.0, 0.25, 0.25]


def test_what_is_not_a_question_is_not_answered(front_end):
    client = front_end.kernel.client
    for data in ({"type": "other"}, ["refresh"]):
        content = {"comm_id": COMM_ID, "data": data}
        client.shell_channel.send(client.session.msg("comm_msg", content))
    assert front_end.until_idle(front_end.kernel.send("1")) == []


def test_a_nested_cell_is_part_of_the_outer_one(front_end, gate):
    sent = front_end.kernel.send(
        f"%%tpu_run -q\nget_ipython().run_cell('2')\nfake.session.facts.steps = 1\n{gate.code}"
    )
    state = front_end.state(lambda s: s["cell"] and s["cell"]["steps"])
    gate.open()
    assert front_end.until_idle(sent)[-1]["status"]["cell"] is None
    assert state["cell"]["steps"] == 1


def test_what_is_unloaded_says_nothing_more(front_end):
    (packet,) = front_end.until_idle(front_end.kernel.send("%unload_ext tpu_magic"))
    assert packet["type"] == "gone"
    reply = front_end.kernel.client.comm_info("tpu_magic", reply=True, timeout=60)
    front_end.kernel.run("%load_ext tpu_magic").check()
    assert reply["content"]["comms"] == {}


def test_a_forked_child_does_not_speak_for_its_parent(front_end):
    sent = front_end.kernel.send(
        "import os\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    get_ipython().tpu_lab._tell()\n"
        "    os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0"
    )
    assert front_end.until_idle(sent) == []


def test_nbclient_is_not_confused():
    """It takes a comm's `state` for that of a widget."""
    cells = [
        "%load_ext tpu_magic",
        "from tests.support import fake_framework\nfake = fake_framework.install()\nimport torch",
        "%%tpu_run\nimport time\nuntil = time.monotonic() + 1.5\n"
        "while time.monotonic() < until: pass",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    client = NotebookClient(notebook, timeout=120, kernel_name="python3")
    client.execute(env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert client.widget_state == {}


def test_a_shell_without_a_kernel_has_no_front_end(shell):
    assert not hasattr(shell, "tpu_lab")
