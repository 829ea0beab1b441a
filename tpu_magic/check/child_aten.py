"""Recording the programs of a torch cell where torch has no torch_xla beside it.

The device is torch's own `meta`: tensors with shapes and no values. The cell is driven as
`%%tpu_run` drives it, and the operations on such tensors are written down, a program a step.
`child_replay.py` does them again on torch_xla, in the compiler's environment, which makes
programs of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from tpu_magic.check import xla_standin
from tpu_magic.check.aten import Recorder
from tpu_magic.check.child import Seen, Task
from tpu_magic.check.loops import Rounds
from tpu_magic.check.places import Person
from tpu_magic.check.refuse import Refusals
from tpu_magic.check.torch_values import TorchCapture
from tpu_magic.options import RunOptions


class Capture(TorchCapture):
    """Records the programs of one torch cell. `child.Capture`."""

    kind = "meta"

    def __init__(
        self, task: Task, seen: Seen, rounds: Rounds, person: Person, refusals: Refusals
    ) -> None:
        super().__init__(task, seen, rounds, person, refusals)
        self._recorder = Recorder(person.frames)
        self._written: list[dict[str, Any]] = []
        with xla_standin.importable(self._boundary, _memory_of):
            from tpu_magic.frameworks import torch_cell, torch_move

        self._cell = torch_cell.TorchCell
        movable = torch_move.movable
        # Elsewhere a `meta` tensor is the person's own; here it is one of the device.
        vars(torch_move)["movable"] = lambda tensor: tensor.is_meta or movable(tensor)

    @contextmanager
    def running(self, namespace: dict[str, Any]) -> Iterator[None]:
        """Run the cell as `%%tpu_run` would, with every operation written down."""
        from tpu_magic.frameworks.torch_place import Placement

        class Nowhere(Placement):
            """Puts tensors where they have shapes only; notes those that a mesh would split."""

            def split(place, tensor: Tensor) -> Tensor:  # noqa: N805
                return self._arrived(tensor, tensor.dtype, split=True)

            def whole(place, tensor: Tensor) -> Tensor:  # noqa: N805
                return tensor

            def is_computed(place, tensor: Tensor) -> bool:  # noqa: N805
                del tensor
                return True

        options = RunOptions(precision="default")
        placement = Nowhere(torch.device("meta"))
        with ExitStack() as undo:
            undo.enter_context(sdpa_kernel(SDPBackend.MATH))  # as on XLA
            undo.enter_context(self.made_up_values())
            cell = self._cell(options, namespace, placement, "a TPU")
            self._session = undo.enter_context(cell.running())
            yield

    def finish(self) -> None:
        """End the last program, and write down what there was."""
        super().finish()
        self._write()

    def _boundary(self, *_: Any, **__: Any) -> None:
        """End a program, as its hand-over to the device would."""
        ended = self._recorder.end()
        if ended is None:
            return
        digest, operations, alive = ended
        path = self._note_program(digest)
        self._written.append({"path": path, "operations": operations, "alive": alive})
        try:
            self._leave_when_enough()
        finally:
            self._write()

    def _write(self) -> None:
        with self._refusals.paused():
            text = json.dumps({"programs": self._written, "devices": self._task.devices})
            Path(self._task.folder, "aten.json").write_text(text, encoding="utf-8")

    # --- tensors --------------------------------------------------------------------------

    def moved(self, tensor: Tensor, dtype: torch.dtype) -> Tensor | None:
        """Return what stands on the device for a host tensor."""
        return self._arrived(tensor, dtype, split=False)

    def _arrived(self, tensor: Tensor, dtype: torch.dtype, *, split: bool) -> Tensor:
        made = torch.empty_like(tensor, dtype=dtype, device="meta", requires_grad=False)
        self._recorder.arrive(made, split=split)
        return made.requires_grad_(tensor.requires_grad)

    def put(self, tensor: Tensor) -> Tensor:
        """Return a host tensor on the device."""
        return self._arrived(tensor, tensor.dtype, split=False)

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Write down an operation of the device; do those of the host."""
        leaves = pytree.tree_leaves((args, kwargs))
        to = kwargs.get("device")
        there = any(map(self.is_there, leaves)) or (to is not None and to.type == self.kind)
        return self._recorder.call(func, args, kwargs) if there else func(*args, **kwargs)


def _memory_of(tensor: Tensor) -> Any:
    """Return what two tensors share that are the same values."""
    return tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.shape  # noqa: SLF001
