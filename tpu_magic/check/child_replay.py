"""Makes programs of the ATen operations that `child_aten.py` wrote down. A program of its own.

It runs in the compiler's environment, with torch and torch_xla, and imports nothing of
tpu_magic but the program beside it. `python child_replay.py aten.json PRECISION`: the
operations are done on lazy tensors, which computes nothing, and each program is exported as a
cell's own would be.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_xla
import torch_xla.runtime as xr
from child_compiler import (  # type: ignore[import-not-found]  # beside this file, which is run
    end_with_parent,
    say,
)
from torch import Tensor
from torch._decomp import decomposition_table
from torch.utils import _pytree as pytree
from torch_xla.core.xla_builder import create_placeholder_tensor
from torch_xla.distributed import spmd

# Where an operation's kernel for the device may be registered.
_KERNELS = (
    "XLA", "CompositeImplicitAutograd", "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
)  # fmt: skip
# A first axis is split over the devices from so many rows on, as in a cell.
_SMALLEST_BATCH = 2
_XLAC = torch_xla._XLAC  # noqa: SLF001


class Replay:
    """Does written operations again."""

    def __init__(self, devices: int) -> None:
        self._mesh = None
        if devices > 1:
            xr.use_spmd()
        self.device = torch_xla.device()
        if devices > 1:
            self._mesh = spmd.Mesh(np.arange(devices), (devices,), ("data",))
        self._tensors: dict[int, Tensor] = {}

    def run(self, operation: dict[str, Any]) -> None:
        """Do one operation, below frames of the person's own lines."""
        call = self._arrive if operation["name"] == "arrive" else self._call
        for file, line in operation["frames"]:
            call = frame(file, line)(call)
        call(operation)

    def end(self, program: dict[str, Any]) -> None:
        """Drop what does not live on, and export the program where it was new."""
        alive = set(program["alive"])
        self._tensors = {key: item for key, item in self._tensors.items() if key in alive}
        with suppress(RuntimeError):
            if program["path"] is not None:
                artifact = _XLAC._get_stablehlo([], str(self.device), [], True)  # noqa: SLF001
                # Nothing is alive where a batch came and nobody computed with it.
                if artifact:
                    Path(program["path"]).write_bytes(artifact)
        _XLAC._clear_pending_irs(str(self.device))  # noqa: SLF001
        _XLAC._xla_step_marker(str(self.device), [], False)  # noqa: SLF001

    def _call(self, operation: dict[str, Any]) -> None:
        function = function_of(operation["name"])
        args = [self._value(item) for item in operation["args"]]
        kwargs = {name: self._value(item) for name, item in operation["kwargs"].items()}
        if function is None:
            leaves = self._on_host(operation, args, kwargs)
        else:
            leaves = pytree.tree_leaves(function(*args, **kwargs))
        for number, item in zip(operation["outputs"], leaves, strict=True):
            if number is not None:
                self._tensors[number] = item

    def _on_host(self, operation: dict[str, Any], args: Any, kwargs: Any) -> list[Any]:
        """Do an operation that the device has no kernel for on made-up values of the host."""
        say(event="host", name=operation["name"], frames=operation["frames"])

        def host(item: Tensor) -> Tensor:
            return torch.zeros(item.shape, dtype=item.dtype)

        args, kwargs = pytree.tree_map_only(Tensor, host, (args, kwargs))
        kwargs.pop("device", None)
        leaves = pytree.tree_leaves(operation_of(operation["name"])(*args, **kwargs))
        return [item.to(self.device) if isinstance(item, Tensor) else item for item in leaves]

    def _arrive(self, operation: dict[str, Any]) -> None:
        shape, split = operation["args"]
        (number,) = operation["outputs"]
        self._tensors[number] = self._from_host(shape, split=split)

    def _from_host(self, shape: dict[str, Any], *, split: bool) -> Tensor:
        sizes, dtype = shape["shape"], getattr(torch, shape["dtype"])
        if self._mesh is None and sizes:
            made: Tensor = create_placeholder_tensor(sizes, dtype)
            return made
        host = torch.zeros(sizes, dtype=dtype)
        if self._mesh is None or not split or not self._divides(host):
            return host.to(self.device)
        names = ("data", *(None for _ in sizes[1:]))
        spec = spmd.ShardingSpec(self._mesh, names).xla_spec(host)
        found: list[Tensor] = _XLAC._xla_tensors_from_aten(  # noqa: SLF001
            [host], [str(self.device)], [spec]
        )
        return found[0]

    def _divides(self, tensor: Tensor) -> bool:
        if tensor.dim() == 0 or tensor.shape[0] < _SMALLEST_BATCH:
            return False
        assert self._mesh is not None  # noqa: S101 - asked for several devices only
        return bool(tensor.is_floating_point() or tensor.shape[0] % self._mesh.size() == 0)

    def _value(self, item: Any) -> Any:
        """Return an argument, read from JSON."""
        if isinstance(item, list):
            return [self._value(part) for part in item]
        if not isinstance(item, dict):
            return item
        return _READERS[next(iter(item))](self, item)


def _constant(replay: Replay, item: dict[str, Any]) -> Tensor:
    like = item["like"]
    value = replay._value(item["constant"])  # noqa: SLF001
    return torch.tensor(value, dtype=getattr(torch, like["dtype"])).reshape(like["shape"])


# How each kind of argument is written in JSON: by its first key.
_READERS: dict[str, Callable[[Replay, Any], Any]] = {
    "tensor": lambda replay, item: replay._tensors[item["tensor"]],  # noqa: SLF001
    "constant": _constant,
    "host": lambda replay, item: replay._from_host(item["host"], split=False),  # noqa: SLF001
    "dtype": lambda _, item: getattr(torch, item["dtype"]),
    "complex": lambda _, item: complex(*item["complex"]),
    "device": lambda replay, item: (
        replay.device if item["device"] == "meta" else torch.device(item["device"])
    ),
}


def operation_of(name: str) -> Any:
    """Return the operation of a name, `aten.add.Tensor`.

    Raises
    ------
    SystemExit
        When this torch has none of the name.
    """
    found: Any = torch.ops
    try:
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError:
        raise SystemExit(f"torch {torch.__version__} does not know the operation {name}") from None
    return found


@cache
def function_of(name: str) -> Callable[..., Any] | None:
    """Return what does an operation on the device; None when only the host can."""
    operation = operation_of(name)
    has = torch._C._dispatch_has_kernel_for_dispatch_key  # noqa: SLF001
    if any(has(operation.name(), key) for key in _KERNELS):
        return operation  # type: ignore[no-any-return]
    decomposed: Callable[..., Any] | None = decomposition_table.get(operation)
    return decomposed


@cache
def frame(file: str, line: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return what puts a frame of a file's line around a call, so that operations name it."""
    source = "\n" * (line - 1) + "lambda call: lambda operation: call(operation)"
    made: Callable[[Callable[..., Any]], Callable[..., Any]]
    made = eval(compile(source, file, "eval"))  # noqa: S307 - the source is the line above
    return made


def main(path: str, precision: str) -> None:
    """Do every program of a file."""
    end_with_parent()
    data = json.loads(Path(path).read_text(encoding="utf-8"))
    replay = Replay(data["devices"])
    # The public setter logs a warning.
    _XLAC._xla_set_mat_mul_precision("default" if precision == "bf16" else precision)  # noqa: SLF001
    with torch.no_grad():
        for program in data["programs"]:
            for operation in program["operations"]:
                replay.run(operation)
            replay.end(program)
    sys.stdout.flush()
    # The runtimes' own threads can hang a normal exit.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
