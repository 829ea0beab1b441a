"""Each rule has figures that must make it speak, and figures beside them that must not."""

import dataclasses

import pytest

from tpu_magic.frameworks.base import CellFacts, Compile, Counters, DeviceInfo, Memory
from tpu_magic.report import advice

CPU = DeviceInfo("XLA CPU", 1, 1, on_tpu=False, simulated=False)
TPU = DeviceInfo("TPU v5e", 8, 8, on_tpu=True, simulated=False)


def evidence(facts=None, counters=None, device=CPU, memory=(), working_s=10.0):
    return advice.Evidence(
        CellFacts(**(facts or {})), Counters(**(counters or {})), device, tuple(memory), working_s
    )


def codes(e):
    return [item.code for item in advice.advise(e)]


SHAPES = [Compile(4, f"({n},)") for n in (3, 4, 5, 6, 7)]

# code: evidence that makes it speak, and a change after which it is silent
CASES = {
    "host-reads": (
        evidence({"steps": 50, "read_lines": {4: 50}}, {"host_reads": 50}),
        {"counters": Counters(host_reads=5)},
    ),
    "recompiles": (
        evidence({"compiled": SHAPES}, {"compiles": 5, "compile_s": 1.2}),
        {"counters": Counters(compiles=4, compile_s=1.2)},
    ),
    "unended-steps": (evidence({"unended_calls": 40}), {"facts": CellFacts(unended_calls=2)}),
    "input-wait": (
        evidence({"steps": 100, "input_wait_s": 7.2}),
        {"facts": CellFacts(steps=100, input_wait_s=1.0)},
    ),
    "fallbacks": (evidence(counters={"fallbacks": {"aten::nonzero": 3}}), {"counters": Counters()}),
    "float64": (evidence({"float64": ["x"]}), {"facts": CellFacts()}),
    "memory": (
        evidence(memory=[Memory(1, 15 << 30, 16 << 30)]),
        {"memory": (Memory(1, 8 << 30, 16 << 30),)},
    ),
    "few-rows": (
        evidence({"global_batch": 32}, device=TPU),
        {"facts": CellFacts(global_batch=64)},
    ),
    "matrix-sizes": (
        evidence({"products": [("net.0.weight", (1030, 65))]}, device=TPU),
        {"facts": CellFacts(products=[("net.0.weight", (1024, 128))])},
    ),
}


@pytest.mark.parametrize("code", CASES)
def test_speaks_when_it_should_and_not_beside_it(code):
    speaks, change = CASES[code]
    assert codes(speaks) == [code]
    assert codes(dataclasses.replace(speaks, **change)) == []


def test_every_rule_is_tested():
    assert set(CASES) == set(advice.RULES)


def test_silent_about_an_ordinary_cell():
    ordinary = evidence(
        {"steps": 264, "input_wait_s": 0.3, "global_batch": 64, "compiled": SHAPES[:2]},
        {"compiles": 2, "host_reads": 2, "compile_s": 1.0},
    )
    assert advice.advise(ordinary) == []


def test_host_reads_name_their_number_and_the_line_that_reads_most():
    e = evidence({"steps": 50, "read_lines": {4: 48, 9: 2}}, {"host_reads": 50})
    (said,) = advice.advise(e)
    assert said.line == 4
    assert "50 host reads in 50 steps" in said.message


def test_recompiles_name_shapes_and_seconds():
    (said,) = advice.advise(CASES["recompiles"][0])
    assert "5 compilations for 5 shapes ((3,), (4,), (5,) …), 1.20 s" in said.message
    assert said.line == 4


def test_recompiles_of_one_shape_are_another_sentence():
    same = [Compile(7, "(64, 8)", step) for step in range(12)]
    (said,) = advice.advise(
        evidence({"compiled": same, "steps": 12}, {"compiles": 12, "compile_s": 2.0})
    )
    assert (said.code, said.line) == ("recompiles", 7)
    assert "12 compilations in 12 steps of the same shape" in said.message


def test_compiles_of_the_first_steps_are_none_that_go_on():
    first = [Compile(7, "(64, 8)", step) for step in (0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2)]
    assert codes(evidence({"compiled": first, "steps": 12}, {"compiles": 12})) == []


def test_few_steps_are_a_try_out():
    assert codes(evidence({"steps": 5}, {"host_reads": 5})) == []
    assert codes(evidence({"steps": 5, "input_wait_s": 9.0})) == []


def test_one_device_has_no_few_rows():
    assert codes(evidence({"global_batch": 2})) == []


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((8, 128), 1.0),
        ((1, 128), 8.0),  # one row takes a tile of eight
        ((8, 1), 128.0),  # one column takes a tile of 128
        ((1024, 192), 256 / 192),
        ((3, 3, 16, 256), 1.0),
        ((256,), 8.0),
    ],
)
def test_padding_of_a_layout(shape, expected):
    assert advice.padding(shape) == pytest.approx(expected)


def test_matrix_sizes_are_about_tpus_only():
    e = evidence({"products": [("w", (1030, 65))]})
    assert codes(e) == []
