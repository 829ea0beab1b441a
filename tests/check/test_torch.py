"""A torch cell from the notebook to the verdict: recorded in a child, compiled, nothing touched."""

import pytest

from tests.check.conftest import needs_compiler
from tests.check.training import BATCH, CELL, NETWORK, SIZE, state

torch = pytest.importorskip("torch")
pytest.importorskip("torch_xla")
pytest.importorskip("cloudpickle")
pytestmark = [pytest.mark.torch, needs_compiler]


def test_a_training_loop_is_checked_and_nothing_touched(shell, check, tmp_path):
    kept = tmp_path / "kept.pt"
    kept.write_text("mine")
    shell.run(NETWORK)
    shell.run(f"FILE = {str(kept)!r}; generator = iter(x for x in [1])")
    before = state(shell, kept)
    report = check(CELL)
    assert state(shell, kept) == before
    assert not any("xla" in str(p.device) for p in shell.user_ns["net"].parameters())

    assert report.compiles
    assert report.fits
    weights = 2 * SIZE * SIZE * 4
    batch = 2 * BATCH * SIZE * 4
    # A steady Adam step takes weights and both moments, and gives them back in place.
    assert report.arguments_bytes == pytest.approx(3 * weights + batch, rel=0.02)
    assert report.aliased_bytes == pytest.approx(3 * weights, rel=0.02)
    # It also leaves the gradients.
    assert report.outputs_bytes == pytest.approx(4 * weights, rel=0.02)
    # Forward, both weights' gradients, and the gradient between the layers.
    assert report.flops == pytest.approx(5 * 2 * BATCH * SIZE * SIZE, rel=0.02)
    assert report.programs[0].matrix_flops == 5 * 2 * BATCH * SIZE * SIZE
    assert report.floor_s == pytest.approx((report.arguments_bytes + report.outputs_bytes) / 819e9)
    assert report.bound_by == "memory"
    assert report.estimate_s is None
    assert report.hbm_limit_bytes == int(15.75 * 2**30)

    step, *others = report.programs
    assert step.name.endswith("→ opt.step()")
    assert step.line == 3
    assert step.trains
    assert any("for x, y in loader" in item.name and not item.trains for item in others)
    assert any("kept.pt" in text for text in report.refused)
    assert any("echo no" in text for text in report.notes)
    assert any("losses.append(loss.item())" in text for text in report.reads)
    assert any("loader" in text for text in report.cut)
    assert {item.place for item in step.buffers} & {
        "line 3 → loss = ((net(x) - y) ** 2).mean()",
        "line 3 → loss.backward() (backward)",
    }
    assert report.headline().startswith("fits v5e-1: ")
    assert "of 15.75 GiB a chip; floor " in report.headline()
    assert "a step, bound by memory at bf16" in report.headline()


def test_a_step_split_over_the_chips(shell, check):
    shell.run(NETWORK)
    report = check("train(2)", "--target v5e-4")
    weights = 2 * SIZE * SIZE * 4
    # Each chip has all weights and a quarter of the batch, and they add up their gradients.
    assert report.devices == 4
    assert report.fits
    assert report.arguments_bytes == pytest.approx(3 * weights + 2 * BATCH * SIZE, rel=0.02)
    assert report.programs[0].matrix_flops == 5 * 2 * BATCH * SIZE * SIZE / 4
    (exchange,) = [item for item in report.programs[0].collectives if item.bytes > 1000]
    assert exchange.kind == "all-reduce"
    # … and the loss, a scalar.
    assert exchange.bytes * exchange.count == pytest.approx(weights, rel=1e-5)


def test_a_mistake_in_the_cell_is_told_at_its_line(shell, check):
    shell.run("import torch\nw = torch.ones(8, 8)")
    report = check("x = 1\ny = w @ torch.ones(3, 3)")
    assert report.compiles is None
    assert report.line == 3
    assert "shape" in report.error or "size" in report.error


def test_what_cannot_travel_is_named(shell, check):
    shell.run("import torch\nbatches = (torch.ones(8, 8) for _ in range(3))\nw = torch.ones(8, 8)")
    report = check("for x in batches:\n    y = w @ x")
    assert "batches" in report.error
    assert "make it inside the cell" in report.error
    assert next(shell.user_ns["batches"]).sum() == 64  # still whole


def test_a_large_batch_is_neither_drawn_nor_copied(shell, check):
    shell.run("import torch\nfrom torch import nn\nw = torch.ones(1024, 8)")
    draw = "torch.randn(2**20, 1024, generator=torch.Generator())"
    report = check(f"x = {draw}\nx.uniform_()\ny = x @ w")
    batch = 2**20 * 1024 * 4
    assert report.fits
    assert report.arguments_bytes == pytest.approx(batch, rel=0.02)
    assert report.capture_peak_bytes < batch / 2


def test_a_step_that_does_not_fit_is_told_by_how_much(shell, check):
    shell.run(
        "import torch\nfrom torch import nn\n"
        "net = nn.Sequential(nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4096))\n"
        "opt = torch.optim.SGD(net.parameters())"
    )
    report = check(
        "for step in range(100):\n"
        "    x = torch.randn(2**19, 4096)\n"
        "    opt.zero_grad()\n"
        "    net(x).square().mean().backward()\n"
        "    opt.step()"
    )
    assert report.fits is False
    # The batch, and what the first layer gave, which backward needs.
    assert report.hbm_needed_bytes >= 2 * 2**19 * 4096 * 4
    assert report.hbm_limit_bytes == int(15.75 * 2**30)
    assert report.headline().startswith("does not fit v5e-1: needs ")
    assert "too much" in report.headline()
    assert {"bf16", "batch", "remat", "chips"} <= {item.code for item in report.advice}


# What a cell's own lines give, and what is read, is computed on a device. Worked out by hand: the
# product of 32 rows takes 2 * 32 * 64 * 16 operations, and what sums it 32 * 16 more.
GIVEN = {
    "the cell's value": "net(x)",
    "a value in a block": "with torch.no_grad():\n    net(x)",
    "a value that is printed": "print(net(x))",
    "values that are read in a loop": "n = 0\nfor _ in range(5):\n    n += net(x).sum().item()",
}


@pytest.mark.parametrize("name", GIVEN)
def test_what_is_only_shown_or_read_is_computed(shell, check, name):
    shell.run("import torch\nnet, x = torch.nn.Linear(64, 16, bias=False), torch.ones(32, 64)")
    report = check(GIVEN[name])
    assert report.fits
    (program,) = report.programs
    assert program.flops == pytest.approx(2 * 32 * 64 * 16, rel=0.02)


def test_what_a_function_drops_is_not_computed_and_the_reason_is_given(shell, check):
    shell.run("import torch\nnet, x = torch.nn.Linear(64, 16), torch.ones(32, 64)")
    shell.run("def drop():\n    net(x)")
    report = check("drop()")
    assert report.fits is None
    assert "every result was dropped" in report.error
