"""The threads that XLA gets for virtual devices, and torch's use of them."""

from __future__ import annotations

import sys

import pytest

from tests.support.kernels import Kernel
from tpu_magic.frameworks import threads


@pytest.fixture
def cores(monkeypatch):
    """Return what sets the number of cores; no variable of the person's says another."""
    for name in ("PJRT_NPROC", "NPROC"):
        monkeypatch.delenv(name, raising=False)
    return lambda number: monkeypatch.setattr(threads, "_cores", lambda: number)


def test_several_devices_on_few_cores_get_four_a_device(cores):
    cores(2)
    assert threads.enough_threads(4) == {"PJRT_NPROC": "16"}
    assert "PJRT_NPROC=16" in threads.few_threads(4)
    assert threads.enough_threads(1) == {}
    assert threads.few_threads(1) == ""
    cores(16)
    assert threads.enough_threads(4) == {}


@pytest.mark.parametrize("name", ["PJRT_NPROC", "NPROC"])
def test_the_persons_own_number_is_kept(cores, monkeypatch, name):
    cores(2)
    monkeypatch.setenv(name, "3")
    assert threads.enough_threads(4) == {}


@pytest.mark.kernel
@pytest.mark.torch
def test_torch_gets_them_and_the_environment_is_as_it_was():
    pytest.importorskip("torch_xla")
    with Kernel(sys.executable, devices=4) as kernel:
        kernel.run(
            "%load_ext tpu_magic\nimport os, torch, torch_xla\n"
            "import tpu_magic.frameworks.threads as threads\nthreads._cores = lambda: 2\n"
            "def running(): return len(os.listdir('/proc/self/task'))\n"
            "before, variables = running(), dict(os.environ)"
        ).check()
        kernel.run("%%tpu_run -q\ntorch.nn.Linear(2, 2)(torch.ones(4, 2))").check()
        # Four a device, where XLA by itself starts one a device in each of two pools.
        assert kernel.run("running() - before >= 4 * 4").check().value == "True"
        changed = "[n for n in ('PJRT_NPROC', 'NPROC') if os.environ.get(n) != variables.get(n)]"
        assert kernel.run(changed).check().value == "[]"


@pytest.mark.kernel
@pytest.mark.torch
def test_devices_that_the_person_made_can_stand_still_and_that_is_said(kernel):
    kernel.run(
        "import torch, torch_xla, torch_xla.runtime as xr\nxr.use_spmd()\n"
        "xr.global_runtime_device_count()\n"
        "import tpu_magic.frameworks.threads as threads\nthreads._cores = lambda: 2"
    ).check()
    (report,) = kernel.run("%%tpu_run\ntorch.nn.Linear(2, 2)(torch.ones(4, 2))").check().reports
    assert "these 2 devices were made before tpu_magic" in report["device_note"]
    assert "PJRT_NPROC=8" in report["device_note"]
