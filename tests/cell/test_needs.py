"""Which cells need the device, and which adapter."""

from __future__ import annotations

import ast
import sys
import types

import pytest
from IPython.core.error import UsageError

from tpu_magic.cell import needs
from tpu_magic.frameworks import choose

MAGIC = "get_ipython().run_line_magic('{}', 'x')"


@pytest.mark.parametrize(
    "source",
    [
        "import torch",
        "from torch import nn\nimport os as o",
        "x = 1\ny: int = 2\nz = (1, -2, [3, {'a': None}])",
        "x: int",
        "'only text'",
        "def f(x, y=1, *, z=None):\n    return x @ y",
        "async def f():\n    await g()",
        "class Net(nn.Module):\n    kind = torch.float32\n    def forward(self, x): return x()",
        "get_ipython().system('pip list')",
        "files = get_ipython().getoutput('ls')",
        MAGIC.format("matplotlib"),
        "get_ipython().run_cell_magic('time', '', 'train()')",
        "pass",
    ],
)
def test_cells_that_cannot_compute_are_inert(source):
    assert needs.is_inert(ast.parse(source))


@pytest.mark.parametrize(
    "source",
    [
        "f()",
        "x = f()",
        "x = a @ b",
        "x += 1",
        "del x",
        "for i in x: pass",
        "with a: pass",
        "def f(x=torch.ones(3)): pass",
        "def f(*, x=g()): pass",
        "@torch.jit.script\ndef f(x): pass",
        "@dataclass\nclass C: pass",
        "class C:\n    device = torch.device('cuda')",
        "other().run_line_magic('matplotlib')",
        "ip.system('x')",
        "x",
        "[i for i in x]",
        *map(MAGIC.format, ["time", "timeit", "prun", "run"]),
    ],
)
def test_all_others_are_not(source):
    assert not needs.is_inert(ast.parse(source))


def _main(source, **names):
    """Return the namespace of a notebook in which some cells ran."""
    namespace = {"__name__": "__main__", **names}
    exec(source, namespace)
    return namespace


FRAME = types.ModuleType("some_framework")
FRAME.Tensor = type("Tensor", (), {"__module__": "some_framework"})
FRAME.make = types.FunctionType((lambda: 1).__code__, {"__name__": "some_framework"}, "make")


@pytest.mark.parametrize(
    ("code", "cells"),
    [
        ("print(len('net'))", ""),
        ("x + 1", "x = 3"),
        ("os.getcwd()", "import os"),
        ("helper(1)", "def helper(x): return other(x)\ndef other(x): return x"),
        ("p.norm()", "class P:\n    def norm(self): return 1\np = P()"),
        ("data[0]", "data = [1, 'a', {'k': (2.0,)}]"),
        ("loop()", "def loop(): return loop()"),
        ("unknown_name", ""),
        ("import json\njson.dumps(1)", ""),
    ],
)
def test_code_that_reaches_only_harmless_things_cannot_compute(code, cells):
    assert not needs.may_compute(code, _main(cells))


@pytest.mark.parametrize(
    ("code", "cells"),
    [
        ("frame.make()", ""),
        ("t", "t = frame.Tensor()"),
        ("train()", "def train(): return step()\ndef step(): return frame.Tensor()"),
        ("train()", "def outer(t=frame.Tensor()):\n    return lambda: t\ntrain = outer()"),
        ("train()", "def train(t=frame.Tensor()): return t"),
        ("train()", "def train():\n    return [frame.make() for i in (1, 2)]"),
        ("net(1)", "class Net:\n    def __call__(self, x): return frame.make()\nnet = Net()"),
        ("holder", "class H: pass\nholder = H()\nholder.inner = [frame.Tensor()]"),
        ("net.step", "class Net:\n    def step(self): return frame.make()\nnet = Net().step\n"),
        ("Sub()", "class Sub(frame.Tensor): pass"),
        ("data", "data = {'a': [(frame.Tensor(),)]}"),
        ("data", "data = list(range(1000))"),
        ("f()", "import functools\ndef f(): return 1\nf.__wrapped__ = frame.make"),
        ("make()", "make = frame.make"),
        ("import some_framework", ""),
        ("deep", "deep = [[[[[[[[[1]]]]]]]]]"),
    ],
)
def test_code_that_may_reach_a_framework_can(code, cells):
    assert needs.may_compute(code, _main(cells, frame=FRAME))


def test_the_adapter_is_chosen_by_the_code_and_refused_in_words(fake, monkeypatch):
    assert needs.adapter_for("auto", "import torch", {}, required=True) is fake
    assert needs.adapter_for("torch", "", {}, required=True) is fake
    with pytest.raises(UsageError, match="not there yet"):
        needs.adapter_for("paper", "", {}, required=True)
    monkeypatch.setattr(choose, "PACKAGES", {})
    assert needs.adapter_for("auto", "1", {}, required=False) is None
    monkeypatch.setattr(choose, "installed_framework", lambda: None)
    with pytest.raises(UsageError, match="no framework is installed"):
        needs.adapter_for("auto", "1", {}, required=True)
    monkeypatch.setattr(choose, "installed_framework", lambda: "torch")
    assert needs.adapter_for("auto", "1", {}, required=True) is fake


def test_an_unusable_framework_stops_only_who_asked_for_it(fake):
    from tpu_magic.frameworks.base import Availability

    fake.usable = Availability(False, "broken", "mend it")
    namespace = {"torch": sys.modules["torch"]}
    assert needs.adapter_for("auto", "torch", namespace, required=False) is None
    with pytest.raises(UsageError, match="broken: mend it"):
        needs.adapter_for("auto", "torch", namespace, required=True)


def test_once_connected_every_cell_that_computes_gets_the_adapter(fake):
    assert needs.adapter_for("auto", "len('a')", {}, required=False) is None
    fake.up = True
    assert needs.adapter_for("auto", "len('a')", {}, required=False) is fake
