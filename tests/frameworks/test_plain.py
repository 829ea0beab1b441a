"""Plain Python's adapter: honest about being that."""

import sys

import pytest
from IPython.core.error import UsageError

from tpu_magic.frameworks import adapter
from tpu_magic.frameworks.base import Adapter, Counters
from tpu_magic.options import RunOptions


@pytest.fixture
def plain():
    return adapter("plain")


def test_it_is_an_adapter_and_synchronous(plain):
    assert isinstance(plain, Adapter)
    assert plain.synchronous
    assert plain.connected()
    assert plain.availability().usable


def test_its_device_says_what_it_is(plain):
    assert plain.connect().label() == "CPU (plain Python) × 1 · not a TPU"
    assert not plain.devices().simulated


@pytest.mark.parametrize("wanted", [{"simulate": 4}, {"require_tpu": True}])
def test_devices_it_does_not_have_are_refused(plain, wanted):
    with pytest.raises(UsageError, match="name a framework with --framework"):
        plain.connect(**wanted)


def test_cells_are_refused(plain):
    with pytest.raises(UsageError, match="leave the magic away"):
        plain.cell(RunOptions(), {})


def test_it_counts_measures_and_finds_nothing(plain):
    before = plain.counters()
    plain.materialize([1, 2])
    plain.wait()
    assert plain.counters().since(before) == Counters()
    assert plain.counters().compiles is None  # not counted, which is not none
    assert plain.memory() == []
    assert list(plain.arrays([1, [2]])) == []
    value = object()
    assert plain.to_device(value) is value
    assert plain.on_device(value)
    assert plain.explain(ValueError(), {}) is None


def test_versions_and_precision(plain):
    assert plain.versions()["python"].startswith(f"{sys.version_info[0]}.{sys.version_info[1]}.")
    assert plain.matmul_precision() == "not applicable"
