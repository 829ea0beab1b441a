"""Plain Python: no framework, no device, and it says so."""

from __future__ import annotations

import operator
import platform
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from IPython.core.error import UsageError

from tpu_magic.frameworks.base import (
    Availability,
    CellSession,
    Counters,
    DeviceInfo,
    Memory,
    Namespace,
    Rows,
)
from tpu_magic.options import RunOptions


class PlainPython:
    """Code in which no array of a known framework was found.

    A call has ended when it returns, so there is nothing to wait for and nothing to count.
    """

    name = "plain"
    synchronous = True

    def availability(self) -> Availability:
        """Say that Python is here."""
        return Availability(usable=True)

    def connect(self, *, simulate: int | None = None, require_tpu: bool = False) -> DeviceInfo:
        """Return the processor.

        Raises
        ------
        IPython.core.error.UsageError
            When virtual devices or a TPU are asked for: plain Python has neither.
        """
        if simulate or require_tpu:
            raise UsageError(
                "plain Python runs on the processor only: name a framework with --framework"
            )
        return self.devices()

    def connected(self) -> bool:
        """Say yes: there is nothing to start."""
        return True

    def devices(self) -> DeviceInfo:
        """Return the processor as the one device."""
        return DeviceInfo("CPU (plain Python)", 1, 1, on_tpu=False, simulated=False)

    def cell(
        self, options: RunOptions, namespace: Namespace
    ) -> AbstractContextManager[CellSession]:
        """Refuse: a cell without a framework needs no magic.

        Raises
        ------
        IPython.core.error.UsageError
            Always.
        """
        raise UsageError("plain Python has no device to run a cell on; leave the magic away")

    def materialize(self, outputs: Any) -> None:
        """Do nothing: what Python returned is computed."""

    def wait(self) -> None:
        """Do nothing: what Python returned is computed."""

    def counters(self) -> Counters:
        """Return no counts: plain Python compiles, moves and queues nothing."""
        return Counters()

    def memory(self) -> list[Memory]:
        """Return nothing: there is no device memory."""
        return []

    def arrays(self, value: Any) -> Iterator[Any]:
        """Yield nothing: no object is an array of plain Python's."""
        return iter(())

    def on_device(self, array: Any) -> bool:
        """Say yes: the processor is where everything is."""
        return True

    def to_device(self, array: Any) -> Any:
        """Return the array itself."""
        return array

    def square(self, rows: Rows) -> Rows:
        """Return the product of a matrix with itself."""
        columns = list(zip(*rows, strict=True))
        return [[sum(map(operator.mul, row, column)) for column in columns] for row in rows]

    def versions(self) -> dict[str, str]:
        """Return Python's version."""
        return {"python": platform.python_version()}

    def matmul_precision(self) -> str:
        """Say that there is no such setting."""
        return "not applicable"

    def explain(self, error: BaseException, namespace: Namespace) -> str | None:
        """Explain nothing: every error is the person's own."""
        return None
