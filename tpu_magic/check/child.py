"""The capturing child: loads what the cell reaches, runs it under a capture, writes what it saw.

Started with `python -c` by `capture.py`; nothing of it runs in the notebook's own process.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import contextlib
import gc
import importlib
import inspect
import io
import json
import os
import sys
import time
import types
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tpu_magic.check import loops
from tpu_magic.check.child_compiler import end_with_parent, peak_bytes
from tpu_magic.check.children import MARK
from tpu_magic.check.places import CELL, Person, Place
from tpu_magic.check.refuse import Refusals

# How a torch cell is recorded where torch_xla is not beside its torch.
WITHOUT_XLA = "torch without torch_xla"
# framework: the module that captures it, with a `Capture`
CAPTURES = {
    "torch": "tpu_magic.check.child_torch",
    WITHOUT_XLA: "tpu_magic.check.child_aten",
    "jax": "tpu_magic.check.child_jax",
    "keras": "tpu_magic.check.child_keras",
}


class Enough(BaseException):
    """Raised to leave a cell that brings nothing new any more; no `except Exception` stops it."""


@dataclass
class Program:
    """A program that the cell hands to the device.

    Attributes
    ----------
    path
        File with its portable StableHLO.
    place
        The person's line that ended it.
    runs
        How often it was seen until the cell was cut.
    trains
        Whether an optimizer stepped in it.
    devices
        How many devices it is split over; None for all of the target's.
    """

    path: str
    place: Place | None
    runs: int = 1
    trains: bool = False
    devices: int | None = None


@dataclass
class Seen:
    """What the capture saw; written for the parent as JSON."""

    programs: list[Program] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    error: str = ""
    error_place: Place | None = None
    infer_aliases: bool = True
    shardy: bool = False
    examples: int | None = None
    capture_s: float = 0.0
    peak_bytes: int = 0

    def note(self, text: str) -> None:
        """Add a note once."""
        if text not in self.notes:
            self.notes.append(text)


@dataclass(frozen=True)
class Task:
    """What the parent asks for; see `capture.py`."""

    framework: str
    cell: str
    sources: dict[str, str]
    devices: int
    options: dict[str, Any]
    folder: str


class Capture(Protocol):
    """A framework's way to record programs instead of running them."""

    def running(self, namespace: dict[str, Any]) -> contextlib.AbstractContextManager[None]:
        """Return the context in which the cell runs."""
        ...

    def finish(self) -> None:
        """End the last program."""
        ...


def main(folder: str) -> None:
    """Do the task in a folder."""
    started = time.perf_counter()
    end_with_parent()
    data = json.loads(Path(folder, "task.json").read_text(encoding="utf-8"))
    task = Task(**data)
    person = Person({**task.sources, CELL: task.cell})
    person.remember()
    seen, rounds = Seen(), loops.Rounds()
    refusals = Refusals(person, folder)
    stdout = sys.stdout
    module = importlib.import_module(CAPTURES[task.framework])
    capture = module.Capture(task, seen, rounds, person, refusals)
    # Installed packages are compiled once and for all, as any import does; the person's are not.
    sys.dont_write_bytecode = True
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        namespace = load(folder)
        loops.give(vars(builtins), rounds)
        namespace.update(task.options.get("set", {}))
        with capture.running(namespace), refusals.refusing():
            run(task, namespace, seen, person, capture)
    seen.refused = refusals.listed
    seen.cut = [str(place) for frame in rounds.cut if (place := person.place(*frame))]
    seen.capture_s = time.perf_counter() - started
    seen.peak_bytes = peak_bytes()
    Path(folder, "seen.json").write_text(json.dumps(asdict(seen)), encoding="utf-8")
    stdout.write(f"\n{MARK}{json.dumps({'event': 'end'})}\n")
    stdout.flush()
    # The runtimes' own threads can hang a normal exit.
    os._exit(0)


def load(folder: str) -> dict[str, Any]:
    """Return the namespace of the cell, which is the globals of the functions that travelled."""
    import cloudpickle

    probe, values = cloudpickle.loads(Path(folder, "namespace.pkl").read_bytes())
    namespace: dict[str, Any] = probe.__globals__
    namespace.update(values)
    namespace.setdefault("__name__", "__main__")
    namespace["__builtins__"] = builtins
    shell = NoShell()
    namespace["get_ipython"] = lambda: shell
    return namespace


def run(
    task: Task,
    namespace: dict[str, Any],
    seen: Seen,
    person: Person,
    capture: Capture,
) -> None:
    """Run the cell, twice where its only step was a first one, and note how it ended."""
    loops.recode(_functions_of(namespace), task.sources)
    tree = _Setting(task.options.get("set", {})).visit(loops.asking(task.cell, CELL))
    tree = _Keeping().visit(tree)
    code = compile(tree, CELL, "exec", flags=_TOP_LEVEL_AWAIT, dont_inherit=True)
    NoShell.refuse = seen.note
    try:
        _execute(code, namespace)
        capture.finish()
        if _only_a_first_step(seen.programs):
            # A step that ran once is a first one: an optimizer's state is not yet an input.
            with contextlib.suppress(Exception):
                _execute(code, namespace)
                capture.finish()
    except Enough as enough:
        place = person.of_traceback(enough.__traceback__)
        seen.note(f"looked at until nothing new came{f' ({place})' if place else ''}")
    except Exception as error:  # noqa: BLE001 - the person's error is part of the answer
        seen.error = f"{type(error).__name__}: {error}".strip()
        seen.error_place = person.of_traceback(error.__traceback__)


class _Keeping(ast.NodeTransformer):
    """Keeps what the cell's own lines give, as the notebook keeps the cell's value.

    What nobody keeps is not computed; but someone who checks `with torch.no_grad(): net(x)`
    asks about `net(x)`.
    """

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        """Replace `VALUE` by an assignment."""
        if isinstance(node.value, ast.Constant):
            return node  # a docstring
        kept = ast.Assign([ast.Name("__tpu_check_value__", ast.Store())], node.value)
        return ast.fix_missing_locations(ast.copy_location(kept, node))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Leave a function as it is: what it drops is dropped on a device too."""
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]  # noqa: N815
    visit_ClassDef = visit_FunctionDef  # type: ignore[assignment]  # noqa: N815


class _Setting(ast.NodeTransformer):
    """Gives names that the cell assigns a constant another value."""

    def __init__(self, values: dict[str, int]) -> None:
        self._values = values

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        """Replace the constant of `NAME = constant`."""
        target = node.targets[0]
        if (
            isinstance(target, ast.Name)
            and target.id in self._values
            and isinstance(node.value, ast.Constant)
        ):
            new = ast.Constant(self._values[target.id])
            node.value = ast.copy_location(new, node.value)
        return node


def _only_a_first_step(programs: list[Program]) -> bool:
    """Say whether a line trained exactly once: its steady step was not seen."""
    steps = Counter(item.place for item in programs if item.trains for _ in range(item.runs))
    return 1 in steps.values()


_TOP_LEVEL_AWAIT = 0x2000  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


def _execute(code: types.CodeType, namespace: dict[str, Any]) -> None:
    value = eval(code, namespace)  # noqa: S307 - the person's cell
    if inspect.iscoroutine(value):
        asyncio.run(value)


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set an attribute while something runs."""
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


def _functions_of(namespace: dict[str, Any]) -> list[types.FunctionType]:
    return [
        item
        for item in gc.get_objects()
        if isinstance(item, types.FunctionType) and item.__globals__ is namespace
    ]


class NoShell:
    """Stands for `get_ipython()`: magics around code run the code, the others are told of."""

    refuse: Any = print
    _RUN_THE_BODY = frozenset({"time", "timeit", "capture", "tpu_run", "prun"})
    _HARMLESS = frozenset({"matplotlib", "config", "load_ext", "autoreload", "tpu_setup"})

    def run_cell_magic(self, name: str, line: str, cell: str) -> None:
        """Run the body of a magic that only runs it."""
        if name not in self._RUN_THE_BODY:
            self.refuse(f"not run: %%{name} {line}".rstrip())
            return
        exec(compile(cell, CELL, "exec"), sys._getframe(1).f_globals)  # noqa: S102, SLF001

    def run_line_magic(self, name: str, line: str, *_: Any) -> None:
        """Run the statement of `%time`; tell of the others."""
        if name in self._RUN_THE_BODY and line:
            exec(compile(line, CELL, "exec"), sys._getframe(1).f_globals)  # noqa: S102, SLF001
        elif name not in self._HARMLESS:
            self.refuse(f"not run: %{name} {line}".rstrip())

    def system(self, command: str) -> None:
        """Tell of a `!` line."""
        self.refuse(f"not run: !{command}")

    def getoutput(self, command: str, **_: Any) -> list[str]:
        """Tell of a `!` line whose output is wanted."""
        self.system(command)
        return []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None
