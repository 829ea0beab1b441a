"""Tensor math with no module in sight: it goes to the device, the operands stay where they were."""

from __future__ import annotations

import textwrap

import pytest

from tests.support.pasted import run_both

pytestmark = pytest.mark.torch

EARLIER = """
import torch
import torch.nn.functional as F
A, B = torch.randn(32, 32), torch.randn(32, 32)
img, w = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)
points, centres = torch.randn(60, 2), torch.randn(3, 2)
"""
CELLS = {
    "a product in the cell": ("x = torch.randn(64, 64)\ny = x @ torch.randn(64, 64).t() + 1", "xy"),
    "a product of an earlier cell's": ("y = A @ B", "y"),
    "a convolution": ("y = F.max_pool2d(F.relu(F.conv2d(img, w, padding=1)), 2)", "y"),
    "einsum and batches": (
        "y = torch.einsum('ij,jk->ik', A, B); z = torch.bmm(A[None], B[None])",
        "yz",
    ),
    "transforms": ("y = torch.fft.ifft(torch.fft.fft(A)).real; z = torch.fft.rfft2(A).abs()", "yz"),
    "solvers": (
        "S = A @ A.t() + 32 * torch.eye(32)\n"
        "y = torch.linalg.solve(S, B); z = torch.linalg.cholesky(S)",
        "yz",
    ),
    "a loop of products": (
        "y = A\nfor _ in range(10):\n    y = torch.tanh(y @ B / 6)\ntotal = y.sum()",
        ["y", "total"],
    ),
    "k-means by hand": (
        """
        c = centres.clone()
        for _ in range(5):
            d = torch.cdist(points, c)
            label = d.argmin(1)
            for k in range(3):
                c[k] = points[label == k].mean(0)
        """,
        ["c", "label"],
    ),
    "power iteration": (
        """
        S = A @ A.t()
        v = torch.ones(32)
        for _ in range(20):
            v = S @ v
            v = v / v.norm()
        y = v @ S @ v
        """,
        ["y"],
    ),
    "attention by hand": (
        """
        q, k, v = A[None], B[None], (A + B)[None]
        score = (q @ k.transpose(-2, -1)) / 32 ** 0.5
        mask = torch.tril(torch.ones(32, 32))
        score = score.masked_fill(mask == 0, float("-inf"))
        y = score.softmax(-1) @ v
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        """,
        "yz",
    ),
    "everyday expressions": (
        """
        y = A @ B
        out = [y + A, A + y, y == A, y > 0, torch.where(y > 0, y, B), torch.cat([y, A]),
               torch.stack([A, y]), y.gather(1, A.argsort(1)), torch.maximum(A, y), y.abs().pow(A.abs()),
               y.sum(), y.mean(0), y.max(1).values, y.topk(3).indices, y.sort().values, y.std(),
               y[A[:, 0] > 0], A[y[:, 0] > 0], y[:, 3], y[2:5, ::2], y[..., None].shape,
               y.masked_fill(A > 0, 0.0), y.clamp(-1, 1), y.round(), y.T, y.reshape(-1)[:5],
               torch.outer(y[0], A[0]), y.cumsum(0), y.flip(0), y.roll(1), y.abs().log1p(),
               torch.allclose(y, A @ B, atol=1e-4), y.numpy().shape, y[0, 0].item(), float(y[1, 1]),
               F.mse_loss(y, A), F.l1_loss(A, y), F.cosine_similarity(A, y), F.one_hot(y.argmax(1), 32),
               torch.isnan(y).any(), y.tolist()[0][:3], len(y), y.unique().shape, y.nonzero().shape,
               y.histc(4), torch.bincount(y.argmax(1), minlength=32), y.new_zeros(2) + 1]
        """,
        ["out"],
    ),
    "in place": (
        """
        y = A @ B
        y += A
        y[0] = 0
        y[1, 2] = 5.0
        y[A > 1] = -1
        y[:, 1] *= 2
        z = A.clone()
        z += y
        z[3:5] = y[3:5]
        z.add_(1).clamp_(-2, 2)
        u = torch.zeros(32)
        u[:5] = y[0, :5]
        row = y[7]
        row.zero_()
        part = y[8:10]
        part += 1
        """,
        ["y", "z", "u"],
    ),
    "a distribution by broadcasting": (
        "big = torch.arange(3000.0)\ny = ((big[:, None] - big[None, ::10]) ** 2).sum(1) / 1e6",
        "y",
    ),
    "gradient descent on a tensor": (
        """
        x = torch.zeros(32, requires_grad=True)
        for _ in range(10):
            loss = ((A @ x - B[0]) ** 2).mean()
            loss.backward()
            with torch.no_grad():
                x -= 0.01 * x.grad
                x.grad = None
        y = x.detach()
        """,
        "y",
    ),
}


@pytest.mark.parametrize("kind", CELLS)
def test_the_values_are_those_of_the_host(torch_shell, kind):
    cell, names = CELLS[kind]
    both = run_both(torch_shell, EARLIER, textwrap.dedent(cell))
    both.check_same(*names, tolerance=1e-3)
    assert both.report.reached_device
    # torch_xla has no kernels for these: they run on the host, and the report says so.
    assert both.report.fallbacks == {} or kind in ("transforms", "solvers", "everyday expressions")


@pytest.mark.parametrize("name", ["A", "B", "img", "points"])
def test_tensors_of_an_earlier_cell_stay_where_they_were(torch_shell, name):
    cell = "y = A @ B; z = F.conv2d(img, w); d = torch.cdist(points, centres); A[0, 0].item()"
    both = run_both(torch_shell, EARLIER, cell)
    assert both.device[name].device.type == "cpu"
    assert both.device["y"].device.type == "xla"


def test_a_cell_with_nothing_for_the_device_says_so_first(torch_shell):
    both = run_both(torch_shell, EARLIER, "s = A + B\nn = A.sum().item()")
    assert not both.report.reached_device
    assert str(both.report).startswith("nothing in this cell ran on the device: ")
    assert "no model was called" in both.report.unreached_reason


def test_a_mask_that_is_written_through_compiles_once(torch_shell):
    """`x[x < 0] = 0`, with another number of hits in each step."""
    earlier = "import torch\nstart = torch.randn(40, 6)\n"
    cell = """
        x = start @ torch.eye(6)
        for step in range(8):
            x[x < 0.1] = 1.0
            x[x.sum(1) > 4] = -1
            x = x * 1.5 - 0.4
            last = float(x.sum())
    """
    both = run_both(torch_shell, earlier, cell)
    both.check_same("x", "last")
    assert both.report.compiles <= 4


def test_a_long_loop_of_tensor_math_is_programs_of_a_few_rounds(torch_shell):
    """Nothing ends its steps; as one program it would take ever longer to compile."""
    cell = """
        x = A
        for _ in range({rounds}):
            x = torch.tanh(x @ B * 0.02) + 0.1 * x
    """
    run_both(torch_shell, EARLIER, cell.format(rounds=24)).check_same("x", tolerance=1e-3)
    many = run_both(torch_shell, EARLIER, cell.format(rounds=120))
    many.check_same("x", tolerance=1e-3)
    assert many.report.compiles == 0


def test_slices_count_from_the_end_past_the_beginning(torch_shell):
    both = run_both(
        torch_shell,
        EARLIER,
        """
        x = A @ B
        out = [x[:, -99:], x[-40:-1], x[..., -50:-2], x[None, -99:, -1], x[-99:-33, 0]]
        x[:, -99:-30] = 5.0
        """,
    )
    both.check_same("x", "out", tolerance=1e-3)


def test_masks_are_read_once_while_nobody_writes_to_them(torch_shell):
    cell = """
        place = "cuda" if torch.cuda.is_available() else "cpu"
        there, known = A.to(place), (A[:, 0] > 0).to(place)
        total = 0
        for _ in range({rounds}):
            picked = torch.tanh(there @ there)[known]
            total = total + picked.sum()
        grid = there[there > 0.5]
        total = total.item()
    """
    few = run_both(torch_shell, EARLIER, cell.format(rounds=2))
    many = run_both(torch_shell, EARLIER, cell.format(rounds=6))
    many.check_same("total", "grid", "picked", tolerance=1e-3)
    assert many.report.fallbacks == {}
    assert many.report.host_reads == few.report.host_reads


def test_sums_kept_on_the_host_are_there_after_the_cell(torch_shell):
    both = run_both(
        torch_shell,
        EARLIER + "import numpy as np\narray = np.zeros(32, np.float32)\n",
        """
        total, table, seen = torch.zeros(32), torch.zeros(4, 32), torch.from_numpy(array)
        for row in range(4):
            x = (A @ B)[row]
            total += x
            table[row] = x
            seen += x
        """,
    )
    both.check_same("total", "table", "array", tolerance=1e-3)
    assert both.device["total"].device.type == both.device["table"].device.type == "cpu"
    assert both.device["x"].device.type == "xla"
