"""What a host lacks for long runs: each limit is read, compared, and said once."""

from __future__ import annotations

import resource
import shutil
from dataclasses import dataclass
from pathlib import Path

# Below these, long runs are known to fail: data loader workers share tensors through open
# files and /dev/shm, checkpoints and compile caches need disk.
OPEN_FILES = 4096
SHARED_MEMORY_BYTES = 2**30
DISK_BYTES = 5 * 2**30


@dataclass(frozen=True)
class Limits:
    """What was read; None where it could not be.

    Attributes
    ----------
    open_files
        Soft limit of open files of this process.
    shared_memory_bytes
        Size of /dev/shm.
    huge_pages
        Chosen mode of transparent huge pages: `always`, `madvise`, `never`.
    disk_free_bytes
        Free space where the person works.
    """

    open_files: int | None
    shared_memory_bytes: int | None
    huge_pages: str | None
    disk_free_bytes: int | None

    def sentences(self, *, tpu: bool) -> list[str]:
        """Say what is too small and what helps. Huge pages matter to a TPU's runtime only."""
        said = []
        if self.open_files is not None and self.open_files < OPEN_FILES:
            said.append(
                f"open files are limited to {self.open_files}: data loader workers may fail with "
                '"too many open files"; raise it with ulimit -n 65536 before Jupyter starts'
            )
        if self.shared_memory_bytes is not None and self.shared_memory_bytes < SHARED_MEMORY_BYTES:
            said.append(
                f"shared memory (/dev/shm) has {self.shared_memory_bytes // 2**20} MiB: data "
                "loader workers may die with a bus error; start the container with "
                "--shm-size=8g, or use num_workers=0"
            )
        if self.disk_free_bytes is not None and self.disk_free_bytes < DISK_BYTES:
            said.append(f"{self.disk_free_bytes / 2**30:.1f} GiB of disk are free here")
        if tpu and self.huge_pages not in (None, "always"):
            said.append(
                f"transparent huge pages are '{self.huge_pages}': transfers to the TPU are slower; "
                "sudo sh -c 'echo always > /sys/kernel/mm/transparent_hugepage/enabled'"
            )
        return said


def limits(root: Path = Path("/"), folder: Path | None = None) -> Limits:
    """Read the limits of this process and machine. Never raises."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Limits(
        open_files=None if soft == resource.RLIM_INFINITY else soft,
        shared_memory_bytes=_disk(root / "dev/shm", "total"),
        huge_pages=_chosen(root / "sys/kernel/mm/transparent_hugepage/enabled"),
        disk_free_bytes=_disk(folder or Path.cwd(), "free"),
    )


def _disk(path: Path, what: str) -> int | None:
    try:
        return int(getattr(shutil.disk_usage(path), what))
    except OSError:
        return None


def _chosen(path: Path) -> str | None:
    """Return the word in brackets: `always [madvise] never`."""
    try:
        return path.read_text().partition("[")[2].partition("]")[0] or None
    except OSError:
        return None
