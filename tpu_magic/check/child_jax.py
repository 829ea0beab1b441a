"""Recording the programs of a jax cell: jitted functions are lowered for TPU, never executed.

What a jitted function would return is made up: arrays of zeros of the right shapes. Eager
operations on small arrays run as they are, on the host.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tpu_magic.check.child import Enough, Program, Seen, Task, replaced
from tpu_magic.check.loops import Rounds
from tpu_magic.check.places import Person
from tpu_magic.check.refuse import Refusals

# Calls with nothing new after which the cell is left.
PATIENCE = 24
# --precision: what jax calls it
_PRECISIONS = {"default": None, "high": "high", "highest": "highest", "bf16": "bfloat16"}


class Capture:
    """Records the programs of one jax cell. `child.Capture`."""

    def __init__(
        self, task: Task, seen: Seen, rounds: Rounds, person: Person, refusals: Refusals
    ) -> None:
        # Before jax starts: a TPU of this machine is none of the check's.
        count = f"--xla_force_host_platform_device_count={task.devices}"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {count}".strip()
        import jax

        # Only shardings of this form survive in a portable program.
        jax.config.update("jax_use_shardy_partitioner", False)
        jax.config.update("jax_default_matmul_precision", _PRECISIONS[task.options["precision"]])
        self.jax = jax
        self._task, self._seen, self._rounds = task, seen, rounds
        self._person, self._refusals = person, refusals
        self._known: dict[Any, Program] = {}
        self.since_new = 0
        self.patience: int | None = PATIENCE
        self._results: dict[Any, Any] = {}
        seen.infer_aliases = False
        self._jit = jax.jit
        self._jitted = type(jax.jit(lambda: None))

    @contextmanager
    def running(self, namespace: dict[str, Any]) -> Iterator[None]:
        """Run the cell with every jitted function recorded, also those that it makes."""
        for name, value in list(namespace.items()):
            if isinstance(value, self._jitted):
                namespace[name] = Recorder(value, self)
        with replaced(self.jax, "jit", self.recording_jit):
            yield

    def finish(self) -> None:
        """Do nothing: a jitted function is a program of its own."""

    def recording_jit(self, fun: Any = None, **kwargs: Any) -> Any:
        """Do as `jax.jit` does, and record the calls of what it makes."""
        if fun is None:
            return lambda function: self.recording_jit(function, **kwargs)
        made = self._jit(fun, **kwargs)
        place = self._person.here()
        # A library's own small functions run on the host as they are.
        return Recorder(made, self) if place is not None else made

    def record(self, function: Any, key: Any, args: Any, kwargs: Any) -> Any:
        """Note a call of a jitted function, and return what it would: arrays made up."""
        self._rounds.ended += 1
        known = self._known.get(key)
        if known is None:
            self.since_new = 0
            self._rounds.new += 1
            known = self._known[key] = self._lower(function, args, kwargs)
            self._seen.programs.append(known)
        else:
            known.runs += 1
            self.since_new += 1
            if self.patience is not None and self.since_new > self.patience:
                raise Enough
        if key not in self._results:
            self._results[key] = function.eval_shape(*args, **kwargs)
        return self._made_up(self._results[key], args, kwargs)

    def _lower(self, function: Any, args: Any, kwargs: Any) -> Program:
        from jaxlib.mlir import ir
        from jaxlib.mlir.dialects import stablehlo

        lowered = function.trace(*args, **kwargs).lower(lowering_platforms=("tpu",))
        module = lowered.compiler_ir("stablehlo")
        attributes = module.operation.attributes
        partitions = 1
        if "mhlo.num_partitions" in attributes:
            partitions = int(str(attributes["mhlo.num_partitions"]).split()[0])
        path = Path(self._task.folder, f"program-{len(self._known)}.bc")
        text = module.operation.get_asm(enable_debug_info=True)
        try:
            # Of a copy: serialising changes the module, which jax keeps for the next lowering.
            with module.context:
                copy = ir.Module.parse(text)
            written = stablehlo.serialize_portable_artifact(copy, stablehlo.get_minimum_version())
        except ValueError:
            # It holds operations of other dialects (chlo), which only a like jax reads.
            written = text.encode()
        with self._refusals.paused():
            path.write_bytes(written)
        return Program(str(path), self._person.here(), devices=partitions)

    def _made_up(self, shapes: Any, args: Any, kwargs: Any) -> Any:
        jax = self.jax
        shardings = [
            leaf.sharding
            for leaf in jax.tree_util.tree_leaves((args, kwargs))
            if isinstance(getattr(leaf, "sharding", None), jax.sharding.NamedSharding)
        ]
        everywhere = (
            jax.sharding.NamedSharding(shardings[0].mesh, jax.sharding.PartitionSpec())
            if shardings
            else None
        )

        def zeros(leaf: Any) -> Any:
            if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                return jax.random.key(0)
            return jax.device_put(jax.numpy.zeros(leaf.shape, leaf.dtype), everywhere)

        return jax.tree_util.tree_map(zeros, shapes)


class Recorder:
    """Stands for a jitted function: its calls are recorded, unless they are part of a trace."""

    def __init__(self, function: Callable[..., Any], capture: Capture) -> None:
        self._function, self._capture = function, capture

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Record the call; inside a trace, do as the function does."""
        jax = self._capture.jax
        leaves, tree = jax.tree_util.tree_flatten((args, kwargs))
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return self._function(*args, **kwargs)
        key = (id(self._function), tree, *map(_signature, leaves))
        return self._capture.record(self._function, key, args, kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        return lambda *args, **kwargs: self(instance, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)


def _signature(leaf: Any) -> Any:
    """Return what makes two calls the same program: shape and type, or a static value."""
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return tuple(leaf.shape), str(leaf.dtype), str(getattr(leaf, "sharding", ""))
    return type(leaf) if isinstance(leaf, (int, float, complex)) else repr(leaf)
