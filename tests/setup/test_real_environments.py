"""`%tpu_setup` in fresh environments with the real torch, torch_xla and torch_tpu.

Each takes gigabytes, so they run where `TPU_MAGIC_REAL_INSTALLS` is set: `tools/dev.py test` sets
it, and puts uv on the path, from whose cache the environments are linked.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.indexes import breaking_index

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        "TPU_MAGIC_REAL_INSTALLS" not in os.environ, reason="TPU_MAGIC_REAL_INSTALLS is not set"
    ),
    pytest.mark.timeout(1800),
]
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import json, sys
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
config = Config()
config.HistoryManager.enabled = False
shell = InteractiveShell.instance(config=config)
shell.run_cell("%load_ext tpu_magic").raise_error()
from tpu_magic.setup import command
from tpu_magic.setup.options import PARSER, SetupOptions
try:
    report = command.run(PARSER.parse_as(SetupOptions, sys.argv[1:]), shell).to_dict()
except UsageError as error:
    report = {"error": str(error)}
report["imported"] = sorted({"torch", "torch_xla", "torch_tpu"} & set(sys.modules))
print("\\nREPORT" + json.dumps(report))
"""


class Environment:
    """A fresh virtual environment."""

    def __init__(self, folder):
        self.folder = folder
        self.python = folder / "venv/bin/python"
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)

    def add(self, *requirements):
        uv = shutil.which("uv")
        command = [uv, "pip"] if uv else [self.python, "-m", "pip"]
        target = ["--python", self.python] if uv else []
        subprocess.run([*command, "install", "--quiet", *target, *requirements], check=True)

    def setup(self, *options, **variables):
        environ = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
        environ["XDG_CACHE_HOME"] = str(self.folder / "cache")
        done = subprocess.run(
            [self.python, "-c", PROGRAM, *options],
            check=False,
            capture_output=True,
            text=True,
            timeout=900,
            env=environ,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.rpartition("REPORT")[2])


@pytest.fixture
def environment(tmp_path):
    made = Environment(tmp_path)
    made.add("ipython", "psutil", "packaging", "numpy")
    yield made
    shutil.rmtree(tmp_path)


def test_the_torch_xla_of_an_installed_torch_is_installed_once(environment):
    environment.add("torch==2.9.0", "absl-py", "pyyaml", "requests")
    python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    wheel = f"torch_xla-2.9.0-{python}-{python}-manylinux_2_28_x86_64.whl"
    with breaking_index(wheel) as address:
        broken = environment.setup(
            "--yes",
            PIP_INDEX_URL=address,
            PIP_EXTRA_INDEX_URL="",
            PIP_FIND_LINKS="",
            PIP_CONFIG_FILE=os.devnull,
            PIP_NO_CACHE_DIR="1",
            PIP_RETRIES="0",
        )
    assert "a download broke off" in broken["error"]
    assert "the environment is as it was" in broken["error"]
    first = environment.setup("--yes", "--simulate", "2")
    assert any(line.replace("-", "_") == "torch_xla==2.9.0" for line in first["installed"])
    assert first["versions"]["torch"].startswith("2.9.0")
    assert (first["verified"], first["connected"], first["devices"]) == (True, True, 2)
    second = environment.setup("--yes", "--simulate", "2")
    assert (second["plan"], second["installed"], second["verified"]) == ([], [], True)
    assert second["devices"] == 2
    environment.add("--no-deps", "torch_xla==2.8.1")
    wrong = environment.setup("--check")
    assert any("are different releases" in reason for reason in wrong["reasons"])
    assert wrong["plan"][-1].endswith("torch_xla==2.9.0")
    assert wrong["imported"] == []


def test_a_torch_without_a_torch_xla_is_refused_and_torch_tpu_survived(environment):
    environment.add("torch==2.13.0")
    refused = environment.setup("--yes")
    assert "--version 2.9" in refused["error"]
    assert "torch_tpu==0.2.0" in refused["error"]
    environment.add("torch_tpu==0.2.0", "torch==2.13.0")
    found = environment.setup("--check")
    assert found["versions"]["torch_tpu"] == "0.2.0"
    if not found["chips"]:
        assert "no TPU" in found["refusal"]
        assert "no TPU" in environment.setup("--yes")["error"]
    assert found["imported"] == []
