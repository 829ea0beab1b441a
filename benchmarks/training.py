"""The training loop under `%%tpu_run` against an expert's, interleaved in one process.

Run for 1 and 4 virtual devices, each in a process of its own. Compared with the expert's
hand-written torch_xla loop: its own transfers, sharding and step marks. (What a loop costs
that nothing ends is in `benchmarks.torch`.)
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from benchmarks.table import show

ROUNDS = 8
WARM_UP = 3
PREPARE = """
import numpy as np, torch, torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def make_net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 64, 10),
    )

data = TensorDataset(torch.randn(2048, 1, 16, 16), torch.randint(0, 10, (2048,)))
loader = DataLoader(data, batch_size=64, shuffle=True)
loss_of = nn.CrossEntropyLoss()
net = make_net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

device = torch_xla.device()
count = xr.global_runtime_device_count()
mesh = xs.Mesh(np.arange(count), (count,), ("data",)) if xr.is_spmd() else None
expert_net = make_net().to(device)
expert_optimizer = torch.optim.Adam(expert_net.parameters(), lr=1e-3)

def put(tensor):
    if mesh is None:
        return tensor.to(device)
    spec = xs.ShardingSpec(mesh, ("data", *(None for _ in tensor.shape[1:])))
    return xm.send_cpu_data_to_device(tensor, device, spec)[0]

def expert():
    for epoch in range(4):
        for x, y in loader:
            x, y = put(x), put(y)
            expert_optimizer.zero_grad()
            loss = loss_of(expert_net(x), y)
            loss.backward()
            expert_optimizer.step()
            torch_xla.sync()
    xm.wait_device_ops()
"""
CELL = """%%tpu_run -q
for epoch in range(4):
    for x, y in loader:
        optimizer.zero_grad()
        loss = loss_of(net(x), y)
        loss.backward()
        optimizer.step()
"""


def timed(shell: InteractiveShell, code: str) -> float:
    started = time.perf_counter()
    shell.run_cell(code).raise_error()
    return time.perf_counter() - started


def measure(devices: int) -> None:
    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell.instance(config=config)
    for code in ("%load_ext tpu_magic", f"%tpu_setup -q --simulate {devices}", PREPARE):
        shell.run_cell(code).raise_error()
    ratios = []
    for _ in range(WARM_UP + ROUNDS):
        ours, expert, again = timed(shell, CELL), timed(shell, "expert()"), timed(shell, CELL)
        ratios.append(2 * expert / (ours + again))
    ratios = ratios[WARM_UP:]
    quartiles = statistics.quantiles(ratios, n=4)
    rows = [
        (
            "an expert's torch_xla loop",
            f"{statistics.median(ratios):.3f}",
            f"{quartiles[0]:.3f} … {quartiles[2]:.3f}",
            "at least 0.95",
        )
    ]
    show(
        f"training: throughput under %%tpu_run ÷ throughput of …, {devices} device(s)",
        ("compared with", "ratio, median", "quartiles", "promise"),
        rows,
    )


def main() -> None:
    for devices in (1, 4):
        subprocess.run([sys.executable, "-m", "benchmarks.training", str(devices)], check=True)


if __name__ == "__main__":
    measure(int(sys.argv[1])) if len(sys.argv) > 1 else main()
