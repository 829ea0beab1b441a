"""What is timed: a table of set-up code and a statement, by the device that they are for."""

from __future__ import annotations

from dataclasses import dataclass

XLA, EAGER, PLAIN, JAX, KERAS = "xla", "eager", "plain", "jax", "keras"


@dataclass(frozen=True)
class Workload:
    """Code to time. `long` ones take a second or more a call, and are left out by --quick."""

    name: str
    where: str
    setup: str
    statement: str
    long: bool = False


_TORCH = """
import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
def on(value):
    return value.to(device)
"""
_BLOCK = """
class Block(nn.Module):
    def __init__(self, i, o, s):
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(),
                               nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o))
        self.b = nn.Sequential(nn.Conv2d(i, o, 1, s, bias=False), nn.BatchNorm2d(o)) \\
            if s != 1 or i != o else nn.Identity()
    def forward(self, x):
        return F.relu(self.a(x) + self.b(x))
def resnet18():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
              nn.MaxPool2d(3, 2, 1)]
    for i, o, s in ((64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2),
                    (256, 256, 1), (256, 512, 2), (512, 512, 1)):
        layers.append(Block(i, o, s))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))
net = on(resnet18()).eval()
x = on(torch.randn(4, 3, 224, 224))
def forward():
    with torch.no_grad():
        return net(x)
"""
_MLP = """
net = on(nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)))
opt = torch.optim.Adam(net.parameters())
x, y = on(torch.randn(128, 256)), on(torch.randint(0, 10, (128,)))
def step():
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()
"""
_FED = """
import numpy
net = on(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
rng = numpy.random.default_rng(0)
def fed():
    batch = rng.standard_normal((256, 64), dtype="float32")
    batch = numpy.sort(batch, axis=0)
    return net(on(torch.from_numpy(batch)))
"""

_JAX = """
import jax, jax.numpy as jnp, numpy
rng = numpy.random.default_rng(0)
def on(*shape):
    return jax.device_put(rng.standard_normal(shape, dtype="float32"))
"""
_KERAS = """
import os
os.environ.setdefault("KERAS_BACKEND", "jax")
import keras, numpy
keras.utils.set_random_seed(0)
layers = keras.layers
net = keras.Sequential([layers.Input((28, 28, 1)), layers.Conv2D(16, 3, activation="relu"),
                        layers.Flatten(), layers.Dense(10)])
x = numpy.random.default_rng(0).standard_normal((256, 28, 28, 1), dtype="float32")
"""


def _matmul(size: int, where: str = XLA, *, long: bool = False) -> Workload:
    setup = f"x = on(torch.randn({size}, {size}))"
    return Workload(f"matmul {size}", where, _TORCH + setup, "x @ x", long)


WORKLOADS = (
    Workload("tiny add", XLA, _TORCH + "x = on(torch.randn(8))", "x + 1"),
    _matmul(128),
    _matmul(256),
    _matmul(512),
    _matmul(1024),
    _matmul(2048),
    _matmul(4096, long=True),
    Workload(
        # The published comparison convolves 128 images, to which the time is proportional: on
        # two cores one call took 41 s and 17 GB.
        "convolution 5x5, 8 images of 256x256, 256 filters",
        XLA,
        _TORCH + "x, w = on(torch.randn(8, 3, 256, 256)), on(torch.randn(256, 3, 5, 5))",
        "F.conv2d(x, w)",
        long=True,
    ),
    Workload(
        "attention 8 heads, 256 tokens",
        XLA,
        _TORCH + "q = on(torch.randn(4, 8, 256, 64))",
        "F.scaled_dot_product_attention(q, q, q)",
    ),
    Workload(
        "LSTM, 32 steps",
        XLA,
        _TORCH + "net, x = on(nn.LSTM(64, 128)), on(torch.randn(32, 16, 64))",
        "net(x)[0]",
    ),
    Workload("ResNet-18 forward, 4 images", XLA, _TORCH + _BLOCK, "forward()"),
    Workload("training step, Adam", XLA, _TORCH + _MLP, "step()"),
    Workload("update in place", XLA, _TORCH + "x = on(torch.zeros(1000, 1000))", "x.add_(1)"),
    Workload(
        "softmax of a million", XLA, _TORCH + "x = on(torch.randn(1000, 1000))", "x.softmax(-1)"
    ),
    Workload(
        "embedding",
        XLA,
        _TORCH + "e, i = on(nn.Embedding(10000, 256)), on(torch.randint(0, 10000, (64, 128)))",
        "e(i)",
    ),
    Workload("sort 100 000", XLA, _TORCH + "x = on(torch.randn(100_000))", "x.sort()[0]"),
    Workload("bound by input", XLA, _TORCH + _FED, "fed()"),
    Workload(
        "jitted MLP",
        JAX,
        _JAX + "w, x = on(512, 512), on(256, 512)\n"
        "@jax.jit\ndef mlp(x):\n    return jnp.tanh(jnp.tanh(x @ w) @ w)\n",
        "mlp(x)",
    ),
    Workload("matmul 1024", JAX, _JAX + "x = on(1024, 1024)", "x @ x"),
    Workload("Keras predict, 256 images", KERAS, _KERAS, "net.predict(x, verbose=0)"),
    _matmul(64, EAGER),
    _matmul(512, EAGER),
    Workload("training step, Adam", EAGER, _TORCH + _MLP, "step()"),
    Workload("sum of a list", PLAIN, "x = list(range(1000))", "sum(x)"),
    Workload(
        "sort of a list",
        PLAIN,
        "import random; x = [random.random() for _ in range(9999)]",
        "sorted(x)",
    ),
)
