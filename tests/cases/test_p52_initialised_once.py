"""P52: running set-up again gives the same strategy, and earlier models keep working."""

from __future__ import annotations

import pytest

pytest_plugins = ("tests.support.keras_kernels",)
pytestmark = [pytest.mark.kernel, pytest.mark.timeout(600)]


def test_connecting_again_changes_nothing(on_devices):
    on_devices.run("model = make(); fit(model, 16); before = model.predict(x[:4], verbose=0)")
    on_devices.plain("""
from tpu_magic.frameworks import adapter
below = adapter("keras").below
def parts():
    return getattr(below, "_strategy", None), below.devices()
first = parts()
adapter("keras").connect(simulate=4)
adapter("keras").connect()
""")
    assert on_devices.value("all(a is b for a, b in zip(parts(), first))")
    assert on_devices.value("apart([model.predict(x[:4], verbose=0)], [before])") < 1e-6


def test_another_number_of_devices_is_refused_in_words(on_devices):
    reply = on_devices.kernel.run(
        'from tpu_magic.frameworks import adapter\nadapter("keras").connect(simulate=2)'
    )
    assert reply.ename == "UsageError"
    assert "restart it to simulate 2" in reply.evalue
