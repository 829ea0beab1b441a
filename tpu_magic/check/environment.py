"""Where the compiler lives: beside the notebook's packages, or in an environment of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from IPython.core.error import UsageError

from tpu_magic.setup.versions import TORCH_CPU_INDEX

# What the compiler's child was written for and tried with: jaxlib's client and MLIR bindings.
_PACKAGES = ("jax", "jaxlib", "libtpu", "numpy")
_REQUIREMENTS = ("jax[tpu]>=0.10,<0.13",)
# What makes programs of a torch that has no torch_xla: the last release of torch_xla.
_TORCH = ("torch", "torch_xla")
_TORCH_REQUIREMENTS = ("torch==2.9.0", "torch_xla==2.9.0")
_LEAST_JAX = (0, 10)
_LOOK = """
import json, importlib.metadata as metadata
found = {}
for name in %r:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""
_HOW_TO_GET_TORCH = (
    "%%tpu_check: this notebook's torch has no torch_xla beside it; to make programs of its "
    "cells, the compiler's own environment needs torch 2.9 and torch_xla: %tpu_setup --compiler "
    "puts them there (this notebook's packages stay as they are)"
)
HOW_TO_GET_IT = (
    "%%tpu_check needs the TPU compiler (jax with libtpu), which is not installed beside this "
    "notebook's packages: %tpu_setup --compiler puts it into an environment of its own"
)


@dataclass(frozen=True)
class CompilerPlace:
    """An interpreter that has the compiler.

    Attributes
    ----------
    python
        Its path.
    versions
        Of jax, jaxlib, libtpu and numpy there.
    own
        Whether it is the environment that `prepare` made.
    """

    python: Path
    versions: dict[str, str]
    own: bool

    def label(self) -> str:
        """Return the compiler and its version."""
        return f"libtpu {self.versions['libtpu']}, jax {self.versions['jax']}"


def folder() -> Path:
    """Return where the environment of the compiler is, if it was made."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    version = f"py{sys.version_info.major}{sys.version_info.minor}"
    return Path(base) / "tpu_magic" / f"compiler-{version}"


def find(*, torch: bool = False) -> CompilerPlace | None:
    """Return where the compiler is: its own environment first; None when it is nowhere.

    Parameters
    ----------
    torch
        Whether a torch with its torch_xla must be there too.
    """
    for python, own in ((_python_of(folder()), True), (Path(sys.executable), False)):
        versions = _versions(python) if python.exists() else {}
        if _serves(versions) and (not torch or _are_one_release(versions)):
            return CompilerPlace(python, versions, own)
    return None


def required(*, torch: bool = False) -> CompilerPlace:
    """Return where the compiler is; with `torch`, where torch and torch_xla are too.

    Raises
    ------
    UsageError
        When it is nowhere.
    """
    place = find(torch=torch)
    if place is None:
        raise UsageError(_HOW_TO_GET_TORCH if torch and find() else HOW_TO_GET_IT)
    return place


def plan() -> list[str]:
    """Return what `prepare` would do, a line each."""
    size = "2.5 GB" if torch_is_alone() else "1.3 GB"
    return [
        f"make an environment of its own in {folder()} (this notebook's packages stay as they are)",
        f"install {', '.join(_requirements())} there (about {size})",
    ]


def _requirements() -> tuple[str, ...]:
    return _REQUIREMENTS + (_TORCH_REQUIREMENTS if torch_is_alone() else ())


def set_up(*, consent: bool, show: Callable[[str], None]) -> None:
    """Do what `%tpu_setup --compiler` asks: say where the compiler is, plan it, or make it."""
    place = prepare(consent, show)
    if place is not None:
        where = "an environment of its own" if place.own else "this notebook's packages"
        show(f"the compiler is there: {place.label()}, in {where}")
        return
    for line in plan():
        show(line)
    show("nothing was done: %tpu_setup --compiler --yes consents to it")


def prepare(consent: bool, show: Callable[[str], None] = lambda _: None) -> CompilerPlace | None:
    """Make the environment of the compiler, if the person consents and there is none that serves.

    Parameters
    ----------
    consent
        Whether the person agreed to `plan()`; without it nothing is done.
    show
        Called with each step's line.

    Returns
    -------
    CompilerPlace or None
        Where the compiler is now; None without consent.

    Raises
    ------
    UsageError
        When the installation failed; what was made is removed.
    """
    found = find(torch=torch_is_alone())
    if found is not None:
        return found
    if not consent:
        return None
    place, before = folder(), find()
    # One that serves other cells is added to, and stays if that fails.
    added = before is not None and before.own
    show(plan()[0])
    try:
        venv.create(place, with_pip=True, clear=not added)
        show(plan()[1])
        done = subprocess.run(
            [_python_of(place), "-m", "pip", "install", "--quiet", *_sources(), *_requirements()],
            capture_output=True,
            text=True,
            check=False,
        )
    except BaseException:
        if not added:
            remove()
        raise
    made = find(torch=torch_is_alone())
    if done.returncode or made is None or not made.own:
        if not added:
            remove()
        last = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise UsageError(f"the compiler's environment could not be made: {last}")
    return made


def _sources() -> tuple[str, ...]:
    # torch for the processor alone: what it is needed for computes nothing.
    return ("--extra-index-url", TORCH_CPU_INDEX) if torch_is_alone() else ()


def remove() -> bool:
    """Remove the environment of the compiler; False when there was none."""
    there = folder().exists()
    shutil.rmtree(folder(), ignore_errors=True)
    return there


def _python_of(place: Path) -> Path:
    return place / "bin" / "python"


def _versions(python: Path) -> dict[str, str]:
    """Return the versions that an interpreter has, without importing any package."""
    done = subprocess.run(
        [python, "-c", _LOOK % (_PACKAGES + _TORCH,)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return {}
    versions: dict[str, str] = json.loads(done.stdout)
    return versions


def torch_is_alone() -> bool:
    """Say whether the notebook's torch has no torch_xla of its release beside it."""
    installed = {name: _version(name) for name in _TORCH}
    return bool(installed["torch"]) and not _are_one_release(installed)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _are_one_release(versions: Mapping[str, str]) -> bool:
    """Say whether torch and torch_xla are there and of one release: 2.9.0+cpu and 2.9.0."""
    minors = [versions.get(name, "").split("+")[0].rpartition(".")[0] for name in _TORCH]
    return minors[0] == minors[1] != ""


def _serves(versions: dict[str, str]) -> bool:
    if not set(_PACKAGES) <= set(versions):
        return False
    major, minor, *_ = versions["jax"].split(".")
    return (int(major), int(minor)) >= _LEAST_JAX
