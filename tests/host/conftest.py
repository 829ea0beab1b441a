"""Recorded machines: a tree of files, an environment, and the metadata server's answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tpu_magic.host.detect import Probe


@dataclass
class Machine:
    """A machine made of files under a folder."""

    root: Path
    environ: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    asked: list[str] = field(default_factory=list)

    def pci(self, address: str, device: int, vendor: int = 0x1AE0, subsystem: int = 0, group=None):
        folder = self.root / "sys/bus/pci/devices" / address
        folder.mkdir(parents=True)
        for name, value in (
            ("vendor", vendor),
            ("device", device),
            ("subsystem_device", subsystem),
        ):
            (folder / name).write_text(f"0x{value:04x}\n")
        if group is not None:
            (folder / "iommu_group").symlink_to(f"../../../kernel/iommu_groups/{group}")

    def node(self, path: str):
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()

    def vfio_chips(self, device: int, count: int):
        for index in range(count):
            self.pci(f"0000:00:{index + 4:02x}.0", device, group=index)
            self.node(f"/dev/vfio/{index}")
        self.node("/dev/vfio/vfio")

    def accel_chips(self, device: int, count: int, subsystem: int = 0):
        for index in range(count):
            self.pci(f"0000:00:{index + 4:02x}.0", device, subsystem=subsystem)
            self.node(f"/dev/accel{index}")

    def probe(self) -> Probe:
        def answer(key):
            self.asked.append(key)
            return self.metadata.get(key)

        return Probe(self.root, self.environ, answer, self.modules)


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)
