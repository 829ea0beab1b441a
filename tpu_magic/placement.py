"""`tpu_magic.device()` and `tpu_magic.to_host(...)`: the places, for code that names them."""

from __future__ import annotations

import sys
from typing import Any

from tpu_magic.frameworks import adapter


def device() -> Any:
    """Return the device that `%%tpu_run` cells use, as a `torch.device`.

    Raises
    ------
    IPython.core.error.UsageError
        When torch is not connected to a device yet.
    """
    return adapter("torch").placement.device  # type: ignore[attr-defined]


def to_host(*objects: Any) -> Any:
    """Bring modules, optimizers and tensors back to the host, in place.

    Every object keeps its identity, ties, hooks and optimizer links.

    Parameters
    ----------
    *objects
        Modules, optimizers, tensors, or lists, tuples and dicts of tensors.

    Returns
    -------
    object or tuple of objects
        What was given.

    Raises
    ------
    RuntimeError
        When something holds a tensor so that it cannot be moved, naming it.
    """
    if "torch" in sys.modules:
        from tpu_magic.frameworks import torch_move

        for item in objects:
            moved = torch_move.to_host(item)
            if moved.left:
                raise RuntimeError(f"not brought back to the host: {', '.join(moved.left)}")
    return objects[0] if len(objects) == 1 else objects
