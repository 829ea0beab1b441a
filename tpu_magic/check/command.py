"""`%%tpu_check` from its line to its report: parse, record, compile, show."""

from __future__ import annotations

import ast
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from IPython.display import display

from tpu_magic import options
from tpu_magic.cell import live
from tpu_magic.check import assemble, capture, compiler, environment, fit, replay
from tpu_magic.check.child import CAPTURES, WITHOUT_XLA, Seen
from tpu_magic.check.options import PARSER, CheckOptions
from tpu_magic.check.places import CELL, Person
from tpu_magic.check.targets import Target, targets_of
from tpu_magic.check.verdict import CheckReport, CheckTable
from tpu_magic.frameworks import choose, keras
from tpu_magic.report import render

NO_CELL = "%%tpu_check checks a cell: make it the first line, and write the code below it"
_NOT_YET = (
    "%%tpu_check --framework {name} is not there yet in this version of tpu_magic (it has: {there})"
)

# What only TensorFlow itself can run.
_OWN_LOOP = re.compile(r"\btf\.(function|GradientTape|distribute|Module|compat)\b")
_NO_TENSORFLOW = (
    "%%tpu_check records no TensorFlow of its own (tf.function, GradientTape): train with Keras "
    "(model.fit, which is recorded on Keras's JAX backend), or write the step in jax or torch"
)
_ON_JAX = (
    "recorded on Keras's JAX backend, which is how Keras runs on today's TPUs; this notebook's "
    "backend is {backend}"
)
_NO_JAX = (
    "%%tpu_check records {name} cells with jax, which is not installed beside this notebook's "
    "packages: %pip install jax"
)
_NO_AUTOCAST = (
    "%%tpu_check --precision bf16 needs torch_xla beside torch (it has the autocast of TPUs); "
    "make the model bfloat16 (net.to(torch.bfloat16)) or use another precision"
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
        """Tell what is being done now."""
        self._doing = doing

    def read(self) -> str:
        """Return the line that is shown."""
        return f"{self._doing} · {render.seconds(time.perf_counter() - self._started)}"


def check(
    shell: Any, text: str, wanted: CheckOptions, folder: Path, progress: Progress
) -> CheckReport | CheckTable:
    """Return the report of a cell: one for a target, a table for several."""
    targets = targets_of(wanted.target)
    framework = framework_of(wanted.framework, text, shell)
    without_xla = framework == "torch" and environment.torch_is_alone()
    if without_xla and wanted.precision == "bf16":
        raise UsageError(_NO_AUTOCAST)
    place = environment.required(torch=without_xla)
    cell = capture.read_cell(shell, text)
    asked = Question(cell, framework, wanted, place, folder, progress, without_xla)
    if wanted.fit_batch is not None:
        return _fit_batch(asked, targets, shell)
    reports = asked.verdicts(targets)
    return reports[0] if len(targets) == 1 else CheckTable(reports)


@dataclass(frozen=True)
class Question:
    """A cell, and how it is to be checked."""

    cell: capture.Cell
    framework: str
    wanted: CheckOptions
    place: environment.CompilerPlace
    folder: Path
    progress: Progress
    without_xla: bool = False

    def verdicts(
        self, targets: Sequence[Target], values: Mapping[str, int] | None = None
    ) -> list[CheckReport]:
        """Return a report for each target, with some names set to other values.

        The cell is recorded once for each number of devices.
        """
        reports = []
        for devices in sorted({target.devices for target in targets}):
            here = [target for target in targets if target.devices == devices]
            self.progress(f"recording the cell for {devices} device{'s' if devices > 1 else ''}")
            folder = Path(tempfile.mkdtemp(dir=self.folder))
            precision, limit_s = self.wanted.precision, self.wanted.time_limit
            seen = capture.capture(
                self.cell,
                WITHOUT_XLA if self.without_xla else self.framework,
                devices,
                {"precision": precision, "set": dict(values or {})},
                folder=folder,
                limit_s=limit_s,
            )
            if self.framework == "keras" and (backend := keras.configured()) != "jax":
                seen.note(_ON_JAX.format(backend=backend or "of its own"))
            if self.without_xla:
                replay.replay(
                    seen,
                    self.place,
                    folder,
                    self._person(),
                    devices=devices,
                    precision=precision,
                    limit_s=limit_s,
                )
            reports += self._compiled(seen, here)
        order = [target.name for target in targets]
        return sorted(reports, key=lambda report: order.index(report.target))

    def _person(self) -> Person:
        return Person({**capture.sources(self.cell.namespace), CELL: self.cell.code})

    def _compiled(self, seen: Seen, targets: Sequence[Target]) -> list[CheckReport]:
        """Compile what was recorded for targets with the same number of devices."""
        level = "full" if self.wanted.estimate else "O1"
        programs = assemble.worth_telling(seen.programs)
        jobs = [
            compiler.Job(
                item.path,
                target,
                item.devices or target.devices,
                level,
                seen.infer_aliases,
                seen.shardy,
            )
            for target in targets
            for item in programs
        ]
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        outcome = compiler.compile_all(
            jobs, self.place, folder, self.wanted.time_limit, self.progress
        )
        person = self._person()
        reports = []
        for number, target in enumerate(targets):
            start = number * len(programs)
            answers = outcome.answers[start : start + len(programs)]
            made = assemble.report(
                target,
                seen,
                list(zip(programs, answers, strict=True)),
                person,
                precision=self.wanted.precision,
                level=level,
                framework=self.framework,
                compiler=self.place.label(),
                compiler_peak=outcome.peak_bytes,
            )
            made.advice.extend(assemble.wide_advice(answers, person))
            reports.append(made)
        return reports


def _fit_batch(asked: Question, targets: Sequence[Target], shell: Any) -> CheckReport:
    """Return the report of the largest batch that fits, or of the person's own if none does.

    Raises
    ------
    UsageError
        For several targets, a name that holds no batch size, or one that changes nothing.
    """
    name = str(asked.wanted.fit_batch)
    if len(targets) != 1:
        raise UsageError("%%tpu_check: --fit-batch takes one --target")
    start = _batch_size(name, asked.cell.code, shell)
    reports: dict[int, CheckReport] = {}

    def probe(value: int) -> fit.Size:
        asked.progress(f"{name} = {value}")
        (reports[value],) = asked.verdicts(targets, {name: value})
        report = reports[value]
        if report.fits is None:
            raise UsageError(f"%%tpu_check: no verdict at {name} = {value}: {report.headline()}")
        return fit.Size(report.fits, report.hbm_needed_bytes)

    found = fit.largest(probe, start, targets[0].generation.hbm_bytes_per_device)
    if not found.matters:
        raise UsageError(
            f"%%tpu_check: {name} changes nothing in the cell; make what uses it "
            "(the DataLoader, the batch) inside the cell"
        )
    shown = reports[found.best if found.best is not None else start]
    tried = {str(value): size.fits for value, size in found.tried.items()}
    return replace(shown, fit_name=name, fit_batch=found.best, fit_tried=tried)


def _batch_size(name: str, code: str, shell: Any) -> int:
    """Return the batch size that a name has: as the cell assigns it, else in the notebook."""
    value = shell.user_ns.get(name)
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            value = node.value.value if name in names else value
    if type(value) is not int or value < 1:
        raise UsageError(f"%%tpu_check: --fit-batch: {name} holds no batch size (an integer)")
    return value


def framework_of(asked: str, text: str, shell: Any) -> str:
    """Return the framework to record; Keras of any backend is `keras`.

    Raises
    ------
    UsageError
        When it is none that can be recorded, or not by what is installed.
    """
    found = asked
    if asked == "auto":
        found = choose.framework_of(text, shell.user_ns) or choose.installed_framework() or "torch"
    if found == "tf":
        if not _keras_in(text, shell):
            raise UsageError(_NO_TENSORFLOW)
        found = "keras"
    if found not in CAPTURES:
        there = ", ".join(name for name in CAPTURES if name != WITHOUT_XLA)
        raise UsageError(_NOT_YET.format(name=found, there=there))
    if found in {"keras", "jax"} and find_spec("jax") is None:
        raise UsageError(_NO_JAX.format(name=found))
    return found


def _keras_in(text: str, shell: Any) -> bool:
    """Say whether Keras is what a TensorFlow cell works with, and nothing of TensorFlow alone."""
    names = shell.user_ns
    sources = capture.sources({name: names[name] for name in _names_in(text) & set(names)})
    reached = "\n".join([text, *sources.values()])
    values = [names[name] for name in _names_in(reached) & set(names)]
    model = getattr(sys.modules.get("keras"), "Model", ())
    own = any(callable(item) and type(item).__module__.startswith("tensorflow.") for item in values)
    held = any(isinstance(item, model) for item in values)
    return not own and not _OWN_LOOP.search(reached) and (held or "keras" in reached)


def _names_in(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", text))


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
