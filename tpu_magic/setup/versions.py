"""Which releases belong together (data, with date and source), and what is installed here.

Installed versions and pins are read from package metadata; nothing is imported.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

# The tables were read from wheel metadata and package indexes on this day.
CHECKED = "2026-11-30"

TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
LIBTPU_LINKS = "https://storage.googleapis.com/libtpu-releases/index.html"

# What decides whether something runs, in the order in which it is shown.
PACKAGES = (
    "torch", "torch_xla", "torch_tpu", "torchvision", "torchaudio",
    "libtpu", "libtpu-nightly", "tpu-info",
    "jax", "jaxlib", "keras", "tensorflow", "tensorflow-cpu", "tensorflow-tpu", "numpy",
    "cloud-tpu-client",
)  # fmt: skip
# What asks for a libtpu of its own.
LIBTPU_USERS = ("torch_xla", "torch_tpu", "jax", "tensorflow-tpu")
# module: the distributions that may have installed it.
MODULES = {
    "torch": ("torch",),
    "torch_xla": ("torch_xla",),
    "torch_tpu": ("torch_tpu",),
    "torchvision": ("torchvision",),
    "torchaudio": ("torchaudio",),
    "libtpu": ("libtpu", "libtpu-nightly"),
    "jax": ("jax",),
    "jaxlib": ("jaxlib",),
    "keras": ("keras",),
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-tpu"),
    "numpy": ("numpy",),
}


@dataclass(frozen=True)
class TorchRelease:
    """A torch_xla release and what goes with it.

    Attributes
    ----------
    torch_xla, torch, torchvision, torchaudio
        The releases that belong together. torch_xla declares no torch in any release, so no
        installer notices a mismatch.
    pythons
        First and last minor version of Python 3 that has wheels.
    libtpu
        What the `tpu` extra pins, and what product images carry in its place; the first that
        has a wheel for this Python is installed.
    links
        Pages with wheels that the public index does not have.
    """

    torch_xla: str
    torch: str
    torchvision: str
    torchaudio: str
    pythons: tuple[int, int]
    libtpu: tuple[str, ...]
    links: tuple[str, ...] = ()

    @property
    def minor(self) -> str:
        """Return `2.9` of `2.9.0`."""
        return minor(self.torch_xla)


# Source: wheel metadata of every torch_xla release on the public index; companions by
# pytorch.org's table of previous versions. 2.9.0 is the last release.
TORCH_XLA = (
    TorchRelease(
        "2.9.0", "2.9.0", "0.24.0", "2.9.0", (10, 13), ("libtpu==0.0.21", "libtpu==0.0.21.1")
    ),
    TorchRelease("2.8.1", "2.8.0", "0.23.0", "2.8.0", (10, 13), ("libtpu==0.0.17",)),
    TorchRelease("2.7.0", "2.7.0", "0.22.0", "2.7.0", (9, 11), ("libtpu==0.0.11.1",)),
    TorchRelease("2.6.1", "2.6.0", "0.21.0", "2.6.0", (9, 11), ("libtpu==0.0.7.1",)),
    TorchRelease(
        "2.5.1",
        "2.5.1",
        "0.20.1",
        "2.5.1",
        (9, 11),
        ("libtpu-nightly==0.1.dev20240916",),
        (LIBTPU_LINKS,),
    ),
    TorchRelease(
        "2.4.0",
        "2.4.0",
        "0.19.0",
        "2.4.0",
        (9, 11),
        ("libtpu-nightly==0.1.dev20240612",),
        (LIBTPU_LINKS,),
    ),
    TorchRelease(
        "2.3.0",
        "2.3.0",
        "0.18.0",
        "2.3.0",
        (8, 11),
        ("libtpu-nightly==0.1.dev20240322",),
        (LIBTPU_LINKS,),
    ),
    TorchRelease(
        "2.2.0",
        "2.2.0",
        "0.17.0",
        "2.2.0",
        (8, 11),
        ("libtpu-nightly==0.1.dev20231130",),
        (LIBTPU_LINKS,),
    ),
    TorchRelease(
        "2.1.0",
        "2.1.0",
        "0.16.0",
        "2.1.0",
        (8, 11),
        ("libtpu-nightly==0.1.dev20230825",),
        (LIBTPU_LINKS,),
    ),
)
# libtpu's wheels are made per Python from 0.0.21 on; that one has none for 3.13.
LIBTPU_WITHOUT_WHEEL = {"libtpu==0.0.21": (13,)}

TORCH_TPU = "0.2.0"
TORCH_TPU_TORCH = ("2.11.0", "2.15.0")
TORCH_TPU_LIBTPU = "0.0.50.1"

# First minor version of Python 3, jax, and the libtpu of its `tpu` extra; the newest first.
JAX = ((12, "0.12.0.1", "0.0.50.1"), (11, "0.7.2", "0.0.23"), (10, "0.6.2", "0.0.17"))
# jax beside torch_xla 2.9: without the extra, or libtpu is dragged away.
JAX_BESIDE_TORCH_XLA = (11, "0.7.2")
KERAS = "3.10"
TENSORFLOW_TPU = ("2.19.1", "0.0.10", (10, 12))


def minor(version: str) -> str:
    """Return `2.9` of `2.9.0+cpu`."""
    release = Version(version).release
    return f"{release[0]}.{release[1] if len(release) > 1 else 0}"


def public(version: str) -> str:
    """Return a version without its local part: `2.9.0` of `2.9.0+cpu`."""
    return version.partition("+")[0]


def release_for(*, torch: str | None = None, torch_xla: str | None = None) -> TorchRelease | None:
    """Return the table's row for a torch, or for a torch_xla, of the same minor version."""
    wanted = minor(torch or torch_xla or "0")
    return next((row for row in TORCH_XLA if row.minor == wanted), None)


def installed(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Return the versions of the packages that are installed, by their metadata."""
    found = {}
    for package in packages:
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
        if version:  # a half-removed package has metadata without a version
            found[package] = version
    return found


def libtpu_demands(versions: Mapping[str, str]) -> dict[str, str]:
    """Return what each installed package wants of libtpu: `{"torch_xla": "==0.0.21"}`.

    Read from the packages' own requirements, extras included.
    """
    demands: dict[str, str] = {}
    for package in LIBTPU_USERS:
        if package not in versions:
            continue
        wanted = sorted(
            str(requirement.specifier) or "any"
            for requirement in _requirements(package)
            if canonicalize_name(requirement.name) == "libtpu"
        )
        if wanted:
            demands[package] = wanted[0]
    return demands


def _requirements(package: str) -> list[Requirement]:
    found: list[Requirement] = []
    with suppress(importlib.metadata.PackageNotFoundError):
        for text in importlib.metadata.requires(package) or ():
            with suppress(InvalidRequirement):
                found.append(Requirement(text))
    return found


# Modules whose files an install of ours replaced while they were loaded.
_replaced: set[str] = set()


def loaded(packages: Iterable[str]) -> list[str]:
    """Return those of the packages (distribution names) that are loaded in this process."""
    wanted = {canonicalize_name(package) for package in packages}
    return [
        module
        for module, distributions in MODULES.items()
        if module in sys.modules
        and wanted.intersection(canonicalize_name(name) for name in distributions)
    ]


def note_replaced(modules: Iterable[str]) -> None:
    """Remember that files of loaded modules were replaced: only a restart helps."""
    _replaced.update(modules)


def stale_modules() -> list[str]:
    """Return the loaded packages whose files were replaced under this kernel.

    Old code stays loaded beside new files: calls may crash, and versions that are shown are
    not the ones that run. Found by comparing a module's own version with the metadata; a
    build that changes its local part only (`+cpu`) is known when %tpu_setup installed it.
    """
    return [name for name in MODULES if name in _replaced or _differs(name)]


def _differs(module: str) -> bool:
    own = getattr(sys.modules.get(module), "__version__", None)
    if not isinstance(own, str):
        return False
    versions = installed(MODULES[module]).values()
    return bool(versions) and not any(_same(own, version) for version in versions)


def _same(left: str, right: str) -> bool:
    try:
        return Version(public(left)) == Version(public(right))
    except InvalidVersion:
        return left == right


def fingerprint(versions: Mapping[str, str], **more: Any) -> str:
    """Return a hash of a package set and of what else decides whether it works."""
    text = json.dumps(
        {"versions": dict(versions), "python": sys.version, "executable": sys.executable, **more},
        sort_keys=True,
    )
    return hashlib.sha256(text.encode()).hexdigest()
