"""P20: a first batch that does not divide over the replicas gives one device's numbers."""

from __future__ import annotations

import pytest

pytest_plugins = ("tests.support.keras_kernels",)
pytestmark = [pytest.mark.kernel, pytest.mark.timeout(600)]


def test_few_rows_train_evaluate_and_predict(on_devices):
    on_devices.plain("""
alone = make()
fit(alone, 10)
expected = [*alone.evaluate(x[:3], y[:3], verbose=0), *alone.predict(x[:3], verbose=0).ravel()]
""")
    reply = on_devices.run("""
model = make()
fit(model, 10)
found = [*model.evaluate(x[:3], y[:3], verbose=0), *model.predict(x[:3], verbose=0).ravel()]
""")
    assert on_devices.value("len(found), apart([found], [expected]) < 1e-5") == (5, True)
    assert on_devices.value("apart(model.get_weights(), alone.get_weights()) < 1e-5")
    said = " ".join(reply.reports[0]["notes"])
    assert "3 or 10 rows cannot be split over 4 replicas" in said
