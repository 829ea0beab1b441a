"""`%%tpu_compare`: from the candidates of a cell to their comparison."""

from __future__ import annotations

import keyword
import re
import statistics
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from IPython.core.error import UsageError

from tpu_magic.timing import stats, turns, warmup
from tpu_magic.timing.compare import Candidate, CompareResult, Pair, pair_of, pairs_of
from tpu_magic.timing.measurement import WALL, Plan
from tpu_magic.timing.options import COMPARE_LIMIT_S, CompareOptions
from tpu_magic.timing.result import Suspicion
from tpu_magic.timing.session import Session, prepare
from tpu_magic.timing.statement import parse

_NAMED = re.compile(r"""(?:([A-Za-z_][\w.-]*)|(["'])(.+?)\2)\s*:\s+(\S.*)""")


def candidates(cell: str) -> dict[str, str]:
    """Return the statements of a cell by name, one a line: `name: statement`.

    A line without a name is its own name. Empty lines and comments do not count.

    Raises
    ------
    IPython.core.error.UsageError
        When there are fewer than two, or two of a name.
    """
    found: dict[str, str] = {}
    for line in map(str.strip, cell.splitlines()):
        if not line or line.startswith("#"):
            continue
        name, statement = line, line
        match = _NAMED.fullmatch(line)
        if match and not keyword.iskeyword(match[1] or ""):
            name, statement = match[1] or match[3], match[4]
        if name in found:
            raise UsageError(f"%%tpu_compare: two candidates are called {name!r}")
        found[name] = statement
    if len(found) < 2:  # noqa: PLR2004 - it takes two
        raise UsageError(
            "%%tpu_compare: write two candidates or more, one a line (name: statement)"
        )
    return found


def compare(
    shell: Any, named: Mapping[str, str], setup: str, wanted: CompareOptions
) -> CompareResult:
    """Time candidates in turns and compare them.

    Raises
    ------
    IPython.core.error.UsageError
        When a candidate cannot be timed.
    Exception
        What the person's code raises.
    """
    sessions = {
        name: prepare(
            parse(shell, statement, setup),
            wanted.framework,
            wanted.device,
            WALL,
            include_transfer=wanted.include_transfer,
        )
        for name, statement in named.items()
    }
    limit = wanted.time_limit or COMPARE_LIMIT_S
    plan = Plan(mode=wanted.mode, time_limit=limit / len(sessions))
    with ExitStack() as stack:
        for session in sessions.values():
            stack.enter_context(session.running())
        contenders = [
            _contender(name, session, wanted.mode, plan) for name, session in sessions.items()
        ]
        rounds = turns.take_turns(contenders, limit)
    found = [
        _candidate(name, named[name], blocks, session.runner.runs_total)
        for (name, session), blocks in zip(sessions.items(), rounds.blocks, strict=True)
    ]
    return CompareResult(
        candidates=found,
        pairs=pairs_of(found, stats.paired_ratio),
        self_ratio=_against_itself(found[0], rounds),
        rounds=len(rounds.blocks[0]),
        left_out=rounds.left_out,
        stopped_by=rounds.stopped_by,
        mode=wanted.mode,
        device_label="; ".join(
            dict.fromkeys(session.adapter.devices().label() for session in sessions.values())
        ),
        label=wanted.label,
        precision=wanted.p,
        suspicions=_suspicions(sessions, contenders),
        environment=next(iter(sessions.values())).environment(),
    )


def _contender(name: str, session: Session, mode: str, plan: Plan) -> turns.Contender:
    warm = warmup.warm_up(session.runner, plan, session.choice.after)
    return turns.Contender(name, session.runner, warm, session.runner.way(warm, mode, plan))


def _candidate(
    name: str, statement: str, blocks: list[tuple[float, float]], runs_total: int
) -> Candidate:
    times = [statistics.fmean(pair) for pair in blocks]
    return Candidate(name, statement, statistics.median(times), times, runs_total)


def _against_itself(candidate: Candidate, rounds: turns.Rounds) -> Pair:
    """Compare the first and the second blocks of one candidate: what noise does to a ratio."""
    first, second = (
        Candidate(candidate.name, candidate.statement, statistics.median(times), list(times), 0)
        for times in zip(*rounds.blocks[0], strict=True)
    )
    return pair_of(first, second, stats.paired_ratio)


def _suspicions(
    sessions: Mapping[str, Session], contenders: list[turns.Contender]
) -> list[Suspicion]:
    """Return what makes the comparison doubtful as a whole."""
    found = []
    kinds = {name: session.adapter.devices().label() for name, session in sessions.items()}
    if len(set(kinds.values())) > 1:
        listed = ", ".join(f"{name} on {kind}" for name, kind in kinds.items())
        found.append(Suspicion("different-devices", f"not the same device: {listed}"))
    for contender in contenders:
        if not contender.warm.settled:
            message = f"{contender.name}: compiling had not stopped when timing began"
            found.append(Suspicion("not-settled", message))
    for name, session in sessions.items():
        if changed := session.changed():
            message = (
                f"{name} changed {', '.join(changed)}, {session.runner.runs_total:,} times; what "
                "the others saw is not what they would see alone"
            )
            found.append(Suspicion("state-changed", message))
    return found
