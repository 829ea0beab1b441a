"""What the child needs to build a torch tensor that travelled from a device."""

from __future__ import annotations

from typing import Any


def host_tensor(tensor: Any, wants_grad: bool) -> Any:
    """Return the host tensor, wanting gradients as the one on the device did."""
    return tensor.requires_grad_(wants_grad)
