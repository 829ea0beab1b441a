"""Where the compiler lives: beside the notebook's packages, or in an environment of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from IPython.core.error import UsageError

# What the compiler's child was written for and tried with: jaxlib's client and MLIR bindings.
_PACKAGES = ("jax", "jaxlib", "libtpu", "numpy")
_REQUIREMENTS = ("jax[tpu]>=0.10,<0.13",)
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


def find() -> CompilerPlace | None:
    """Return where the compiler is: its own environment first; None when it is nowhere."""
    for python, own in ((_python_of(folder()), True), (Path(sys.executable), False)):
        versions = _versions(python) if python.exists() else {}
        if _serves(versions):
            return CompilerPlace(python, versions, own)
    return None


def required() -> CompilerPlace:
    """Return where the compiler is.

    Raises
    ------
    UsageError
        When it is nowhere.
    """
    place = find()
    if place is None:
        raise UsageError(HOW_TO_GET_IT)
    return place


def plan() -> list[str]:
    """Return what `prepare` would do, a line each."""
    return [
        f"make an environment of its own in {folder()} (this notebook's packages stay as they are)",
        f"install {', '.join(_REQUIREMENTS)} there (about 1.3 GB)",
    ]


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
    found = find()
    if found is not None:
        return found
    if not consent:
        return None
    place = folder()
    show(plan()[0])
    try:
        venv.create(place, with_pip=True, clear=True)
        show(plan()[1])
        done = subprocess.run(
            [_python_of(place), "-m", "pip", "install", "--quiet", *_REQUIREMENTS],
            capture_output=True,
            text=True,
            check=False,
        )
    except BaseException:
        remove()
        raise
    made = find()
    if done.returncode or made is None or not made.own:
        remove()
        last = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise UsageError(f"the compiler's environment could not be made: {last}")
    return made


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
        [python, "-c", _LOOK % (_PACKAGES,)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return {}
    versions: dict[str, str] = json.loads(done.stdout)
    return versions


def _serves(versions: dict[str, str]) -> bool:
    if not set(_PACKAGES) <= set(versions):
        return False
    major, minor, *_ = versions["jax"].split(".")
    return (int(major), int(minor)) >= _LEAST_JAX
