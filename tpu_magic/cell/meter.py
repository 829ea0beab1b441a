"""What a cell costs: the clock and the counters around it, made into its report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

from tpu_magic.report.cell_report import CellReport, assemble
from tpu_magic.report.repeats import Repeat

if TYPE_CHECKING:
    from tpu_magic.frameworks.base import Adapter, CellFacts, Counters


@dataclass
class Meter:
    """Measures one cell, from its begin to its last end (to the leaving, where none came).

    Parameters
    ----------
    adapter, facts
        Whose counters are read, and what the adapter sees while the cell runs.
    clock
        Returns seconds.
    started, connected
        When the cell began, and when the runtime was there.
    """

    adapter: Adapter
    facts: CellFacts
    clock: Callable[[], float]
    started: float
    connected: float
    repeats: list[Repeat] = field(default_factory=list)
    ended: float | None = None

    def __post_init__(self) -> None:
        self._before = self._counted = self.adapter.counters()
        self._lap = (self.clock(), self._before, replace(self.facts))

    def stop(self) -> None:
        """Note that the cell is done so far, and its device too."""
        self.ended = self.clock()
        self._counted = self.adapter.counters()

    def lap(self) -> None:
        """End one run of a cell that is repeated."""
        started, counted, facts = self._lap
        self.stop()
        assert self.ended is not None  # noqa: S101 - set by stop
        once = self._assemble(
            replace(
                self.facts,
                trace_s=_difference(self.facts.trace_s, facts.trace_s),
                input_wait_s=self.facts.input_wait_s - facts.input_wait_s,
                device_wait_s=self.facts.device_wait_s - facts.device_wait_s,
            ),
            self._counted.since(counted),
            self.ended - started,
            0.0,
        )
        self.repeats.append(Repeat(**{f.name: getattr(once, f.name) for f in fields(Repeat)}))
        self._lap = (self.ended, self._counted, replace(self.facts))

    def compiles(self) -> int | None:
        """Return how many programs were compiled since the cell began."""
        return self.adapter.counters().since(self._before).compiles

    def report(self) -> CellReport:
        """Return the report, up to the last end; up to now where none came."""
        if self.ended is None:
            self.stop()
        assert self.ended is not None  # noqa: S101 - set by stop
        report = self._assemble(
            self.facts,
            self._counted.since(self._before),
            self.ended - self.started,
            self.connected - self.started,
        )
        return replace(report, repeats=self.repeats)

    def _assemble(
        self, facts: CellFacts, counted: Counters, wall_s: float, connect_s: float
    ) -> CellReport:
        return assemble(
            device=self.adapter.devices(),
            framework=self.adapter.name,
            facts=facts,
            counters=counted,
            memory=self.adapter.memory(),
            wall_s=wall_s,
            connect_s=connect_s,
        )


def _difference(now: float | None, then: float | None) -> float | None:
    return None if now is None else now - (then or 0.0)
