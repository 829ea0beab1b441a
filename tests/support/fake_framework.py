"""A framework made of nothing: an adapter that writes down what the engine asks of it.

It stands in for torch, in the test's process or in a kernel (`install()` there), so that the
engine is tested without one: what the device does late, slowly or wrongly is set here.
"""

from __future__ import annotations

import contextlib
import sys
import time
import types

from tpu_magic import frameworks
from tpu_magic.frameworks.base import Availability, CellFacts, Counters, DeviceInfo


class Session:
    def __init__(self, fake: Fake) -> None:
        self.facts = CellFacts(reached_device=fake.reached, unreached_reason="nothing was asked")
        self._fake = fake

    def finish(self) -> None:
        self._fake.events.append("finish")
        self._fake.at_finish()
        self.facts.device_wait_s += self._fake.waits_s.pop(0) if self._fake.waits_s else 0.0


class Fake:
    """An adapter of `frameworks.base`, with a diary."""

    name = "torch"

    def __init__(self) -> None:
        self.events: list[str] = []
        self.reached = True
        self.usable = Availability(usable=True)
        self.up = False
        self.hint: str | None = None
        self.compiles = 0
        self.snapshots = 0
        self.waits_s: list[float] = []
        self.options = None
        self.session: Session | None = None
        self.at_connect = self.at_enter = self.at_finish = self.at_leave = lambda: None

    def availability(self):
        return self.usable

    def connect(self, *, simulate=None, require_tpu=False, devices="all"):
        self.events.append("connect")
        self.at_connect()
        self.up = True
        return self.devices()

    def connected(self):
        return self.up

    def devices(self):
        return DeviceInfo("XLA CPU", 2, 2, on_tpu=False, simulated=True)

    @contextlib.contextmanager
    def cell(self, options, namespace):
        self.events.append("enter")
        self.options = options
        self.at_enter()
        self.session = Session(self)
        try:
            yield self.session
        finally:
            self.at_leave()
            self.events.append("leave")

    def counters(self):
        self.snapshots += 1
        return Counters(compiles=self.compiles, compile_s=0.0, host_reads=0)

    def memory(self):
        return []

    def explain(self, error, namespace):
        return self.hint


def package() -> types.ModuleType:
    """Return a package `torch` that has a class and nothing more."""
    made = types.ModuleType("torch")
    made.Thing = type("Thing", (), {"__module__": "torch"})
    return made


def module_of(fake: Fake) -> types.ModuleType:
    """Return a module as the registry wants one: it makes the adapter."""
    made = types.ModuleType("_fake_adapter")
    made.make = lambda: fake
    return made


def install() -> Fake:
    """Return a new fake in this kernel, in the place of torch."""
    fake = Fake()
    sys.modules.update({"torch": package(), "_fake_adapter": module_of(fake)})
    frameworks.REGISTRY["torch"] = ("_fake_adapter", "make")
    frameworks.adapter.cache_clear()
    return fake


def wait_for_snapshots(fake: Fake, count: int) -> None:
    """Return when the counters were read so many times more: by a live line, for one."""
    wanted = fake.snapshots + count
    wait_for(lambda: fake.snapshots >= wanted)


def wait_for(condition, seconds: float = 30.0) -> None:
    """Return when a condition holds; fail when it does not in time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.001)
