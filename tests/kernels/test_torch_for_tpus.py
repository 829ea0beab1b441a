"""Code that was already written for TPUs, on one and on several virtual devices.

What it must come to is worked out by the plain loop on the host, in a cell without the magic.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

from tests.support.kernels import ANSI, Kernel

pytestmark = [pytest.mark.kernel, pytest.mark.torch, pytest.mark.timeout(600)]

PRELUDE = """
import torch
from torch.utils.data import DataLoader, TensorDataset
from tests.support.pasted import same

def make():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    opt = torch.optim.Adam(net.parameters(), lr=0.05)
    data = TensorDataset(torch.randn(40, 6), torch.randn(40, 1))
    torch.manual_seed(1)
    return net, opt, DataLoader(data, batch_size=8, shuffle=True)

def loss_of(net, x, y):
    return torch.nn.functional.mse_loss(net(x), y)
"""
# Ten steps in two epochs; `seen` are the losses, read after each epoch.
ON_THE_HOST = """
net, opt, loader = make()
seen = []
for epoch in range(2):
    for x, y in loader:
        opt.zero_grad(); loss = loss_of(net, x, y); loss.backward(); opt.step()
    seen.append(loss.item())
expected, expected_seen = net, seen
"""


@dataclass
class Case:
    """Code for a TPU that trains as `ON_THE_HOST` does, and what its report must say."""

    code: str
    steps: int = 10
    note: str = ""
    imports: str = ""


LOOP = """
net, opt, loader = make()
device = {device}
net = net.to(device)
seen = []
for epoch in range(2):
    for x, y in {loader}:
        opt.zero_grad()
        loss = loss_of(net, {x}, {y})
        loss.backward()
        {step}
    seen.append(loss.item())
"""


def loop(
    step: str, loader: str = "loader", device: str = "xm.xla_device()", *, moved: bool = False
) -> str:
    """Return the loop as it stands in tutorials, with one way to feed it and to end a step."""
    x, y = ("x", "y") if moved else ("x.to(device)", "y.to(device)")
    return LOOP.format(device=device, loader=loader, x=x, y=y, step=step)


XM = "import torch_xla.core.xla_model as xm\nimport torch_xla.distributed.parallel_loader as pl\n"
ONCE = "called its function once, in this process"
CASES = {
    "optimizer_step": Case(loop("xm.optimizer_step(opt)")),
    "optimizer_step with a barrier": Case(loop("xm.optimizer_step(opt, barrier=True)")),
    "mark_step": Case(loop("opt.step(); xm.mark_step()")),
    "sync": Case(loop("opt.step(); torch_xla.sync()", device="torch_xla.device()")),
    "sync, imported by an earlier cell": Case(
        loop("opt.step(); sync()", device="device()").replace("device = device()", ""),
        imports="from torch_xla import sync\ndevice = 'xla'",
    ),
    "MpDeviceLoader": Case(
        loop("xm.optimizer_step(opt)", "pl.MpDeviceLoader(loader, device)", moved=True)
    ),
    "MpDeviceLoader, made by an earlier cell": Case(
        loop("xm.optimizer_step(opt)", "fed", moved=True).replace(
            "net, opt, loader = make()", "torch.manual_seed(1)"
        ),
        imports="net, opt, loader = make()\nfed = pl.MpDeviceLoader(loader, 'xla:0')",
    ),
    "MpDeviceLoader of several batches an execution": Case(
        loop("opt.step()", "pl.MpDeviceLoader(loader, device, batches_per_execution=2)", moved=True)
    ),
    "ParallelLoader": Case(
        loop(
            "xm.optimizer_step(opt)",
            "pl.ParallelLoader(loader, [device]).per_device_loader(device)",
            moved=True,
        )
    ),
    "launch": Case(
        "def train(index):\n    global net, seen\n    assert index == 0"
        + loop("xm.optimizer_step(opt)", "pl.MpDeviceLoader(loader, device)", moved=True).replace(
            "\n", "\n    "
        )
        + "\ntorch_xla.launch(train, args=())",
        note=ONCE,
    ),
    "spawn": Case(
        "def train(index, flags):\n    global net, seen\n    assert flags == {'lr': 0.05}"
        + loop("xm.optimizer_step(opt)", "pl.MpDeviceLoader(loader, device)", moved=True).replace(
            "\n", "\n    "
        )
        + "\nimport torch_xla.distributed.xla_multiprocessing as xmp\n"
        "xmp.spawn(train, args=({'lr': 0.05},), nprocs=None, start_method='fork')",
        note=ONCE,
    ),
    "a sampler for each process": Case(
        loop("xm.optimizer_step(opt)", "pl.MpDeviceLoader(mine, device)", moved=True).replace(
            "seen = []",
            "seen = []\nshare = torch.utils.data.distributed.DistributedSampler(\n"
            "    loader.dataset, num_replicas=xr.world_size(), rank=xr.global_ordinal(),\n"
            "    shuffle=False)\n"
            "assert list(share) == list(range(40))\nmine = loader",
        )
    ),
}


@pytest.fixture(scope="module", params=[1, 4], ids="{0} devices".format)
def on_devices(request):
    """Return a kernel that is connected to torch on 1 or 4 virtual devices."""
    pytest.importorskip("torch_xla")
    with Kernel(sys.executable, devices=request.param) as kernel:
        kernel.run("%load_ext tpu_magic\n%config TpuMagics.live = False").check()
        kernel.run(f"%%tpu_run -q --framework torch\n{PRELUDE}").check()
        kernel.run(f"import torch_xla\nimport torch_xla.runtime as xr\n{XM}{ON_THE_HOST}").check()
        kernel.devices = request.param
        yield kernel


@pytest.mark.parametrize("name", CASES)
def test_it_trains_on_the_device_with_the_numbers_of_the_host(on_devices, name):
    case = CASES[name]
    if case.imports:
        on_devices.run(case.imports).check()
    reply = on_devices.run(f"%%tpu_run\n{case.code}").check()
    on_devices.run("same(net, expected); same(seen, expected_seen)").check()
    assert on_devices.run("next(net.parameters()).device.type").check().value == "'xla'"
    (report,) = reply.reports
    assert report["reached_device"]
    assert report["steps"] == case.steps
    assert report["examples"] == 80
    assert report["num_devices"] == on_devices.devices
    assert report["global_batch"] == 8
    assert report["host_reads"] == 2
    assert bool([note for note in report["notes"] if ONCE in note]) == bool(case.note)
    assert [item["code"] for item in report["advice"] if item["code"] != "few-rows"] == []


def test_a_loader_for_tpus_splits_its_batches_and_raises_at_the_bad_one(on_devices):
    on_devices.run(
        "class Rows(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 16\n"
        "    def __getitem__(self, i):\n"
        "        if i == 9: raise ValueError('row 9 is broken')\n"
        "        return torch.full((2,), float(i))"
    ).check()
    reply = on_devices.run(
        "%%tpu_run -q\nseen = []\n"
        "for x in pl.MpDeviceLoader(DataLoader(Rows(), batch_size=4), xm.xla_device()):\n"
        "    seen.append(x)"
    )
    assert (reply.ename, reply.evalue) == ("ValueError", "row 9 is broken")
    split = on_devices.run(
        "rows = [[[float(i)] * 2 for i in four] for four in (range(4), range(4, 8))]\n"
        "assert [x.cpu().tolist() for x in seen] == rows\n"
        "bool(torch_xla._XLAC._get_xla_sharding_spec(seen[0]))"
    ).check()
    assert split.value == str(on_devices.devices > 1)


def test_a_loader_of_plain_batches_and_one_with_its_own_shardings(on_devices):
    on_devices.run(
        "%%tpu_run -q -o report\n"
        "batches = [(torch.full((4, 6), float(i)), torch.ones(4, 1)) for i in range(3)]\n"
        "net = torch.nn.Linear(6, 1)\n"
        "seen = [net(x) - y for x, y in pl.MpDeviceLoader(batches, xm.xla_device())]"
    ).check()
    assert on_devices.run("report.steps, report.examples").check().value == "(3, 12)"
    on_devices.run(
        "cpu = [batch[0] for batch in batches]\nfrom tpu_magic import to_host\nto_host(net)\n"
        "to_host(seen); [same(a, net(x) - 1, 1e-5) for a, x in zip(seen, cpu, strict=True)]"
    ).check()
    if on_devices.devices > 1:
        on_devices.run(
            "%%tpu_run -q -o report\n"
            "import numpy as np, torch_xla.distributed.spmd as xs\n"
            "mesh = xs.Mesh(np.arange(4), (4,), ('rows',))\n"
            "feed = pl.MpDeviceLoader(DataLoader(torch.ones(8, 4), batch_size=4), xm.xla_device(),"
            " input_sharding=xs.ShardingSpec(mesh, ('rows', None)))\n"
            "total = sum(float(x.sum()) for x in feed)"
        ).check()
        assert on_devices.run("total").check().value == "32.0"


def test_steps_that_only_the_persons_own_ends_end_are_counted(on_devices):
    reply = on_devices.run(
        "%%tpu_run\nnet = torch.nn.Linear(4, 2)\nx = torch.ones(8, 4)\n"
        "for _ in range(20):\n    out = net(x)\n    xm.mark_step()\n    xm.mark_step()"
    ).check()
    (report,) = reply.reports
    assert (report["steps"], report["examples"]) == (20, 160)
    # Nothing is said of one program for 20 calls.
    assert "unended-steps" not in [item["code"] for item in report["advice"]]
    assert report["compiles"] <= 2


def test_what_processes_tell_each_other_is_that_of_one(on_devices):
    on_devices.run(
        "%%tpu_run -q\ndef train(index):\n"
        "    assert (xr.world_size(), xr.global_ordinal(), xm.is_master_ordinal()) == (1, 0, True)\n"
        "    total = torch.ones(4, 4, device=xm.xla_device()).sum()\n"
        "    xm.rendezvous('end')\n"
        "    assert xm.mesh_reduce('name', 3.0, max) == 3.0\n"
        "    assert xm.all_reduce(xm.REDUCE_SUM, total).item() == 16.0\n"
        "    return 1 / 0\n"
    ).check()
    reply = on_devices.run("%%tpu_run\ntorch_xla.launch(train)")
    # Its own error, at its own line.
    assert reply.ename == "ZeroDivisionError"
    shown = ANSI.sub("", reply.traceback)
    assert "return 1 / 0" in shown
    assert "torch_own" not in shown


def test_launch_is_refused_in_words_outside_of_a_cell_on_the_device(on_devices):
    reply = on_devices.run("torch_xla.launch(print)")
    assert reply.status == "error"
    (line,) = reply.stdout.strip().splitlines()
    assert "%tpu_setup --no-connect" in line


def test_nothing_of_torch_xla_stays_changed(on_devices):
    names = "[torch_xla._XLAC._xla_step_marker, pl.ParallelLoader, torch_xla.launch, xmp.spawn]"
    on_devices.run(
        f"import torch_xla.distributed.xla_multiprocessing as xmp\nbefore = {names}"
    ).check()
    on_devices.run(f"%%tpu_run -q\ninside = {names}\ntorch.ones(2, 2) @ torch.ones(2, 2)").check()
    same = f"after = {names}\n[a is b for a, b in zip(after, before)], [a is b for a, b in zip(inside, before)]"
    assert on_devices.run(same).check().value == f"({[True] * 4}, {[False] * 4})"
