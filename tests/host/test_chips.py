from __future__ import annotations

import pytest

from tpu_magic.host import chips


@pytest.mark.parametrize(
    ("device", "subsystem", "name"),
    [
        (0x0027, 0x004E, "v2"),
        (0x0027, 0x004F, "v3"),
        (0x005E, 0, "v4"),
        (0x0063, None, "v5e"),
        (0x0062, 0x1234, "v5p"),
        (0x006F, 0, "v6e"),
        (0x0076, 0, "7x"),
    ],
)
def test_pci_identity_names_the_generation(device, subsystem, name):
    assert chips.by_pci(device, subsystem).name == name


def test_v2_and_v3_are_not_told_apart_without_a_subsystem():
    assert chips.by_pci(0x0027) is None


def test_a_network_card_of_the_same_vendor_is_no_chip():
    assert chips.by_pci(0x0042) is None


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("TPU v2", "v2"),
        ("TPU v5 lite", "v5e"),
        ("TPU v5", "v5p"),
        ("TPU v5p", "v5p"),
        ("TPU v6 lite", "v6e"),
        ("TPU7x", "7x"),
        ("v5litepod", "v5e"),
        ("tpu7x", "7x"),
        (" TPU V4 ", "v4"),
    ],
)
def test_names_that_runtimes_use(kind, name):
    assert chips.by_device_kind(kind).name == name


@pytest.mark.parametrize("kind", ["", "TPU", "CPU", "NVIDIA A100", "v5"[:1]])
def test_other_names_are_no_generation(kind):
    assert chips.by_name(kind) is None


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [
        ("v2-8", "v2", 4),  # 8 TensorCores, two in a chip
        ("v3-32", "v3", 16),
        ("v4-8", "v4", 4),
        ("v5p-8", "v5p", 4),
        ("v5litepod-8", "v5e", 8),  # chips
        ("v5e-1", "v5e", 1),
        ("v6e-8", "v6e", 8),
    ],
)
def test_number_in_an_accelerator_type(text, name, count):
    row, found = chips.by_accelerator_type(text)
    assert (row.name, found) == (name, count)


@pytest.mark.parametrize("text", ["", "v5e", "v5e-", "v5e-x", "a100-8", "-8"])
def test_other_texts_are_no_accelerator_type(text):
    assert chips.by_accelerator_type(text) is None


def test_figures_per_device_are_those_of_a_chip_divided():
    v2, v4, seven = (chips.by_name(name) for name in ("v2", "v4", "7x"))
    # tpu_info lists 8 GiB for a v2 device, and 192 GiB for a whole 7x chip.
    assert v2.hbm_bytes_per_device == 8 * 2**30
    assert seven.hbm_bytes_per_device == 96 * 2**30
    assert v4.hbm_bytes_per_device == 32 * 2**30  # two cores, one device
    assert seven.bf16_flops_per_device == pytest.approx(1153.5e12)
    assert v2.bandwidth_per_device == pytest.approx(358e9)


@pytest.mark.parametrize(("name", "units", "side"), [("v5e", 4, 128), ("v5p", 8, 128)])
def test_derived_clock_agrees_with_the_published_peak(name, units, side):
    row = chips.by_name(name)
    assert 2 * units * side**2 * row.clock_hz == pytest.approx(row.bf16_flops, rel=0.01)
    assert row.clock_derived


def test_clocks_are_published_up_to_v4_only():
    published = {row.name for row in chips.GENERATIONS if row.clock_hz and not row.clock_derived}
    assert published == {"v2", "v3", "v4"}
    for row in chips.GENERATIONS:
        assert ("clock: derived" in row.source) == row.clock_derived
        assert row.clock_hz or not row.clock_derived


def test_every_row_can_be_told_from_every_other_and_names_its_source():
    rows = chips.GENERATIONS
    assert len({(row.pci_device, row.pci_subsystem) for row in rows}) == len(rows)
    for row in rows:
        assert chips.by_device_kind(row.device_kinds[0]) is row
        assert "docs" in row.source or "jax" in row.source
        assert row.cores % row.devices_per_chip == 0
