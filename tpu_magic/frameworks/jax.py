"""JAX: TPUs, GPUs, and XLA's CPU devices where there is neither."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from tpu_magic.frameworks.base import (
    Availability,
    CellFacts,
    Counters,
    DeviceInfo,
    Memory,
)
from tpu_magic.frameworks.environ import environment
from tpu_magic.frameworks.starting import StartsOnce
from tpu_magic.frameworks.threads import enough_threads, few_threads
from tpu_magic.host import detect

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tpu_magic.frameworks.base import CellSession, Namespace, Rows
    from tpu_magic.options import RunOptions

_COMPILE = "/jax/core/compile/backend_compile_duration"
_TRACE = (
    "/jax/core/compile/jaxpr_trace_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
)
# Intervals that an outer one may still contain.
_REMEMBERED = 10_000
# --precision: what jax calls it
PRECISIONS = {"high": "high", "highest": "highest", "bf16": "bfloat16"}
NOTHING_COMPUTED = "it compiled nothing, made no array and read none"
NO_SEED = "--seed: jax draws from the keys that the code makes (jax.random.key); nothing was seeded"
NO_KEEP = (
    "--keep is for torch, where objects move: what must not run on the device belongs in a "
    "cell without the magic"
)


class Jax(StartsOnce):
    """The adapter for JAX. `frameworks.base.Adapter`."""

    name = "jax"
    label = "jax"
    packages = ("jax", "jaxlib", "libtpu")

    def __init__(self) -> None:
        super().__init__()
        self._events = CompileEvents()
        self._tick: Any = None
        self._seed: Any = None

    # --- here or not ------------------------------------------------------------------------

    def availability(self) -> Availability:
        """Say whether jax can be used in this process."""
        if "jax" in sys.modules or find_spec("jax") is not None:
            return Availability(usable=True)
        return Availability(False, "jax is not installed here", "%tpu_setup --framework jax")

    def _runtime_started(self) -> bool:
        bridge = sys.modules.get("jax._src.xla_bridge")
        return bridge is not None and bool(bridge.backends_are_initialized())

    def _start(self, facts: detect.HostFacts, simulate: int | None, devices: str) -> None:
        import jax

        since = None if self._runtime_started() else time.time()
        if since is not None:
            if not (facts.chips or facts.gpu) and not jax.config.jax_platforms:
                # Asked for nothing, jax would look for a TPU and print what it did not find.
                jax.config.update("jax_platforms", "cpu")
            if simulate and not _flag_devices():
                jax.config.update("jax_num_cpu_devices", simulate)
        with environment(enough_threads(_flag_devices() or jax.config.jax_num_cpu_devices)):
            everywhere = jax.devices()
        first = everywhere[0]
        on_tpu = first.platform == "tpu"
        self._info = DeviceInfo(
            kind=_kind(facts, first),
            count=1 if devices == "1" else len(everywhere),
            present=len(everywhere),
            on_tpu=on_tpu,
            simulated=first.platform == "cpu" and len(everywhere) > 1,
            note=_note(facts, first, by_person=not since),
            since=since,
        )
        self._make_tick(everywhere)
        jax.monitoring.register_event_duration_secs_listener(self._events)

    def _make_tick(self, everywhere: list[Any]) -> None:
        """Make a program of one addition for all devices, which ends after what was queued."""
        import jax

        mesh = jax.sharding.Mesh(everywhere, ("all",))
        everyone = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        self._seed = jax.device_put(0, everyone)
        self._tick = jax.jit(lambda number: number + 1)
        self._tick(self._seed).block_until_ready()

    # --- running ----------------------------------------------------------------------------

    def cell(
        self, options: RunOptions, namespace: Namespace
    ) -> AbstractContextManager[CellSession]:
        """Return the context in which a cell runs. jax code needs no moving."""
        return JaxCell(self, options).running(namespace)

    def precision(self, wanted: str) -> AbstractContextManager[Any]:
        """Return the context in which float32 matrix products have a precision."""
        import jax

        context: AbstractContextManager[Any] = jax.default_matmul_precision(PRECISIONS.get(wanted))
        return context

    def materialize(self, outputs: Any) -> None:
        """Do nothing: jax hands its programs over when they are called."""

    def wait(self) -> None:
        """Block until every device is done, also with what nobody holds the result of.

        A program queued now on each device ends after those before it; arrays that other
        streams still work on (transfers) are waited for themselves.
        """
        import jax

        jax.block_until_ready([self._tick(self._seed), *jax.live_arrays()])

    def counters(self) -> Counters:
        """Return what jax's own monitoring said since we connected."""
        return self._events.counters()

    def memory(self) -> list[Memory]:
        """Return the memory of each device; nothing where the runtime does not tell (CPU)."""
        import jax

        told = [device.memory_stats() for device in jax.local_devices()]
        return [
            Memory(
                stats.get("bytes_in_use"), stats.get("peak_bytes_in_use"), stats.get("bytes_limit")
            )
            for stats in told
            if stats
        ]

    # --- arrays -------------------------------------------------------------------------------

    def arrays(self, value: Any) -> Iterator[Any]:
        """Yield every array in `value`, in any pytree."""
        if "jax" not in sys.modules:
            return
        import jax

        for leaf in jax.tree_util.tree_leaves(value):
            if isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer):
                yield leaf

    def on_device(self, array: Any) -> bool:
        """Say whether an array lives on the default platform's devices."""
        import jax

        return all(device.platform == jax.default_backend() for device in array.devices())

    def to_device(self, array: Any) -> Any:
        """Return the array on the device."""
        import jax

        return array if self.on_device(array) else jax.device_put(array, jax.devices()[0])

    def read(self, array: Any) -> None:
        """Bring an array's values to the host, which cannot end before they are computed."""
        import jax

        jax.device_get(array)

    def square(self, rows: Rows) -> Rows:
        """Return the product of a matrix with itself, computed on every device."""
        import jax
        import numpy as np

        self.devices()
        matrix = jax.device_put(np.asarray(rows, "float32"), self._seed.sharding)
        product: Rows = jax.device_get(matrix @ matrix).tolist()
        return product

    def matmul_precision(self) -> str:
        """Return the precision of float32 matrix products."""
        import jax

        return jax.config.jax_default_matmul_precision or "default"

    def explain(self, error: BaseException, namespace: Namespace) -> str | None:
        """Return one line of help for an error that the device caused."""
        text = str(error)
        return next((hint for signature, hint in _HINTS if signature.search(text)), None)


class JaxCell:
    """A cell of jax code. `frameworks.base.CellSession`."""

    def __init__(self, adapter: Jax, options: RunOptions) -> None:
        from tpu_magic.frameworks.jax_evidence import Evidence

        if options.keep:
            raise UsageError(NO_KEEP)
        self.facts = CellFacts(precision=options.precision)
        self._adapter = adapter
        self._options = options
        self._before = adapter.counters()
        self._evidence = Evidence(adapter.counters)

    @contextmanager
    def running(self, namespace: Namespace) -> Iterator[JaxCell]:
        """Run the cell."""
        if self._options.seed is not None:
            self.facts.notes.append(NO_SEED)
        with ExitStack() as undo:
            undo.enter_context(self._adapter.precision(self._options.precision))
            undo.enter_context(self._evidence.gathering())
            yield self
            self._note_devices(self._evidence.made())

    def finish(self) -> None:
        """Wait until the devices are done."""
        started = time.perf_counter()
        self._adapter.wait()
        self.facts.device_wait_s += time.perf_counter() - started
        self.facts.trace_s = self._adapter.counters().since(self._before).trace_s
        self.facts.reached_device = self._evidence.found()
        self.facts.unreached_reason = "" if self.facts.reached_device else NOTHING_COMPUTED

    def _note_devices(self, made: list[Any]) -> None:
        """Say when several devices were there, and all that the cell made is on one."""
        count = self._adapter.devices().count
        used = {device for array in made for device in array.devices()}
        if count > 1 and len(used) == 1:
            self.facts.notes.append(
                f"what this cell made is on 1 of {count} devices: jax uses the others only for "
                "arrays that are placed there (jax.device_put with a NamedSharding)"
            )


class CompileEvents:
    """Counts what jax's monitoring tells; calls nest, and no time is counted twice."""

    def __init__(self) -> None:
        self._compiles = 0
        self._compile = Intervals()
        self._trace = Intervals()

    def __call__(self, event: str, seconds: float, **_: Any) -> None:
        """Take an event at its end, as jax tells it."""
        if event == _COMPILE:
            self._compiles += 1
            self._compile.add(time.perf_counter(), seconds)
        elif event in _TRACE:
            self._trace.add(time.perf_counter(), seconds)

    def counters(self) -> Counters:
        """Return the counts so far."""
        return Counters(
            compiles=self._compiles,
            compile_s=self._compile.total_s,
            trace_s=self._trace.total_s,
        )


class Intervals:
    """The length of a union of intervals that are told at their ends, inner ones first."""

    def __init__(self) -> None:
        self.total_s = 0.0
        self._open: list[tuple[float, float]] = []

    def add(self, end: float, seconds: float) -> None:
        """Add the interval of `seconds` that ended at `end`."""
        start = end - seconds
        while self._open and self._open[-1][0] >= start:
            self.total_s -= self._open.pop()[1]
        if self._open:
            before_start, before_s = self._open[-1]
            seconds = end - max(start, before_start + before_s)
        self._open.append((end - seconds, seconds))
        self.total_s += seconds
        del self._open[:-_REMEMBERED]


_HINTS = (
    (
        re.compile(r"IndivisibleError|should be divisible by|divides? .* evenly"),
        "an array cannot be split evenly over the devices: pad its first dimension to a "
        "multiple of jax.device_count()",
    ),
    (
        re.compile(r"Received incompatible devices|incompatible devices for jitted"),
        "arrays of one call are on different devices: jax.device_put them with one sharding",
    ),
    (
        re.compile(r"Array has been deleted|donated"),
        "the array was donated to a jitted call (donate_argnums) and is gone: use the "
        "call's result in its place",
    ),
    (
        re.compile(r"RESOURCE_EXHAUSTED|[Oo]ut of memory"),
        "the device is out of memory: smaller batches or bfloat16 help; deleted names free theirs",
    ),
)


def _flag_devices() -> int | None:
    """Return how many CPU devices XLA_FLAGS asks for; jax's own option is refused beside it."""
    found = re.search(
        r"xla_force_host_platform_device_count=(\d+)", os.environ.get("XLA_FLAGS", "")
    )
    return int(found.group(1)) if found else None


def _kind(facts: detect.HostFacts, device: Any) -> str:
    if device.platform == "tpu":
        return facts.accelerator or str(device.device_kind)
    if device.platform == "cpu":
        return "XLA CPU"
    return f"{device.platform.upper()} ({device.device_kind})"


def _note(facts: detect.HostFacts, device: Any, *, by_person: bool) -> str:
    if facts.chips and device.platform != "tpu":
        return (
            f"a {facts.accelerator or 'TPU'} is here, and jax does not use it: is libtpu "
            "installed, and JAX_PLATFORMS not cpu? %tpu_setup --framework jax looks"
        )
    if device.platform == "cpu" and by_person:
        return few_threads(len(device.client.devices()))
    return ""
