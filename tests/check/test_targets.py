"""The table of targets against the chip table and the products' own names."""

import pytest
from IPython.core.error import UsageError

from tpu_magic.check import targets
from tpu_magic.host.chips import GIB


def test_numbers_in_names_count_what_the_product_counts():
    # v5e-8 is eight chips; v3-8 four chips of two cores each; 7x-8 eight cores in four chips.
    facts = {name: (t.chips, t.devices, t.unit) for name, t in targets.TARGETS.items()}
    assert facts["v5e-8"] == (8, 8, "chip")
    assert facts["v3-8"] == (4, 8, "core")
    assert facts["v4-8"] == (4, 4, "chip")
    assert facts["v5p-8"] == (4, 4, "chip")
    assert facts["7x-8"] == (4, 8, "core")


def test_memory_of_a_device_is_that_of_the_chip_table():
    assert targets.target_of("v5e-1").generation.hbm_bytes_per_device == 16 * GIB
    assert targets.target_of("v3-8").generation.hbm_bytes_per_device == 16 * GIB


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("V5E-4", "v5e-4"),
        ("v5litepod-4", "v5e-4"),
        ("tpu7x-8", "7x-8"),
        ("7x", "7x-2"),
        ("v5e", "v5e-1"),
        ("TPU v5 lite", "v5e-1"),
    ],
)
def test_other_spellings(text, name):
    assert targets.target_of(text).name == name


def test_a_mistyped_target_is_told_its_nearest():
    with pytest.raises(UsageError, match="no target 'v5e-2'; did you mean v5e-"):
        targets.target_of("v5e-2")
    with pytest.raises(UsageError, match="there are v2-8"):
        targets.target_of("gpu")


def test_all_and_lists():
    assert len(targets.targets_of("all")) == len(targets.TARGETS)
    assert [t.name for t in targets.targets_of("v6e-1,v5e-1,v6e-1")] == ["v6e-1", "v5e-1"]
