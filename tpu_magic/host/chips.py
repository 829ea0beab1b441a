"""TPU generations: one table, with the source of every figure.

The figures are per chip. Sources, by the short name used in the rows:

* ``docs``: docs.cloud.google.com/tpu/docs/<generation>, pages as stored in 2026-11.
* ``jax``: jax/_src/tpu_info.py and jax/_src/hardware_utils.py of jax 0.12.0.1.
* ``tpu_info``: tpu_info/device.py of tpu-info 0.14.2 (PCI identities, subsystems, nodes).
* ``jouppi``: Jouppi et al., "TPU v4", ISCA 2023, table of clocks of v2 to v4.
* ``derived``: the clock at which the published bf16 peak equals two operations for each
  multiplier of the matrix units. Right only as far as the number of units is.

Where the documentation and a library disagree, the documentation is taken and the row says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

GIB = 2**30
VENDOR = 0x1AE0

# A chip on the libraries' lists that no public table names.
_UNNAMED = 0x0056


@dataclass(frozen=True)
class Generation:
    """A TPU generation.

    Attributes
    ----------
    name
        `v5e`; `label` is what a person is shown, `TPU v5e`.
    pci_device, pci_subsystem
        PCI device identity, and the subsystem where one device identity serves two generations.
    node
        Family of its device nodes: `accel` (`/dev/accelN`) or `vfio` (`/dev/vfio/N`).
    cores
        TensorCores per chip.
    devices_per_chip
        Devices that a runtime shows per chip; below `cores` where two cores work as one.
    hbm_bytes
        High-bandwidth memory per chip, in bytes.
    bf16_flops, int8_ops, fp8_flops
        Peak operations per second per chip; `None` where none is published.
    hbm_bandwidth
        Bytes per second per chip.
    clock_hz
        Clock of the TensorCore in hertz; `None` where neither published nor derivable.
    clock_derived
        Whether no clock is published, and this one follows from the published peak.
    device_kinds
        What `jax.Device.device_kind` says, the usual spelling first.
    accelerator_types
        Prefixes of `TPU_ACCELERATOR_TYPE` (`v5litepod` in `v5litepod-8`).
    type_counts_cores
        Whether the number in an accelerator type counts TensorCores (else chips).
    source
        Where the figures are from.
    """

    name: str
    pci_device: int
    pci_subsystem: int | None
    node: str
    cores: int
    devices_per_chip: int
    hbm_bytes: int
    bf16_flops: float
    int8_ops: float | None
    fp8_flops: float | None
    hbm_bandwidth: float
    clock_hz: float | None
    clock_derived: bool
    device_kinds: tuple[str, ...]
    accelerator_types: tuple[str, ...]
    type_counts_cores: bool
    source: str

    @property
    def label(self) -> str:
        """What a person is shown."""
        return f"TPU {self.name}"

    @property
    def hbm_bytes_per_device(self) -> int:
        """Memory of one device of the runtime, in bytes."""
        return self.hbm_bytes // self.devices_per_chip

    @property
    def bf16_flops_per_device(self) -> float:
        """Peak bfloat16 operations per second of one device of the runtime."""
        return self.bf16_flops / self.devices_per_chip

    @property
    def bandwidth_per_device(self) -> float:
        """Bytes per second between memory and one device of the runtime."""
        return self.hbm_bandwidth / self.devices_per_chip


GENERATIONS = (
    Generation(
        "v2", 0x0027, 0x004E, "accel", 2, 2, 16 * GIB, 46e12, None, None, 716e9, 0.70e9, False,
        ("TPU v2",), ("v2",), True,
        "peaks and bandwidth: jax; clock: jouppi; identity: tpu_info",
    ),
    Generation(
        "v3", 0x0027, 0x004F, "accel", 2, 2, 32 * GIB, 123e12, None, None, 900e9, 0.94e9, False,
        ("TPU v3",), ("v3",), True,
        "peaks and bandwidth: docs (jax has 140e12 and 825e9); clock: jouppi; identity: tpu_info",
    ),
    Generation(
        "v4", 0x005E, None, "accel", 2, 1, 32 * GIB, 275e12, 275e12, None, 1200e9, 1.05e9, False,
        ("TPU v4",), ("v4",), True,
        "peaks and bandwidth: docs (jax has 1230e9); clock: jouppi; identity: tpu_info",
    ),
    Generation(
        "v5e", 0x0063, None, "vfio", 1, 1, 16 * GIB, 197e12, 393e12, None, 819e9, 1.5e9, True,
        ("TPU v5 lite", "TPU v5e"), ("v5litepod", "v5lite", "v5e"), False,
        "peaks and bandwidth: docs (jax has 394e12 and 820e9); "
        "clock: derived, 4 units of 128 x 128",
    ),
    Generation(
        "v5p", 0x0062, None, "vfio", 2, 1, 95 * GIB, 459e12, 918e12, 459e12, 2765e9, 1.75e9, True,
        ("TPU v5", "TPU v5p"), ("v5p",), True,
        "peaks and bandwidth: docs (jax has 2460e9), int8: jax; "
        "clock: derived, 8 units of 128 x 128",
    ),
    Generation(
        "v6e", 0x006F, None, "vfio", 1, 1, 32 * GIB, 918e12, 1836e12, 918e12, 1638e9, 1.75e9, True,
        ("TPU v6 lite", "TPU v6e"), ("v6e",), False,
        "peaks and bandwidth: docs (jax has 920e12 and 1640e9); "
        "clock: derived, 4 units of 256 x 256 (the docs page counts 2)",
    ),
    Generation(
        "7x", 0x0076, None, "vfio", 2, 2, 192 * GIB, 2307e12, None, 4614e12, 7400e9, None, False,
        ("TPU7x",), ("tpu7x", "v7x"), True,
        "peaks: docs; bandwidth: jax; number in the accelerator type taken to count cores",
    ),
    Generation(
        "8i", 0x0083, None, "vfio", 2, 2, 309_000_000_000, 1101e12, None, 8808e12, 8600e9, None,
        False, ("TPU8i",), ("tpu8i",), True,
        "jax only; node and devices per chip not published, taken as on 7x",
    ),
    Generation(
        "8t", 0x007C, None, "vfio", 1, 1, 231_000_000_000, 996e12, 996e12, 5977e12, 6400e9, None,
        False, ("TPU8t",), ("tpu8t",), True,
        "jax only; node and devices per chip not published, taken as one per core",
    ),
)  # fmt: skip

# Other devices of the vendor (network card, disk) are no TPU.
PCI_DEVICES = frozenset({_UNNAMED, *(row.pci_device for row in GENERATIONS)})


def _bare(name: str) -> str:
    """Return a name without `TPU` before it, in lower case."""
    return re.sub(r"^tpu[ -]*", "", name.strip().lower())


_BY_NAME = {
    _bare(name): row
    for row in GENERATIONS
    for name in (row.name, *row.device_kinds, *row.accelerator_types)
}


def by_pci(device: int, subsystem: int | None = None) -> Generation | None:
    """Return the generation of a PCI device of Google's; None when the table has none.

    `subsystem` tells v2 from v3, which share a device identity.
    """
    for row in GENERATIONS:
        if row.pci_device == device and row.pci_subsystem in (None, subsystem):
            return row
    return None


def by_name(name: str) -> Generation | None:
    """Return the generation of a name: `v5e`, or what a runtime says (`TPU v5 lite`)."""
    return _BY_NAME.get(_bare(name))


by_device_kind = by_name


def by_accelerator_type(text: str) -> tuple[Generation, int] | None:
    """Return generation and number of chips of an accelerator type, over all of its hosts.

    >>> row, chips = by_accelerator_type("v4-8")
    >>> row.name, chips
    ('v4', 4)
    """
    prefix, dash, count = text.strip().lower().rpartition("-")
    row = by_name(prefix)
    if row is None or not dash or not count.isdecimal():
        return None
    return row, max(1, int(count) // (row.cores if row.type_counts_cores else 1))
