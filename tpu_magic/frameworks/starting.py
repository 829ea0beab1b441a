"""What adapters whose runtime starts once in a process have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from typing import Any

from IPython.core.error import UsageError

from tpu_magic.frameworks.base import Availability, DeviceInfo
from tpu_magic.host import detect


class StartsOnce:
    """Starting the runtime when it is first asked for, and refusing what it cannot be any more.

    Attributes
    ----------
    label
        The framework as a person says it.
    packages
        The distributions that decide how it runs.
    """

    label: str
    packages: tuple[str, ...]

    def __init__(self) -> None:
        self._info: DeviceInfo | None = None

    @abstractmethod
    def availability(self) -> Availability:
        """Say whether the framework can be used in this process."""

    @abstractmethod
    def _runtime_started(self) -> bool:
        """Say whether the runtime is up in this process; starts and imports nothing."""

    @abstractmethod
    def _start(self, facts: detect.HostFacts, simulate: int | None, devices: str) -> None:
        """Start the runtime, and set `_info`."""

    def connected(self) -> bool:
        """Say whether the runtime has been started, by us or by anyone."""
        return self._info is not None or self._runtime_started()

    def connect(
        self, *, simulate: int | None = None, require_tpu: bool = False, devices: str = "all"
    ) -> DeviceInfo:
        """Start the runtime if it is not running, and return its devices.

        Raises
        ------
        IPython.core.error.UsageError
            When the framework is not here, there is no TPU and one is required, or the runtime
            already runs with other devices than those asked for.
        """
        if self._info is None:
            availability = self.availability()
            if not availability.usable:
                raise UsageError(availability.sentence())
            facts = detect.detect()
            if require_tpu and not facts.chips:
                looked = "; ".join(facts.reasons)
                raise UsageError(f"--require-tpu: there is no TPU here ({looked})")
            if simulate and facts.chips:
                raise UsageError("--simulate is for machines without a TPU; this one has one")
            self._start(facts, simulate, devices)
        info = self.devices()
        if require_tpu and not info.on_tpu:
            raise UsageError(f"--require-tpu: {self.label} runs on {info.label()} in this kernel")
        if simulate and simulate != info.present:
            s = "" if info.present == 1 else "s"
            raise UsageError(
                f"{self.label} already runs with {info.present} device{s} in this kernel; "
                f"restart it to simulate {simulate}"
            )
        if devices == "1" and info.count > 1:
            raise UsageError(
                f"{self.label} already spans all {info.count} devices in this kernel; restart it "
                "and make --devices 1 the first use"
            )
        return info

    def devices(self) -> DeviceInfo:
        """Return the devices of the running runtime."""
        if self._info is None:
            if not self.connected():
                raise UsageError(f"{self.label} is not connected to a device yet: run %tpu_setup")
            self._start(detect.detect(), None, "all")
        assert self._info is not None  # noqa: S101 - set by _start
        return self._info

    def versions(self) -> dict[str, str]:
        """Return the versions of what decides how the framework runs here."""
        return dict(_versions(self.packages))


def _versions(packages: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for package in packages:
        with suppress(metadata.PackageNotFoundError):
            yield package, metadata.version(package)
