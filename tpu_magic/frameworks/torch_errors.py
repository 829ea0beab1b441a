"""One line of help for errors that torch on XLA gives: a table of signatures and cures."""

from __future__ import annotations

import re
from typing import Any

from tpu_magic.frameworks.base import Namespace

_HOW = (
    "run this cell with %%tpu_run (or %tpu_run on), or bring them back with "
    "tpu_magic.to_host({names})"
)
# signature in the error's text: what it means; {names} are the objects on the device.
_TABLE: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"xla:\d|XLA tensor|type \(XLA|KeyError: 'xla'|torch\.xla\.|xla device|to numpy"
        ),
        "{names} {are} on the device since an earlier %%tpu_run cell: " + _HOW,
    ),
    (
        re.compile(r"device_ready_queues_"),
        "this process ran backward() before it had the device: run this cell with %%tpu_run",
    ),
    (
        re.compile(r"RESOURCE_EXHAUSTED|[Oo]ut of memory"),
        "the device is out of memory; on it are {names}: smaller batches or bf16 help, and "
        "deleted names free theirs",
    ),
    (
        re.compile(r"Accelerator` can not run on your system|No supported gpu backend found"),
        "in a %%tpu_run cell leave `accelerator` out of Lightning's Trainer: the cell brings the "
        "loop to all devices",
    ),
    (
        re.compile(r"Runtime is already initialized|launch function does not support SPMD"),
        "this kernel has already started the device: restart it and use %tpu_setup --no-connect "
        "before code that launches its own processes, or let %%tpu_run use all devices",
    ),
)


def explain(error: BaseException, namespace: Namespace) -> str | None:
    """Return a hint for an error, or None when it is none of ours."""
    text = str(error)
    for signature, hint in _TABLE:
        if signature.search(text):
            names = on_device(namespace)
            if "{names}" in hint and not names:
                return None
            return hint.format(names=", ".join(names), are="is" if len(names) == 1 else "are")
    return None


def on_device(namespace: Namespace, most: int = 6) -> list[str]:
    """Return the names of a namespace's objects that are on the device, the largest first."""
    import torch

    from tpu_magic.frameworks import torch_move

    sizes: dict[str, int] = {}
    for name, value in namespace.items():
        if name.startswith("_"):
            continue
        tensors: list[Any] = (
            list(value.parameters())
            if isinstance(value, torch.nn.Module)
            else list(torch_move.tensors_in(value))
        )
        there = [item for item in tensors if item.device.type == "xla"]
        if there:
            sizes[name] = sum(item.numel() * item.element_size() for item in there)
    return sorted(sizes, key=lambda name: -sizes[name])[:most]
