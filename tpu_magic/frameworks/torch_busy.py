"""How long the device was busy while a cell ran: intervals sampled from the runtime's metrics.

The runtime notes for each program when it was done and how long that took from its dispatch,
so that queued programs overlap; and it keeps only the last 1024. The time busy is the union
of the intervals, gathered while the cell runs; where some were lost, it is not known.

Source: torch_xla's metric `ExecuteTime` (`ExecuteReplicatedTime` under SPMD).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch_xla.debug import metrics

NAMES = ("ExecuteTime", "ExecuteReplicatedTime")
_KEPT = 1024
Interval = tuple[float, float]
# (how many samples there have been, the last of them as (time of its end, duration in ns))
Reading = tuple[int, list[tuple[float, float]]]


def read(name: str) -> Reading:
    """Return what the runtime kept of a metric."""
    found: Any = metrics.metric_data(name)
    return (0, []) if found is None else (found[0], list(found[2]))


class BusyTime:
    """Gathers the intervals in which the device worked, from its making on.

    Parameters
    ----------
    read
        Returns the count and the kept samples of a metric.
    """

    def __init__(self, read: Callable[[str], Reading] = read) -> None:
        self._read = read
        self._seen = {name: read(name)[0] for name in NAMES}
        self._intervals: list[Interval] = []
        self._lost = False
        self._steps = 0

    def step_ended(self) -> None:
        """Gather, often enough that nothing is lost between two steps of ordinary loops."""
        self._steps += 1
        if self._steps % (_KEPT // 8) == 0:
            self.gather()

    def gather(self) -> None:
        """Take over the samples that came since the last time."""
        for name in NAMES:
            count, samples = self._read(name)
            new = count - self._seen[name]
            self._seen[name] = count
            self._lost = self._lost or new > len(samples)
            fresh = samples[-new:] if new else []
            self._intervals += [(end - took / 1e9, end) for end, took in fresh]
        self._intervals = merged(self._intervals)

    def seconds(self) -> float | None:
        """Return the time that the device was busy; None when samples were lost."""
        self.gather()
        return None if self._lost else sum(end - start for start, end in self._intervals)


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the union of intervals as intervals that do not overlap, in order."""
    union: list[Interval] = []
    for start, end in sorted(intervals):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(end, union[-1][1]))
        else:
            union.append((start, end))
    return union
