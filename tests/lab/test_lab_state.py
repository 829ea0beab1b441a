"""What is said of a running cell, worked out by hand from samples."""

from __future__ import annotations

import pytest

from tpu_magic.lab_state import Pace, Sample


def _sample(at, *, steps=0, examples=0, waited=0.0, compiles=0, compiling=False):
    return Sample(at, steps, examples, waited, compiles, compiling)


def _pace(*samples):
    pace = Pace()
    for each in samples:
        pace.add(each)
    return pace


def test_before_anything_was_seen_a_cell_is_starting():
    pace = Pace()
    assert pace.phase() == "starting"
    assert pace.per_second("steps") is None
    assert pace.still_s() is None


def test_a_rate_is_between_samples():
    pace = _pace(_sample(10.0, steps=5, examples=50), _sample(12.0, steps=75, examples=750))
    assert pace.per_second("steps") == 35
    assert pace.per_second("examples") == 350


def test_one_sample_has_no_rate():
    assert _pace(_sample(1.0, steps=5)).per_second("steps") is None
    assert _pace(_sample(1.0, steps=5), _sample(1.0, steps=6)).per_second("steps") is None


def test_a_rate_follows_a_loop_that_becomes_slower():
    fast = [_sample(float(t), steps=100 * t) for t in range(20)]
    slow = [_sample(20.0 + t, steps=1900 + t) for t in range(8)]
    assert _pace(*fast, *slow).per_second("steps") == 1


def test_samples_farther_apart_than_the_window_still_give_a_rate():
    assert _pace(_sample(0.0), _sample(60.0, steps=6), _sample(120.0, steps=18)).per_second(
        "steps"
    ) == pytest.approx(0.2)


def test_waiting_for_input_is_half_of_the_time_or_more():
    half = _pace(_sample(0.0, waited=1.0), _sample(2.0, waited=2.0, steps=1))
    less = _pace(_sample(0.0, waited=1.0), _sample(2.0, waited=1.9, steps=1))
    assert half.phase() == "input"
    assert less.phase() == "running"


def test_compiling_is_what_the_runtime_says():
    assert _pace(_sample(0.0, compiling=True)).phase() == "compiling"
    assert _pace(_sample(0.0), _sample(1.0, compiles=3, compiling=False)).phase() == "running"


@pytest.mark.parametrize(("steps", "phase"), [(0, "compiling"), (1, "running")])
def test_a_runtime_that_cannot_say_compiles_while_programs_grow_and_no_step_ends(steps, phase):
    pace = _pace(
        _sample(0.0, compiles=1, compiling=None),
        _sample(1.0, compiles=2, steps=steps, compiling=None),
    )
    assert pace.phase() == phase


def test_how_long_no_step_has_ended():
    pace = _pace(*(_sample(float(t), steps=min(t, 2) + 1) for t in range(5)))
    assert pace.still_s() == 2.0
