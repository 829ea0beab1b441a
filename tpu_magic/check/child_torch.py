"""Recording the programs of a torch cell: traced as `%%tpu_run` traces it, never executed.

torch_xla records lazily. Where it would hand a program to the device, the program is
exported and every tensor it would have computed gets a placeholder of its shape: so the
second step sees the first one's results as inputs, as on a device, and nothing is compiled
or computed. What reads a value back gets a made-up one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from tpu_magic.check.child import Seen, Task, replaced
from tpu_magic.check.loops import Rounds
from tpu_magic.check.places import Person
from tpu_magic.check.refuse import Refusals
from tpu_magic.check.torch_values import TorchCapture
from tpu_magic.host import detect
from tpu_magic.host.detect import HostFacts
from tpu_magic.options import RunOptions

# From this size on a batch is not copied: nobody reads it.
_MUCH_TO_MOVE = 1 << 20


class Capture(TorchCapture):
    """Records the programs of one torch cell. `child.Capture`."""

    kind = "xla"

    def __init__(
        self, task: Task, seen: Seen, rounds: Rounds, person: Person, refusals: Refusals
    ) -> None:
        from tpu_magic.frameworks import adapter

        # A TPU of this machine is none of the check's: the cell is traced on XLA's CPU device.
        vars(detect)["detect"] = _no_tpu
        self._adapter = cast("Any", adapter("torch"))
        self._adapter.connect(simulate=task.devices if task.devices > 1 else None)
        self._device = str(self._adapter.placement.device)
        super().__init__(task, seen, rounds, person, refusals)

    @contextmanager
    def running(self, namespace: dict[str, Any]) -> Iterator[None]:
        """Run the cell as `%%tpu_run` would, with every program recorded."""
        import torch_xla

        extension = torch_xla._XLAC  # noqa: SLF001
        self._end_real_step = extension._xla_step_marker  # noqa: SLF001
        options = RunOptions(precision=self._task.options["precision"])
        with ExitStack() as undo:
            undo.enter_context(replaced(extension, "_xla_step_marker", self._boundary))
            undo.enter_context(replaced(extension, "_xla_sync_multi", self._boundary))
            undo.enter_context(self.made_up_values())
            self._session = undo.enter_context(self._adapter.cell(options, namespace))
            yield

    def _boundary(self, *_: Any, **__: Any) -> None:
        """Record what would go to the device now, and put placeholders in its place."""
        import torch_xla

        extension = torch_xla._XLAC  # noqa: SLF001
        with self._refusals.paused():
            with suppress(RuntimeError):
                self._record(extension._get_stablehlo([], self._device, [], True))  # noqa: SLF001
            extension._clear_pending_irs(self._device)  # noqa: SLF001
            # Nothing is left for it to run; it makes the next step's random numbers.
            self._end_real_step(self._device, [], False)
        self._leave_when_enough()

    def _record(self, artifact: bytes) -> None:
        if not artifact:
            return  # nothing is alive
        path = self._note_program(hashlib.sha256(artifact).hexdigest())
        if path is not None:
            Path(path).write_bytes(artifact)

    def moved(self, tensor: Tensor, dtype: torch.dtype) -> Tensor | None:
        """Return a placeholder for a large host tensor on its way to the device.

        None for small ones, and for several devices: a placeholder cannot be split.
        """
        large = tensor.numel() * tensor.element_size() >= _MUCH_TO_MOVE
        if not large or self._task.devices > 1:
            return None
        from torch_xla.core.xla_builder import create_placeholder_tensor

        made: Tensor = create_placeholder_tensor(tensor.shape, dtype)
        return made

    def put(self, tensor: Tensor) -> Tensor:
        """Return a host tensor on the device."""
        return tensor.to(self._device)


def _no_tpu(*_: Any) -> HostFacts:
    return HostFacts("plain", None, None, 0, 0, 1, False, (), ())
