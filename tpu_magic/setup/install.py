"""Run a plan: one resolver call by pip or uv, logged, with a snapshot before and a way back.

Arguments are lists, never a shell; the interpreter is this one's, never another's.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from IPython.core.error import UsageError
from packaging.requirements import Requirement

from tpu_magic.setup.signatures import explain
from tpu_magic.setup.situation import Plan, name_of

Line = Callable[[str], None]
# Runs a command, hands each line of its output on, and returns its exit status.
Runner = Callable[[Sequence[str], Line], int]

_TAIL = 5
# What the lines that a person wants to see begin with, pip's and uv's.
_STEPS = (
    "Collecting", "Downloading", "Installing", "Uninstalling", "Successfully", "ERROR",
    "Resolved", "Prepared", "Uninstalled", "Installed", "+ ", "- ", "error",
)  # fmt: skip
# Lines instead of progress bars, no questions, no advice to upgrade.
_CALM = {
    "PYTHONUNBUFFERED": "1",
    "PIP_NO_INPUT": "1",
    "PIP_PROGRESS_BAR": "off",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "UV_NO_PROGRESS": "1",
}


@dataclass(frozen=True)
class Installer:
    """How packages are installed into the environment of an interpreter.

    Attributes
    ----------
    name
        `pip` or `uv`.
    prefix
        The command before `install`, `uninstall` and `freeze`.
    target
        What tells it the environment; follows the subcommand.
    yes
        What makes `uninstall` ask nothing.
    mixed_indexes
        What makes it look for each package on every index.
    """

    name: str
    prefix: tuple[str, ...]
    target: tuple[str, ...] = ()
    yes: tuple[str, ...] = ()
    mixed_indexes: tuple[str, ...] = ()

    def install(
        self, requirements: Sequence[str], plan: Plan | None = None, constraints: str | None = None
    ) -> list[str]:
        """Return the command that installs requirements with a plan's sources."""
        command = [*self.prefix, "install", *self.target]
        if plan is not None:
            for index in plan.indexes:
                command += ["--extra-index-url", index]
            for page in plan.links:
                command += ["--find-links", page]
            if plan.indexes:
                command += self.mixed_indexes
        if constraints is not None:
            command += ["--constraint", constraints]
        return [*command, *requirements]

    def uninstall(self, names: Sequence[str]) -> list[str]:
        """Return the command that removes packages."""
        return [*self.prefix, "uninstall", *self.target, *self.yes, *names]

    def freeze(self) -> list[str]:
        """Return the command that lists what is installed, exactly."""
        return [*self.prefix, "freeze", *self.target]


@dataclass(frozen=True)
class Outcome:
    """What became of a plan.

    Attributes
    ----------
    ok
        Whether every command succeeded.
    changed
        Lines of the environment's list that are new: `torch_xla==2.9.0`.
    message
        Why it failed and what helps; empty otherwise.
    restored
        After a failure: whether the environment is as it was. None when nothing had failed.
    log_file
        The whole output.
    """

    ok: bool
    changed: tuple[str, ...]
    message: str
    restored: bool | None
    log_file: str


def pip(python: str) -> Installer:
    """Return the pip of an interpreter."""
    return Installer("pip", (python, "-m", "pip"), yes=("--yes",))


def uv(program: str, python: str) -> Installer:
    """Return uv, for the environment of an interpreter."""
    return Installer(
        "uv",
        (program, "pip"),
        target=("--python", python),
        mixed_indexes=("--index-strategy", "unsafe-best-match"),
    )


def find_installer() -> Installer | None:
    """Return pip where this environment has it, else uv, else None."""
    if importlib.util.find_spec("pip") is not None:
        return pip(sys.executable)
    program = shutil.which("uv")
    return None if program is None else uv(program, sys.executable)


def commands(plan: Plan, installer: Installer, constraints: str | None) -> list[list[str]]:
    """Return the commands of a plan: what goes, then one resolver call."""
    for requirement in plan.installs:
        Requirement(requirement)  # an option or a path would be another thing to pip
    made = []
    if plan.uninstalls:
        made.append(installer.uninstall(plan.uninstalls))
    if plan.installs:
        made.append(
            installer.install(plan.installs, plan, constraints if plan.constraints else None)
        )
    return made


def as_text(plan: Plan, installer: Installer) -> tuple[str, ...]:
    """Return the plan as commands that a person can run."""
    lines = [shlex.join(command) for command in commands(plan, installer, "constraints.txt")]
    if plan.installs and plan.constraints:
        pins = shlex.join(plan.constraints)
        lines.insert(0, rf"printf '%s\n' {pins} > constraints.txt")
    return tuple(lines)


def install(
    plan: Plan,
    installer: Installer,
    log_file: Path,
    run: Runner | None = None,
    progress: Line | None = None,
) -> Outcome:
    """Run a plan; when it fails half-way, bring the environment back to what it was.

    Parameters
    ----------
    plan
        What to do; must not be refused.
    installer
        How.
    log_file
        Where the whole output goes; its folder is made, and holds the constraints too.
    run
        Runs one command (default: as a child process).
    progress
        Is handed each line that tells a step.
    """
    run = run or run_child
    log_file.parent.mkdir(parents=True, exist_ok=True)
    constraints = log_file.with_suffix(".constraints.txt")
    constraints.write_text("\n".join(plan.constraints) + "\n", encoding="utf-8")
    lines: list[str] = []
    with log_file.open("w", encoding="utf-8") as log:

        def keep(line: str) -> None:
            lines.append(line)
            log.write(line + "\n")
            log.flush()
            if progress is not None and line.lstrip().startswith(_STEPS):
                progress(line)

        before = _frozen(installer, run)
        try:
            failed = any(
                run(command, keep) for command in commands(plan, installer, str(constraints))
            )
        except BaseException:
            _restore(installer, run, before, keep)
            raise
        if failed:
            restored = _restore(installer, run, before, keep)
            return Outcome(False, (), _why(lines), restored, str(log_file))
        after = _frozen(installer, run)
    return Outcome(True, tuple(sorted(after - before)), "", None, str(log_file))


def run_child(command: Sequence[str], line: Line) -> int:
    """Run a command, handing on each line that it says; an interrupt ends it."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, **_CALM},
    ) as child:
        try:
            for text in child.stdout or ():
                line(text.rstrip())
        except BaseException:
            child.terminate()
            raise
    return child.returncode


def _frozen(installer: Installer, run: Runner) -> set[str]:
    """Return what is installed, exactly; editable checkouts stay out of it."""
    lines: list[str] = []
    if run(installer.freeze(), lines.append):
        raise UsageError(
            f"{installer.name} cannot list what is installed, so nothing was changed: "
            f"{' '.join(lines[-_TAIL:])}"
        )
    return {line for line in lines if "==" in line or " @ " in line}


def _restore(installer: Installer, run: Runner, before: set[str], keep: Line) -> bool:
    """Bring back what went or changed, remove what came; say whether that worked."""
    now = _frozen(installer, run)
    gone, came = before - now, now - before
    added = {_frozen_name(line) for line in came} - {_frozen_name(line) for line in gone}
    if added:
        run(installer.uninstall(sorted(added)), keep)
    if gone:
        run(installer.install(["--no-deps", *sorted(gone)]), keep)
    return not (gone or came) or _frozen(installer, run) == before


def _frozen_name(line: str) -> str:
    return name_of(line).partition(" @ ")[0]


def _why(lines: Sequence[str]) -> str:
    """Return why an installer failed: a known cause, else its last words."""
    known = explain("\n".join(lines))
    said = [line for line in lines if line.strip()]
    return known.sentence() if known else " ".join(said[-_TAIL:]) or "it said nothing"
