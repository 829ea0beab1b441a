"""P45: a child forked after the runtime is up raises at once; workers go on."""

from __future__ import annotations

import os
import pickle
import signal

import pytest

pytestmark = pytest.mark.torch
SECONDS = 60  # a child that hangs is ended, and the test fails


def in_a_child(action):
    """Return what `action` returned, or the error that it raised, in a forked child."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        try:
            outcome = action()
        except Exception as error:
            outcome = error
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(outcome, pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    assert os.waitpid(child, 0)[1] == 0, "the child hung or died"
    return pickle.loads(data)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_every_way_to_the_device_raises_in_words(torch_shell):
    import torch

    torch_shell.run(
        "%%tpu_run -q\nimport torch\nnet = torch.nn.Linear(3, 1)\ny = net(torch.ones(2, 3))"
    )
    net, y = torch_shell.user_ns["net"], torch_shell.user_ns["y"]
    for action in (
        lambda: torch.ones(1, device="xla") + 1,
        lambda: torch.zeros(2).to("xla"),
        lambda: net(torch.ones(2, 3)),
        lambda: net.weight.cpu(),
        lambda: torch.cat([y, y]),
        lambda: y.sum().item(),
    ):
        error = in_a_child(action)
        assert isinstance(error, RuntimeError)
        assert "before this process was forked" in str(error)
        assert "restart the kernel" in str(error)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_that_never_touches_the_device_works(torch_shell):
    import torch

    assert in_a_child(lambda: (torch.ones(3) @ torch.ones(3)).item()) == 3.0


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_workers_of_a_loader_go_on(torch_shell):
    torch_shell.run(
        "%%tpu_run -q\n"
        "import torch\n"
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "loader = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4, num_workers=1)\n"
        "seen = [(batch.sum().item(), batch.device.type) for batch, in loader]"
    )
    assert torch_shell.user_ns["seen"] == [(6.0, "xla"), (22.0, "xla")]
