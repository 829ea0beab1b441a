"""P24: TensorFlow that does not fit the TPU: the way on is said, and the cause is kept."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
from IPython.core.error import UsageError

from tpu_magic.frameworks import keras as keras_adapter
from tpu_magic.frameworks import tensorflow as adapter

pytest_plugins = ("tests.support.keras_kernels",)
NO_KERNEL = (
    "No OpKernel was registered to support Op 'ConfigureDistributedTPU' used by "
    "{{node ConfigureDistributedTPU}} … Registered devices: [CPU]"
)


class FakeTensorFlow:
    """TensorFlow's edge towards a TPU; notes what is called, in order."""

    class errors:  # noqa: N801 - named as in TensorFlow
        class InvalidArgumentError(Exception):
            pass

        class NotFoundError(Exception):
            pass

    def __init__(self, error=None):
        self.calls = []
        self._error = error
        note = self.calls.append
        self.config = SimpleNamespace(
            experimental_connect_to_cluster=lambda resolver: note(("connect", resolver))
        )
        self.tpu = SimpleNamespace(experimental=SimpleNamespace(initialize_tpu_system=self._start))
        self.distribute = SimpleNamespace(
            cluster_resolver=SimpleNamespace(TPUClusterResolver=self._resolve),
            TPUStrategy=lambda resolver: note(("strategy", resolver)) or "the strategy",
        )

    def _resolve(self, tpu):
        self.calls.append(("resolve", tpu))
        return "resolver"

    def _start(self, resolver):
        self.calls.append(("initialize", resolver))
        if self._error is not None:
            raise self._error


def test_the_tpu_of_this_machine_is_connected_in_the_documented_order():
    tf = FakeTensorFlow()
    assert adapter.tpu_strategy(tf) == "the strategy"
    assert tf.calls == [
        ("resolve", "local"),
        ("connect", "resolver"),
        ("initialize", "resolver"),
        ("strategy", "resolver"),
    ]


@pytest.mark.parametrize(
    "error",
    [
        FakeTensorFlow.errors.InvalidArgumentError(NO_KERNEL),
        FakeTensorFlow.errors.NotFoundError("TPUs not found in the cluster."),
    ],
)
def test_a_build_without_tpu_kernels_is_named_with_the_way_on(error):
    with pytest.raises(UsageError, match="KERAS_BACKEND=jax") as refused:
        adapter.tpu_strategy(FakeTensorFlow(error), build=lambda: "tensorflow-cpu 2.21.0")
    assert "tensorflow-cpu 2.21.0" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert refused.value.__cause__ is error


def test_other_errors_of_the_tpu_pass():
    error = FakeTensorFlow.errors.NotFoundError("some file")
    with pytest.raises(FakeTensorFlow.errors.NotFoundError, match="some file"):
        adapter.tpu_strategy(FakeTensorFlow(error))


@pytest.mark.skipif(find_spec("tensorflow") is None, reason="needs tensorflow")
def test_the_calls_fit_the_installed_tensorflow_and_its_error_is_recognised():
    # tensorflow is imported in a child: in this process it would end torch_xla's.
    program = """
import inspect, tensorflow as tf
from IPython.core.error import UsageError
from tpu_magic.frameworks.tensorflow import tpu_strategy
for called, names in (
    (tf.distribute.cluster_resolver.TPUClusterResolver.__init__, ("self", "tpu")),
    (tf.config.experimental_connect_to_cluster, ("cluster_spec_or_resolver",)),
    (tf.tpu.experimental.initialize_tpu_system, ("cluster_resolver",)),
    (tf.distribute.TPUStrategy.__init__, ("self", "tpu_cluster_resolver")),
):
    assert tuple(inspect.signature(called).parameters)[:len(names)] == names, called
try:
    tpu_strategy(tf)
except UsageError as error:
    print(type(error.__cause__).__name__, "|", error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    cause, _, message = done.stdout.strip().splitlines()[-1].partition(" | ")
    assert cause in ("InvalidArgumentError", "NotFoundError")
    assert "has no TPU kernels" in message


def test_keras_goes_on_jax_where_the_tpu_is_and_says_so():
    backend = keras_adapter.choose(
        None,
        {},
        {"jax", "tensorflow-cpu"}.__contains__,
        tensorflow_loaded=True,
        on_tpu=True,
    )
    assert backend == keras_adapter.Backend("jax", "the one that runs on today's TPU images")


@pytest.mark.kernel
@pytest.mark.timeout(600)
@pytest.mark.skipif(find_spec("tensorflow") is None, reason="needs tensorflow")
def test_a_strategy_for_models_of_another_backend_is_warned_of(on_jax):
    reply = on_jax.run("1", "--framework tf")
    said = " ".join(reply.reports[0]["notes"])
    assert "keras is loaded with jax in this kernel" in said
    assert "restart the kernel with KERAS_BACKEND=tensorflow" in said
