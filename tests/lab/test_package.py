"""What is shipped: a wheel with the built extension, made and installed without Node."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import find_spec

import pytest

import tpu_magic
from tests.support.kernels import ROOT
from tpu_magic.check.targets import TARGETS

SOURCE, BUILT = ROOT / "labextension", ROOT / "tpu_magic" / "labextension"
SHARED = "data/share/jupyter/labextensions/tpu-magic-lab/"

built = pytest.mark.skipif(
    not (BUILT / "static" / "style.js").exists(), reason="the extension is not built"
)
builder = pytest.mark.skipif(
    find_spec("hatch_jupyter_builder") is None, reason="no hatch_jupyter_builder here"
)


def _build(kind, folder):
    # A PATH on which there is no Node.
    environment = {**os.environ, "PATH": str(folder / "nothing")}
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)],
        cwd=ROOT,
        env=environment,
        check=True,
        capture_output=True,
    )
    (made,) = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


def test_both_parts_have_one_version():
    package = json.loads((SOURCE / "package.json").read_text())
    assert package["version"] == tpu_magic.__version__


def test_the_lock_holds_no_address():
    lock = (SOURCE / "yarn.lock").read_text()
    assert "://" not in lock


def test_older_labs_are_not_refused():
    """Without a range of their own, shared packages demand those that it was built with."""
    package = json.loads((SOURCE / "package.json").read_text())
    shared = package["jupyterlab"]["sharedPackages"]
    used = {name for name in package["dependencies"] if name.startswith("@jupyterlab/")}
    assert used - set(shared) <= {"@jupyterlab/rendermime-interfaces"}  # types only
    assert all(not entry["bundled"] and entry["singleton"] for entry in shared.values())


def test_the_command_offers_the_targets_that_there_are():
    offered = re.search(r"const TARGETS = \[([^\]]*)\]", (SOURCE / "src/commands.ts").read_text())
    assert set(re.findall(r"'([^']+)'", offered.group(1))) == set(TARGETS)


@built
def test_our_own_code_is_small():
    total = sum(path.stat().st_size for path in (BUILT / "static").glob("*.js"))
    assert total < 60_000


@built
@builder
def test_the_wheel_holds_the_extension_once_and_needs_no_node(tmp_path):
    with zipfile.ZipFile(_build("wheel", tmp_path)) as wheel:
        names = wheel.namelist()
    shared = [name.partition(SHARED)[2] for name in names if SHARED in name]
    assert {"package.json", "install.json", "static/style.js"} <= set(shared)
    assert "schemas/tpu-magic-lab/plugin.json" in shared
    assert not [name for name in names if name.startswith("tpu_magic/labextension")]


@built
@builder
def test_the_source_archive_builds_without_node_and_with_it(tmp_path):
    with tarfile.open(_build("sdist", tmp_path)) as archive:
        names = ["/".join(name.split("/")[1:]) for name in archive.getnames()]
    assert "tpu_magic/labextension/static/style.js" in names
    assert {"labextension/src/index.ts", "labextension/yarn.lock"} <= set(names)
    assert not [name for name in names if "node_modules" in name or ".yarn/" in name]
