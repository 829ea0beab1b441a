"""Inputs on the host: found, copied through their containers, or named."""

from typing import Any, NamedTuple

import pytest
from IPython.core.error import UsageError

from tpu_magic.timing import inputs


class Pair(NamedTuple):
    one: Any
    two: Any


@pytest.fixture
def device(fake):
    return fake.device()


@pytest.fixture
def host(fake):
    """Return a host array of eight bytes."""
    return fake.array(None, "x", 8, on_device=False)


def test_only_what_holds_host_arrays_is_found(device, fake, host):
    there = fake.array(None, "y", 8)
    values = {"a": host, "b": there, "c": [there, host], "d": 3, "f": len}
    assert set(inputs.on_host(device, values)) == {"a", "c"}


def test_containers_keep_their_type_and_what_is_no_array(device, host):
    copied = inputs.to_device(device, {"k": [host, 1], "p": Pair(host, "text"), "t": (host,)})
    assert copied["k"][1] == 1
    assert isinstance(copied["p"], Pair)
    assert copied["p"].two == "text"
    assert isinstance(copied["t"], tuple)
    assert all(array.there for array in (copied["k"][0], copied["p"].one, copied["t"][0]))
    assert device.bytes_to_device == 24
    assert not host.there


def test_what_cannot_be_copied_is_named_with_the_cure(device, host):
    class Model:
        pass

    arrays = device.arrays
    device.arrays = lambda value: iter([host]) if isinstance(value, Model) else arrays(value)
    for value in (Model(), [Model()], {"m": Model()}):
        with pytest.raises(UsageError, match=r"net .* is on the host.*--device cpu"):
            inputs.on_host(device, {"net": value})
