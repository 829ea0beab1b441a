"""What `%tpu_setup` found and did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tpu_magic.host.detect import PLACES
from tpu_magic.report import render
from tpu_magic.report.render import View
from tpu_magic.report.result import Result


@dataclass(frozen=True)
class SetupReport(Result):
    """The result of `%tpu_setup`.

    Attributes
    ----------
    host
        Where this is: a key of `tpu_magic.host.detect.PLACES` (`colab`, `plain`, …).
    accelerator
        `TPU v5e`, `NVIDIA GPU`, or None where there is neither.
    chips
        TPU chips that this process may use.
    devices
        Devices that cells run on once connected; before, those that a runtime would make of
        the chips.
    versions
        Installed packages that matter.
    plan
        The commands that make everything fit, as a person can run them; empty when it does.
    installed
        What this call installed: `torch_xla==2.9.0`.
    verified
        Whether the package set computed a right result on the device: now, or since the last
        boot. None when that was not tried.
    connected
        Whether this process holds the devices.
    restart_needed
        Whether files of loaded packages were replaced, so that only a restart helps.
    reasons
        What was looked at, found and decided, in words.
    framework
        What the setup was for.
    device
        The devices as a person says it (kind, count, whether it is a TPU); None when not connected.
    refusal
        Why no plan was made; empty otherwise.
    ways
        What can be done about the refusal, or instead of the plan.
    warnings
        What is odd here and would go wrong later.
    log_file
        The installer's whole output, where something was installed.
    """

    kind: ClassVar[str] = "setup-report"

    host: str
    accelerator: str | None
    chips: int
    devices: int
    versions: dict[str, str]
    plan: tuple[str, ...] = ()
    installed: tuple[str, ...] = ()
    verified: bool | None = None
    connected: bool = False
    restart_needed: bool = False
    reasons: tuple[str, ...] = ()
    framework: str = "torch"
    device: str | None = None
    refusal: str = ""
    ways: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    log_file: str | None = None

    def view(self) -> View:
        """Return what a person is shown: short when all is well, the reasons when not."""
        lines = [f"on {PLACES[self.host]}: {_listed(self.versions) or 'no framework is installed'}"]
        if self.refusal:
            lines += [self.refusal, *(f"way out: {way}" for way in self.ways)]
        elif self.plan:
            lines += ["to do:", *(f"  {command}" for command in self.plan)]
            lines += [f"instead: {way}" for way in self.ways]
        elif not self.connected and not self.restart_needed:
            lines.append("everything fits, nothing to do")
        if self.installed:
            lines.append(f"installed: {', '.join(self.installed)} (log: {self.log_file})")
        if not self.connected:
            lines += [f"· {reason}" for reason in self.reasons]
        return View(self._headline(), tuple(lines), notes=self.warnings)

    def _headline(self) -> str:
        if self.restart_needed:
            return "restart the kernel now (variables will be lost): loaded packages were replaced"
        if self.device is not None:
            checked = ", verified" if self.verified else ""
            missing = "" if self.accelerator else "no TPU here: "
            return f"{missing}{self.device}{checked}"
        if self.accelerator is None:
            return "no TPU here"
        if self.chips:
            found = f"{render.count(self.chips, 'chip')}, {render.count(self.devices, 'device')}"
            return f"{self.accelerator}: {found}, not connected"
        return f"{self.accelerator}, no TPU"


def _listed(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
