"""The kernel side in this process, on a kernel made of nothing: what a real one seldom does."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from IPython.core.error import UsageError

from tests.lab.conftest import COMM_ID
from tpu_magic import frameworks, lab


class Kernel:
    """What the kernel side needs of ipykernel's; `sent` holds what was published."""

    iopub_socket = object()

    def __init__(self):
        self.sent = []
        self.comm_manager = SimpleNamespace(comms={}, register_comm=self._register)
        self.session = self

    def _register(self, comm):
        self.comm_manager.comms[comm.comm_id] = comm

    def send(self, stream, kind, content, ident=None):
        assert (stream, kind, ident) == (self.iopub_socket, "comm_msg", b"comm-" + COMM_ID.encode())
        self.sent.append(content["data"])

    def get_parent(self):
        return {"metadata": {"cellId": "here"}}

    @property
    def last(self):
        return self.sent[-1]["status"]


@pytest.fixture
def kernel(fake_shell, monkeypatch):
    """Return a kernel whose shell has loaded the extension."""
    made = Kernel()
    fake_shell.run_line_magic("unload_ext", "tpu_magic")
    fake_shell.kernel = made
    fake_shell.run_line_magic("load_ext", "tpu_magic")
    fake_shell.run_line_magic("config", "TpuMagics.live = False")
    yield made
    fake_shell.run_line_magic("unload_ext", "tpu_magic")
    del fake_shell.kernel
    fake_shell.run_line_magic("load_ext", "tpu_magic")


def _following():
    return [each for each in threading.enumerate() if each.name.startswith(lab.THREAD)]


def test_a_cell_is_followed_by_one_thread_that_ends_with_it(kernel, fake_shell):
    fake_shell.user_ns["following"] = _following
    assert len(fake_shell.run("%%tpu_run -q\nfollowing()")) == 1
    for thread in _following():
        thread.join(10)
    assert _following() == []
    assert kernel.last["recent"][0]["id"] == "here"


def test_what_cannot_be_asked_costs_a_packet_and_not_the_cell(kernel, fake_shell):
    fake_shell.tpu_lab._every_s = 0.01
    failed = threading.Event()

    def fail():
        failed.set()
        raise RuntimeError("no answer now")

    fake_shell.fake.compiling = fail
    fake_shell.user_ns["failed"] = failed
    assert fake_shell.run("%%tpu_run -q\nfailed.wait(20)") is True
    assert kernel.last["cell"] is None


@pytest.fixture
def alone(monkeypatch, fake_shell):
    """Make the fake the only framework: other tests of this process may have connected theirs."""
    fake = fake_shell.fake
    monkeypatch.setattr(frameworks, "running", lambda: [fake] if fake.up else [])


@pytest.mark.usefixtures("alone")
def test_a_runtime_that_others_started_is_not_told_as_ours(kernel, fake_shell):
    def refuse():
        raise UsageError("not connected")

    fake_shell.fake.up = True
    fake_shell.fake.devices = refuse
    kernel.comm_manager.comms[COMM_ID].handle_msg({"content": {"data": {"type": "refresh"}}})
    assert kernel.last["devices"] == []


def test_the_end_of_another_cell_does_not_end_the_one_that_is_followed(kernel, fake_shell):
    fake_shell.user_ns["other"] = SimpleNamespace(
        info=object(), success=True, execution_count=1, error_in_exec=None
    )
    fake_shell.run(
        "%%tpu_run -q\n"
        "get_ipython().events.trigger('post_run_cell', other)\n"
        "assert get_ipython().tpu_lab._watched is not None"
    )
    assert fake_shell.tpu_lab._watched is None


def test_a_coroutine_that_was_cut_short_ends_what_is_followed(kernel, fake_shell):
    fake_shell.run(
        "%%tpu_run -q\n"
        "get_ipython().events.trigger('post_run_cell', None)\n"
        "assert get_ipython().tpu_lab._watched is None"
    )


@pytest.mark.usefixtures("alone")
def test_a_device_that_a_plain_cell_connected_is_told(kernel, fake_shell):
    before = len(kernel.sent)
    fake_shell.fake.up = False
    fake_shell.run("1")
    assert len(kernel.sent) == before
    fake_shell.fake.up = True
    fake_shell.run("1")
    assert [device["count"] for device in kernel.last["devices"]] == [2]


def test_closing_a_comm_that_was_never_opened_means_nothing(kernel):
    comm = kernel.comm_manager.comms[COMM_ID]
    before = len(kernel.sent)
    comm.handle_close({})
    comm.close(deleting=True)
    assert len(kernel.sent) == before


def test_a_front_end_that_says_nonsense_changes_nothing(kernel):
    comm = kernel.comm_manager.comms[COMM_ID]
    before = len(kernel.sent)
    for data in (None, [], {"type": 1}):
        comm.handle_msg({"content": {"data": data}})
    comm.handle_msg({})
    assert len(kernel.sent) == before


def test_a_kernel_without_comms_has_no_front_end(fake_shell):
    fake_shell.kernel = SimpleNamespace(session=None)
    lab.attach(fake_shell, fake_shell.tpu_cell)
    del fake_shell.kernel
    assert not hasattr(fake_shell, "tpu_lab")
    lab.detach(fake_shell)
