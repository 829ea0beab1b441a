"""P21: a last batch that does not divide is neither dropped nor weighed wrongly, and is said."""

from __future__ import annotations

import pytest

pytest_plugins = ("tests.support.keras_kernels",)
pytestmark = [pytest.mark.kernel, pytest.mark.timeout(600)]


@pytest.mark.parametrize(("rows", "batch"), [(18, 16), (33, 32)])
def test_weights_are_one_devices(on_devices, rows, batch):
    on_devices.plain(f"alone = make(); fit(alone, {rows}, {batch}, epochs=1)")
    reply = on_devices.run(f"model = make(); fit(model, {rows}, {batch}, epochs=1)")
    assert on_devices.value("apart(model.get_weights(), alone.get_weights()) < 1e-5")
    (report,) = reply.reports
    assert (report["steps"], report["examples"]) == (2, rows)
    said = [note for note in report["notes"] if "cannot be split" in note]
    last = {2: "2 rows", 1: "1 row"}[rows - batch]
    assert len(said) == 1
    assert f"1 batch of {last} cannot be split over 4 replicas" in said[0]
    assert "drop_remainder=True" in said[0]


def test_what_divides_is_not_mentioned(on_devices):
    reply = on_devices.run("model = make(); fit(model, 32, 16, epochs=1)")
    assert not any("split" in note for note in reply.reports[0]["notes"])
