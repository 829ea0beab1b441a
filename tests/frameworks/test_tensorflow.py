"""The adapter for TensorFlow; TensorFlow itself runs in children only."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest
from IPython.core.error import UsageError

from tests.frameworks.test_jax import child
from tpu_magic.frameworks import tensorflow as adapter
from tpu_magic.frameworks.base import Adapter

needs_tensorflow = pytest.mark.skipif(find_spec("tensorflow") is None, reason="needs tensorflow")


def test_what_to_install_is_said_and_the_jax_way(monkeypatch):
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    monkeypatch.setattr(adapter, "find_spec", lambda name: None)
    with pytest.raises(UsageError) as refused:
        adapter.TensorFlow().connect()
    assert "tensorflow is not installed here" in str(refused.value)
    assert "--framework keras" in str(refused.value)


def test_asking_imports_nothing(monkeypatch):
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    monkeypatch.delitem(sys.modules, "tensorflow.python.eager.context", raising=False)
    tensorflow = adapter.TensorFlow()
    assert isinstance(tensorflow, Adapter)
    tensorflow.availability()
    assert not tensorflow.connected()
    assert list(tensorflow.arrays([1])) == []
    with pytest.raises(UsageError, match="not connected"):
        tensorflow.devices()
    assert "tensorflow" not in sys.modules


@needs_tensorflow
def test_one_strategy_over_virtual_devices():
    said = child(
        """
import sys
sys.modules["keras"] = None  # TensorFlow without Keras
from tpu_magic import frameworks
from IPython.core.error import UsageError
tf_adapter = frameworks.adapter("tf")
info = tf_adapter.connect(simulate=2)
strategy = tf_adapter.strategy
assert tf_adapter.connect() is info and tf_adapter.strategy is strategy
print(info.label(), info.simulated)
for wrong in ({"simulate": 4}, {"devices": "1"}, {"require_tpu": True}):
    try:
        tf_adapter.connect(**wrong)
    except UsageError as error:
        print(error)
import tensorflow as tf
assert tf_adapter in frameworks.running()
a = tf.ones((2, 2))
with strategy.scope():
    v = tf.Variable(a)
assert len(list(tf_adapter.arrays({"a": [a, v, 1]}))) == 2
assert tf_adapter.on_device(a) and tf_adapter.to_device(a) is a
tf_adapter.read(a); tf_adapter.read(v); tf_adapter.materialize(a); tf_adapter.wait()
assert tf_adapter.memory() == [] and tf_adapter.counters().compiles is None
assert "tensorflow-cpu" in tf_adapter.versions() or "tensorflow" in tf_adapter.versions()

from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "tpu_magic")
def run(options, code):
    shell.run_cell(f"%%tpu_run --framework tf --quiet -o report {options}\\n{code}").raise_error()
    return shell.user_ns["report"]
shell.user_ns["strategy"] = "the person's"
from tpu_magic.frameworks.tensorflow import find_spec
import tpu_magic.frameworks.tensorflow as module
module.find_spec = lambda name: None if name == "keras" else find_spec(name)
report = run("--seed 1 --precision high", '''
import tensorflow as tf
inside = strategy, tf.distribute.get_strategy()
drawn = tf.random.uniform((2,)).numpy()
total = strategy.reduce("SUM", strategy.run(lambda: tf.constant(1.0)), axis=None).numpy()
''')
assert shell.user_ns["inside"] == (strategy, strategy) and shell.user_ns["total"] == 2
assert shell.user_ns["strategy"] == "the person's"
assert not tf.distribute.has_strategy()
first = shell.user_ns["drawn"]
run("--seed 1", "drawn = tf.random.uniform((2,)).numpy()")
assert (shell.user_ns["drawn"] == first).all()
print(*report.notes, sep="\\n")
del shell.user_ns["strategy"]
run("", "pass")
assert "strategy" not in shell.user_ns  # what it would run on models is for cells only
with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
    try:
        with tf_adapter.scope():
            pass
    except UsageError as error:
        print(error)
""",
        TF_CPP_MIN_LOG_LEVEL="3",
    )
    lines = [line for line in said.splitlines() if not line.startswith("INFO:")]
    assert lines[0] == "CPU (TensorFlow) × 2 · not a TPU True"
    assert "already runs with 2 devices in this kernel; restart it to simulate 4" in lines[1]
    assert "spans all 2 devices" in lines[2]
    assert "--require-tpu: TensorFlow runs on CPU (TensorFlow) × 2" in lines[3]
    assert "--precision high: TensorFlow has no setting for it" in lines[4]
    assert "uses all 2 devices through strategy.run" in lines[5]
    assert "already runs this cell in `strategy.scope()`" in lines[6]


@needs_tensorflow
def test_one_device_needs_no_strategy():
    assert child(
        """
import tensorflow as tf
tf.constant(1)
from tpu_magic.frameworks import adapter
assert adapter("tf").connected()
print(adapter("tf").devices().count)
from IPython.core.error import UsageError
try:
    adapter("tf").connect(simulate=2)
except UsageError as error:
    print(error)
with adapter("tf").scope():
    print(tf.distribute.has_strategy())
""",
        TF_CPP_MIN_LOG_LEVEL="3",
    ).splitlines() == [
        "1",
        "TensorFlow already runs with 1 device in this kernel; restart it to simulate 2",
        "False",
    ]
