"""Ratios of the magic to hand-written torch_xla, measured in one process: `python -m benchmarks.torch`.

Rounds of the two are interleaved, and the median of each is compared, so that a busy machine
slows both. Figures are of this machine's own XLA device unless a TPU is attached.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import psutil
import torch
from IPython.core.interactiveshell import InteractiveShell
from torch.nn import functional as F

from benchmarks.torch import models

SHELL = InteractiveShell.instance()
SHELL.run_line_magic("load_ext", "tpu_magic")


def cell(source: str, options: str = "") -> object:
    """Run a cell under the magic and return its report."""
    result = SHELL.run_cell(f"%%tpu_run -q -o report --framework torch {options}\n{source}")
    result.raise_error()
    return SHELL.user_ns["report"]


class Synced:
    """Times `torch_xla.sync` (compiling, handing over, waiting while the device is behind).

    Seconds of this thread's own work, so that the device, which has the same cores here, does
    not count in what tracing costs.
    """

    def __init__(self) -> None:
        import torch_xla

        self.seconds, self._module, self._sync = 0.0, torch_xla, torch_xla.sync

    def __enter__(self):
        def sync(*args, **kwargs):
            started = time.thread_time()
            try:
                return self._sync(*args, **kwargs)
            finally:
                self.seconds += time.thread_time() - started

        self._module.sync = sync
        return self

    def __exit__(self, *_):
        self._module.sync = self._sync


def train_by_hand(net, opt, x, y, steps):
    """Train as an expert writes it for torch_xla; return wall time and the time spent tracing."""
    import torch_xla
    from torch_xla.core import xla_model

    started, began = time.perf_counter(), time.thread_time()
    # Without a thread of its own, backward's work is in the figure, as it is in the cell's.
    with Synced() as synced, torch.autograd.set_multithreading_enabled(False):
        for _ in range(steps):
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
            torch_xla.sync()
        traced = time.thread_time() - began - synced.seconds
    xla_model.wait_device_ops()
    return time.perf_counter() - started, traced


# `traced` is the host's work in the loop but for that in `torch_xla.sync`.
TRAIN = """
import time
began = time.thread_time()
for _ in range({steps}):
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()
traced = time.thread_time() - began - synced.seconds
"""


def compare_training(name, make, shape, rows, steps, rounds):
    """Print throughput and tracing of the magic against the hand-written loop."""
    torch.manual_seed(0)
    x, y = torch.randn(rows, *shape), torch.randint(0, 10, (rows,))
    space = SHELL.user_ns
    space.update(torch=torch, F=F, x=x, y=y, net=make())
    space["opt"] = torch.optim.SGD(space["net"].parameters(), lr=0.01, momentum=0.9)
    with Synced() as space["synced"]:
        cell(TRAIN.format(steps=3))
    by_hand = make().to("xla")
    hand_opt = torch.optim.SGD(by_hand.parameters(), lr=0.01, momentum=0.9)
    device_x, device_y = x.to("xla"), y.to("xla")
    train_by_hand(by_hand, hand_opt, device_x, device_y, 3)
    ours, theirs, our_trace, their_trace = [], [], [], []
    for _ in range(rounds):
        with Synced() as space["synced"]:
            report = cell(TRAIN.format(steps=steps))
        ours.append(report.wall_s / steps)
        our_trace.append(space["traced"] / steps)
        wall, traced = train_by_hand(by_hand, hand_opt, device_x, device_y, steps)
        theirs.append(wall / steps)
        their_trace.append(traced / steps)
    medians = [statistics.median(values) for values in (ours, theirs, our_trace, their_trace)]
    wall, hand_wall, trace, hand_trace = medians
    print(f"{name}: {wall * 1e3:.1f} ms a step, by hand {hand_wall * 1e3:.1f} ms")
    print(f"  throughput {hand_wall / wall:.3f} of the hand-written loop")
    print(
        f"  tracing {trace * 1e3:.1f} ms, by hand {hand_trace * 1e3:.1f} ms: {trace / hand_trace:.3f}"
    )


def compare_with_unended_steps(steps=50):
    """Print how much the ends of steps gain over the unchanged loop on the device."""
    import torch_xla
    from torch_xla.core import xla_model

    space = SHELL.user_ns
    x, y = torch.randn(64, 32), torch.randint(0, 10, (64,))
    space.update(torch=torch, F=F, x=x, y=y, net=models.small_net())
    space["opt"] = torch.optim.Adam(space["net"].parameters())
    with Synced() as space["synced"]:
        cell(TRAIN.format(steps=3))
        ours = cell(TRAIN.format(steps=steps)).wall_s
    net = models.small_net().to("xla")
    opt = torch.optim.Adam(net.parameters())
    device_x, device_y = x.to("xla"), y.to("xla")
    started = time.perf_counter()
    for _ in range(steps):
        opt.zero_grad()
        F.cross_entropy(net(device_x), device_y).backward()
        opt.step()
    torch_xla.sync()
    xla_model.wait_device_ops()
    theirs = time.perf_counter() - started
    print(
        f"{steps} steps of a small net: {ours * 1e3:.0f} ms, the loop with no step ends "
        f"{theirs * 1e3:.0f} ms (compiling included, once for every length): {theirs / ours:.1f} times"
    )


def memory_of_the_move(megabytes=256):
    """Print the peak of host memory while a model moves, as a multiple of the model."""
    import threading

    process, peak, done = psutil.Process(), 0, threading.Event()
    net = models.wide_net(megabytes)
    size = sum(item.numel() * item.element_size() for item in net.parameters())
    SHELL.user_ns.update(torch=torch, big=net)
    cell("small = torch.nn.Linear(2, 2)(torch.zeros(1, 2))")
    gc.collect()
    before = process.memory_info().rss

    def watch() -> None:
        nonlocal peak
        while not done.is_set():
            peak = max(peak, process.memory_info().rss - before)
            time.sleep(0.001)

    watcher = threading.Thread(target=watch)
    watcher.start()
    cell("big.cuda();")
    done.set()
    watcher.join()
    after = process.memory_info().rss - before
    print(
        f"moving {size / 1e6:.0f} MB: host memory grew by {peak / size:.2f} of the model at its "
        f"peak, {after / size:.2f} after (where the device is the host, its copy is in it)"
    )


def empty_cell(rounds=30):
    """Print what an empty cell costs."""
    walls = []
    for _ in range(rounds):
        started = time.perf_counter()
        cell("pass")
        walls.append(time.perf_counter() - started)
    print(f"an empty cell: {statistics.median(walls[1:]) * 1e3:.2f} ms")


def main() -> None:
    """Measure, and print one line or two for each figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["resnet", "small", "steps", "memory", "empty"])
    chosen = parser.parse_args()
    from tpu_magic.frameworks import adapter

    print(adapter("torch").connect().label())
    parts = {
        "empty": empty_cell,
        "memory": memory_of_the_move,
        "steps": compare_with_unended_steps,
        "small": lambda: compare_training(
            "a small net", models.small_net, (32,), 64, 50, chosen.rounds
        ),
        "resnet": lambda: compare_training(
            "ResNet-50, 64 × 64, batch 8", models.resnet50, (3, 64, 64), 8, 10, chosen.rounds
        ),
    }
    for name, measure in parts.items():
        if chosen.only in (None, name):
            measure()


if __name__ == "__main__":
    main()
