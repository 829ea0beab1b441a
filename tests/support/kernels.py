"""A real kernel, driven as a frontend drives it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty

from jupyter_client.manager import KernelManager

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 120
# What importing a framework leaves in the environment of the tests' own process.
RUNTIME_VARIABLES = ("XLA_", "PJRT_", "PTXLA_", "LIBTPU_", "JAX_", "KERAS_BACKEND", "TPU_SKIP_")
# Colours in what a kernel or a terminal shows.
ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Reply:
    """What a frontend gets for a cell."""

    status: str
    ename: str = ""
    evalue: str = ""
    traceback: str = ""
    stdout: str = ""
    stderr: str = ""
    result: dict = field(default_factory=dict)
    displays: list[dict] = field(default_factory=list)
    count: int | None = None
    errors_shown: int = 0

    def check(self) -> Reply:
        """Fail when the cell failed; else return the reply."""
        assert self.status == "ok", f"{self.ename}: {self.evalue}\n{self.traceback}"
        return self

    def add(self, kind: str, content: dict) -> None:
        """Take in one output message."""
        if kind == "stream":
            setattr(self, content["name"], getattr(self, content["name"]) + content["text"])
        elif kind == "execute_result":
            self.result = content["data"]
            self.count = content["execution_count"]
        elif kind in ("display_data", "update_display_data"):
            self.displays.append(content["data"])
        elif kind == "error":
            self.errors_shown += 1

    @property
    def value(self) -> str:
        """Return the text of the cell's value."""
        return self.result.get("text/plain", "")

    @property
    def reports(self) -> list[dict]:
        """Return the cell reports that were shown, as data."""
        mime = "application/vnd.tpu-magic.cell-report+json"
        return [shown[mime] for shown in self.displays if mime in shown]


class Kernel:
    """A kernel of a given Python; a context manager that leaves no process."""

    def __init__(self, python: str, devices: int = 2, **environment: str) -> None:
        self.manager = KernelManager()
        self.manager.kernel_spec.argv = [
            python,
            "-m",
            "ipykernel_launcher",
            "-f",
            "{connection_file}",
        ]
        # What a runtime of the tests' own process left there (XLA_USE_SPMD) is not the kernel's.
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(RUNTIME_VARIABLES)}
        self._environment = {
            **inherited,
            "PYTHONPATH": str(ROOT),
            "CPU_NUM_DEVICES": str(devices),
            **environment,
        }

    def __enter__(self) -> Kernel:
        self.manager.start_kernel(env=self._environment)
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=TIMEOUT)
        return self

    def __exit__(self, *_: object) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()

    def send(self, code: str, **options: object) -> str:
        """Send a cell; return the message's id."""
        return self.client.execute(code, allow_stdin=False, **options)

    def run(self, code: str, timeout: float = TIMEOUT, **options: object) -> Reply:
        """Run a cell and return everything that came back for it."""
        while True:
            reply = self.receive(self.send(code, **options), timeout)
            if reply.status != "aborted":  # sent while the kernel still dropped what was queued
                return reply

    def receive(self, message_id: str, timeout: float = TIMEOUT) -> Reply:
        """Return everything that comes back for a cell that was sent."""
        reply = Reply("")
        while True:
            message = self._output(timeout)
            if message["parent_header"].get("msg_id") != message_id:
                continue
            content, kind = message["content"], message["msg_type"]
            if kind == "status" and content["execution_state"] == "idle":
                break
            reply.add(kind, content)
        while True:
            answer = self.client.get_shell_msg(timeout=timeout)
            if answer["parent_header"].get("msg_id") == message_id:
                break
        content = answer["content"]
        reply.status = content["status"]
        reply.ename, reply.evalue = content.get("ename", ""), content.get("evalue", "")
        reply.traceback = "\n".join(content.get("traceback", []))
        return reply

    def wait_for_output(self, message_id: str, text: str, timeout: float = TIMEOUT) -> None:
        """Return when a running cell has printed a text; its other outputs are dropped."""
        while True:
            message = self._output(timeout)
            mine = message["parent_header"].get("msg_id") == message_id
            if mine and text in message["content"].get("text", ""):
                return

    def interrupt(self) -> None:
        """Interrupt the cell that runs, as the stop button does."""
        self.manager.interrupt_kernel()

    def _output(self, timeout: float) -> dict:
        try:
            return self.client.get_iopub_msg(timeout=timeout)
        except Empty:
            raise AssertionError(f"nothing from the kernel for {timeout} s") from None
