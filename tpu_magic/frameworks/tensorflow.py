"""TensorFlow: TPUStrategy on a TPU build, MirroredStrategy over GPUs or virtual CPU devices."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from tpu_magic.frameworks import keras
from tpu_magic.frameworks.base import (
    Availability,
    CellFacts,
    Counters,
    DeviceInfo,
    Memory,
)
from tpu_magic.frameworks.patches import replaced
from tpu_magic.frameworks.starting import StartsOnce
from tpu_magic.host import detect

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tpu_magic.frameworks.base import CellSession, Namespace, Rows
    from tpu_magic.options import RunOptions

BUILDS = ("tensorflow-tpu", "tensorflow", "tensorflow-cpu")
NO_TPU_KERNELS = (
    "this TensorFlow ({build}) has no TPU kernels, and a TPU is here: Keras on JAX needs none "
    "(restart the kernel with KERAS_BACKEND=jax, then --framework keras), or "
    "%tpu_setup --framework tf --dry-run says what tensorflow-tpu would take"
)
ONE_STRATEGY = (
    "tpu_magic already runs this cell in `strategy.scope()`: use the name `strategy`, and leave "
    "the resolver and the strategy of the old recipe away"
)
# The module with TensorFlow's own counter of the time that it takes to trace.
_TRACING = "tensorflow.python.eager.polymorphic_function.tracing_compilation"
NOTHING_COMPUTED = "no operation of TensorFlow's ran"
_PRECISION = (
    "--precision {precision}: TensorFlow has no setting for it; a Keras model takes "
    "keras.config.set_dtype_policy('mixed_bfloat16') before it is made"
)
_OTHER_KERAS = (
    "keras is loaded with {backend} in this kernel, so its models train outside of `strategy`: "
    "use --framework keras for them, or restart the kernel with KERAS_BACKEND=tensorflow"
)
_EAGER = (
    "a loop of your own uses all {count} devices through strategy.run (and "
    "strategy.experimental_distribute_dataset); other operations run on one"
)


class TensorFlow(StartsOnce):
    """The adapter for TensorFlow. `frameworks.base.Adapter`.

    The strategy is made once, over all devices. The TPU system is initialised once in a process:
    a second time would lose every variable on it.
    """

    name = "tf"
    label = "TensorFlow"
    packages = (*BUILDS, "keras", "libtpu")

    def __init__(self) -> None:
        super().__init__()
        self._strategy: Any = None

    # --- here or not ------------------------------------------------------------------------

    def availability(self) -> Availability:
        """Say whether TensorFlow can be used in this process."""
        if "tensorflow" in sys.modules or find_spec("tensorflow") is not None:
            return Availability(usable=True)
        return Availability(
            False,
            "tensorflow is not installed here (today's TPU images carry none)",
            "%tpu_setup --framework tf says what it would take; Keras runs on JAX without it "
            "(--framework keras)",
        )

    def _runtime_started(self) -> bool:
        context = sys.modules.get("tensorflow.python.eager.context")
        made = getattr(context, "_context", None)
        return made is not None and bool(getattr(made, "_initialized", False))

    def _start(self, facts: detect.HostFacts, simulate: int | None, devices: str) -> None:
        import tensorflow as tf

        since = None if self._runtime_started() else time.time()
        if facts.chips:
            self._strategy = tpu_strategy(tf)
            kind = facts.accelerator or "TPU"
        else:
            if simulate:
                _split_processor(tf, simulate)
            gpus = tf.config.list_logical_devices("GPU")
            places = gpus or tf.config.list_logical_devices("CPU")
            kind = _gpu_kind(tf) if gpus else "CPU (TensorFlow)"
            if len(places) > 1 and devices == "all":
                self._strategy = tf.distribute.MirroredStrategy([each.name for each in places])
                _make_numbers()
            else:
                self._strategy = tf.distribute.get_strategy()
        count = self._strategy.num_replicas_in_sync
        self._info = DeviceInfo(
            kind=kind,
            count=count,
            present=count if facts.chips else len(places),
            on_tpu=bool(facts.chips),
            simulated=not facts.chips and not facts.gpu and count > 1,
            since=since,
        )

    @property
    def strategy(self) -> Any:
        """Return the strategy that cells run in."""
        self.devices()
        return self._strategy

    # --- running ----------------------------------------------------------------------------

    def cell(
        self, options: RunOptions, namespace: Namespace
    ) -> AbstractContextManager[CellSession]:
        """Return the context of a cell: in the strategy's scope, with the name `strategy`."""
        if _keras_is_on_tensorflow():
            from tpu_magic.frameworks.keras_cell import KerasCell
            from tpu_magic.frameworks.keras_tensorflow import OnTensorFlow

            return KerasCell(self, OnTensorFlow(self), options).running(
                namespace, inside=lambda: self.named(namespace)
            )
        return TensorFlowCell(self, options).running(namespace)

    @contextmanager
    def named(self, namespace: Namespace) -> Iterator[None]:
        """Give the namespace the name `strategy`; what had that name before gets it back.

        Else it is taken away: outside of a cell, models are on one device, and steps that the
        strategy runs on them would train each replica's share on the same variable.
        """
        had, before = "strategy" in namespace, namespace.get("strategy")
        namespace["strategy"] = self.strategy
        try:
            yield
        finally:
            if namespace.get("strategy") is self.strategy:
                del namespace["strategy"]
                if had:
                    namespace["strategy"] = before

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Enter the strategy's scope; the person may be in it already."""
        import tensorflow as tf

        if self.devices().count == 1 or tf.distribute.get_strategy() is self.strategy:
            yield
        elif tf.distribute.has_strategy():
            raise UsageError(ONE_STRATEGY)
        else:
            with ExitStack() as inside:
                inside.enter_context(self.strategy.scope())

                # keras.utils.clear_session takes the graph away in which the scope was entered.
                def again(reset: Callable[[], None]) -> Callable[[], None]:
                    def reset_default_graph() -> None:
                        inside.close()
                        reset()
                        inside.enter_context(self.strategy.scope())

                    return reset_default_graph

                with replaced(tf.compat.v1, {"reset_default_graph": again}):
                    yield

    def materialize(self, outputs: Any) -> None:
        """Do nothing: TensorFlow hands its programs over when they are called."""

    def wait(self) -> None:
        """Block until every device is done."""
        import tensorflow as tf
        from tensorflow.python.eager import context

        context.async_wait()
        if tf.config.list_logical_devices("GPU"):
            tf.test.experimental.sync_devices()

    def counters(self) -> Counters:
        """Return the time of tracing: TensorFlow counts no compiles, executions or transfers."""
        counter = getattr(sys.modules.get(_TRACING), "_graph_building_time_counter", None)
        return Counters(trace_s=None if counter is None else counter.get_cell().value() / 1e6)

    def tensors_made(self) -> int:
        """Return how many numbers TensorFlow has given to tensors; asking takes one.

        Every result of an operation outside of a program gets one.
        """
        from tensorflow.python.framework import ops

        return int(ops.uid())

    def memory(self) -> list[Memory]:
        """Return the memory of each GPU; nothing where the runtime does not tell (CPU, TPU)."""
        import tensorflow as tf

        found = []
        for device in tf.config.list_logical_devices("GPU"):
            told = tf.config.experimental.get_memory_info(device.name.removeprefix("/device:"))
            found.append(Memory(told["current"], told["peak"]))
        return found

    # --- arrays -------------------------------------------------------------------------------

    def arrays(self, value: Any) -> Iterator[Any]:
        """Yield every tensor and variable in `value`, whatever the nesting."""
        if "tensorflow" not in sys.modules:
            return
        import tensorflow as tf

        for leaf in tf.nest.flatten(value):
            if isinstance(leaf, (tf.Tensor, tf.Variable, tf.distribute.DistributedValues)):
                yield leaf

    def on_device(self, array: Any) -> bool:
        """Say whether a tensor is where the strategy computes."""
        if self.devices().kind.startswith("CPU"):
            return True
        return "CPU" not in str(getattr(array, "device", ""))

    def to_device(self, array: Any) -> Any:
        """Return the tensor where operations of a cell would put it."""
        import tensorflow as tf

        if self.on_device(array):
            return array
        with tf.device(self.strategy.extended.worker_devices[0]):
            return tf.identity(array)

    def read(self, array: Any) -> None:
        """Bring a tensor's values to the host, which cannot end before they are computed."""
        for part in self.strategy.experimental_local_results(array):
            part.numpy()

    def square(self, rows: Rows) -> Rows:
        """Return the product of a matrix with itself, computed where the strategy does."""
        import tensorflow as tf

        matrix = self.to_device(tf.constant(rows, tf.float32))
        product: Rows = (matrix @ matrix).numpy().tolist()
        return product

    def matmul_precision(self) -> str:
        """Return the precision of float32 matrix products: TensorFlow has no setting."""
        return "default"

    def explain(self, error: BaseException, namespace: Namespace) -> str | None:
        """Return one line of help for an error that the strategy caused."""
        from tpu_magic.frameworks import keras_errors

        return keras_errors.explain(error, namespace)


class TensorFlowCell:
    """A cell of TensorFlow code without Keras. `frameworks.base.CellSession`."""

    def __init__(self, adapter: TensorFlow, options: RunOptions) -> None:
        self.facts = CellFacts(precision=options.precision)
        self._adapter = adapter
        self._options = options
        self._before = Counters()
        self._made = 0

    @contextmanager
    def running(self, namespace: Namespace) -> Iterator[TensorFlowCell]:
        """Run the cell in the strategy's scope."""
        import tensorflow as tf

        if self._options.seed is not None:
            tf.random.set_seed(self._options.seed)
        self.facts.notes += notes(self._adapter, self._options)
        with ExitStack() as undo:
            undo.enter_context(no_reduction_logged())
            undo.enter_context(self._adapter.named(namespace))
            undo.enter_context(self._adapter.scope())
            self._before = self._adapter.counters()
            self._made = self._adapter.tensors_made()
            yield self

    def finish(self) -> None:
        """Wait until the devices are done."""
        made = self._adapter.tensors_made() - self._made - 1
        started = time.perf_counter()
        self._adapter.wait()
        self.facts.device_wait_s += time.perf_counter() - started
        self.facts.trace_s = self._adapter.counters().since(self._before).trace_s
        self.facts.reached_device = made > 0
        self.facts.unreached_reason = "" if made else NOTHING_COMPUTED


def notes(adapter: TensorFlow, options: RunOptions) -> list[str]:
    """Return what there is to say before a cell of TensorFlow code."""
    count, said = adapter.devices().count, []
    if options.precision != "default":
        said.append(_PRECISION.format(precision=options.precision))
    if sys.modules.get("keras") is not None:
        said.append(_OTHER_KERAS.format(backend=keras.configured()))
    if count > 1:
        said.append(_EAGER.format(count=count))
    return said


def tpu_strategy(tf: Any, build: Callable[[], str] | None = None) -> Any:
    """Return a TPUStrategy over the chips of this host.

    `tpu="local"` is what every TPU VM wants; without it the resolver asks for a remote worker
    (facts: runtimes.md 3.3, field case P05).

    Raises
    ------
    IPython.core.error.UsageError
        When this TensorFlow has no TPU kernels, with TensorFlow's error as the cause.
    """
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="local")
    try:
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as error:
        if not re.search(r"ConfigureDistributedTPU|TPUs not found", str(error)):
            raise
        raise UsageError(NO_TPU_KERNELS.format(build=(build or installed_build)())) from error
    return tf.distribute.TPUStrategy(resolver)


def _make_numbers() -> None:
    """Let a variable on several devices be a number where a variable on one is.

    As in `float(model.optimizer.learning_rate)`, also in the cells to come: the variables stay.
    """
    from tensorflow.python.distribute.values import DistributedVariable

    def number(kind: type) -> Callable[[Any], Any]:
        return lambda variable: kind(variable.numpy())

    for kind in (int, float, complex):
        if (name := f"__{kind.__name__}__") not in vars(DistributedVariable):
            setattr(DistributedVariable, name, number(kind))


@contextmanager
def no_reduction_logged() -> Iterator[None]:
    """Keep out of a cell's output the lines that a strategy logs for every reduction it traces."""
    import tensorflow as tf

    def is_wanted(record: logging.LogRecord) -> bool:
        return record.levelno > logging.INFO or record.module != "cross_device_ops"

    logger = tf.get_logger()
    logger.addFilter(is_wanted)
    try:
        yield
    finally:
        logger.removeFilter(is_wanted)


def installed_build() -> str:
    """Return name and version of the TensorFlow that is installed."""
    for package in BUILDS:
        with suppress(metadata.PackageNotFoundError):
            return f"{package} {metadata.version(package)}"
    return "not from a package"


def _split_processor(tf: Any, count: int) -> None:
    """Make the processor look like several devices; only possible before the runtime starts."""
    processor = tf.config.list_physical_devices("CPU")[0]
    with suppress(RuntimeError):  # it has started: connect compares the numbers
        tf.config.set_logical_device_configuration(
            processor, [tf.config.LogicalDeviceConfiguration()] * count
        )


def _keras_is_on_tensorflow() -> bool:
    """Load Keras, if it is here and no other backend is asked for: `tf.keras` is the same."""
    if find_spec("keras") is None or keras.configured() not in (None, "tensorflow"):
        return False
    keras.load("tensorflow")
    return True


def _gpu_kind(tf: Any) -> str:
    details = tf.config.experimental.get_device_details(tf.config.list_physical_devices("GPU")[0])
    return f"CUDA GPU ({details.get('device_name', 'unknown')})"
