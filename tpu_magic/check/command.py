"""`%%tpu_check` from its line to its report: parse, record, compile, show."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from IPython.display import display

from tpu_magic import options
from tpu_magic.cell import live
from tpu_magic.check import assemble, capture, compiler, environment
from tpu_magic.check.child import CAPTURES, Seen
from tpu_magic.check.options import PARSER, CheckOptions
from tpu_magic.check.places import CELL, Person
from tpu_magic.check.targets import Target, targets_of
from tpu_magic.check.verdict import CheckReport, CheckTable
from tpu_magic.frameworks import choose
from tpu_magic.report import render

NO_CELL = "%%tpu_check checks a cell: make it the first line, and write the code below it"
_NOT_YET = (
    "%%tpu_check --framework {name} is not there yet in this version of tpu_magic (it has: {there})"
)


def run_check(shell: Any, line: str, cell: str | None) -> None:
    """Check a cell; show the report and keep it as the options say.

    Raises
    ------
    IPython.core.error.UsageError
        For a mistake in the line, a compiler that is not there, or a cell that cannot be
        recorded here.
    """
    try:
        wanted = PARSER.parse_as(CheckOptions, options.split_words(shell.var_expand(line, depth=1)))
    except options.Help as text:
        print(text)  # noqa: T201 - help goes to the person
        return
    if cell is None or not cell.strip():
        raise UsageError(NO_CELL)
    progress = Progress()
    with _live(shell, progress), tempfile.TemporaryDirectory(prefix="tpu_check_") as folder:
        result = check(shell, cell, wanted, Path(folder).resolve(), progress)
    if wanted.output:
        shell.user_ns[wanted.output] = result
    if not wanted.quiet:
        display(result)


class Progress:
    """What is being done, and for how long."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._doing = "recording the cell"

    def __call__(self, doing: str) -> None:
        self._doing = doing

    def read(self) -> str:
        """Return the line that is shown."""
        return f"{self._doing} · {render.seconds(time.perf_counter() - self._started)}"


def check(
    shell: Any, text: str, wanted: CheckOptions, folder: Path, progress: Progress
) -> CheckReport | CheckTable:
    """Return the report of a cell: one for a target, a table for several."""
    targets = targets_of(wanted.target)
    place = environment.required()
    cell = capture.read_cell(shell, text)
    framework = framework_of(wanted.framework, text, shell)
    reports = []
    for devices in sorted({target.devices for target in targets}):
        here = [target for target in targets if target.devices == devices]
        progress(f"recording the cell for {devices} device{'s' if devices > 1 else ''}")
        seen = capture.capture(
            cell, framework, devices, {"precision": wanted.precision},
            folder / f"capture-{devices}", wanted.time_limit,
        )
        reports += _verdicts(cell, seen, here, framework, wanted, place, folder, progress)
    reports.sort(key=lambda report: [target.name for target in targets].index(report.target))
    return reports[0] if len(targets) == 1 else CheckTable(reports)


def framework_of(asked: str, text: str, shell: Any) -> str:
    """Return the framework to record.

    Raises
    ------
    UsageError
        When it is none that can be recorded yet.
    """
    found = asked
    if asked == "auto":
        found = choose.framework_of(text, shell.user_ns) or choose.installed_framework() or "torch"
    if found not in CAPTURES:
        raise UsageError(_NOT_YET.format(name=found, there=", ".join(CAPTURES)))
    return found


def _verdicts(
    cell: capture.Cell,
    seen: Seen,
    targets: Sequence[Target],
    framework: str,
    wanted: CheckOptions,
    place: environment.CompilerPlace,
    folder: Path,
    progress: Progress,
) -> list[CheckReport]:
    """Compile what was recorded for targets with the same number of devices."""
    level = "full" if wanted.estimate else "O1"
    programs = assemble.worth_telling(seen.programs)
    jobs = [
        compiler.Job(item.path, target, item.devices or target.devices, level, seen.infer_aliases, seen.shardy)
        for target in targets
        for item in programs
    ]
    outcome = compiler.compile_all(jobs, place, folder, wanted.time_limit, progress)
    person = Person({**capture.sources(cell.namespace), CELL: cell.code})
    reports = []
    for number, target in enumerate(targets):
        start = number * len(programs)
        answers = outcome.answers[start : start + len(programs)]
        made = assemble.report(
            target, seen, list(zip(programs, answers, strict=True)), person,
            precision=wanted.precision, level=level, framework=framework,
            compiler=place.label(), compiler_peak=outcome.peak_bytes,
        )
        made.advice.extend(assemble.wide_advice(answers, person))
        reports.append(made)
    return reports


@contextmanager
def _live(shell: Any, progress: Progress) -> Iterator[None]:
    """Show what is being done while it takes long."""
    screen = live.screen_for(shell)
    if screen is None:
        yield
        return
    line = live.LiveLine(progress.read, screen)
    try:
        yield
    finally:
        line.stop()
