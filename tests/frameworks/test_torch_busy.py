"""The union of the runtime's intervals, on samples worked out by hand."""

from __future__ import annotations

import pytest

pytest.importorskip("torch_xla")

from tpu_magic.frameworks.torch_busy import BusyTime, merged

SECOND = 1e9


class Metrics:
    """Stands for the runtime's metric: keeps the last of its samples."""

    def __init__(self, keeps=4):
        self.keeps, self.samples = keeps, []

    def __call__(self, name):
        mine = self.samples if name == "ExecuteTime" else []
        return len(mine), mine[-self.keeps :]


def test_queued_programs_count_once():
    metrics = Metrics()
    metrics.samples.append((5.0, 1 * SECOND))  # before the cell
    busy = BusyTime(metrics)
    # done at 11 after 1 s, at 12 after 2 s (queued at 10), at 15 after 1 s
    metrics.samples += [(11.0, 1 * SECOND), (12.0, 2 * SECOND), (15.0, 1 * SECOND)]
    assert busy.seconds() == pytest.approx(3.0)
    assert busy.seconds() == pytest.approx(3.0)


def test_lost_samples_make_it_unknown():
    metrics = Metrics(keeps=2)
    busy = BusyTime(metrics)
    metrics.samples += [(float(end), 0.5 * SECOND) for end in range(3)]
    assert busy.seconds() is None


def test_gathering_in_time_loses_nothing():
    metrics = Metrics(keeps=200)
    busy = BusyTime(metrics)
    for end in range(1, 401):
        metrics.samples.append((float(end), 0.5 * SECOND))
        busy.step_ended()
    assert busy.seconds() == pytest.approx(200.0)


def test_a_device_that_did_nothing_was_busy_for_no_time():
    assert BusyTime(Metrics()).seconds() == 0


def test_merging():
    assert merged([(3, 4), (0, 1), (0.5, 2)]) == [(0, 2), (3, 4)]
    assert merged([]) == []
