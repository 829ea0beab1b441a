"""`%tpu_timeit` from its line to its result: parse, choose, time, show."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from IPython.display import display
from IPython.utils.timing import clock as processor_time

from tpu_magic import options
from tpu_magic.options import FRAMEWORKS, Help, Parser, one_of, positive_number, whole_number
from tpu_magic.timing import stats, suspicions
from tpu_magic.timing.measurement import MODES, WALL, Clock, Plan, Series
from tpu_magic.timing.result import Runs, TimingResult
from tpu_magic.timing.runner import is_synchronous
from tpu_magic.timing.session import prepare
from tpu_magic.timing.statement import Statement, parse

TIME_LIMIT_S = 5.0


CLOCKS = {
    "default": WALL,
    "time": Clock(time.time, time.get_clock_info("time").resolution),
    # The kernel counts user time in its ticks.
    "user": Clock(processor_time, 0.01),
}


@dataclass(frozen=True)
class TimeitOptions:
    """The options of `%tpu_timeit`, parsed."""

    n: int | None = None
    r: int | None = None
    p: int = 3
    clock: str = "default"
    quiet: bool = False
    give: bool = False
    variable: str | None = None
    mode: str = "both"
    device: str = "auto"
    framework: str = "auto"
    include_transfer: bool = False
    time_limit: float | None = None
    save: str | None = None
    label: str = ""

    def plan(self) -> Plan:
        """Return the runner's plan: -r alone decides how long, unless there is a time limit."""
        limit = self.time_limit
        if limit is None and self.r is None:
            limit = TIME_LIMIT_S
        return Plan(mode=self.mode, loops=self.n, repeat=self.r, time_limit=limit)


def timeit_options(parser: Parser) -> None:
    """Add the options that `%timeit` has, with its meaning."""
    add = parser.add_argument
    add("-n", type=whole_number(), metavar="N", help="calls in a run (default: chosen)")
    add("-r", type=whole_number(), metavar="R", help="runs (default: until the median is sure)")
    add("-p", type=whole_number(), default=3, metavar="P", help="digits to show (default: 3)")
    clock = parser.add_mutually_exclusive_group()
    clock.add_argument("-t", dest="clock", action="store_const", const="time", help="time.time")
    clock.add_argument(
        "-c", dest="clock", action="store_const", const="user", help="processor time of Python"
    )
    parser.set_defaults(clock="default")
    add("-q", "--quiet", action="store_true", help="show nothing")
    add("-o", dest="give", action="store_true", help="return the TimingResult")
    add("-v", dest="variable", type=options.variable, metavar="NAME", help="keep the result there")


def measuring_options(parser: Parser) -> None:
    """Add what decides where and how to measure."""
    add = parser.add_argument
    add(
        "--mode",
        type=one_of(*MODES),
        default="both",
        metavar="NAME",
        help="latency (every call waited for), throughput (calls queued) or both (default)",
    )
    add(
        "--device",
        type=one_of("auto", "tpu", "cpu"),
        default="auto",
        metavar="NAME",
        help="auto: where the code's arrays are (default); tpu: refuse anything else; cpu",
    )
    add(
        "--framework",
        type=one_of(*FRAMEWORKS, "plain"),
        default="auto",
        metavar="NAME",
        help=f"{', '.join(FRAMEWORKS)}, plain (default: auto, by the code's arrays)",
    )
    add("--include-transfer", action="store_true", help="time moving host inputs to the device")
    add(
        "--time-limit",
        type=positive_number,
        metavar="S",
        help=f"stop at the next call after S seconds (default: {TIME_LIMIT_S:g} without -r)",
    )
    add("--save", metavar="FILE", help="write the result there as JSON")
    add("--label", default="", metavar="TEXT", help="what to call it")


TIMEIT = Parser(
    "%tpu_timeit",
    "Time code on the device. In a cell (%%tpu_timeit) the first line is set-up.",
    timeit_options,
    measuring_options,
)


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
    words, code = options.split_code(line, TIMEIT)
    try:
        wanted = TIMEIT.parse_as(TimeitOptions, words)
    except Help as text:
        print(text)  # noqa: T201 - help goes to the person
        return None
    body, setup = (code, None) if cell is None else (cell, code)
    result = timed(parse(shell, body, setup, local_ns), body, wanted)
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
        measured = session.runner.measure(wanted.plan())
    adapter, device = session.adapter, session.adapter.devices()
    evidence = suspicions.Evidence(
        measured,
        device,
        wants_device=not is_synchronous(adapter),
        inputs_timed=wanted.include_transfer,
        changed=session.changed(),
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
        environment=session.environment(),
    )


def _runs(series: Series | None) -> Runs | None:
    if series is None:
        return None
    return Runs(list(series.runs), series.loops, stats.summarize(series.timings))


def _one_line(code: str) -> str:
    """Return the code's first line, and whether there is more."""
    first, *more = code.strip().splitlines()
    return first + (" …" if more else "")
