"""Whatever ends a cell, everything that it changed is put back, and the next cell works."""

from __future__ import annotations

import os

import pytest

pytestmark = pytest.mark.torch

PREPARE = """
import torch, os, sys
from torch.utils.data import DataLoader, Dataset
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
class Rows(Dataset):
    def __init__(self, bad=None): self.bad = bad
    def __len__(self): return 8
    def __getitem__(self, i):
        if i == self.bad: raise ValueError(f"row {i} is broken")
        if self.bad == "die" and i == 4: os._exit(3)
        return torch.full((2,), float(i))
def train(loader):
    seen = 0
    for batch in loader:
        opt.zero_grad(); net(batch).sum().backward(); opt.step()
        seen += len(batch)
        globals()["seen"] = seen
"""


def state():
    """Return everything that a cell changes while it runs."""
    import torch
    from torch.nn.modules import module
    from torch.optim import optimizer
    from torch_xla import backends

    from tpu_magic.frameworks import torch_compat, torch_own, torch_patches

    owners = [entry[:2] for entry in (*torch_patches.TABLE, *torch_own.TABLE, *torch_compat.TABLE)]
    return {
        "attributes": [owner.__dict__.get(name) for owner, name in owners],
        "hooks": [
            list(hooks)
            for hooks in (
                optimizer._global_optimizer_pre_hooks,
                optimizer._global_optimizer_post_hooks,
                module._global_module_registration_hooks,
                module._global_parameter_registration_hooks,
                module._global_buffer_registration_hooks,
                module._global_forward_hooks,
            )
        ],
        "modes": torch.overrides._get_current_function_mode_stack(),
        "torch function": torch._C._is_torch_function_enabled(),
        "threads": torch._C._is_multithreading_enabled(),
        "grad": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("xla"),
        "precision": backends.get_mat_mul_precision(),
        "default device": torch.get_default_device(),
        "environment": dict(os.environ),
    }


FAULTS = {
    "an exception": ("net(torch.ones(1, 2)); 1 / 0", ZeroDivisionError),
    "an interrupt": ("net(torch.ones(1, 2)); raise KeyboardInterrupt", KeyboardInterrupt),
    "an exit": ("net(torch.ones(1, 2)); sys.exit(1)", SystemExit),
    "a row that raises": ("train(DataLoader(Rows(5), batch_size=2))", ValueError),
    "a worker's row that raises": (
        "train(DataLoader(Rows(5), batch_size=2, num_workers=1))",
        ValueError,
    ),
    "a worker that dies": (
        "train(DataLoader(Rows('die'), batch_size=2, num_workers=1))",
        (RuntimeError, OSError),  # torch's own words for it, or its broken pipe
    ),
    "an error in forward": (
        "net.forward = lambda x: x @ torch.ones(7)\ntry: net(torch.ones(1, 2))\nfinally: del net.forward",
        RuntimeError,
    ),
    "an error in the closure of an optimizer": ("opt.step(lambda: 1 / 0)", ZeroDivisionError),
    "an error in inference": ("with torch.inference_mode(): net(torch.ones(1, 3))", RuntimeError),
}


# A worker's death can be told of in any Python code, also in a callback of hypothesis's.
@pytest.mark.filterwarnings("ignore:.*gc_cumulative_time:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:To exit")
@pytest.mark.parametrize(
    ("fault", "precision"),
    # For what an option changes, two ways out are enough.
    [*((name, "default") for name in FAULTS), ("an exception", "bf16"), ("an interrupt", "bf16")],
)
def test_everything_is_back_and_the_next_cell_works(torch_shell, fault, precision):
    source, kind = FAULTS[fault]
    torch_shell.run(PREPARE)
    torch_shell.run("%%tpu_run -q\nnet(torch.ones(1, 2))")
    before = state()
    with pytest.raises(kind):
        torch_shell.run(f"%%tpu_run -q --precision {precision}\n{source}")
    assert state() == before
    torch_shell.run("%%tpu_run -q -o after\ntrain(DataLoader(Rows(), batch_size=2))")
    assert torch_shell.user_ns["seen"] == 8
    assert torch_shell.user_ns["after"].steps == 4


@pytest.mark.parametrize("workers", [0, 1])
def test_a_dataset_s_error_comes_at_its_batch(torch_shell, workers):
    torch_shell.run(PREPARE)
    with pytest.raises(ValueError, match="row 5 is broken"):
        torch_shell.run(
            f"%%tpu_run -q\ntrain(DataLoader(Rows(5), batch_size=2, num_workers={workers}))"
        )
    assert torch_shell.user_ns["seen"] == 4


@pytest.mark.parametrize("precision", ["high", "highest"])
def test_precision_is_the_cell_s_alone(torch_shell, precision):
    from torch_xla import backends

    before = backends.get_mat_mul_precision()
    torch_shell.run(
        f"%%tpu_run -q -o report --precision {precision}\n"
        "import torch, torch_xla\nfrom torch_xla import backends\n"
        "inside = backends.get_mat_mul_precision()\ny = torch.ones(2, 2) @ torch.ones(2, 2)"
    )
    assert torch_shell.user_ns["inside"] == precision
    assert torch_shell.user_ns["report"].precision == precision
    assert backends.get_mat_mul_precision() == before


def test_bf16_is_autocast_and_leaves_weights_alone(torch_shell):
    torch_shell.run(
        "%%tpu_run -q -o report --precision bf16\n"
        "import torch\nnet = torch.nn.Linear(4, 2)\nout = net(torch.ones(3, 4))\nkind = out.dtype"
    )
    import torch

    assert torch_shell.user_ns["kind"] is torch.bfloat16
    assert torch_shell.user_ns["net"].weight.dtype is torch.float32
    assert torch_shell.user_ns["report"].precision == "bf16"


def test_a_cell_keeps_nothing_of_the_person_s_alive(torch_shell):
    import gc
    import weakref

    torch_shell.run(
        "%%tpu_run -q\nimport torch\nx = torch.randn(64, 64)\ny = x @ x\nz = y[3:9]\n"
        "held = torch.nn.Linear(64, 2)\nout = held(x)"
    )
    space = torch_shell.user_ns
    names = ("x", "y", "z", "held", "out")
    references = [weakref.ref(space.pop(name)) for name in names]
    gc.collect()
    assert [name for name, item in zip(names, references, strict=True) if item() is not None] == []


def test_importing_tensorflow_after_torch_is_the_person_s_own(torch_shell):
    before = state()
    with pytest.raises(ModuleNotFoundError, match="tensorflow"):
        torch_shell.run("%%tpu_run -q\nimport tensorflow_that_is_not_here as tensorflow")
    assert state() == before
