"""P05: no COLAB_TPU_ADDR and no TPU: said in words, with what was looked at."""

from __future__ import annotations

import pytest
from IPython.core.error import UsageError

from tpu_magic.setup.signatures import explain


@pytest.fixture(autouse=True)
def no_address(monkeypatch, tmp_path):
    monkeypatch.delenv("COLAB_TPU_ADDR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_a_look_says_no_tpu_and_where_it_looked(shell):
    shell.run("%tpu_setup --framework keras --check --quiet -o found")
    found = shell.user_ns["found"]
    if found.chips:
        pytest.skip("this machine has a TPU")
    assert str(found).splitlines()[0].startswith(("no TPU here", "NVIDIA GPU, no TPU"))
    text = " ".join(found.reasons)
    for place in ("/dev/accel*", "/dev/vfio", "PCI", "variables"):
        assert place in text


def test_a_tpu_that_is_required_is_an_error_of_one_line(shell):
    shell.run("%tpu_info --quiet -o info")
    if shell.user_ns["info"].chips:
        pytest.skip("this machine has a TPU")
    with pytest.raises(UsageError, match="no TPU here") as error:
        shell.run("%tpu_setup --framework keras --check --require-tpu")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "said",
    ["ValueError: Please provide a TPU Name to connect to.", "KeyError: 'COLAB_TPU_ADDR'"],
)
def test_the_old_recipes_errors_are_answered(said):
    assert "local" in explain(said).cure
