"""What adapters have in common that only look at code, which runs as it does without us."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from IPython.core.error import UsageError

from tpu_magic.frameworks.base import CellSession, Counters, DeviceInfo, Namespace
from tpu_magic.options import RunOptions


class Untouched:
    """Calls are timed, and nothing is moved, counted or helped with.

    Attributes
    ----------
    no_devices
        Why there are no virtual devices and no TPU.
    no_cell
        Why no cell is run.
    """

    no_devices: str
    no_cell: str

    def devices(self) -> DeviceInfo:
        """Return where the code runs."""
        raise NotImplementedError

    def connect(
        self, *, simulate: int | None = None, require_tpu: bool = False, devices: str = "all"
    ) -> DeviceInfo:
        """Return where the code runs; there is nothing to start.

        Raises
        ------
        IPython.core.error.UsageError
            When virtual devices or a TPU are asked for.
        """
        if simulate or require_tpu:
            raise UsageError(self.no_devices)
        return self.devices()

    def cell(
        self, options: RunOptions, namespace: Namespace
    ) -> AbstractContextManager[CellSession]:
        """Refuse: a cell without the magic does the same.

        Raises
        ------
        IPython.core.error.UsageError
            Always.
        """
        raise UsageError(self.no_cell)

    def materialize(self, outputs: Any) -> None:
        """Do nothing: what was called is computed, or on its way."""

    def counters(self) -> Counters:
        """Return no counts: nobody keeps any."""
        return Counters()

    def to_device(self, array: Any) -> Any:
        """Return the array itself."""
        return array

    def explain(self, error: BaseException, namespace: Namespace) -> str | None:
        """Explain nothing: every error is the person's own, or the framework's."""
        return None
