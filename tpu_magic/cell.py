"""The cell engine: a `%%tpu_run` cell is an ordinary cell with a beginning and an end.

`begin` is called from the cell's first line, `end` from its last expression (both put
there by `cell_source`), and the cell is left in `post_run_cell`, however it ended. IPython
itself runs the cell, so values, `await`, inner magics, tracebacks and interrupts are its own.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from tpu_magic import cell_source, options
from tpu_magic.frameworks import adapter as adapter_named
from tpu_magic.frameworks import choose
from tpu_magic.report.cell_report import CellReport, assemble

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from tpu_magic.frameworks.base import Adapter, CellSession, Counters

TIMER_ABOVE = (
    "%%timeit above %%tpu_run would begin the cell many times; use %%tpu_timeit instead"
)
OTHER_THREAD = "another %%tpu_run cell is running in this kernel; wait for it to end"

parser = options.Parser(
    cell_source.MAGIC,
    "Run the cell on the TPU (or on XLA's own device where there is none), on all of its\n"
    "cores, and say what it cost. %tpu_run on|off does so for every later cell.",
    options.framework_options,
    options.run_options,
    options.tpu_options,
    options.output_options,
)


@dataclass
class _Run:
    """One run of a cell by IPython, from pre_execute on; silent runs have no info."""

    info: Any = None


@dataclass
class _Active:
    """The cell that is on the device now."""

    run: _Run | None
    thread: int
    options: options.RunOptions
    adapter: Adapter
    context: AbstractContextManager[CellSession]
    session: CellSession
    started: float
    before: Counters
    automatic: bool
    connect_s: float
    ended: float | None = None
    counted: Counters | None = None


class _Runs(threading.local):
    """The cells that IPython is running on a thread, the innermost last."""

    def __init__(self) -> None:
        self.stack: list[_Run] = []


@dataclass(repr=False)
class CellEngine:
    """The engine of one shell; `shell.tpu_cell` while the extension is loaded."""

    shell: InteractiveShell
    show: Callable[[CellReport], None]
    clock: Callable[[], float] = time.perf_counter
    automatic: str | None = None
    last_report: CellReport | None = None
    _active: _Active | None = None
    _runs: _Runs = field(default_factory=_Runs)

    def register(self) -> None:
        """Hook the engine into the shell."""
        self.shell.tpu_cell = self  # type: ignore[attr-defined]
        self.shell.input_transformers_cleanup.append(cell_source.rewrite_text)
        self.shell.ast_transformers.append(self)
        for event, callback in self._callbacks():
            self.shell.events.register(event, callback)

    def unregister(self) -> None:
        """Take the engine out of the shell."""
        self._leave()
        for event, callback in self._callbacks():
            with contextlib.suppress(ValueError):
                self.shell.events.unregister(event, callback)
        for transformers, ours in (
            (self.shell.input_transformers_cleanup, cell_source.rewrite_text),
            (self.shell.ast_transformers, self),
        ):
            if ours in transformers:
                transformers.remove(ours)
        if getattr(self.shell, "tpu_cell", None) is self:
            del self.shell.tpu_cell

    def _callbacks(self) -> list[tuple[str, Callable[..., None]]]:
        return [
            ("pre_execute", self._pre_execute),
            ("pre_run_cell", self._pre_run_cell),
            ("post_execute", self._post_execute),
            ("post_run_cell", self._post_run_cell),
        ]

    # --- what the cell's own code calls ---------------------------------------------------

    def begin(self, line: str, problem: str = "", *, automatic: bool = False) -> None:
        """Begin a cell: parse its options, connect, and enter the adapter.

        Raises
        ------
        UsageError
            For a mistake in the line, a framework that cannot be used here, or a place
            where the magic cannot stand. The cell does not run then.
        """
        __tracebackhide__ = True
        started = self.clock()
        if problem:
            raise UsageError(problem)
        if sys._getframe(1).f_code.co_filename == "<magic-timeit>":  # noqa: SLF001
            raise UsageError(TIMER_ABOVE)
        chosen = self.parse(line)
        if self._active is not None:
            if self._active.thread != threading.get_ident():
                raise UsageError(OTHER_THREAD)
            return  # a %%tpu_run inside a %%tpu_run is part of it
        adapter = self._choose(chosen.framework, required=not automatic)
        if adapter is None:
            return
        adapter.connect(require_tpu=chosen.require_tpu, devices=chosen.devices)
        connected = self.clock()
        before = adapter.counters()
        context = adapter.cell(chosen, self.shell.user_ns)
        session = context.__enter__()
        runs = self._runs.stack
        self._active = _Active(
            run=runs[-1] if runs else None,
            thread=threading.get_ident(),
            options=chosen,
            adapter=adapter,
            context=context,
            session=session,
            started=started,
            before=before,
            automatic=automatic,
            connect_s=connected - started,
        )

    def end(self, *value: Any) -> Callable[[], Any]:
        """Wait until the device is done with the cell; return what gives the value back.

        The callable is made of C functions: when the device reports an error only now, the
        cell's own frame is the last one in the traceback.
        """
        active = self._active
        if active is not None and active.thread == threading.get_ident():
            try:
                active.session.finish()
            except BaseException as error:  # noqa: BLE001 - raised again, without our frames
                return partial(_raise_in_c, type(error), error.with_traceback(None))
            finally:
                active.ended = self.clock()
            active.counted = active.adapter.counters()
        return partial((value or (None,)).__getitem__, 0)

    def show_help(self) -> None:
        """Print the help of `%%tpu_run`."""
        print(parser.format_help())  # noqa: T201 - this is the person's output

    def parse(self, line: str) -> options.RunOptions:
        """Parse the magic's line; `{name}` and `$name` are expanded as IPython does."""
        expanded = self.shell.var_expand(line, depth=1)
        return parser.parse_as(options.RunOptions, options.split_words(expanded))

    def run_body(self, line: str, body: str) -> Any:
        """Run a cell given as text (`run_cell_magic`), and return its value."""
        tree = self.shell.compile.ast_parse(
            self.shell.transform_cell(f"{cell_source.MAGIC} {line}\n{body}")
        )
        tree = self.shell.transform_ast(tree)
        *statements, last = tree.body
        outer, name = self._active, "<tpu_run>"
        try:
            for node in statements:
                exec(compile(ast.Module([node], []), name, "exec"), self.shell.user_ns)  # noqa: S102
            if isinstance(last, ast.Expr):
                return eval(compile(ast.Expression(last.value), name, "eval"), self.shell.user_ns)  # noqa: S307
            exec(compile(ast.Module([last], []), name, "exec"), self.shell.user_ns)  # noqa: S102
            return None
        finally:
            if outer is None and not self._runs.stack:
                self._leave()

    # --- what IPython calls -----------------------------------------------------------------

    def visit(self, tree: ast.AST) -> ast.AST:
        """Transform a cell's tree (IPython's interface for AST transformers). Never raises."""
        if not isinstance(tree, ast.Module) or not tree.body:
            return tree
        begins = cell_source.has_begin(tree)
        if not begins and self.automatic is not None and self._active is None:
            cell_source.add_begin(tree, self.automatic)
            begins = True
        if begins:
            cell_source.add_end(tree, self.shell.ast_node_interactivity)
        return tree

    def _pre_execute(self) -> None:
        self._runs.stack.append(_Run())

    def _pre_run_cell(self, info: Any = None) -> None:
        if self._runs.stack:
            self._runs.stack[-1].info = info

    def _post_execute(self) -> None:
        # Only silent runs have no info; for the others `post_run_cell` follows.
        if self._runs.stack and self._runs.stack[-1].info is None:
            self._leave_run(self._runs.stack.pop())

    def _post_run_cell(self, result: Any = None) -> None:
        # Also called for cells that IPython never began (empty ones): match by the info.
        stack = self._runs.stack
        if stack and result is not None and stack[-1].info is result.info:
            self._leave_run(stack.pop())

    def _leave_run(self, run: _Run) -> None:
        if self._active is not None and self._active.run is run:
            self._leave()

    # --- leaving ----------------------------------------------------------------------------

    def _leave(self) -> None:
        """Leave the cell and show its report. IPython swallows what is raised here."""
        active, self._active = self._active, None
        if active is None:
            return
        try:
            _until_done(partial(active.context.__exit__, None, None, None))
        except Exception as error:  # noqa: BLE001 - the cell is over; say it and go on
            print(f"tpu_magic could not put everything back: {error!r}", file=sys.stderr)  # noqa: T201
        ended = active.ended if active.ended is not None else self.clock()
        counted = active.counted if active.counted is not None else active.adapter.counters()
        report = assemble(
            device=active.adapter.devices(),
            framework=active.adapter.name,
            facts=active.session.facts,
            counters=counted.since(active.before),
            memory=active.adapter.memory(),
            wall_s=ended - active.started,
            connect_s=active.connect_s,
        )
        self.last_report = report
        if active.options.output:
            self.shell.user_ns[active.options.output] = report
        silent = active.run is not None and active.run.info is None
        # That nothing ran there is news, unless nobody asked or an error says more.
        idle = not report.reached_device and (active.automatic or active.ended is None)
        if not (active.options.quiet or silent or idle):
            self.show(report)

    def _choose(self, framework: str, *, required: bool) -> Adapter | None:
        """Return the adapter for a cell; None when nothing asks for one and none is required."""
        if framework == "auto":
            runs = self._runs.stack
            code = runs[-1].info.raw_cell if runs and runs[-1].info is not None else ""
            found = choose.framework_of(code, self.shell.user_ns)
            if found is None and not required:
                return None
            found = found or choose.installed_framework()
            if found is None:
                raise UsageError(
                    "no framework is installed here: %tpu_setup --framework torch says what to do"
                )
            framework = found
        chosen = adapter_named(framework)
        availability = chosen.availability()
        if not availability.usable:
            if not required:
                return None
            raise UsageError(availability.sentence())
        return chosen


def _until_done(act: Callable[[], Any]) -> None:
    """Call `act`, once more when an interrupt cut it short: leaving must not be half done."""
    try:
        act()
    except KeyboardInterrupt:
        act()


# Raises from C: a Python function would add its frame to the person's traceback.
_raise_in_c = ctypes.PYFUNCTYPE(None, ctypes.py_object, ctypes.py_object)(
    ("PyErr_SetObject", ctypes.pythonapi)
)
