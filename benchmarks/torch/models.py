"""The models that are measured: ResNet-50 as in its paper (He et al., 2015), and small ones."""

from __future__ import annotations

from torch import Tensor, nn


class Bottleneck(nn.Module):
    """Three convolutions and a shortcut; the last widens by four."""

    def __init__(self, wide: int, narrow: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(wide, narrow, 1, bias=False),
            nn.BatchNorm2d(narrow),
            nn.ReLU(),
            nn.Conv2d(narrow, narrow, 3, stride, 1, bias=False),
            nn.BatchNorm2d(narrow),
            nn.ReLU(),
            nn.Conv2d(narrow, narrow * 4, 1, bias=False),
            nn.BatchNorm2d(narrow * 4),
        )
        self.shortcut = (
            nn.Identity()
            if stride == 1 and wide == narrow * 4
            else nn.Sequential(
                nn.Conv2d(wide, narrow * 4, 1, stride, bias=False), nn.BatchNorm2d(narrow * 4)
            )
        )
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.body(x) + self.shortcut(x))


def resnet50(classes: int = 10) -> nn.Module:
    """Return a ResNet-50: stages of 3, 4, 6 and 3 bottlenecks."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    wide = 64
    for stage, (blocks, narrow) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        for block in range(blocks):
            layers.append(Bottleneck(wide, narrow, 2 if stage and block == 0 else 1))
            wide = narrow * 4
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide, classes))


def small_net() -> nn.Module:
    """Return a net of two layers, whose step is all overhead."""
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))


def wide_net(megabytes: int, layers: int = 16) -> nn.Module:
    """Return a net of equal layers with that many megabytes of float32 weights."""
    width = int((megabytes * 1e6 / 4 / layers) ** 0.5)
    return nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers)))
