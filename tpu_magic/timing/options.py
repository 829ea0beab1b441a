"""The options of `%tpu_timeit` and `%tpu_compare`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

from IPython.utils.timing import clock as processor_time

from tpu_magic import options
from tpu_magic.options import FRAMEWORKS, Parser, one_of, positive_number, whole_number
from tpu_magic.timing.measurement import WALL, Clock, Plan

TIME_LIMIT_S = 5.0
COMPARE_LIMIT_S = 10.0

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


@dataclass(frozen=True)
class CompareOptions:
    """The options of `%tpu_compare`, parsed."""

    p: int = 3
    quiet: bool = False
    give: bool = False
    variable: str | None = None
    mode: str = "latency"
    device: str = "auto"
    framework: str = "auto"
    include_transfer: bool = False
    time_limit: float | None = None
    save: str | None = None
    label: str = ""


def timeit_options(parser: Parser) -> None:
    """Add the options that only `%timeit` has, with its meaning."""
    add = parser.add_argument
    add("-n", type=whole_number(), metavar="N", help="calls in a run (default: chosen)")
    add("-r", type=whole_number(), metavar="R", help="runs (default: until the median is sure)")
    clock = parser.add_mutually_exclusive_group()
    clock.add_argument("-t", dest="clock", action="store_const", const="time", help="time.time")
    clock.add_argument(
        "-c", dest="clock", action="store_const", const="user", help="processor time of Python"
    )
    parser.set_defaults(clock="default")


def showing_options(parser: Parser) -> None:
    """Add what decides how the result is shown and where it goes."""
    add = parser.add_argument
    add("-p", type=whole_number(), default=3, metavar="P", help="digits to show (default: 3)")
    add("-q", "--quiet", action="store_true", help="show nothing")
    add("-o", dest="give", action="store_true", help="return the result")
    add("-v", dest="variable", type=options.variable, metavar="NAME", help="keep the result there")
    add("--save", metavar="FILE", help="write the result there as JSON")
    add("--label", default="", metavar="TEXT", help="what to call it")


def measuring_options(parser: Parser, modes: tuple[str, ...], limit: str) -> None:
    """Add what decides where and how to measure; the first mode is the default."""
    add = parser.add_argument
    add(
        "--mode",
        type=one_of(*modes),
        default=modes[0],
        metavar="NAME",
        help="latency (every call waited for), throughput (calls queued)"
        f"{' or both' if 'both' in modes else ''} (default: {modes[0]})",
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
        help=f"stop at the next call after S seconds (default: {limit})",
    )


TIMEIT = Parser(
    "%tpu_timeit",
    "Time code on the device. In a cell (%%tpu_timeit) the first line is set-up.",
    timeit_options,
    showing_options,
    partial(
        measuring_options,
        modes=("both", "latency", "throughput"),
        limit=f"{TIME_LIMIT_S:g} without -r",
    ),
)
COMPARE = Parser(
    "%tpu_compare",
    "Compare candidates, one a line (`name: statement`), timed in turns; what stands after the\n"
    "options is set-up. Without a cell: compare results that were saved or kept.",
    showing_options,
    partial(measuring_options, modes=("latency", "throughput"), limit=f"{COMPARE_LIMIT_S:g}"),
)
