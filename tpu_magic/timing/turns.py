"""Candidates against each other: timed in turns, so that the machine's moods are everyone's.

One round is every candidate forward and then backward (A B C C B A), which cancels a drift
that is steady over the round. What is compared is the ratio within a round; a verdict comes
from the interval of that ratio over the rounds.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

from tpu_magic.timing import stats
from tpu_magic.timing.runner import Runner, Way
from tpu_magic.timing.warmup import Warm

_BLOCK_S = 0.01  # short, so that a mood of the machine is shared by all blocks of a round
_MOST_BLOCK_RUNS = 200
_FEWEST_ROUNDS = 10  # an interval of 99 % needs eight
_MOST_ROUNDS = 1000
PRECISION_GOAL = 0.01


@dataclass(frozen=True)
class Contender:
    """A candidate that is ready: its name, what times it, and how."""

    name: str
    runner: Runner
    warm: Warm
    way: Way

    def block(self) -> float:
        """Return the median seconds per call of a block of runs."""
        runs = ceil(_BLOCK_S / max(self.way.loops * self.way.call_s, 1e-9))
        times = [
            self.way.sample(self.warm.run, self.way.loops)
            for _ in range(min(runs, _MOST_BLOCK_RUNS))
        ]
        return statistics.median(times) / self.way.loops


@dataclass(frozen=True)
class Rounds:
    """The blocks of all rounds.

    Attributes
    ----------
    blocks
        By candidate and round: seconds per call of its two blocks.
    stopped_by
        `precision`, `time-limit`, `rounds` or `interrupt`.
    left_out
        Rounds in which something was compiled; they are not among the blocks.
    """

    blocks: list[list[tuple[float, float]]]
    stopped_by: str
    left_out: int


def take_turns(
    contenders: Sequence[Contender],
    time_limit: float,
    wall: Callable[[], float] = time.perf_counter,
) -> Rounds:
    """Time the candidates in turns until every ratio is known well, or time is up.

    It stops at a width of the intervals, never at a verdict: stopping when the answer
    pleases would make false verdicts likely.
    """
    blocks: list[list[tuple[float, float]]] = [[] for _ in contenders]
    deadline, left_out, stopped_by = wall() + time_limit, 0, ""
    while not stopped_by:
        compiles = [each.runner.adapter.counters().compiles for each in contenders]
        try:
            one = _round(contenders, backward=len(blocks[0]) % 2 == 1)
        except KeyboardInterrupt:
            if not blocks[0]:
                raise
            stopped_by = "interrupt"
            break
        if compiles == [each.runner.adapter.counters().compiles for each in contenders]:
            for kept, new in zip(blocks, one, strict=True):
                kept.append(new)
        else:
            left_out += 1
        if wall() >= deadline and (blocks[0] or left_out >= _FEWEST_ROUNDS):
            stopped_by = "time-limit"
        elif len(blocks[0]) + left_out >= _MOST_ROUNDS:
            stopped_by = "rounds"
        elif len(blocks[0]) >= _FEWEST_ROUNDS and _narrow(blocks):
            stopped_by = "precision"
    return Rounds(blocks, stopped_by, left_out)


def _round(contenders: Sequence[Contender], *, backward: bool) -> list[tuple[float, float]]:
    """Time every candidate forward and backward, or the other way round."""
    order = list(range(len(contenders)))
    if backward:
        order.reverse()
    first = {index: contenders[index].block() for index in order}
    second = {index: contenders[index].block() for index in reversed(order)}
    return [(first[index], second[index]) for index in range(len(contenders))]


def _narrow(blocks: Sequence[Sequence[tuple[float, float]]]) -> bool:
    times = [[sum(pair) / 2 for pair in candidate] for candidate in blocks]
    for base, other in itertools.combinations(times, 2):
        found = stats.paired_ratio(base, other).interval
        if found is None or (found.high - found.low) / 2 > PRECISION_GOAL:
            return False
    return True
