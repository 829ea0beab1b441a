"""The cell engine: a `%%tpu_run` cell is an ordinary cell with a beginning and an end.

`begin` is called from the cell's first line, `end` from its last expression (both put
there by `source`), and the cell is left in `post_run_cell`, however it ended. IPython
itself runs the cell, so values, `await`, inner magics, tracebacks and interrupts are its own.
"""

from __future__ import annotations

import ast
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.utils.text import DollarFormatter

from tpu_magic import frameworks, interrupts, options
from tpu_magic.cell import needs, source
from tpu_magic.cell.calls import raising, returning
from tpu_magic.cell.runs import Active, Run, Runs
from tpu_magic.frameworks import abilities
from tpu_magic.tracebacks import running_cell, showing_theirs

# What only a cell on the device needs is imported by the first one: loading stays cheap.
if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from tpu_magic.cell.meter import Meter
    from tpu_magic.cell.stale import StaleWatch
    from tpu_magic.frameworks.base import Adapter
    from tpu_magic.report.cell_report import CellReport

TIMER_ABOVE = "%%timeit above %%tpu_run would begin the cell many times; use %%tpu_timeit instead"
OTHER_THREAD = "another %%tpu_run cell is running in this kernel; wait for it to end"
FORKED = (
    "this process was forked from a kernel that had started the device, which does not work in "
    "it: restart the kernel and launch processes first, or use one process for all devices"
)
NOT_REPEATED = (
    "--repeat works in a %%tpu_run line that says so itself, not through a {name}, under "
    "%%prun, or with %tpu_run on"
)
NO_PROFILE = "--profile is not there yet for {name}"

parser = options.Parser(
    source.MAGIC,
    "Run the cell on the TPU (or on XLA's own device where there is none), on all of its\n"
    "cores, and say what it cost. %tpu_run on|off does so for every later cell.",
    options.framework_options,
    options.run_options,
    options.tpu_options,
    options.output_options,
)


@dataclass(repr=False)
class CellEngine:
    """The engine of one shell; `shell.tpu_cell` while the extension is loaded.

    Attributes
    ----------
    shell
        The shell whose cells it runs.
    show
        Shows a report.
    live
        Says whether a long cell tells how it is going.
    automatic
        The options of `%tpu_run on`; None while it is off.
    last_report
        The report of the last cell that had one.
    registered
        Whether the shell calls it.
    """

    shell: InteractiveShell
    show: Callable[[CellReport], None]
    live: Callable[[], bool] = bool
    clock: Callable[[], float] = time.perf_counter
    automatic: str | None = None
    last_report: CellReport | None = None
    registered: bool = False
    _active: Active | None = None
    _runs: Runs = field(default_factory=Runs)
    _stale: StaleWatch | None = None
    _device_process: int | None = None
    _running: set[str] = field(default_factory=set)

    def register(self) -> None:
        """Put the engine into the shell."""
        self.registered = True
        self.shell.tpu_cell = self  # type: ignore[attr-defined]
        self.shell.input_transformers_cleanup.append(source.rewrite_text)
        ast_transformers: list[Any] = self.shell.ast_transformers
        ast_transformers.append(self)
        for event, callback in self._callbacks():
            self.shell.events.register(event, callback)

    def unregister(self) -> None:
        """Take the engine out of the shell."""
        needed = self._active is not None  # by the end of the cell that unloads us
        self.registered = False
        self._leave(None)
        for event, callback in self._callbacks():
            with suppress(ValueError):
                self.shell.events.unregister(event, callback)
        pairs: tuple[tuple[list[Any], Any], ...] = (
            (self.shell.input_transformers_cleanup, source.rewrite_text),
            (self.shell.ast_transformers, self),
        )
        for transformers, ours in pairs:
            if ours in transformers:
                transformers.remove(ours)
        if getattr(self.shell, "tpu_cell", None) is self and not needed:
            del self.shell.tpu_cell

    def _callbacks(self) -> list[tuple[str, Callable[..., None]]]:
        return [
            ("pre_execute", self._pre_execute),
            ("pre_run_cell", self._pre_run_cell),
            ("post_execute", self._post_execute),
            ("post_run_cell", self._post_run_cell),
        ]

    @property
    def meter(self) -> Meter | None:
        """What measures the cell that is on the device now; None between cells."""
        return None if self._active is None else self._active.meter

    # --- what the cell's own code calls ---------------------------------------------------
    # Each returns a callable made of C functions, which the cell calls: what is raised has
    # the cell's own frame as the last one of its traceback, and none of ours.

    def begin(
        self, line: str, problem: str = "", *, automatic: bool = False, repeated: bool = False
    ) -> Callable[[], Any]:
        """Begin a cell: parse its options, connect, and enter the adapter.

        The callable raises `UsageError` for a mistake in the line, a framework that cannot be
        used here, or a place where the magic cannot stand. The cell does not run then.
        """
        try:
            if problem:
                raise UsageError(problem)  # noqa: TRY301 - raised in the cell, below
            if sys._getframe(1).f_code.co_filename == "<magic-timeit>":  # noqa: SLF001
                raise UsageError(TIMER_ABOVE)  # noqa: TRY301
            self._begin(self.parse(line), automatic=automatic, repeated=repeated)
        except BaseException as error:  # noqa: BLE001 - raised again, without our frames
            return raising(error)
        return returning(None)

    def end(self, *value: Any) -> Callable[[], Any]:
        """Wait until the device is done with the cell; the callable gives the value back.

        It raises what the device reports only now.
        """
        active = self._active
        if active is not None and active.is_here():
            try:
                active.session.finish()
                if active.options.repeat > 1:
                    active.meter.lap()
                else:
                    active.meter.stop()
            except BaseException as error:  # noqa: BLE001 - raised again, without our frames
                active.meter.stop()
                active.late_error = error
                return raising(error)
        return returning(*value or (None,))

    def again(self) -> bool:
        """Say whether a repeated cell has another run before its last."""
        active = self._active
        if active is None or active.runs_left <= 1:
            return False
        active.runs_left -= 1
        return True

    def show_help(self) -> None:
        """Print the help of `%%tpu_run`."""
        print(parser.format_help())  # noqa: T201 - this is the person's output

    def parse(self, line: str) -> options.RunOptions:
        """Parse the magic's line; `{name}` and `$name` are expanded as IPython does.

        Raises
        ------
        UsageError
            For an unknown option or a bad value.
        """
        if "{" in line or "$" in line:
            with suppress(Exception):  # an unknown name stays as it is
                line = DollarFormatter().vformat(line, args=[], kwargs=dict(self.shell.user_ns))
        try:
            return parser.parse_as(options.RunOptions, options.split_words(line))
        except options.Help as text:
            raise UsageError(str(text)) from None

    def switch_on(self, line: str) -> None:
        """Run every later cell with these options.

        Raises
        ------
        UsageError
            For options that are wrong, or make no sense for every cell.
        """
        if self.parse(line).repeat > 1:
            raise UsageError(NOT_REPEATED)
        self.automatic = line

    def run_body(self, line: str, body: str) -> Any:
        """Run a cell given as text (`run_cell_magic`), and return its value."""
        __tracebackhide__ = True
        raw = f"{source.MAGIC} {line}\n{body}"
        text = self.shell.transform_cell(raw)
        name = self.shell.compile.cache(text, running_cell(self.shell), raw_code=raw)
        tree = self.shell.transform_ast(self.shell.compile.ast_parse(text, name))
        *statements, last = tree.body
        value = last.value if isinstance(last, ast.Expr) else None
        code = compile(ast.Module(tree.body if value is None else statements, []), name, "exec")
        outer = self._active
        try:
            exec(code, self.shell.user_ns)  # noqa: S102
            if value is None:
                return None
            return eval(compile(ast.Expression(value), name, "eval"), self.shell.user_ns)  # noqa: S307
        finally:
            if outer is None and not self._runs:
                self._leave(None)

    # --- what IPython calls -----------------------------------------------------------------

    def visit(self, tree: ast.AST) -> ast.AST:
        """Transform a cell's tree (IPython's interface for AST transformers). Never raises."""
        if not isinstance(tree, ast.Module) or not tree.body:
            return tree
        arguments = source.begin_arguments(tree)
        inside = self._active is not None and self._active.is_here()
        if arguments is None and self.automatic is not None and not inside:
            if needs.is_inert(tree):
                return tree
            source.add_begin(tree, self.automatic)
        elif arguments is None and not inside:
            return tree
        elif arguments is not None and "--repeat" in arguments:
            source.add_repeat(tree)
        # Also for what an inner magic runs, so that `%time` in the cell tells the truth.
        source.add_end(tree, self.shell.ast_node_interactivity)
        return tree

    def _pre_execute(self) -> None:
        if not self._runs and self._active is not None and self._active.is_here():
            self._leave(None)  # begun outside of any cell of IPython's, and never left
        self._runs.push()

    def _pre_run_cell(self, info: Any = None) -> None:
        self._runs.name(info)

    def _post_execute(self) -> None:
        self._leave_run(self._runs.pop_silent(), None)

    def _post_run_cell(self, result: Any = None) -> None:
        self._leave_run(self._runs.pop(result), result)
        self._look_after(result)

    def _leave_run(self, run: Run | None, result: Any) -> None:
        if run is not None and self._active is not None and self._active.run is run:
            self._leave(result)

    def _look_after(self, result: Any) -> None:
        """Help with an error that moved objects caused; note who started a runtime."""
        running = frameworks.running()
        for adapter in running:
            if adapter.name not in self._running:
                self._running.add(adapter.name)
                if isinstance(adapter, abilities.NotesStart):
                    adapter.note_started(getattr(result, "execution_count", None))
        error = getattr(result, "error_in_exec", None)
        if not isinstance(error, Exception) or isinstance(error, UsageError):
            return
        for adapter in running:
            with suppress(Exception):  # help must not be one more error
                if (hint := adapter.explain(error, self.shell.user_ns)) is not None:
                    print(hint)  # noqa: T201 - beside IPython's traceback
                    return

    # --- entering and leaving -----------------------------------------------------------------

    def _begin(self, chosen: options.RunOptions, *, automatic: bool, repeated: bool) -> None:
        if self._device_process not in (None, os.getpid()):
            raise UsageError(FORKED)
        if self._active is not None:
            if self._active.is_here() or automatic:
                return  # a %%tpu_run inside a %%tpu_run is part of it
            raise UsageError(OTHER_THREAD)
        if chosen.repeat > 1 and not repeated:
            raise UsageError(NOT_REPEATED)
        adapter = needs.adapter_for(
            chosen.framework, self._runs.code(), self.shell.user_ns, required=not automatic
        )
        if adapter is None:
            return
        if (problem := self._stale_problem()) is not None:
            raise UsageError(problem)
        started = self.clock()
        adapter.connect(require_tpu=chosen.require_tpu, devices=chosen.devices)
        self._running.add(adapter.name)
        self._device_process = os.getpid()
        self._enter(adapter, chosen, started, automatic=automatic)

    def _enter(
        self, adapter: Adapter, chosen: options.RunOptions, started: float, *, automatic: bool
    ) -> None:
        connected = self.clock()
        if chosen.profile is not None and not isinstance(adapter, abilities.Profiles):
            raise UsageError(NO_PROFILE.format(name=adapter.name))
        with interrupts.Held(), ExitStack() as undo:
            undo.enter_context(showing_theirs(self.shell))
            session = undo.enter_context(adapter.cell(chosen, self.shell.user_ns))
            if chosen.profile is not None and isinstance(adapter, abilities.Profiles):
                undo.enter_context(adapter.profile(chosen.profile))
            from tpu_magic.cell import live
            from tpu_magic.cell.meter import Meter

            meter = Meter(adapter, session.facts, self.clock, started, connected)
            self._active = active = Active(
                run=self._runs.top(),
                options=chosen,
                session=session,
                undo=undo.pop_all(),
                meter=meter,
                automatic=automatic,
                runs_left=chosen.repeat,
            )
            if self.live() and not active.is_silent():
                active.line = live.start(self.shell, meter)

    def _leave(self, result: Any) -> None:
        """Leave the cell and show its report. IPython swallows what is raised here."""
        active = self._active
        if active is None or active.process != os.getpid():
            return  # a forked child must not touch its parent's device: not even let go of it
        self._active = None
        error = None if result is None else result.error_in_exec
        if error is not None and error is not active.late_error:
            active.meter.stop()  # an inner `%time` may have put an end before
        problems = []
        if error is None and active.meter.ended is None:
            problems.append(_attempt(active.session.finish))  # %%prun lets no end be put
            active.meter.stop()
        with interrupts.Held(deliver=False) as held:
            if active.line is not None:
                active.line.stop()
            problems.append(_attempt(active.undo.close))
        problems.append(KeyboardInterrupt() if held.came else None)
        for problem in problems:
            if problem is not None:
                self._fail(result, error := problem)
        self._report(active, failed=error is not None)

    def _fail(self, result: Any, error: BaseException) -> None:
        """Make an error that came after the cell's last line the cell's own."""
        if result is not None:
            result.error_in_exec = error
        self.shell.showtraceback((type(error), error, None))

    def _report(self, active: Active, *, failed: bool) -> None:
        chosen = active.options
        report = self.last_report = active.meter.report()
        if chosen.output:
            self.shell.user_ns[chosen.output] = report
        # That nothing ran there is news, unless nobody asked or an error says more.
        idle = not report.reached_device and (active.automatic or failed)
        if not (chosen.quiet or idle or active.is_silent()):
            self.show(report)

    def _stale_problem(self) -> str | None:
        if self._stale is None:
            from tpu_magic.cell.stale import StaleWatch

            self._stale = StaleWatch()
        return self._stale.problem()


def _attempt(act: Callable[[], None]) -> BaseException | None:
    """Call `act`; return what it raised, since nothing may be raised while a cell is left."""
    try:
        act()
    except BaseException as error:  # noqa: BLE001 - made the cell's own error
        return error
    return None
