"""`%tpu_compare FILE…`: results of several sessions against each other.

Runs of one session depend on each other and on what the machine did then: two sessions of the
*same* code differ by more than their intervals say. So a session is one sample, its median,
and without several sessions of each candidate the verdict is "cannot tell".
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError

from tpu_magic.timing import stats
from tpu_magic.timing.compare import Candidate, CompareResult, pairs_of
from tpu_magic.timing.result import Suspicion, TimingResult

_SESSIONS_NEEDED = 5  # of each, for an interval of 99 %


def load(words: Iterable[str], namespace: Mapping[str, Any]) -> list[TimingResult]:
    """Return the results that words name: files that `--save` wrote, or kept variables.

    Raises
    ------
    IPython.core.error.UsageError
        When a word names neither.
    """
    found = []
    for word in words:
        value = namespace.get(word)
        if value is None:
            try:
                value = TimingResult.from_json(Path(word).expanduser().read_text(encoding="utf-8"))
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                raise UsageError(
                    f"%tpu_compare: {word!r} is no saved or kept timing ({error}); write them "
                    "with %tpu_timeit --save FILE"
                ) from None
        if not isinstance(value, TimingResult):
            raise UsageError(f"%tpu_compare: {word} is a {type(value).__name__}, not a timing")
        found.append(value)
    return found


def compare(results: Sequence[TimingResult]) -> CompareResult:
    """Compare results by their label (their code, where they have none).

    Raises
    ------
    IPython.core.error.UsageError
        When there are no two labels among them.
    """
    by_name: dict[str, list[TimingResult]] = defaultdict(list)
    for result in results:
        by_name[result.label or result.statement].append(result)
    if len(by_name) < 2:  # noqa: PLR2004 - it takes two
        raise UsageError(
            "%tpu_compare: give results of two labels or more (%tpu_timeit --label NAME --save "
            "FILE), or write candidates in a %%tpu_compare cell"
        )
    candidates = [_candidate(name, each) for name, each in by_name.items()]
    devices = dict.fromkeys(result.device_label() for result in results)
    modes = {"latency" if result.latency else "throughput" for result in results}
    suspicions = []
    if len(devices) > 1:
        message = f"not the same device: {', '.join(devices)}"
        suspicions.append(Suspicion("different-devices", message))
    if len(modes) > 1:
        suspicions.append(Suspicion("different-modes", "latencies and throughputs are mixed"))
    fewest = min(len(candidate.times) for candidate in candidates)
    if fewest < _SESSIONS_NEEDED:
        message = (
            f"{fewest} of the {_SESSIONS_NEEDED} sessions (kernels) of each that a verdict needs; "
            "%%tpu_compare times them in turns and needs one"
        )
        suspicions.append(Suspicion("few-sessions", message))
    return CompareResult(
        candidates=candidates,
        pairs=pairs_of(candidates, stats.unpaired_ratio),
        self_ratio=None,
        rounds=fewest,
        left_out=0,
        stopped_by="",
        mode=" and ".join(sorted(modes)),
        device_label="; ".join(devices),
        suspicions=suspicions,
    )


def _candidate(name: str, results: Sequence[TimingResult]) -> Candidate:
    sessions: dict[str, list[float]] = defaultdict(list)
    for result in results:
        sessions[result.environment.get("session", "")].append(result.median)
    times = [statistics.median(medians) for medians in sessions.values()]
    total = sum(result.runs_total for result in results)
    return Candidate(name, results[0].statement, statistics.median(times), times, total)
