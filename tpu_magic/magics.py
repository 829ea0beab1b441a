"""The magics: each one parses its line, calls the room that does the work, and shows the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import (
    Magics,
    line_cell_magic,
    line_magic,
    magics_class,
    needs_local_scope,
    no_var_expand,
)
from IPython.display import display
from traitlets import Bool

from tpu_magic import completion, options
from tpu_magic.cell import source
from tpu_magic.cell.engine import CellEngine
from tpu_magic.tracebacks import hides_ours

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

NOT_THE_FIRST_LINE = f"{source.MAGIC} must be the first line of the cell"
HOW_TO_RUN = (
    "%tpu_run takes `on [options]` or `off`; to run one cell on the device, make "
    "%%tpu_run its first line"
)
_NAMES = ("tpu_setup", "tpu_run", "tpu_timeit", "tpu_compare", "tpu_check", "tpu_info")


@magics_class
class TpuMagics(Magics):
    """The magics of tpu_magic; `%config TpuMagics` shows and sets their settings."""

    install_without_asking = Bool(
        False, help="Let %tpu_setup install what its plan says without asking."
    ).tag(config=True)
    show_reports = Bool(True, help="Show the report after each %%tpu_run cell.").tag(config=True)
    live = Bool(
        True, help="Show how a cell is going after two seconds, in one line that goes away."
    ).tag(config=True)

    shell: InteractiveShell

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self.engine = CellEngine(shell, self._show, lambda: self.live)

    def _show(self, report: Any) -> None:
        if self.show_reports:
            display(report)

    @line_magic
    def tpu_setup(self, line: str) -> None:
        """Say where this is, make the environment fit on consent, verify and connect.

        `%tpu_setup --help` lists the options.
        """
        from tpu_magic.setup import command
        from tpu_magic.setup.options import PARSER, SetupOptions

        wanted = _parsed(PARSER, SetupOptions, line)
        if wanted is None:
            return
        if wanted.compiler:
            from tpu_magic.check import environment

            consent = (wanted.yes or self.install_without_asking) and not wanted.dry_run
            environment.set_up(consent=consent and not wanted.check, show=print)
            return
        report = command.run(wanted, self.shell, consent=self.install_without_asking)
        self._give(report, wanted)

    @line_magic
    def tpu_info(self, line: str) -> None:
        """Show devices, memory, load, versions, and who holds the chip."""
        from tpu_magic.setup import info

        parser = options.Parser(
            "%tpu_info", "What this machine has and what uses it.", options.output_options
        )
        wanted = _parsed(parser, options.OutputOptions, line)
        if wanted is not None:
            self._give(info.gather(), wanted)

    @line_cell_magic
    def tpu_run(self, line: str, cell: str | None = None) -> Any:
        """Run the cell on the TPU (or XLA's own device), on all cores, and report its cost.

        As the first line of a cell: `%%tpu_run [options]`; `%%tpu_run --help` lists them.
        For all later cells: `%tpu_run on [options]`, and `%tpu_run off` to end it.
        """
        __tracebackhide__ = True
        if cell is not None:
            return self.engine.run_body(line, cell)
        word, _, rest = line.strip().partition(" ")
        if "--help" in line.split():
            self.engine.show_help()
        elif word == "on":
            self.engine.switch_on(rest)
        elif word == "off" and not rest.strip():
            self.engine.automatic = None
        else:
            raise UsageError(HOW_TO_RUN)
        return None

    def not_the_first_line(self, _: str) -> None:
        """Say that `%%tpu_run` must be the first line of its cell.

        IPython looks for a line magic named `%tpu_run` where the magic stands elsewhere.
        """
        raise UsageError(NOT_THE_FIRST_LINE)

    @no_var_expand
    @needs_local_scope
    @line_cell_magic
    @hides_ours
    def tpu_timeit(
        self, line: str, cell: str | None = None, local_ns: dict[str, Any] | None = None
    ) -> Any:
        """Time code on the device: outputs computed, device waited for, compiles kept apart.

        All options of `%timeit`, and more: `%tpu_timeit --help`.
        """
        from tpu_magic.timing import command

        return command.run_timeit(self.shell, line, cell, local_ns)

    @no_var_expand
    @line_cell_magic
    @hides_ours
    def tpu_compare(self, line: str, cell: str | None = None) -> Any:
        """Compare candidates, one a line, timed interleaved, with a verdict for each pair."""
        from tpu_magic.timing import command

        return command.run_compare(self.shell, line, cell)

    @no_var_expand
    @line_cell_magic
    @hides_ours
    def tpu_check(self, line: str, cell: str | None = None) -> None:
        """Ask the real TPU compiler, with no TPU, whether a cell compiles and fits.

        `%%tpu_check --help` lists the options.
        """
        from tpu_magic.check import command

        command.run_check(self.shell, line, cell)

    def _give(self, report: Any, wanted: Any) -> None:
        """Keep and show a report as its options say."""
        if wanted.output:
            self.shell.user_ns[wanted.output] = report
        if not wanted.quiet:
            display(report)


def _parsed(parser: options.Parser, kind: Any, line: str) -> Any:
    """Return the line's options; None when it asked for help, which is then shown."""
    try:
        return parser.parse_as(kind, options.split_words(line))
    except options.Help as text:
        print(text)  # noqa: T201 - help goes to the person
        return None


def load(shell: InteractiveShell) -> None:
    """Register the magics and the engine; once, however often it is called."""
    if getattr(getattr(shell, "tpu_cell", None), "registered", False):
        return
    magics = TpuMagics(shell)
    shell.register_magics(magics)
    manager: Any = shell.magics_manager
    manager.register_function(magics.not_the_first_line, "line", "%tpu_run")
    configurables: list[Any] = shell.configurables
    configurables.append(magics)
    magics.engine.register()
    completion.register(shell)
    if hasattr(shell, "kernel"):
        from tpu_magic import lab

        lab.attach(shell, magics.engine)


def unload(shell: InteractiveShell) -> None:
    """Take back the magics and the engine."""
    engine = getattr(shell, "tpu_cell", None)
    if engine is None or not engine.registered:
        return
    if hasattr(shell, "tpu_lab"):
        from tpu_magic import lab

        lab.detach(shell)
    engine.unregister()
    completion.unregister(shell)
    configurables: list[Any] = shell.configurables
    configurables[:] = [item for item in configurables if type(item) is not TpuMagics]
    registered = shell.magics_manager
    registered.registry.pop(TpuMagics.__name__, None)
    for table in registered.magics.values():
        for name in (*_NAMES, "%tpu_run"):
            table.pop(name, None)
