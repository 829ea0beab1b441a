"""The runner on a device that is arithmetic: every figure is exact."""

import gc

import pytest

from tpu_magic.frameworks.plain import PlainPython
from tpu_magic.timing.calls import undisturbed
from tpu_magic.timing.measurement import Clock, Plan
from tpu_magic.timing.runner import Runner

MS = 1e-3


def timed(device, start, **plan):
    runner = Runner(device, start, clock=device.clock, wall=device.time)
    with undisturbed(device):
        return runner.measure(Plan(**plan))


def per_call(measured, mode):
    series = measured.series[mode]
    values = {round(seconds, 12) for seconds in series.timings}
    assert len(values) == 1, values
    return values.pop()


def test_latency_is_trace_dispatch_and_device_time_of_one_call(fake, repeated):
    device = fake.device(dispatch_s=0.5 * MS)
    start = repeated(lambda: device.op(device_s=7 * MS, trace_s=2 * MS))
    measured = timed(device, start, mode="latency")
    assert per_call(measured, "latency") == pytest.approx(9.5 * MS)
    assert list(measured.series) == ["latency"]


@pytest.mark.parametrize(
    ("trace_ms", "device_ms", "bound_ms"),
    [(2, 7, 7), (6, 3, 6)],
    ids=["the device is the bottleneck", "the host is the bottleneck"],
)
def test_throughput_is_the_slower_of_host_and_device(fake, repeated, trace_ms, device_ms, bound_ms):
    device = fake.device()
    start = repeated(lambda: device.op(device_s=device_ms * MS, trace_s=trace_ms * MS))
    measured = timed(device, start, mode="throughput")
    loops = measured.series["throughput"].loops
    # k calls queued take k times the bottleneck, and the other part once.
    other_ms = min(trace_ms, device_ms)
    assert per_call(measured, "throughput") * loops == pytest.approx(
        (loops * bound_ms + other_ms) * MS
    )
    assert loops >= 8


def test_both_modes_are_measured_by_default(fake, repeated):
    device = fake.device()
    measured = timed(device, repeated(lambda: device.op(4 * MS, trace_s=1 * MS)))
    assert per_call(measured, "latency") == pytest.approx(5 * MS)
    assert per_call(measured, "throughput") == pytest.approx(4 * MS, rel=0.05)


def test_the_first_call_is_split_and_not_among_the_runs(fake, repeated):
    device = fake.device(dispatch_s=1 * MS, compile_s=400 * MS)
    measured = timed(device, repeated(lambda: device.op(7 * MS, trace_s=2 * MS)), mode="latency")
    first = measured.first
    assert first.wall_s == pytest.approx(410 * MS)
    assert first.compile_s == pytest.approx(400 * MS)
    assert first.trace_s == pytest.approx(3 * MS)  # host work beside compiling, up to dispatch
    assert first.run_s == pytest.approx(7 * MS)
    assert measured.compiles == 1
    assert measured.counted.compiles == 0
    assert per_call(measured, "latency") == pytest.approx(10 * MS)


def test_a_first_call_that_another_adapter_must_time_has_no_parts(fake, repeated):
    device, plain = fake.device(compile_s=0.0), PlainPython()
    runner = Runner(device, repeated(lambda: device.op(0, trace_s=MS)), device.clock, device.time)
    measured = runner.measure(Plan(repeat=3), decide=lambda *_: plain)
    assert (measured.first.trace_s, measured.first.compile_s) == (None, None)


def test_warming_up_goes_on_until_compiling_stands_still(fake, repeated, counting):
    device = fake.device(compile_s=100 * MS)
    # As with an optimizer: the first three calls are three different programs.
    start = repeated(lambda: device.op(5 * MS, program=min(counting(), 3)))
    measured = timed(device, start, mode="latency")
    assert measured.settled
    assert measured.compiles == 3
    assert measured.series["latency"].compiled == ()
    assert per_call(measured, "latency") == pytest.approx(5 * MS)


def test_warming_up_is_bounded_and_says_so(fake, repeated, counting):
    device = fake.device(compile_s=1 * MS)
    measured = timed(
        device, repeated(lambda: device.op(5 * MS, program=counting())), mode="latency", repeat=3
    )
    assert not measured.settled
    # No clean run: these are all there are, and the counter tells.
    assert measured.counted.compiles == 3
    assert measured.series["latency"].runs == measured.series["latency"].compiled
    assert measured.runs_total == 1 + 20 + 3


def test_runs_with_a_compile_are_set_aside(fake, repeated, counting):
    device = fake.device(compile_s=1000 * MS)
    # One recompile, long after warming up.
    start = repeated(lambda: device.op(5 * MS, program="late" if counting() == 60 else "p"))
    measured = timed(device, start, mode="latency", precision_goal=-1, time_limit=4)
    assert measured.counted.compiles == 1
    assert per_call(measured, "latency") == pytest.approx(5 * MS)
    assert max(measured.series["latency"].compiled) == pytest.approx(1005 * MS)


def test_freeing_outputs_is_not_timed(fake):
    device = fake.device()

    def start():
        def run():
            while True:
                for _ in (yield):
                    output = device.op(3 * MS)
                yield [output]
                device.now += 50 * MS  # what dropping costs

        started = run()
        next(started)
        return started

    measured = timed(device, start, mode="latency")
    assert per_call(measured, "latency") == pytest.approx(3 * MS)


def test_outputs_are_dropped_between_calls_and_queued_memory_is_bounded(fake, repeated):
    device = fake.device()
    size = 100 * 2**20
    measured = timed(device, repeated(lambda: device.op(1 * MS, nbytes=size)), mode="throughput")
    assert device.most_queued_bytes <= 2**30
    assert measured.series["throughput"].loops == 2**30 // size
    assert measured.output_bytes == size


def test_calls_of_earlier_cells_are_not_timed(fake, repeated):
    device = fake.device()
    device.materialize([device.op(device_s=900 * MS)])  # still running when timing begins
    measured = timed(device, repeated(lambda: device.op(3 * MS)), mode="latency")
    assert measured.first.wall_s == pytest.approx(3 * MS)


def test_stops_when_the_interval_is_narrow(fake, repeated):
    device = fake.device()
    measured = timed(device, repeated(lambda: device.op(5 * MS)), mode="latency", time_limit=100)
    assert measured.series["latency"].stopped_by == "precision"
    assert device.now < 1  # of 100 seconds


def test_stops_at_the_time_limit_when_it_is_not(fake, repeated, counting):
    device = fake.device()
    start = repeated(lambda: device.op((5 if counting() % 2 else 9) * MS))
    measured = timed(device, start, mode="latency", time_limit=2, precision_goal=-101)
    assert measured.series["latency"].stopped_by == "time-limit"
    assert device.now == pytest.approx(2, abs=0.03)


def test_a_call_longer_than_the_limit_is_the_last(fake, repeated):
    device = fake.device()
    measured = timed(device, repeated(lambda: device.op(60.0)), time_limit=1)
    assert measured.runs_total == 2  # the first call, and one more
    assert measured.series["latency"].runs == (60.0,)
    assert measured.series["latency"].stopped_by == "time-limit"
    assert "throughput" not in measured.series


def test_asked_for_loops_and_runs_are_made_exactly(fake, repeated):
    device = fake.device()
    setups = []
    start = repeated(lambda: device.op(5 * MS), setup=lambda: setups.append(1))
    measured = timed(device, start, mode="latency", loops=3, repeat=4, time_limit=None)
    series = measured.series["latency"]
    assert (len(series.runs), series.loops, series.stopped_by) == (4, 3, "runs")
    assert series.runs[0] == pytest.approx(15 * MS)
    assert measured.timed_calls == 12
    # Every run begins with the set-up, as with %timeit; warming up had its own.
    assert len(setups) == 1 + 4


def test_without_loops_the_set_up_runs_once(fake, repeated):
    device = fake.device()
    setups = []
    timed(device, repeated(lambda: device.op(5 * MS), setup=lambda: setups.append(1)))
    assert len(setups) == 1


def test_one_and_fifty_loops_agree(fake, repeated):
    # P04: in one lazy graph fifty calls whose results are dropped would be one.
    figures = []
    for loops in (1, 50):
        device = fake.device()
        start = repeated(lambda device=device: device.op(5 * MS))
        measured = timed(device, start, mode="latency", loops=loops, repeat=3, time_limit=None)
        figures.append(per_call(measured, "latency"))
        assert measured.series["latency"].runs[0] == pytest.approx(loops * 5 * MS)
    assert figures[0] == figures[1]


def test_all_calls_are_counted(fake, repeated, counting):
    device = fake.device()
    calls = []
    start = repeated(lambda: calls.append(1) or device.op(5 * MS))
    measured = timed(device, start)
    assert measured.runs_total == len(calls)


def test_an_error_says_which_call_and_leaves_the_device_idle(fake, repeated, counting):
    device = fake.device()

    def call():
        if counting() == 30:
            raise LookupError("the person's own")
        return device.op(5 * MS)

    runner = Runner(device, repeated(call), clock=device.clock, wall=device.time)
    waits = device.waits
    with pytest.raises(LookupError, match="the person's own") as caught, undisturbed(device):
        runner.measure(Plan(mode="throughput"))
    assert runner.runs_total == 30
    assert caught.value.__notes__ == ["raised in call 30 of the timed code"]
    assert device.waits > waits
    assert device.now >= device.busy_until
    assert gc.isenabled()


def test_an_interrupt_keeps_the_runs_that_there_are(fake, repeated, counting):
    device = fake.device()

    def call():
        if counting() == 30:
            raise KeyboardInterrupt
        return device.op(5 * MS)

    measured = timed(device, repeated(call), precision_goal=-1)
    assert measured.series["latency"].stopped_by == "interrupt"
    # Not the first four (one of them probes), nor itself.
    assert len(measured.series["latency"].runs) == 30 - 1 - 4
    assert "throughput" not in measured.series
    assert measured.runs_total == 30
    assert device.now >= device.busy_until
    assert gc.isenabled()


def test_an_interrupt_before_any_run_passes(fake, repeated):
    device = fake.device()

    def call():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        timed(device, repeated(call))
    assert gc.isenabled()


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_off_while_timing_and_as_before_after(fake, repeated, enabled):
    device = fake.device()
    seen = set()
    (gc.enable if enabled else gc.disable)()
    try:
        timed(device, repeated(lambda: seen.add(gc.isenabled()) or device.op(5 * MS)))
        assert seen == {False}
        assert gc.isenabled() is enabled
    finally:
        gc.enable()


def _synchronous(fake, read_s=0.0):
    device = fake.device()
    device.synchronous = True

    def read():
        device.now += read_s
        return device.now

    device.clock = Clock(read)
    return device


def _sleep(device, seconds):
    device.now += seconds


def test_short_calls_are_looped_until_the_clock_does_not_count(fake, repeated):
    device = _synchronous(fake, read_s=1e-7)
    measured = timed(device, repeated(lambda: _sleep(device, 5e-8)))
    series = measured.series["latency"]
    call_s = series.timings[0]
    assert call_s == pytest.approx(5e-8, rel=0.01)
    assert series.loops == 20_000  # 1 ms of 50 ns calls
    assert measured.one_by_one
    assert list(measured.series) == ["latency"]


def test_a_coarse_clock_gets_longer_runs(fake, repeated):
    device = _synchronous(fake)
    device.clock = Clock(lambda: round(device.now, 2), resolution=0.01)
    measured = timed(device, repeated(lambda: _sleep(device, 1e-6)), repeat=3)
    # A hundred times the resolution: 1 s of 1 µs calls.
    assert measured.series["latency"].loops == 10**6
    assert measured.series["latency"].timings[0] == pytest.approx(1e-6, rel=0.02)


def test_long_synchronous_calls_are_timed_one_by_one(fake, repeated):
    device = _synchronous(fake)
    measured = timed(device, repeated(lambda: _sleep(device, 2 * MS)))
    assert measured.series["latency"].loops == 1
    assert per_call(measured, "latency") == pytest.approx(2 * MS)


def test_an_error_among_short_calls_says_exactly_which(fake, repeated, counting):
    device = _synchronous(fake)

    def call():
        if counting() == 4321:
            raise ArithmeticError
        _sleep(device, 1e-7)

    runner = Runner(device, repeated(call), clock=device.clock, wall=device.time)
    with pytest.raises(ArithmeticError):
        runner.measure(Plan())
    assert runner.runs_total == 4321


def test_a_limit_cuts_the_loops_that_were_asked_for(fake, repeated):
    device = fake.device()
    start = repeated(lambda: device.op(1.0))
    measured = timed(device, start, mode="latency", loops=1000, time_limit=3)
    assert measured.series["latency"].loops == 3
    assert measured.series["latency"].stopped_by == "time-limit"


def test_what_one_call_gives_is_counted(fake, repeated):
    device = fake.device()
    start = repeated(lambda: (device.op(nbytes=10), [device.op(nbytes=20)], "no array"))
    measured = timed(device, start)
    assert (measured.output_arrays, measured.output_bytes) == (2, 30)
