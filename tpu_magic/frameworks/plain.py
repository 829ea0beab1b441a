"""Plain Python: no framework, no device, and it says so."""

from __future__ import annotations

import operator
import platform
from collections.abc import Iterator
from typing import Any

from tpu_magic.frameworks.base import (
    Availability,
    DeviceInfo,
    Memory,
    Rows,
)
from tpu_magic.frameworks.untouched import Untouched


class PlainPython(Untouched):
    """Code in which no array of a known framework was found.

    A call has ended when it returns, so there is nothing to wait for and nothing to count.
    """

    name = "plain"
    no_devices = "plain Python runs on the processor only: name a framework with --framework"
    no_cell = "plain Python has no device to run a cell on; leave the magic away"
    synchronous = True

    def availability(self) -> Availability:
        """Say that Python is here."""
        return Availability(usable=True)

    def connected(self) -> bool:
        """Say yes: there is nothing to start."""
        return True

    def devices(self) -> DeviceInfo:
        """Return the processor as the one device."""
        return DeviceInfo("CPU (plain Python)", 1, 1, on_tpu=False, simulated=False)

    def wait(self) -> None:
        """Do nothing: what Python returned is computed."""

    def memory(self) -> list[Memory]:
        """Return nothing: there is no device memory."""
        return []

    def arrays(self, value: Any) -> Iterator[Any]:
        """Yield nothing: no object is an array of plain Python's."""
        return iter(())

    def on_device(self, array: Any) -> bool:
        """Say yes: the processor is where everything is."""
        return True

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
