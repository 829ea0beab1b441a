"""The parent's side of compiling: jobs to the compiler's child, answers with their figures."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tpu_magic.check import cache, children
from tpu_magic.check.environment import CompilerPlace
from tpu_magic.check.targets import Target

PROGRAM = Path(__file__).with_name("child_compiler.py")
_ENVIRON = {
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    "JAX_PLATFORMS": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True)
class Job:
    """A program to compile.

    Attributes
    ----------
    graph
        File of its portable StableHLO.
    target
        What to compile for; `devices` of it are used.
    level
        `O1` for a fast verdict, `full` for an estimate of time.
    infer_aliases
        Whether the export lacks the aliases of the real run.
    shardy
        Whether its shardings are written for the Shardy partitioner.
    """

    graph: str
    target: Target
    devices: int
    level: str
    infer_aliases: bool
    shardy: bool


@dataclass(frozen=True)
class Answer:
    """What the compiler said of a job.

    Attributes
    ----------
    empty
        Whether the program computes nothing.
    compiles
        Whether it compiled; None when the compiler came to no answer.
    error
        The compiler's refusal, or how it ended.
    needed_bytes
        Memory that a refused program needs, where the refusal tells.
    limit_bytes
        Memory that the compiler has on one device of the target.
    """

    empty: bool = False
    compiles: bool | None = None
    error: str = ""
    arguments_bytes: int | None = None
    outputs_bytes: int | None = None
    aliased_bytes: int | None = None
    temporaries_bytes: int | None = None
    code_bytes: int | None = None
    needed_bytes: int | None = None
    limit_bytes: int | None = None
    device_kind: str = ""
    compile_s: float | None = None
    wide: tuple[dict[str, str], ...] = ()
    hlo: str = ""
    cached: bool = False


@dataclass
class Outcome:
    """The answers to some jobs, and the child's peak memory."""

    answers: list[Answer]
    peak_bytes: int | None = None


def compile_all(
    jobs: Sequence[Job],
    place: CompilerPlace,
    folder: Path,
    limit_s: float,
    progress: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Compile jobs in one child; those that were compiled before come from the cache.

    A child that crashes, hangs or is killed is the answer to the job that it was at; the
    jobs after it are given to another child.
    """
    names = [_name(job, place) for job in jobs]
    answers: list[Answer | None] = [_kept(name) for name in names]
    outcome = Outcome([])
    while None in answers:
        open_jobs = [number for number, answer in enumerate(answers) if answer is None]
        begun = _one_child(jobs, open_jobs, answers, place, folder, limit_s, progress, outcome)
        if begun is not None:
            answers[begun.number] = Answer(error=begun.how)
            if begun.time_is_up:
                for number in open_jobs:
                    answers[number] = answers[number] or Answer(error=begun.how)
    for name, answer in zip(names, answers, strict=True):
        if answer is not None and answer.compiles is not None and not answer.cached:
            cache.put(name, _plain(answer))
    outcome.answers = [answer for answer in answers if answer is not None]
    return outcome


@dataclass(frozen=True)
class _Broken:
    """A child that ended before its time."""

    number: int
    how: str
    time_is_up: bool


def _one_child(
    jobs: Sequence[Job],
    numbers: list[int],
    answers: list[Answer | None],
    place: CompilerPlace,
    folder: Path,
    limit_s: float,
    progress: Callable[[str], None],
    outcome: Outcome,
) -> _Broken | None:
    listed = [_as_dict(number, jobs[number], folder) for number in numbers]
    path = folder / "jobs.json"
    path.write_text(json.dumps(listed), encoding="utf-8")
    kinds: dict[str, tuple[str, int | None]] = {}
    at = numbers[0]

    def message(said: dict[str, Any]) -> None:
        nonlocal at
        if said["event"] == "target":
            kinds[said["topology"]] = (said["device_kind"], limit_of(said["limit_text"]))
        elif said["event"] == "begin":
            at = said["job"]
            progress(f"compiling for {jobs[at].target.name}")
        elif said["event"] == "answer":
            job = jobs[said["job"]]
            answers[said["job"]] = _answer(said, kinds[job.target.topology], folder)
        elif said["event"] == "end":
            outcome.peak_bytes = max(outcome.peak_bytes or 0, said["peak_bytes"])

    command = [str(place.python), str(PROGRAM), str(path)]
    ended = children.run(command, {**os.environ, **_ENVIRON}, limit_s, message)
    if ended.ok or all(answers[number] is not None for number in numbers):
        return None
    if answers[at] is not None:  # it broke between two jobs
        at = next(number for number in numbers if answers[number] is None)
    return _Broken(at, ended.sentence("the compiler", limit_s), not ended.in_time)


def _as_dict(number: int, job: Job, folder: Path) -> dict[str, Any]:
    return {
        "id": number,
        "graph": job.graph,
        "hlo": str(folder / f"compiled-{number}.hlo"),
        "target": job.target.topology,
        "bounds": job.target.bounds,
        "chip_config": job.target.chip_config,
        "devices": job.devices,
        "level": job.level,
        "infer_aliases": job.infer_aliases,
        "shardy": job.shardy,
    }


def _answer(said: dict[str, Any], kind: tuple[str, int | None], folder: Path) -> Answer:
    known = {name: said[name] for name in _FIELDS if name in said}
    answer = replace(
        Answer(**known), device_kind=kind[0], limit_bytes=kind[1], wide=tuple(said.get("wide", ()))
    )
    if answer.compiles:
        path = folder / f"compiled-{said['job']}.hlo"
        needed = (
            said["arguments_bytes"] + said["outputs_bytes"] - said["aliased_bytes"]
            + said["temporaries_bytes"] + said["code_bytes"]
        )
        return replace(answer, hlo=path.read_text(encoding="utf-8"), needed_bytes=needed)
    return replace(answer, needed_bytes=needed_of(answer.error))


_FIELDS = (
    "empty", "compiles", "error", "arguments_bytes", "outputs_bytes", "aliased_bytes",
    "temporaries_bytes", "code_bytes", "compile_s",
)  # fmt: skip


def limit_of(refusal: str) -> int | None:
    """Return the memory of a device that a refusal names: `exceeds available HBM (15.75G)`."""
    match = re.search(r"available HBM \(([\d.]+)([KMGT]?)\)", refusal)
    return _bytes(match) if match else None


def needed_of(refusal: str) -> int | None:
    """Return the memory that a refused program needs; None when it was refused otherwise."""
    for pattern in (
        r"Total hbm usage >= ([\d.]+)([KMGT]?)",
        r"Used ([\d.]+)([KMGT]?) of [\d.]+[KMGT]? hbm",
        r"required for HLO temporaries \(([\d.]+)([KMGT]?)\)",
        r"([\d.]+)([KMGT]?) exceeds available",
    ):
        if match := re.search(pattern, refusal):
            return _bytes(match)
    return None


def _bytes(match: re.Match[str]) -> int:
    return int(float(match[1]) * _UNITS[match[2]])


def _name(job: Job, place: CompilerPlace) -> str:
    return cache.key(
        Path(job.graph).read_bytes(),
        target=job.target.name,
        devices=job.devices,
        level=job.level,
        infer_aliases=job.infer_aliases,
        shardy=job.shardy,
        compiler=place.versions,
        flags={name: os.environ.get(name, "") for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")},
        program=PROGRAM.read_text(encoding="utf-8"),
    )


def _kept(name: str) -> Answer | None:
    found = cache.get(name)
    if found is None:
        return None
    return Answer(**{**found, "wide": tuple(found["wide"]), "cached": True})


def _plain(answer: Answer) -> dict[str, Any]:
    return {**vars(answer), "wide": list(answer.wide)}
