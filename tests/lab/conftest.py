"""A front end of JupyterLab's kind: it listens to the comm, and asks for a packet."""

from __future__ import annotations

import os
from queue import Empty

import pytest

COMM_ID = "tpu_magic.status"
TIMEOUT = 60


class FrontEnd:
    """Listens to a kernel as the extension in a browser does."""

    def __init__(self, kernel) -> None:
        self.kernel = kernel
        self._seen = 0

    def message(self, timeout=TIMEOUT):
        """Return the next message that the kernel publishes."""
        try:
            return self.kernel.client.get_iopub_msg(timeout=timeout)
        except Empty:
            raise AssertionError(f"nothing from the kernel for {timeout} s") from None

    def packet(self, wanted=lambda packet: True):
        """Return the next packet that is as wanted."""
        while True:
            message = self.message()
            if message["msg_type"] == "comm_msg" and message["content"]["comm_id"] == COMM_ID:
                packet = message["content"]["data"]
                newer = packet["seq"] > self._seen
                self._seen = max(packet["seq"], self._seen)
                if newer and wanted(packet):
                    return packet

    def state(self, wanted=lambda status: True):
        """Return the state in the next packet in which it is as wanted."""
        return self.packet(lambda p: p["type"] == "state" and wanted(p["status"]))["status"]

    def ask(self, **wish):
        """Ask for a packet."""
        client = self.kernel.client
        data = {"type": "refresh", "v": 1, **wish}
        client.shell_channel.send(
            client.session.msg("comm_msg", {"comm_id": COMM_ID, "data": data})
        )

    def until_idle(self, message_id):
        """Return all packets up to the end of a cell."""
        found = []
        while True:
            message = self.message()
            if message["msg_type"] == "comm_msg":
                found.append(message["content"]["data"])
            ours = message["parent_header"].get("msg_id") == message_id
            if ours and message["content"].get("execution_state") == "idle":
                return sorted(found, key=lambda packet: packet["seq"])


@pytest.fixture
def front_end(fake_kernel):
    """Return a front end of a kernel whose torch is a fake."""
    fake_kernel.run("%unload_ext tpu_magic\n%load_ext tpu_magic").check()
    fake_kernel.run("fake.compiling = lambda: False").check()
    return FrontEnd(fake_kernel)


@pytest.fixture
def gate(tmp_path):
    """Return what a cell waits at, busy, until the test opens it: `gate.code`, `gate.open()`."""

    class Gate:
        path = tmp_path / "gate"
        code = f"open({str(path)!r}).read()"

        def open(self):
            self.path.write_text("")

    os.mkfifo(Gate.path)
    return Gate()
