"""A device that exists only as arithmetic on a clock."""

import itertools
from types import SimpleNamespace

import pytest

from tpu_magic.frameworks.base import Counters, DeviceInfo
from tpu_magic.timing.measurement import Clock


class Array:
    """An array of the fake device; computing it costs device time once it is materialised."""

    def __init__(self, device_s, program, nbytes, on_device=True):
        self.device_s = device_s
        self.program = program
        self.nbytes = nbytes
        self.there = on_device


class FakeDevice:
    """A lazy, asynchronous device; every cost is exact, and time moves only by costs.

    All times in seconds: `dispatch_s` is the host's cost to send a program, `compile_s` of
    compiling one; `wait_s` what an idle wait costs.
    """

    name = "fake"
    synchronous = False

    def __init__(self, dispatch_s=0.0, compile_s=0.0, wait_s=0.0, on_tpu=True, wait_works=True):
        self.now = 0.0
        self.busy_until = 0.0
        self.dispatch_s, self.compile_s, self.wait_s = dispatch_s, compile_s, wait_s
        self.on_tpu, self.wait_works = on_tpu, wait_works
        self.programs = set()
        self.compiles = self.executions = self.waits = 0
        self.bytes_to_device = self.host_reads = 0
        self.fallbacks = {}
        self.queued_bytes = self.most_queued_bytes = 0
        self.clock = Clock(lambda: self.now)

    def time(self):
        return self.now

    # What statements are made of.

    def op(self, device_s=1e-3, trace_s=0.0, program="p", nbytes=0):
        """Record an operation, as a lazy framework does."""
        self.now += trace_s
        return Array(device_s, program, nbytes)

    def read(self, array):
        """Read a value back: computes and waits, whatever `wait` does."""
        self.materialize([array])
        self.now = max(self.now, self.busy_until)
        self.host_reads += 1

    # The adapter.

    def devices(self):
        return DeviceInfo("fake chip", 1, 1, on_tpu=self.on_tpu, simulated=False)

    def connected(self):
        return True

    def connect(self, *, simulate=None, require_tpu=False):
        return self.devices()

    def materialize(self, outputs):
        for array in self.arrays(outputs):
            if array.device_s is None:
                continue
            if array.program not in self.programs:
                self.programs.add(array.program)
                self.compiles += 1
                self.now += self.compile_s
            self.now += self.dispatch_s
            self.busy_until = max(self.now, self.busy_until) + array.device_s
            array.device_s = None
            self.executions += 1
            self.queued_bytes += array.nbytes
            self.most_queued_bytes = max(self.most_queued_bytes, self.queued_bytes)

    def wait(self):
        self.waits += 1
        self.now += self.wait_s
        if self.wait_works:
            self.now = max(self.now, self.busy_until)
        self.queued_bytes = 0

    def counters(self):
        return Counters(
            compiles=self.compiles,
            compile_s=self.compiles * self.compile_s,
            executions=self.executions,
            host_reads=self.host_reads,
            bytes_to_device=self.bytes_to_device,
            fallbacks=dict(self.fallbacks),
        )

    def arrays(self, value):
        if isinstance(value, Array):
            yield value
        elif isinstance(value, (list, tuple, dict)):
            for item in value.values() if isinstance(value, dict) else value:
                yield from self.arrays(item)

    def on_device(self, array):
        return array.there

    def to_device(self, array):
        self.bytes_to_device += array.nbytes
        return Array(array.device_s, array.program, array.nbytes)

    def versions(self):
        return {"fake": "1"}

    def matmul_precision(self):
        return "default"

    def explain(self, error, namespace):
        return "the fake device is to blame" if isinstance(error, OSError) else None


@pytest.fixture
def fake():
    """Return the class of fake devices and the arrays that they compute."""
    return SimpleNamespace(device=FakeDevice, array=Array)


@pytest.fixture
def repeated():
    """Return what makes a run of a plain function, as `Statement.starter` does of code."""

    def starter(call, setup=lambda: None):
        def run():
            setup()
            while True:
                value = None
                for _ in (yield):
                    value = call()
                yield [value]
                value = None

        def start():
            started = run()
            next(started)
            return started

        return start

    return starter


@pytest.fixture
def counting():
    """Return a counter that counts its calls."""
    return itertools.count(1).__next__
