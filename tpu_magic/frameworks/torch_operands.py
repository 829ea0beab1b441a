"""The tensors among a call's operands: found, and exchanged for others.

Both are done for nearly every call of a cell, so what is flat (almost everything) does not go
through torch's general tree functions, which take ten times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree as pytree

# What holds no tensor and is no container; of anything else the tree functions know.
_LEAVES = frozenset({int, float, bool, str, type(None), torch.dtype, torch.device, slice})


def operands(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
    """Yield the tensors among the operands, one level of lists deep."""
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            for item in value:
                if isinstance(item, Tensor):
                    yield item


def every_tensor(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """Return the tensors among the operands, at any depth of containers."""
    values = (*args, *kwargs.values())
    found = values if _flat(values) else pytree.tree_leaves(values)
    return [item for item in found if isinstance(item, Tensor)]


def exchanged(
    exchange: Callable[[Tensor], Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the operands with every tensor exchanged, at any depth of containers."""
    if not _flat((*args, *kwargs.values())):
        args, kwargs = exchanged_in(exchange, (args, kwargs))
        return args, kwargs
    return (
        tuple([exchange(item) if isinstance(item, Tensor) else item for item in args]),
        {key: exchange(item) if isinstance(item, Tensor) else item for key, item in kwargs.items()},
    )


def exchanged_in(exchange: Callable[[Tensor], Any], tree: Any) -> Any:
    """Return containers with every tensor exchanged, but for packed sequences.

    Those make sure that their sizes are on the host, and are computed with there.
    """
    return pytree.tree_map_only(
        Tensor, exchange, tree, is_leaf=lambda part: isinstance(part, PackedSequence)
    )


def _flat(values: tuple[Any, ...]) -> bool:
    return all(type(value) in _LEAVES or isinstance(value, Tensor) for value in values)
