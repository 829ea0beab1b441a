"""P09: after a mere check, processes can still be spawned."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SPAWN = """
import torch_xla.distributed.xla_multiprocessing as xmp

def work(index):
    import torch
    import torch_xla
    print("spawned", float(torch.ones(2, device=torch_xla.device()).sum()), flush=True)

xmp.spawn(work, start_method="fork")
"""
PROGRAM = """
import sys
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
config = Config()
config.HistoryManager.enabled = False
shell = InteractiveShell.instance(config=config)
for line in ("%load_ext tpu_magic", "%tpu_setup --framework torch --check", "%tpu_info"):
    shell.run_cell(line).raise_error()
assert not {"torch", "torch_xla", "libtpu"} & set(sys.modules), "the check imported a framework"
shell.run_cell(sys.argv[1]).raise_error()
"""


@pytest.mark.torch
def test_spawning_works_after_a_check(tmp_path):
    pytest.importorskip("torch_xla")
    environ = {**os.environ, "PJRT_DEVICE": "CPU", "XDG_CACHE_HOME": str(tmp_path)}
    environ["TPU_SKIP_MDS_QUERY"] = "1"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, SPAWN],
        check=False,
        capture_output=True,
        text=True,
        timeout=200,
        env=environ,
    )
    assert done.returncode == 0, done.stderr
    assert "spawned 2.0" in done.stdout
