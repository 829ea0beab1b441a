"""What probing calls tell, and the test of waiting against reading a value back."""

import pytest

from tpu_magic.timing.measurement import Plan
from tpu_magic.timing.probe import Probe, probe
from tpu_magic.timing.runner import Runner

MS = 1e-3


def probed(device, call, call_s):
    return probe(device, call, lambda: None, call_s, device.time)


def test_a_wait_that_waits_is_seen(fake):
    device = fake.device()
    assert probed(device, lambda: [device.op(20 * MS)], 20 * MS) == Probe(waits=True)


def test_a_wait_that_lies_is_seen(fake):
    device = fake.device(wait_works=False)
    # It looks like a call of no time, and then reading back takes what the work takes.
    assert probed(device, lambda: [device.op(20 * MS)], 0.01 * MS) == Probe(waits=False)


def test_a_read_that_is_slow_once_is_no_proof(fake):
    # Reading an array over several devices compiles a program, the first time.
    device = fake.device()
    plain, slow = device.read, [90 * MS]

    def read(array):
        device.now += slow.pop() if slow else 0
        plain(array)

    device.read = read
    assert probed(device, lambda: [device.op(20 * MS)], 20 * MS).waits is True


@pytest.mark.parametrize("nbytes", [0, 2**21])
def test_work_that_is_too_short_or_a_result_too_big_proves_nothing(fake, nbytes):
    device = fake.device()
    assert probed(device, lambda: [device.op(1e-5, nbytes=nbytes)], 1e-5).waits is None
    assert probed(device, lambda: ["no array"], 1.0).waits is None


def test_it_is_tested_once(fake):
    device = fake.device()
    calls = []

    def call():
        calls.append(1)
        return [device.op(20 * MS)]

    first, second = probed(device, call, 20 * MS), probed(device, call, 20 * MS)
    assert (first.waits, second.waits) == (True, True)
    assert len(calls) == 1


def test_an_adapter_that_inspects_is_asked(fake):
    device = fake.device()
    device.inspect = lambda call: (call() and 42, "abc")
    found = probed(device, lambda: [device.op(20 * MS)], 20 * MS)
    assert (found.flops, found.program) == (42, "abc")
    assert device.now >= device.busy_until


def test_probing_calls_are_counted_and_not_timed(fake, repeated):
    device = fake.device()
    calls = []
    start = repeated(lambda: calls.append(1) or device.op(5 * MS))
    runner = Runner(device, start, clock=device.clock, wall=device.time)
    measured = runner.measure(Plan(mode="latency", repeat=4))
    assert measured.runs_total == len(calls) == 1 + 2 + 1 + 4
    assert measured.seen.waits
    assert {round(seconds, 9) for seconds in measured.series["latency"].runs} == {5 * MS}


def test_long_calls_are_not_made_again_for_it(fake, repeated):
    device = fake.device()
    runner = Runner(device, repeated(lambda: device.op(1.0)), device.clock, device.time)
    measured = runner.measure(Plan(mode="latency", repeat=2, time_limit=10))
    assert measured.seen == Probe()
    assert measured.runs_total == 1 + 2 + 2
