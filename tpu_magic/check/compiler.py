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
    answers: dict[int, Answer] = {
        number: kept for number, name in enumerate(names) if (kept := _kept(name)) is not None
    }
    peak: int | None = None
    while open_jobs := [number for number in range(len(jobs)) if number not in answers]:
        child = _Child(jobs, open_jobs, answers, folder, progress)
        command = [str(place.python), str(PROGRAM), str(child.write_jobs())]
        ended = children.run(command, {**os.environ, **_ENVIRON}, limit_s, child.message)
        peak = max(peak or 0, child.peak_bytes) or None
        left = [number for number in open_jobs if number not in answers]
        if left:
            # It broke at a job; when time is up, it is up for all.
            broken = left if not ended.in_time else [child.at if child.at in left else left[0]]
            how = ended.sentence("the compiler", limit_s)
            answers.update({number: Answer(error=how) for number in broken})
    for number, answer in answers.items():
        if (answer.compiles is not None or answer.empty) and not answer.cached:
            cache.put(names[number], _plain(answer))
    return Outcome([answers[number] for number in range(len(jobs))], peak)


class _Child:
    """One run of the compiler's child: the jobs it is given, and what it says."""

    def __init__(
        self,
        jobs: Sequence[Job],
        numbers: list[int],
        answers: dict[int, Answer],
        folder: Path,
        progress: Callable[[str], None],
    ) -> None:
        self.at = numbers[0]
        self.peak_bytes = 0
        self._jobs, self._numbers, self._answers = jobs, numbers, answers
        self._folder, self._progress = folder, progress
        self._kinds: dict[str, tuple[str, int | None]] = {}

    def write_jobs(self) -> Path:
        """Return the file that tells the child what to do."""
        path = self._folder / "jobs.json"
        listed = [_as_dict(number, self._jobs[number], self._folder) for number in self._numbers]
        path.write_text(json.dumps(listed), encoding="utf-8")
        return path

    def message(self, said: dict[str, Any]) -> None:
        """Take a message of the child."""
        if said["event"] == "target":
            kind = said["device_kind"], limit_of(said["limit_text"])
            self._kinds[said["topology"]] = kind
        elif said["event"] == "begin":
            self.at = said["job"]
            self._progress(f"compiling for {self._jobs[self.at].target.name}")
        elif said["event"] == "answer":
            kind = self._kinds[self._jobs[said["job"]].target.topology]
            self._answers[said["job"]] = _answer(said, kind, self._folder)
        elif said["event"] == "end":
            self.peak_bytes = said["peak_bytes"]


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
            said["arguments_bytes"]
            + said["outputs_bytes"]
            - said["aliased_bytes"]
            + said["temporaries_bytes"]
            + said["code_bytes"]
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
