"""Which adapter times a statement."""

import functools

import pytest
from IPython.core.error import UsageError

from tpu_magic import frameworks
from tpu_magic.frameworks.base import Counters
from tpu_magic.frameworks.plain import PlainPython
from tpu_magic.timing.choose import choose


@pytest.fixture
def host(fake):
    """Return a framework's adapter without its device: the same arrays, a synchronous host."""
    device = fake.device(on_tpu=False)
    device.name, device.synchronous = "fake-eager", True
    device.on_device = lambda array: not array.there
    return device


@pytest.fixture
def world(fake, host, monkeypatch):
    """Return the device; it is in the registry before its eager twin, and both run."""
    device = fake.device(on_tpu=False)
    known = {"fake": device, "fake-eager": host, "plain": PlainPython()}
    monkeypatch.setattr(frameworks, "REGISTRY", dict.fromkeys(known))
    monkeypatch.setattr(frameworks, "adapter", known.__getitem__)
    monkeypatch.setattr(frameworks, "running", lambda: [a for a in (device, host) if a.connected()])
    return device


def test_arrays_in_the_inputs_settle_it(world, fake):
    choice = choose("auto", "auto", {"x": fake.array(None, "x", 8)})
    assert choice.adapter is world
    assert choice.settled
    # Even when nothing came out: then it is dead code on the device, not plain Python.
    assert choice.after([None], Counters(executions=0)) is world


def test_a_runtime_that_is_not_up_takes_nothing(world, host, fake, monkeypatch):
    monkeypatch.setattr(world, "connected", lambda: False)
    assert choose("auto", "auto", {"x": fake.array(None, "x", 8)}).adapter is host


def test_arrays_are_found_through_functions_and_methods(world, fake):
    array = fake.array(None, "x", 8)
    scope = {"x": array, "g": lambda: None}
    exec("def inner(): return x\ndef outer(): return inner()", scope)

    class Owner(list):
        def method(self):
            return self

    def default(value=array):
        return value

    def closure():
        return array

    class Compiled:  # as `jax.jit` and `tf.function` make them
        __wrapped__ = staticmethod(closure)

        def __call__(self):
            return None

    wrapped = (Compiled(), functools.partial(len, array), functools.partial(closure))
    for function in (scope["outer"], Owner([array]).method, default, closure, *wrapped):
        assert choose("auto", "auto", {"f": function}).settled, function


def test_functions_that_call_each_other_end(world):
    scope = {}
    exec("def a(): return b()\ndef b(): return a()", scope)
    assert not choose("auto", "auto", {"a": scope["a"]}).settled


def test_without_arrays_the_first_call_decides(world, host, fake):
    choice = choose("auto", "auto", {"f": len})
    assert choice.adapter is world  # waits in vain, at worst
    on_device, on_host = fake.array(None, "x", 8), fake.array(None, "x", 8, on_device=False)
    assert choice.after([on_device], Counters(executions=0)) is world
    assert choice.after([on_host], Counters(executions=0)) is host
    assert choice.after([1], Counters(executions=1)) is world
    assert choice.after([1], Counters(executions=0)).name == "plain"


def test_code_that_starts_the_runtime_is_timed_on_it(world, host, fake, monkeypatch):
    monkeypatch.setattr(world, "connected", lambda: False)
    choice = choose("auto", "auto", {"x": fake.array(None, "x", 8, on_device=False)})
    assert choice.adapter is host
    monkeypatch.setattr(world, "connected", lambda: True)
    assert choice.after([fake.array(None, "y", 8)], Counters()) is world


@pytest.mark.parametrize("framework", ["auto", "fake"])
def test_device_cpu_is_the_framework_without_its_device(world, host, fake, framework):
    array = fake.array(None, "x", 8, on_device=False)
    assert choose(framework, "cpu", {"x": array}).adapter is host


def test_device_cpu_without_such_a_thing_is_refused(world, monkeypatch):
    monkeypatch.delitem(frameworks.REGISTRY, "fake-eager")
    with pytest.raises(UsageError, match="--framework fake runs on fake chip here"):
        choose("fake", "cpu", {})


def test_device_tpu_is_passed_on(world, fake, monkeypatch):
    asked = []
    connect = world.connect
    monkeypatch.setattr(world, "connect", lambda **how: asked.append(how) or connect(**how))
    choose("fake", "tpu", {})
    assert asked == [{"require_tpu": True}]


def test_a_framework_that_is_asked_for_is_settled(world):
    choice = choose("plain", "auto", {})
    assert choice.adapter.name == "plain"
    assert choice.settled
