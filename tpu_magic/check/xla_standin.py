"""torch_xla's names, for a recording child whose torch has no torch_xla beside it.

A cell under `%%tpu_run` is driven by the same code that talks to torch_xla's runtime. In such a
child there is no runtime: its counters stand still, and a step's end is the recorder's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

_MODULES = (
    "torch_xla", "torch_xla.core", "torch_xla.core.xla_model", "torch_xla.debug",
    "torch_xla.debug.metrics", "torch_xla.debug.profiler", "torch_xla.backends",
    "torch_xla.runtime", "torch_xla.distributed", "torch_xla.distributed.parallel_loader",
    "torch_xla.distributed.xla_multiprocessing", "torch_xla._internal",
    "torch_xla._internal.tpu", "torch_xla._XLAC",
)  # fmt: skip


class _Silent(ModuleType):
    """A module whose functions do nothing and give None."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []  # a package: what is in it can be imported

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _nothing


def _nothing(*_: Any, **__: Any) -> None:
    return None


@contextmanager
def importable(step_end: Callable[[], None], tensor_id: Callable[[Any], Any]) -> Iterator[None]:
    """Let our own modules import torch_xla's names; nobody else finds them afterwards."""
    made = {name: _Silent(name) for name in _MODULES}
    for name, module in made.items():
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(made[parent], last, module)
    vars(made["torch_xla"]).update(sync=step_end)
    vars(made["torch_xla._XLAC"]).update(_xla_get_tensor_id=tensor_id)
    vars(made["torch_xla.distributed.parallel_loader"]).update(ParallelLoader=object)
    sys.modules.update(made)
    try:
        yield
    finally:
        for name in made:
            sys.modules.pop(name, None)
