"""From what the capture saw and the compiler said to a report. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from tpu_magic.check import estimate, hlo
from tpu_magic.check.child import Program, Seen
from tpu_magic.check.compiler import Answer
from tpu_magic.check.places import Person, Place
from tpu_magic.check.targets import TARGETS, Target
from tpu_magic.check.verdict import Buffer, CheckReport, Collective, ProgramReport, Share
from tpu_magic.report.advice import Advice

_MOST_BUFFERS = 20
_MUCH_PADDING = 0.1
_OUT_OF_MEMORY = re.compile(
    r"RESOURCE_EXHAUSTED|[Rr]an out of memory|exceeds available|Exceeded hbm"
)
_BACKWARD = re.compile(r"\.backward\(|autograd\.grad\(|\.grad\(")
# How a refusal tells where: a line of its own below "Suspected Python Code Location".
_REFUSED_AT = re.compile(r"^\s+(\S.*):(\d+)\s*$", re.MULTILINE)
_LOCATION = re.compile(r'"([^"]+)":(\d+)')
NOTHING_RAN = (
    "nothing in the cell reached the device: no model was called on it, or every result was "
    "dropped, and what nobody keeps or reads is not computed"
)
_HOST = re.compile(r"has no TPU kernel|size is only known")


def program_report(
    program: Program, answer: Answer, target: Target, precision: str, person: Person, *, timed: bool
) -> ProgramReport:
    """Return the figures of one program."""
    name = str(program.place) if program.place else "end of the cell"
    line = program.place.line if program.place else None
    if not answer.compiles:
        out_of_memory = bool(_OUT_OF_MEMORY.search(answer.error))
        place = _place_of_refusal(answer.error, person)
        return ProgramReport(
            name=name,
            line=place.line if place else line,
            runs=program.runs,
            trains=program.trains,
            compiles=answer.compiles,
            fits=False if out_of_memory else None,
            hbm_needed_bytes=answer.needed_bytes if out_of_memory else None,
            compile_s=answer.compile_s,
            cached=answer.cached,
            error=answer.error,
        )
    module = hlo.parse(answer.hlo)
    work = estimate.work(module)
    generation = target.generation
    moved = (answer.arguments_bytes or 0) + (answer.outputs_bytes or 0)
    floor_s, bound_by = estimate.floor(
        work.matrix_flops,
        moved,
        generation.bf16_flops_per_device,
        generation.bandwidth_per_device,
        precision,
    )
    costs = estimate.cycles(module) if timed else None
    clock = generation.clock_hz
    total = sum(item.value for item in costs) if costs else None
    estimate_s = max(total / clock, floor_s) if total and clock else None
    limit = limit_bytes(answer, target)
    needed = answer.needed_bytes
    return ProgramReport(
        name=name,
        line=line,
        runs=program.runs,
        trains=program.trains,
        compiles=True,
        fits=needed <= limit if needed is not None else None,
        hbm_needed_bytes=needed,
        arguments_bytes=answer.arguments_bytes,
        outputs_bytes=answer.outputs_bytes,
        aliased_bytes=answer.aliased_bytes,
        temporaries_bytes=answer.temporaries_bytes,
        code_bytes=answer.code_bytes,
        flops=work.flops,
        matrix_flops=work.matrix_flops,
        floor_s=floor_s,
        bound_by=bound_by,
        estimate_s=estimate_s,
        padding_bytes=estimate.padding(module)[0],
        compile_s=answer.compile_s,
        cached=answer.cached,
        error=work.uncounted,
        buffers=_buffers(module, person),
        collectives=[Collective(*row) for row in estimate.collectives(module)],
        by_operation=_shares(costs, lambda item: _operation(item.instruction)),
        by_module=_shares(costs, lambda item: _module(item.instruction)),
        by_line=_shares(costs, lambda item: _place(module, item.instruction, person)),
    )


def limit_bytes(answer: Answer, target: Target) -> int:
    """Return the memory of a device: what the compiler says, else what the chip table says."""
    return answer.limit_bytes or target.generation.hbm_bytes_per_device


def worth_telling(programs: Sequence[Program]) -> list[Program]:
    """Return the programs without first steps: of a line, one that ran once before others."""
    kept = []
    at: dict[Place | None, list[Program]] = {}
    for program in programs:
        at.setdefault(program.place, []).append(program)
    for program in programs:
        same = [item for item in at[program.place] if item.trains == program.trains]
        if program is same[0] and program.runs == 1 and len(same) > 1:
            continue
        kept.append(program)
    return kept


def report(
    target: Target,
    seen: Seen,
    programs: Sequence[tuple[Program, Answer]],
    person: Person,
    *,
    precision: str,
    level: str,
    framework: str,
    compiler: str,
    compiler_peak: int | None,
) -> CheckReport:
    """Return the report for one target; the largest program speaks for the cell."""
    timed = level == "full"
    made = [
        program_report(program, answer, target, precision, person, timed=timed)
        for program, answer in programs
        if not answer.empty
    ]
    made = _merged(made)
    # What does not compile, then what is largest, is what the person must know of first.
    made.sort(
        key=lambda item: (
            item.compiles is True,
            -(item.hbm_needed_bytes or 0),
            -(item.flops or 0),
        )
    )
    answers = [answer for _, answer in programs if not answer.empty]
    limit = max((limit_bytes(answer, target) for answer in answers), default=None)
    common: dict[str, Any] = {
        "target": target.name,
        "hbm_limit_bytes": limit or target.generation.hbm_bytes_per_device,
        "optimization": level,
        "precision": precision,
        "refused": list(seen.refused),
        "framework": framework,
        "device_kind": next((answer.device_kind for answer in answers if answer.device_kind), ""),
        "devices": target.devices,
        "unit": target.unit,
        "programs": made,
        "reads": list(seen.reads),
        "notes": [
            *(text for text in seen.notes if not _HOST.search(text)),
            *_unsplit([program for program, answer in programs if not answer.empty], target),
        ],
        "cut": list(seen.cut),
        "capture_s": seen.capture_s,
        "capture_peak_bytes": seen.peak_bytes,
        "compiler_peak_bytes": compiler_peak,
        "compiler": compiler,
    }
    cell_line = seen.error_place.line if seen.error_place else None
    if not made:
        error = seen.error or NOTHING_RAN
        told = advice(seen, None, target, precision)
        return CheckReport(**common, error=error, line=cell_line, advice=told)
    first = made[0]
    failed = first.compiles is not True
    return CheckReport(
        **common,
        compiles=first.compiles,
        fits=first.fits,
        hbm_needed_bytes=first.hbm_needed_bytes,
        arguments_bytes=first.arguments_bytes,
        outputs_bytes=first.outputs_bytes,
        aliased_bytes=first.aliased_bytes,
        temporaries_bytes=first.temporaries_bytes,
        code_bytes=first.code_bytes,
        flops=first.flops,
        floor_s=first.floor_s,
        bound_by=first.bound_by,
        estimate_s=first.estimate_s,
        compile_s=sum(item.compile_s or 0.0 for item in made),
        error=first.error if failed else seen.error,
        line=first.line if failed else cell_line,
        advice=advice(seen, first, target, precision),
    )


def _unsplit(programs: Sequence[Program], target: Target) -> list[str]:
    """Say which programs use fewer devices than the target has."""
    few = [item for item in programs if item.devices and item.devices < target.devices]
    return [
        f"{item.place or 'a program'} uses {item.devices} of {target.devices} devices: "
        "nothing in it is split over them"
        for item in few
    ]


def _merged(programs: Sequence[ProgramReport]) -> list[ProgramReport]:
    """Make one of programs of a line that differ in nothing that is told."""
    found: dict[tuple[object, ...], ProgramReport] = {}
    for item in programs:
        sizes = (item.arguments_bytes, item.temporaries_bytes, item.code_bytes)
        key = (item.name, item.trains, item.flops, item.error, *sizes)
        same = found.get(key)
        found[key] = item if same is None else replace(item, runs=item.runs + same.runs)
    return list(found.values())


def advice(seen: Seen, first: ProgramReport | None, target: Target, precision: str) -> list[Advice]:
    """Return what would help."""
    found: list[Advice] = []
    if first is not None and first.fits is False:
        found += _to_fit(seen, first, target, precision)
    for text in seen.reads:
        if not text.startswith("print"):
            found.append(Advice("host-read", f"{text}: the device waits for the host there"))
            break
    found += [Advice("host-kernel", text) for text in seen.notes if _HOST.search(text)]
    if first is not None and first.padding_bytes:
        ends = (first.arguments_bytes or 0) + (first.outputs_bytes or 0)
        if first.padding_bytes > _MUCH_PADDING * ends:
            share = first.padding_bytes / ends
            found.append(
                Advice(
                    "padding",
                    f"{share:.0%} of arguments and outputs is padding: last dimensions that are "
                    "multiples of 128 (and 8 before them) waste none",
                )
            )
    if first is not None and first.error and first.compiles:
        found.append(Advice("uncounted", f"operations are unknown: {first.error}"))
    return found


def _to_fit(seen: Seen, program: ProgramReport, target: Target, precision: str) -> Iterator[Advice]:
    """Yield what makes a program smaller."""
    if precision != "bf16":
        yield Advice("bf16", "--precision bf16 about halves what is kept for the backward pass")
    yield Advice("batch", "a smaller batch needs less: --fit-batch NAME finds the largest")
    if program.trains:
        how = "torch.utils.checkpoint" if seen.infer_aliases else "jax.checkpoint"
        yield Advice("remat", f"{how} computes activations again instead of keeping them")
    if larger := _larger(target):
        yield Advice("chips", f"more chips split the batch: --target {larger.name}")


def wide_advice(answers: Sequence[Answer], person: Person) -> list[Advice]:
    """Return a word on float64 and complex128, which a TPU does not have."""
    found: dict[str, Advice] = {}
    for answer in answers:
        for item in answer.wide:
            place = place_of_location(item["place"], person)
            where = f" ({place})" if place else ""
            kind = "complex128" if "complex" in item["type"] else "float64"
            found.setdefault(
                kind,
                Advice(
                    "float64",
                    f"{kind}{where}: a TPU has none; the compiler emulates it slowly or refuses",
                    place.line if place else None,
                ),
            )
    return list(found.values())


def place_of_location(text: str, person: Person) -> Place | None:
    """Return the person's line in a printed MLIR location."""
    return person.innermost((file, int(line)) for file, line in _LOCATION.findall(text))


def _place_of_refusal(error: str, person: Person) -> Place | None:
    frames = [(file, int(line)) for file, line in _REFUSED_AT.findall(error)]
    return person.innermost(frames)


def _larger(target: Target) -> Target | None:
    same = [item for item in TARGETS.values() if item.generation is target.generation]
    return next((item for item in same if item.chips > target.chips), None)


def _buffers(module: hlo.Module, person: Person) -> list[Buffer]:
    found = []
    for array, item in estimate.buffers(module)[:_MOST_BUFFERS]:
        what = "argument" if item.opcode == "parameter" else _operation(item)
        found.append(Buffer(array.padded_bytes, str(array), what, _place(module, item, person)))
    return found


def _operation(item: hlo.Instruction) -> str:
    """Return an operation's name as a person knows it: `convolution`, `dot_general`."""
    name = item.operation.rpartition("/")[2] or item.opcode
    return re.sub(r"^(aten|xla)_+", "", name)


def _module(item: hlo.Instruction) -> str:
    """Return the path of the module or function that an operation is in; empty for none."""
    return item.operation.rpartition("/")[0]


def _place(module: hlo.Module, item: hlo.Instruction, person: Person) -> str:
    place = person.innermost(module.frames(item.frame))
    if place is None:
        return ""
    return f"{place} (backward)" if _BACKWARD.search(place.text) else str(place)


def _shares(
    costs: Sequence[estimate.Located] | None, name: Callable[[estimate.Located], str]
) -> list[Share]:
    if not costs:
        return []
    total = sum(item.value for item in costs)
    summed: Counter[str] = Counter()
    for item in costs:
        summed[name(item)] += int(item.value)
    named = [(text or "(not told)", count) for text, count in summed.most_common()]
    if len(named) == 1 and named[0][0] == "(not told)":
        return []
    return [Share(text, count, count / total) for text, count in named]
