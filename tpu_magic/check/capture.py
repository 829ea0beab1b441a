"""The parent's side of a capture: what the cell reaches, packed for a fresh child.

The notebook's objects are only read. Nothing of the cell runs here.
"""

from __future__ import annotations

import ast
import io
import json
import linecache
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError

from tpu_magic.check import children, rebuild
from tpu_magic.check.child import Program, Seen, Task
from tpu_magic.check.places import Place

# What every notebook's namespace holds and no cell needs from it.
_NOT_THEIRS = frozenset({"get_ipython", "exit", "quit", "open", "In", "Out"})
# kinds that never travel: what to do about it
_CURES: tuple[tuple[tuple[type, ...], str], ...] = (
    ((types.GeneratorType, types.AsyncGeneratorType, types.CoroutineType),
     "a generator cannot be copied; make it inside the cell"),
    ((io.TextIOWrapper, io.RawIOBase, io.BufferedReader, io.BufferedWriter, io.BufferedRandom),
     "an open file cannot be copied; open it inside the cell"),
    ((type(threading.Lock()), type(threading.RLock()), threading.Thread),
     "a lock or thread cannot be copied; make it inside the cell"),
)  # fmt: skip
_BOOT = (
    "import sys; sys.path[:] = {path!r}; from tpu_magic.check.child import main; main({folder!r})"
)
# The child traces on XLA's CPU device; lines go with the operations.
ENVIRON = {
    "PJRT_DEVICE": "CPU",
    "XLA_IR_DEBUG": "1",
    "XLA_HLO_DEBUG": "1",
    "TPU_SKIP_MDS_QUERY": "1",
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "JAX_PLATFORMS": "cpu",
    "MPLBACKEND": "Agg",
}


@dataclass(frozen=True)
class Cell:
    """A cell and what it reaches.

    Attributes
    ----------
    code
        The cell as Python (magics and `!` lines are calls).
    values
        The names of the notebook that it reads, with their values.
    namespace
        The notebook's whole namespace; only asked for what functions reach.
    """

    code: str
    values: dict[str, Any]
    namespace: dict[str, Any]


def read_cell(shell: Any, text: str) -> Cell:
    """Return a cell and the names of the notebook that it reads.

    Raises
    ------
    SyntaxError
        When the cell is not valid.
    UsageError
        When it is empty.
    """
    # Lines count as the person's editor counts them: from the magic's own line on.
    above = 1 + len(text) - len(text.lstrip("\n"))
    code = "\n" * above + shell.transform_cell(text)
    tree = ast.parse(code)
    if not tree.body:
        raise UsageError("%%tpu_check has no code below it; write the code on the lines after it")
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    used = sorted(name for name in names - _NOT_THEIRS if name in shell.user_ns)
    return Cell(code, {name: shell.user_ns[name] for name in used}, shell.user_ns)


def pack(cell: Cell) -> tuple[bytes, list[str]]:
    """Return the cell's values as bytes, and what could not travel, each with what to do.

    Functions and classes of the notebook travel by value. All in one, so that what belongs
    together (a network and its optimizer) still does.

    Raises
    ------
    UsageError
        When cloudpickle is not installed.
    """
    try:
        import cloudpickle
    except ImportError:
        raise UsageError("%%tpu_check needs cloudpickle: %pip install cloudpickle") from None

    # Its globals become those of every function that travels: the cell runs in them.
    probe = types.FunctionType(_nothing.__code__, cell.namespace, "probe")
    probe.__module__ = "__main__"
    left: dict[str, str] = {}
    packer = _packer(cloudpickle.Pickler, cell.values, left)
    stream = io.BytesIO()
    packer(stream).dump((probe, cell.values))
    return stream.getvalue(), [f"{name}: {why}" for name, why in left.items()]


def _nothing() -> None:
    """Stand for the notebook's functions; see `pack`."""


def _packer(base: Any, values: Mapping[str, Any], left: dict[str, str]) -> Any:
    """Return a pickler that leaves a stand-in for what cannot travel, and notes it."""
    names = {id(value): name for name, value in values.items()}

    class Packer(base):  # type: ignore[misc]
        def reducer_override(self, value: Any) -> Any:
            why = next((cure for kinds, cure in _CURES if isinstance(value, kinds)), None)
            if isinstance(value, types.CodeType):
                return _with_filename(self.dispatch_table[types.CodeType](value), value)
            if why is None and (moved := _on_host(value)) is not None:
                return moved
            if why is None and type(value).__name__ == "PjitFunction":
                make, arguments, state, *_ = value.__reduce_ex__(self.proto)
                return make, arguments, (state, vars(value)), None, None, rebuild.set_jitted
            if why is None:
                made = super().reducer_override(value)
                by_name = isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType))
                if made is not NotImplemented or by_name or type(value) in self.dispatch_table:
                    return made
                try:
                    return value.__reduce_ex__(self.proto)
                except Exception as error:  # noqa: BLE001 - whatever its class raises
                    why = f"{_first_line(error)}; make it inside the cell"
            name = names.get(id(value), f"a {type(value).__name__}")
            left[name] = why
            return Missing, (name, why)

        proto = 5

    return Packer


def _with_filename(reduced: Any, code: types.CodeType) -> Any:
    """Keep the file of a code object, which cloudpickle hides: lines are found by it."""
    make, arguments, *rest = reduced
    named = (code.co_filename if item == "<dynamic-code>" else item for item in arguments)
    return (make, tuple(named), *rest)


class Missing:
    """Stands in the child for what could not travel; any use of it says so."""

    def __init__(self, name: str, why: str) -> None:
        vars(self).update(name=name, why=why)

    def _use(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError(f"{vars(self)['name']} did not travel to the check: {vars(self)['why']}")

    __call__ = __iter__ = __next__ = __enter__ = __len__ = __getitem__ = __getattr__ = _use


def _on_host(value: Any) -> Any:
    """Return how a device tensor of torch travels: by its values; None for anything else."""
    torch = sys.modules.get("torch")
    if torch is None or type(value) is not torch.Tensor or value.device.type == "cpu":
        return None
    return rebuild.host_tensor, (value.detach().cpu(), value.requires_grad)


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def sources(namespace: Mapping[str, Any]) -> dict[str, str]:
    """Return the sources of the cells that defined the notebook's functions and classes."""
    found = {}
    for filename in set(_files(namespace)):
        text = "".join(linecache.getlines(filename))
        if text:
            found[filename] = text
    return found


def _files(namespace: Mapping[str, Any]) -> Iterator[str]:
    for value in list(namespace.values()):
        items = [value, *vars(value).values()] if isinstance(value, type) else [value]
        for item in items:
            function = getattr(item, "__func__", item)
            if isinstance(function, types.FunctionType) and function.__module__ == "__main__":
                yield function.__code__.co_filename


def capture(
    cell: Cell,
    framework: str,
    devices: int,
    options: dict[str, Any],
    *,
    folder: Path,
    limit_s: float,
) -> Seen:
    """Record a cell's programs in a fresh child; nothing of the notebook is touched.

    Raises
    ------
    UsageError
        When the child did not come to an end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    packed, left = pack(cell)
    (folder / "namespace.pkl").write_bytes(packed)
    task = Task(framework, cell.code, sources(cell.namespace), devices, options, str(folder))
    (folder / "task.json").write_text(json.dumps(asdict(task)), encoding="utf-8")
    boot = _BOOT.format(path=sys.path, folder=str(folder))
    environ = {**os.environ, **ENVIRON, "CPU_NUM_DEVICES": str(devices), "TMPDIR": str(folder)}
    ended = children.run([sys.executable, "-c", boot], environ, limit_s, _ignore)
    if not ended.ok:
        raise UsageError(ended.sentence("%%tpu_check: recording the cell", limit_s))
    seen = read_seen(folder)
    for text in left:
        seen.note(f"left behind: {text}")
    return seen


def _ignore(message: dict[str, Any]) -> None:
    del message


def read_seen(folder: Path) -> Seen:
    """Return what a child saw."""
    data = json.loads((folder / "seen.json").read_text(encoding="utf-8"))
    place: Callable[[Any], Place | None] = lambda item: Place(**item) if item else None  # noqa: E731
    data["programs"] = [
        Program(**{**item, "place": place(item["place"])}) for item in data["programs"]
    ]
    data["error_place"] = place(data["error_place"])
    return Seen(**data)
