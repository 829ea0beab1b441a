"""What the child calls to build objects that do not travel by themselves."""

from __future__ import annotations

from typing import Any


def host_tensor(tensor: Any, wants_grad: bool) -> Any:
    """Return the host tensor, wanting gradients as the one on the device did."""
    return tensor.requires_grad_(wants_grad)


def set_jitted(function: Any, state: tuple[Any, dict[str, Any]]) -> None:
    """Give a jitted function of jax its state and its attributes, which its own way loses."""
    own, attributes = state
    function.__setstate__(own)
    vars(function).update(attributes)
