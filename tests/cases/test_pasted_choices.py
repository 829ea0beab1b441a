"""Code that takes other tensors of a list in each step, copies them, and reads in between.

The device finds a program by its operations; which of several equal inputs goes where must be
told apart, a copy must be a copy, and a read must not make the program longer each time.
"""

from __future__ import annotations

import pytest

from tests.support.pasted import run_both

pytestmark = pytest.mark.torch

SETUP = """
import copy
import random
import torch
import torch.nn.functional as F
from torch import nn
states = [torch.randn(1, 4) for _ in range(8)]
table = torch.randn(9, 4)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
target = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
layers = [nn.Linear(4, 4) for _ in range(3)]
opt = torch.optim.SGD(net.parameters(), lr=0.1)
place = "cuda" if torch.cuda.is_available() else "cpu"
random.seed(1)
"""

# name: the cell, and the names to compare
CASES = {
    "triplets of a list": (
        """
        place = "cuda" if torch.cuda.is_available() else "cpu"
        memory = [state.to(place) for state in states]
        found = []
        for _ in range(20):
            a, b, c = (memory[random.randrange(4)] for _ in range(3))
            found.append((a - 2 * b + 3 * c).sum().item())
        """,
        ["found"],
    ),
    "triplets of rows": (
        """
        there = table.to("cuda" if torch.cuda.is_available() else "cpu")
        found = []
        for _ in range(20):
            a, b, c = (random.randrange(4) for _ in range(3))
            found.append((there[a] - 2 * there[b] + 3 * there[c]).sum().item())
        """,
        ["found"],
    ),
    "layers in another order": (
        """
        found = []
        with torch.no_grad():
            for _ in range(15):
                out = states[0]
                for _ in range(3):
                    out = random.choice(layers)(out)
                found.append(out.sum().item())
        """,
        ["found"],
    ),
    "layers chosen in a module's call": (
        """
        class Chosen(nn.Module):
            def __init__(self):
                super().__init__()
                self.parts = nn.ModuleList(layers)

            def forward(self, x):
                for _ in range(3):
                    x = torch.tanh(random.choice(self.parts)(x))
                return x

        chosen, found = Chosen(), []
        opt = torch.optim.SGD(chosen.parameters(), lr=0.5)
        for _ in range(15):
            loss = chosen(states[0]).pow(2).sum()
            opt.zero_grad(); loss.backward(); opt.step()
            found.append(loss.item())
        """,
        ["found", "chosen"],
    ),
    "parameters chosen in a module's call": (
        """
        class Chosen(nn.Module):
            def __init__(self):
                super().__init__()
                self.parts = nn.ParameterList([layer.weight for layer in layers])

            def forward(self, x):
                a, b, c = (random.choice(self.parts) for _ in range(3))
                return torch.tanh(x @ (a - 2 * b + 3 * c))

        chosen, found = Chosen(), []
        with torch.no_grad():
            for _ in range(15):
                found.append(chosen(states[0]).sum().item())
        """,
        ["found"],
    ),
    "a replay memory": (
        """
        place = "cuda" if torch.cuda.is_available() else "cpu"
        memory = [state.to(place) for state in states]
        losses = []
        target.load_state_dict(net.state_dict())
        for step in range(8):
            now = [random.randrange(7) for _ in range(5)]
            with torch.no_grad():
                best = target(torch.cat([memory[i + 1] for i in now])).max(1).values
            value = net(torch.cat([memory[i] for i in now])).max(1).values
            loss = F.mse_loss(value, 1 + 0.9 * best)
            opt.zero_grad(); loss.backward(); opt.step()
            losses.append(loss.item())
            theirs, ours = target.state_dict(), net.state_dict()
            for name in ours:
                theirs[name] = ours[name] * 0.1 + theirs[name] * 0.9
            target.load_state_dict(theirs)
        """,
        ["net", "target", "losses"],
    ),
    "copies written to": (
        """
        place = "cuda" if torch.cuda.is_available() else "cpu"
        a, b = table.to(place), torch.zeros_like(table).to(place)
        b.copy_(a)
        c = a.clone()
        d = copy.deepcopy(a)
        e = a.to(place, copy=True)
        f = torch.zeros_like(a)
        f[:] = a
        total = (a @ a.t()).sum().item() + sum(x.sum().item() for x in (b, c, d, e, f))
        for x in (b, c, d, e, f):
            x.mul_(2)
        total += (a @ a.t()).sum().item()
        """,
        ["a", "b", "c", "d", "e", "f", "total"],
    ),
}


@pytest.mark.parametrize("kind", CASES)
def test_the_values_are_those_of_the_host(torch_shell, kind):
    cell, names = CASES[kind]
    both = run_both(torch_shell, SETUP, cell)
    both.check_same(*names)
    assert both.report.reached_device


def test_a_choice_from_a_memory_compiles_once(torch_shell):
    cell = """
        place = "cuda" if torch.cuda.is_available() else "cpu"
        memory = [state.to(place) for state in states]
        for _ in range({steps}):
            picked = [random.randrange(7) for _ in range(4)]
            a = torch.cat([memory[i] for i in picked])
            b = torch.cat([memory[i + 1] for i in picked])
            total = ((a - b) @ a.t()).sum().item()
        """
    few = run_both(torch_shell, SETUP, cell.format(steps=3)).report.compiles
    assert run_both(torch_shell, SETUP, cell.format(steps=12)).report.compiles <= max(few, 1)


def test_reads_inside_a_step_do_not_lengthen_the_program(torch_shell):
    """A word at a time, each read, with gradients on: one program for each word, not a new one."""
    cell = """
        hidden, words = torch.zeros(1, 4), []
        for _ in range({words}):
            hidden = torch.tanh(layers[0](hidden) + layers[1](hidden))
            words.append(hidden.argmax().item())
        """
    few = run_both(torch_shell, SETUP, cell.format(words=4))
    many = run_both(torch_shell, SETUP, cell.format(words=12))
    many.check_same("hidden", "words")
    assert many.report.compiles <= few.report.compiles


def test_rows_that_do_not_divide_have_the_hosts_gradients(torch_shell):
    """Padded over the devices, these ended the process."""
    both = run_both(
        torch_shell,
        SETUP,
        """
        x, picked = torch.cat(states)[:7], torch.tensor([[0], [1], [1], [0], [1], [0], [0]])
        loss = net(x).gather(1, picked).pow(2).sum() + net(x).topk(1, 1)[0].sum()
        opt.zero_grad(); loss.backward(); opt.step()
        loss = loss.item()
        """,
    )
    both.check_same("net", "loss")
