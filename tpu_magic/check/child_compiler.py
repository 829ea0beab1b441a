"""The compiler's child: StableHLO in, what the TPU compiler says out. A program of its own.

It runs in whatever environment holds jax and libtpu, so it imports nothing of tpu_magic.
`python child_compiler.py JOBS.json`: each job is a dict as `compiler.Job` writes it; each
answer is a line of JSON after `MARK` on the standard output.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

MARK = "tpu_magic check: "
# Effort levels of XLA's ExecutableBuildOptions.
LEVELS = {"O0": 9, "O1": 19, "full": 0}
# What MLIR bytecode begins with; else it is text.
_BYTECODE = b"ML\xefR"
# Operations whose result can take the place of an operand of its shape: what updates a
# parameter, a moment, a running mean or a cache in place is made of these.
_IN_PLACE = frozenset({
    "add", "subtract", "multiply", "divide", "maximum", "minimum", "negate", "abs", "sign",
    "sqrt", "rsqrt", "cbrt", "power", "exponential", "exponential_minus_one", "log",
    "log_plus_one", "logistic", "tanh", "floor", "ceil", "round_nearest_even",
    "round_nearest_afz", "select", "clamp", "and", "or", "xor", "not", "remainder", "convert",
    "dynamic_update_slice", "scatter", "optimization_barrier", "custom_call",
})  # fmt: skip
# A program that fits nowhere: the compiler's refusal tells how much there is.
_TOO_LARGE = """
module @probe {
  func.func @main(%a: tensor<131072x1024x1024xf32>) -> tensor<131072x1024x1024xf32> {
    %0 = stablehlo.add %a, %a : tensor<131072x1024x1024xf32>
    return %0 : tensor<131072x1024x1024xf32>
  }
}
"""


def say(**message: Any) -> None:
    """Send a message to the parent."""
    sys.stdout.write(f"\n{MARK}{json.dumps(message)}\n")
    sys.stdout.flush()


def end_with_parent() -> None:
    """End this process when the parent's end of the standard input closes."""

    def watch() -> None:
        while os.read(0, 1024):
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Compiler:
    """The TPU compiler for one target."""

    def __init__(self, topology: str, bounds: list[int], chip_config: str) -> None:
        from jax._src.interpreters import mlir
        from jax.experimental import topologies

        described = topologies.get_topology_desc(
            platform="tpu",
            topology_name=topology,
            chips_per_host_bounds=tuple(bounds),
            chip_config_name=chip_config,
        )
        self.devices = list(described.devices)
        self.kind = self.devices[0].device_kind
        self.context = mlir.make_ir_context()

    def limit_text(self) -> str:
        """Return the compiler's refusal of a program that is too large for any device."""
        from jaxlib.mlir import ir

        with self.context:
            module = ir.Module.parse(_TOO_LARGE)
        try:
            self.compile(module, 1, "O1", shardy=False)
        except Exception as error:  # noqa: BLE001 - the refusal is what is asked for
            return str(error)
        return ""

    def read(self, path: str, *, infer_aliases: bool) -> Any:
        """Return a program's module, ready to compile; None when it is empty."""
        from jaxlib.mlir import ir
        from jaxlib.mlir.dialects import stablehlo

        with self.context:
            written = Path(path).read_bytes()
            module = (
                stablehlo.deserialize_portable_artifact(self.context, written)
                if written.startswith(_BYTECODE)
                else ir.Module.parse(written.decode())
            )
            if infer_aliases and not as_the_runtime_runs_it(module):
                return None
        return module

    def compile(self, module: Any, devices: int, level: str, *, shardy: bool) -> Any:
        """Compile a module for `devices` devices."""
        import numpy as np
        from jax._src import compiler
        from jaxlib import _jax

        options = compiler.get_compile_options(
            num_replicas=1,
            num_partitions=devices,
            device_assignment=np.arange(devices).reshape(1, devices),
            detailed_logging=False,
        )
        build = options.executable_build_options
        build.use_spmd_partitioning = devices > 1
        build.use_shardy_partitioner = shardy
        build.optimization_level = LEVELS[level]
        chosen = _jax.DeviceList(tuple(self.devices[:devices]))
        return self.devices[0].client.compile(module, chosen, options)


def as_the_runtime_runs_it(module: Any) -> bool:
    """Give an exported lazy graph the outputs and aliases of the real run; False if it is empty.

    The export returns every live tensor that the graph read: those outputs are arguments as
    they came, and the runtime has no such outputs. What it does not return is overwritten by
    the step, and the runtime gives such buffers to the outputs that replace them.
    """
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import func as func_dialect

    main = next(op for op in module.body.operations if op.name.value == "main")
    block = main.body.blocks[0]
    returning = list(block.operations)[-1]
    alive, outputs = set(), []
    for value in returning.operands:
        argument = argument_number(value)
        if argument is None:
            outputs.append(value)
        else:
            alive.add(argument)
    if not outputs:
        return False
    pairs = aliases(list(block.arguments), outputs, alive)
    with ir.InsertionPoint(returning), returning.location:
        func_dialect.ReturnOp(outputs)
    returning.erase()
    inputs = [argument.type for argument in block.arguments]
    main.attributes["function_type"] = ir.TypeAttr.get(
        ir.FunctionType.get(inputs, [value.type for value in outputs])
    )
    if "res_attrs" in main.attributes:
        del main.attributes["res_attrs"]
    attributes = (
        list(main.attributes["arg_attrs"])
        if "arg_attrs" in main.attributes
        else [ir.DictAttr.get({}) for _ in inputs]
    )
    integer = ir.IntegerType.get_signless(32)
    for argument, output in pairs.items():
        known = {item.name: item.attr for item in attributes[argument]}
        known["tf.aliasing_output"] = ir.IntegerAttr.get(integer, output)
        attributes[argument] = ir.DictAttr.get(known)
    main.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)
    return True


def aliases(arguments: list[Any], outputs: list[Any], alive: set[int]) -> dict[int, int]:
    """Return which output takes the place of which argument, by their numbers.

    An output can replace an argument of its type that no tensor holds after the step, and
    that it is computed from in place. Several can: the most pairs that fit together.
    """
    free = {
        number: argument.type
        for number, argument in enumerate(arguments)
        if number not in alive and shape_of(argument)
    }
    reach = {
        number: [source for source in sources(output) if free.get(source) == output.type]
        for number, output in enumerate(outputs)
    }
    output_of: dict[int, int] = {}

    def pair(output: int, tried: set[int]) -> bool:
        for argument in reach[output]:
            if argument in tried:
                continue
            tried.add(argument)
            if argument not in output_of or pair(output_of[argument], tried):
                output_of[argument] = output
                return True
        return False

    # The fewer places an output can take, the earlier it chooses.
    for output in sorted(reach, key=lambda number: len(reach[number])):
        pair(output, set())
    return output_of


def sources(value: Any) -> Iterator[int]:
    """Yield the arguments that a value is computed from in place, the nearest first."""
    shape = shape_of(value)
    seen, pending = set(), [value]
    while pending:
        value = pending.pop(0)
        if value in seen:
            continue
        seen.add(value)
        argument = argument_number(value)
        if argument is not None:
            yield argument
            continue
        operation = value.owner
        if operation.name.removeprefix("stablehlo.") in _IN_PLACE:
            pending += [item for item in operation.operands if shape_of(item) == shape]


def argument_number(value: Any) -> int | None:
    """Return the number of a function's argument; None for what an operation makes."""
    from jaxlib.mlir import ir

    return ir.BlockArgument(value).arg_number if isinstance(value.owner, ir.Block) else None


def shape_of(value: Any) -> str:
    """Return `512x256` of a `tensor<512x256xf32>`; an empty text for scalars."""
    return str(value.type).removeprefix("tensor<").rpartition("x")[0]


def wide_types(module: Any) -> list[dict[str, Any]]:
    """Return the float64 and complex128 values of one dimension or more, with their place."""
    found: dict[str, dict[str, Any]] = {}
    pattern = re.compile(r"tensor<\d[^>]*x(f64|complex<f64>)>")

    def walk(operations: Iterable[Any]) -> None:
        for operation in operations:
            for result in operation.results:
                match = pattern.match(str(result.type))
                if match and match[1] not in found:
                    found[match[1]] = {"type": str(result.type), "place": str(operation.location)}
            for region in operation.regions:
                for block in region.blocks:
                    walk(block.operations)

    walk(module.body.operations)
    return list(found.values())


def answer(compiler: Compiler, job: dict[str, Any]) -> dict[str, Any]:
    """Compile one job and return what there is to know."""
    module = compiler.read(job["graph"], infer_aliases=job["infer_aliases"])
    if module is None:
        return {"empty": True}
    wide = wide_types(module)
    started = time.perf_counter()
    try:
        made = compiler.compile(module, job["devices"], job["level"], shardy=job["shardy"])
    except Exception as error:  # noqa: BLE001 - the compiler's own error is the answer
        took = time.perf_counter() - started
        return {"compiles": False, "error": str(error), "compile_s": took, "wide": wide}
    took = time.perf_counter() - started
    stats = made.get_compiled_memory_stats()
    Path(job["hlo"]).write_text(made.hlo_modules()[0].to_string(), encoding="utf-8")
    return {
        "compiles": True,
        "compile_s": took,
        "arguments_bytes": stats.argument_size_in_bytes,
        "outputs_bytes": stats.output_size_in_bytes,
        "aliased_bytes": stats.alias_size_in_bytes,
        "temporaries_bytes": stats.temp_size_in_bytes,
        "code_bytes": stats.generated_code_size_in_bytes,
        "compiler_flops": float((made.cost_analysis() or {}).get("flops", -1.0)),
        "wide": wide,
    }


def main(path: str) -> None:
    """Answer every job of a file."""
    end_with_parent()
    jobs = json.loads(Path(path).read_text(encoding="utf-8"))
    compilers: dict[str, Compiler] = {}
    for job in jobs:
        target = job["target"]
        if target not in compilers:
            compiler = compilers[target] = Compiler(target, job["bounds"], job["chip_config"])
            say(
                event="target",
                topology=target,
                device_kind=compiler.kind,
                devices=len(compiler.devices),
                limit_text=compiler.limit_text(),
            )
        say(event="begin", job=job["id"])
        say(event="answer", job=job["id"], **answer(compilers[target], job))
    versions = {name: metadata.version(name) for name in ("jax", "jaxlib", "libtpu")}
    say(event="end", peak_bytes=peak_bytes(), versions=versions)
    # The runtimes' own threads can hang a normal exit.
    os._exit(0)


def peak_bytes() -> int:
    """Return the most memory that this process has had at once.

    Linux lets a child's `ru_maxrss` begin with the size of the process that started it.
    """
    with suppress(OSError):
        found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text("utf-8"))
        if found:
            return int(found.group(1)) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main(sys.argv[1])
