"""`%tpu_timeit` and `%tpu_compare` from their lines to their results: parse, time, show."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from IPython.display import display

from tpu_magic.options import Help, Parser, split_code, split_words
from tpu_magic.report.result import Result
from tpu_magic.timing import contest, saved, stats, suspicions
from tpu_magic.timing.calls import is_synchronous
from tpu_magic.timing.compare import CompareResult
from tpu_magic.timing.measurement import MODES, Series
from tpu_magic.timing.options import (
    CLOCKS,
    COMPARE,
    TIMEIT,
    CompareOptions,
    TimeitOptions,
)
from tpu_magic.timing.result import Runs, TimingResult
from tpu_magic.timing.session import prepare
from tpu_magic.timing.statement import Statement, parse

W = TypeVar("W", TimeitOptions, CompareOptions)
R = TypeVar("R", bound=Result)


def run_timeit(
    shell: Any, line: str, cell: str | None = None, local_ns: Mapping[str, Any] | None = None
) -> TimingResult | None:
    """Run `%tpu_timeit` (no cell) or `%%tpu_timeit`; return the result when -o asks for it.

    Raises
    ------
    IPython.core.error.UsageError
        For bad options, nothing to time, or a device that is not there.
    Exception
        What the person's code raises.
    """
    wanted, code = _split(line, TIMEIT, TimeitOptions)
    if wanted is None:
        return None
    body, setup = (code, None) if cell is None else (cell, code)
    result = timed(parse(shell, body, setup, local_ns), body, wanted)
    return _give(shell, result, wanted)


def run_compare(shell: Any, line: str, cell: str | None = None) -> CompareResult | None:
    """Run `%%tpu_compare`, or `%tpu_compare` on results; return the result when -o asks for it.

    Raises
    ------
    IPython.core.error.UsageError
        For bad options, fewer than two candidates, or files that are no results.
    Exception
        What the person's code raises.
    """
    wanted, code = _split(line, COMPARE, CompareOptions)
    if wanted is None:
        return None
    if cell is None:
        result = saved.compare(saved.load(split_words(code), shell.user_ns))
    else:
        result = contest.compare(shell, contest.candidates(cell), code, wanted)
    return _give(shell, result, wanted)


def _split(line: str, parser: Parser, kind: type[W]) -> tuple[W | None, str]:
    """Return the options and the code of a line; None when help was asked for and shown."""
    words, code = split_code(line, parser)
    try:
        return parser.parse_as(kind, words), code
    except Help as text:
        print(text)  # noqa: T201 - help goes to the person
        return None, code


def _give(shell: Any, result: R, wanted: TimeitOptions | CompareOptions) -> R | None:
    """Save, keep, show and return the result as the options say."""
    if wanted.save:
        result.save(Path(wanted.save).expanduser())
    if wanted.variable:
        shell.user_ns[wanted.variable] = result
    if not wanted.quiet:
        display(result)
    return result if wanted.give else None


def timed(statement: Statement, text: str, wanted: TimeitOptions) -> TimingResult:
    """Time a parsed statement; `text` is what it looks like."""
    session = prepare(
        statement,
        wanted.framework,
        wanted.device,
        CLOCKS[wanted.clock],
        include_transfer=wanted.include_transfer,
    )
    with session.running():
        measured = session.runner.measure(wanted.plan(), session.choice.after)
    adapter, device = session.adapter, session.adapter.devices()
    evidence = suspicions.Evidence(
        measured,
        device,
        wants_device=not is_synchronous(adapter),
        inputs_timed=wanted.include_transfer,
        changed=session.changed(),
        peak_flops=session.peak_flops(),
    )
    latency, throughput = (_runs(measured.series.get(mode)) for mode in MODES["both"])
    if measured.one_by_one:
        throughput = latency
    return TimingResult(
        latency=latency if wanted.mode != "throughput" else None,
        throughput=throughput if wanted.mode != "latency" else None,
        compile_time=statement.compile_time,
        precision=wanted.p,
        first_call_s=measured.first.wall_s,
        trace_s=measured.first.trace_s,
        compile_s=measured.first.compile_s,
        run_s=measured.first.run_s,
        compiles=measured.compiles,
        timed_compiles=measured.counted.compiles,
        runs_total=measured.runs_total,
        device_kind=device.kind,
        on_tpu=device.on_tpu,
        simulated=device.simulated,
        num_devices=device.count,
        matmul_precision=adapter.matmul_precision(),
        stopped_by=evidence.leading.stopped_by,
        statement=_one_line(text),
        framework=adapter.name,
        label=wanted.label,
        moved=list(session.moved),
        suspicions=suspicions.find(evidence),
        flops=measured.seen.flops,
        peak_flops=evidence.peak_flops,
        environment=session.environment(measured.seen.program),
    )


def _runs(series: Series | None) -> Runs | None:
    if series is None:
        return None
    return Runs(list(series.runs), series.loops, stats.summarize(series.timings))


def _one_line(code: str) -> str:
    """Return the code's first line, and whether there is more."""
    first, *more = code.strip().splitlines()
    return first + (" …" if more else "")
