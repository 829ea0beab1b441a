"""Each suspicion has something that must raise it and something that must not."""

import itertools

import pytest

from tpu_magic.frameworks.base import Counters, DeviceInfo
from tpu_magic.timing import suspicions
from tpu_magic.timing.measurement import FirstCall, Measurement, Series
from tpu_magic.timing.probe import Probe
from tpu_magic.timing.suspicions import RULES, Evidence

TPU = DeviceInfo("TPU v5e", 1, 1, on_tpu=True, simulated=False)
CPU = DeviceInfo("XLA CPU", 1, 1, on_tpu=False, simulated=False)


def evidence(runs=None, device=TPU, compiled=(), **changes):
    about = {
        key: changes.pop(key)
        for key in ("wants_device", "inputs_timed", "changed", "peak_flops")
        if key in changes
    }
    steady = tuple(1.0 + 0.001 * (index * 7 % 10) for index in range(60))
    measured = {
        "first": FirstCall(1.0),
        "compiles": 1,
        "settled": True,
        "series": {"latency": Series(tuple(runs or steady), 1, "precision", tuple(compiled))},
        "counted": Counters(compiles=0, executions=60, host_reads=0, bytes_to_device=0),
        "timed_calls": 60,
        "runs_total": 63,
        "output_arrays": 1,
        "output_bytes": 8,
        "one_by_one": False,
        "seen": Probe(),
    } | changes
    return Evidence(Measurement(**measured), device, **about)


def counted(**changes):
    return {"counted": Counters(**({"compiles": 0, "executions": 60} | changes))}


RAISED = {
    "not-a-tpu": evidence(device=CPU),
    "no-output": evidence(output_arrays=0, **counted(executions=0)),
    "compile": evidence(compiled=[9.0], **counted(compiles=1)),
    "not-settled": evidence(settled=False),
    "fallback": evidence(**counted(fallbacks={"aten::nonzero": 60})),
    "transfer": evidence(**counted(host_reads=60)),
    "state-changed": evidence(changed=("opt",)),
    "drift": evidence([1 + 0.01 * (i * 7 % 10) + 0.2 * (i >= 30) for i in range(60)]),
    "autocorrelation": evidence(
        [1.0 + 0.02 * (i // 10 % 2) + 0.001 * (i * 7 % 5) for i in range(60)]
    ),
    "wait-lies": evidence(seen=Probe(waits=False)),
    "above-peak": evidence(peak_flops=1e12, seen=Probe(flops=2 * 10**12)),  # in 1 s
    "slow-run": evidence([1.0] * 59 + [4.5]),
}


def codes(seen):
    return [suspicion.code for suspicion in suspicions.find(seen)]


def test_every_rule_has_something_that_raises_it():
    assert set(RAISED) == set(RULES)


@pytest.mark.parametrize("code", RULES)
def test_it_is_raised(code):
    assert code in codes(RAISED[code])


def test_a_steady_timing_on_a_tpu_raises_nothing():
    assert codes(evidence()) == []


@pytest.mark.parametrize(
    ("code", "innocent"),
    [
        ("not-a-tpu", evidence(device=CPU, wants_device=False)),
        ("no-output", evidence(output_arrays=0, **counted(executions=60))),  # in place
        ("no-output", evidence(output_arrays=0, wants_device=False, **counted(executions=0))),
        ("no-output", evidence(output_arrays=0, **counted(executions=None))),
        ("transfer", evidence(**counted(bytes_to_device=60 * 100))),  # scalars
        ("transfer", evidence(inputs_timed=True, **counted(bytes_to_device=10**9))),
        ("drift", evidence([1 + 0.01 * (i * 7 % 10) + 0.01 * (i >= 30) for i in range(60)])),
        ("autocorrelation", evidence([1.0, 1.1] * 30)),
        ("wait-lies", evidence(seen=Probe(waits=True))),
        ("above-peak", evidence(peak_flops=1e12, seen=Probe(flops=9 * 10**11))),
        ("above-peak", evidence(seen=Probe(flops=10**18))),  # the chip is not known
        ("slow-run", evidence([1e-8] * 59 + [9e-7])),  # below what %timeit warns of
    ],
)
def test_it_is_not_raised(code, innocent):
    assert code not in codes(innocent)


def test_left_out_runs_are_told_from_blended_ones():
    clean = evidence(compiled=[9.0, 9.0], **counted(compiles=2))
    runs = (9.0, 9.0)
    blended = evidence(runs, compiled=runs, **counted(compiles=2))
    said = {s.code: s.message for each in (clean,) for s in suspicions.find(each)}
    assert "2 runs are left out" in said["compile"]
    said = {s.code: s.message for s in suspicions.find(blended)}
    assert "the figures include compiling" in said["compile"]


def test_transfers_are_told_per_call():
    message = RULES["transfer"](evidence(**counted(bytes_to_device=60 * 4096, host_reads=120)))
    assert "4.00 KiB to the device" in message
    assert "host reads: 2" in message


def test_every_message_names_a_cure():
    # A sentence with a second half: what to do, or what it means.
    for code, seen in RAISED.items():
        message = RULES[code](seen)
        assert any(mark in message for mark in (";", ":")), (code, message)
        assert len(list(itertools.takewhile(str.isprintable, message))) == len(message)
