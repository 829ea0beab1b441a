"""The adapter for JAX; jax itself runs in children only."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.error import UsageError

from tpu_magic.frameworks import jax as adapter
from tpu_magic.frameworks.base import Adapter, Counters

needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="needs jax")
_COMPILE = "/jax/core/compile/backend_compile_duration"
_TRACE = "/jax/core/compile/jaxpr_trace_duration"


def child(program: str, **environment: str) -> str:
    """Run a program in a fresh Python and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


# --- counting ---------------------------------------------------------------------------------


def test_nested_times_count_once():
    union = adapter.Intervals()
    union.add(end=2.0, seconds=1.0)  # 1-2
    union.add(end=4.0, seconds=1.0)  # 3-4
    union.add(end=5.0, seconds=4.5)  # 0.5-5 holds both
    assert union.total_s == pytest.approx(4.5)
    union.add(end=8.0, seconds=1.0)
    assert union.total_s == pytest.approx(5.5)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30)), max_size=30))
def test_the_union_is_as_long_as_the_seconds_that_any_covers(parts):
    # Told in the order of their ends, as jax tells them; whole seconds can be counted by hand.
    told = sorted(((start + length, length) for start, length in parts))
    union = adapter.Intervals()
    covered: set[int] = set()
    for end, length in told:
        union.add(float(end), float(length))
        covered |= set(range(end - length, end))
    assert union.total_s == pytest.approx(len(covered))


def test_events_become_counters():
    events = adapter.CompileEvents()
    before = events.counters()
    events(_COMPILE, 0.25, fun_name="f")
    events(_TRACE, 0.125)
    events("/jax/something/else", 9.0)
    counted = events.counters().since(before)
    assert counted == Counters(compiles=1, compile_s=0.25, trace_s=0.125)


# --- refusals ---------------------------------------------------------------------------------


def test_what_to_install_is_said(monkeypatch):
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    monkeypatch.setattr(adapter, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="jax is not installed here: %tpu_setup"):
        adapter.Jax().connect()


def test_asking_imports_nothing(monkeypatch):
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    monkeypatch.delitem(sys.modules, "jax._src.xla_bridge", raising=False)
    jax = adapter.Jax()
    assert isinstance(jax, Adapter)
    assert not jax.connected()
    assert list(jax.arrays([1])) == []
    with pytest.raises(UsageError, match="not connected"):
        jax.devices()
    assert "jax" not in sys.modules


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Argument 0 … 10 should be divisible by 4", "multiple of jax.device_count()"),
        ("Received incompatible devices for jitted computation", "one sharding"),
        ("Array has been deleted with shape=float32[3]", "donate_argnums"),
        ("RESOURCE_EXHAUSTED: Out of memory", "smaller batches"),
    ],
)
def test_its_errors_are_explained(text, line):
    assert line in adapter.Jax().explain(RuntimeError(text), {})


def test_others_are_not():
    assert adapter.Jax().explain(TypeError("unsupported operand"), {}) is None


# --- the real jax -----------------------------------------------------------------------------


@needs_jax
def test_devices_counting_and_waiting():
    said = child("""
from tpu_magic.frameworks import adapter
from IPython.core.error import UsageError
jax_adapter = adapter("jax")
info = jax_adapter.connect(simulate=3)
assert info is jax_adapter.connect(), "idempotent"
print(info.label(), info.simulated)
for wrong in ({"simulate": 2}, {"devices": "1"}, {"require_tpu": True}):
    try:
        jax_adapter.connect(**wrong)
    except UsageError as error:
        print(error)

import jax, jax.numpy as jnp, threading
before = jax_adapter.counters()
f = jax.jit(lambda a: a @ a)
a = jnp.ones((4, 4))
f(a); f(a)
counted = jax_adapter.counters().since(before)
assert counted.compiles >= 1 and counted.compile_s > 0 and counted.trace_s > 0, counted
before = jax_adapter.counters()
f(a)
jax_adapter.wait()
assert jax_adapter.counters().since(before).compiles == 0, "waiting compiles nothing"

# The wait is a wait: a program whose result nobody holds has run its callback.
done = []
slow = jax.jit(lambda a: jax.pure_callback(lambda v: (done.append(1), v)[1], a, a))
slow(a)
jax_adapter.wait()
assert done, "not waited for"

assert [each is a for each in jax_adapter.arrays({"x": [a, 1, None]})] == [True]
assert jax_adapter.on_device(a) and jax_adapter.to_device(a) is a
jax_adapter.read(a)
assert jax_adapter.memory() == [] and jax_adapter.matmul_precision() == "default"
assert "jaxlib" in jax_adapter.versions()
""")
    lines = said.splitlines()
    assert lines[0] == "XLA CPU × 3 · not a TPU True"
    assert "already runs with 3 devices in this kernel; restart it to simulate 2" in lines[1]
    assert "already spans all 3 devices" in lines[2]
    assert "--require-tpu: jax runs on XLA CPU × 3" in lines[3]


@needs_jax
def test_one_of_several_devices():
    said = child("""
from tpu_magic.frameworks import adapter
info = adapter("jax").connect(simulate=3, devices="1")
print(info.label(), adapter("jax").connect() is info)
""")
    assert said == "XLA CPU × 1 of 3 · not a TPU True"


@needs_jax
def test_a_flag_that_asks_for_devices_is_respected():
    program = """
from tpu_magic.frameworks import adapter
from IPython.core.error import UsageError
try:
    print(adapter("jax").connect(simulate=4).count)
except UsageError as error:
    print(error)
"""
    flag = "--xla_force_host_platform_device_count="
    assert child(program, XLA_FLAGS=f"{flag}4") == "4"
    assert "already runs with 2 devices" in child(program, XLA_FLAGS=f"{flag}2")


# Programs with an all-reduce and small ones between them, queued as fast as they can be: without
# the threads, jax 0.10 on 2 cores and 4 devices stood still within the first few hundred.
_QUEUED = """
import faulthandler, os
faulthandler.dump_traceback_later(120, exit=True)
import jax, numpy as np
from tpu_magic.frameworks import adapter
before = dict(os.environ)
adapter("jax").connect(simulate=4)
assert dict(os.environ) == before
mesh, spec = jax.make_mesh((4,), ("x",)), jax.sharding.PartitionSpec
everywhere = jax.sharding.NamedSharding(mesh, spec())
weights = jax.device_put(np.ones((64, 64), "float32"), everywhere)
rows = jax.device_put(np.ones((64, 64), "float32"), jax.sharding.NamedSharding(mesh, spec("x")))
step = jax.jit(lambda w, x: w + 0.25 * (x @ w).mean(0) * 0)
small = jax.jit(lambda a: a + 1)
for _ in range(4000):
    weights = step(weights, rows)
    seen, other = small(weights), small(rows)
jax.block_until_ready([weights, seen, other])
print(float(seen[0, 0]))
"""


@needs_jax
def test_queued_programs_on_virtual_devices_do_not_wait_for_each_other():
    assert float(child(_QUEUED)) == 2


@needs_jax
def test_a_runtime_that_someone_else_started_is_used_as_it_is():
    assert (
        child("""
import jax
jax.config.update("jax_platforms", "cpu")
from tpu_magic.frameworks import adapter, running
assert not adapter("jax").connected()
jax.devices()
assert adapter("jax").connected() and adapter("jax") in running()
print(adapter("jax").devices().count)
""")
        == "1"
    )


@needs_jax
def test_virtual_devices_that_someone_else_made_can_stand_still_and_that_is_said():
    program = """
import jax
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 4)
jax.devices()
from tpu_magic.frameworks import adapter
import tpu_magic.frameworks.threads as module
module._cores = lambda: {cores}
print(adapter("jax").devices().note)
"""
    said = child(program.format(cores=2))
    assert "these 4 devices were made before tpu_magic" in said
    assert "PJRT_NPROC=16" in said
    assert child(program.format(cores=16)) == ""


@needs_jax
def test_a_cell():
    said = child("""
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.error import UsageError
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "tpu_magic")
from tpu_magic.frameworks import adapter
adapter("jax").connect(simulate=2)
def run(options, code):
    shell.run_cell(f"%%tpu_run --framework jax --quiet -o report {options}\\n{code}").raise_error()
    return shell.user_ns["report"]
report = run("--precision highest --seed 1", '''
import jax, jax.numpy as jnp
inside = jax.config.jax_default_matmul_precision
b = jax.jit(lambda a: a @ a)(jnp.ones((8, 8)))
''')
assert shell.user_ns["inside"] == "highest"
import jax
assert jax.config.jax_default_matmul_precision is None
assert report.compiles >= 1 and report.trace_s > 0 and report.device_wait_s > 0
assert report.reached_device and report.num_devices == 2 and report.framework == "jax"
print(*report.notes, sep="\\n")
try:
    run("--keep b", "1")
except UsageError as error:
    print(error)
mesh = "jax.sharding.NamedSharding(jax.make_mesh((2,), ('x',)), jax.sharding.PartitionSpec('x'))"
print(run("", f"c = jax.device_put(jnp.ones((4,)), {mesh}) + 1").notes)
""")
    lines = said.splitlines()
    assert "jax draws from the keys" in lines[0]
    assert "what this cell made is on 1 of 2 devices" in lines[1]
    assert "--keep is for torch" in lines[2]
    assert lines[3] == "[]"
