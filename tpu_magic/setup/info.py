"""`%tpu_info`: devices, memory, load, versions, and who holds the chip. Never connects."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from tpu_magic import frameworks
from tpu_magic.frameworks.base import Adapter
from tpu_magic.host import metadata
from tpu_magic.host.detect import PLACES, HostFacts, Probe, detect
from tpu_magic.host.limits import limits
from tpu_magic.host.owners import Holding, owners
from tpu_magic.report import render
from tpu_magic.report.render import Table, View
from tpu_magic.report.result import Result
from tpu_magic.setup import versions
from tpu_magic.setup.verify import child_environ

# Run in a child: libtpu's monitoring asks the runtime of whatever process holds the chip.
_MONITOR = """
import json
from libtpu.sdk import tpumonitoring
names = ("hbm_capacity_usage", "hbm_capacity_total", "duty_cycle_pct")
print(json.dumps({name: list(tpumonitoring.get_metric(name).data()) for name in names}))
"""
_MONITOR_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class DeviceRow:
    """One device. What the runtime does not tell is None.

    Attributes
    ----------
    kind
        What it is: `TPU v5e`, `XLA CPU`.
    used_bytes, limit_bytes
        Memory in use, and all of it.
    load_percent
        Share of the last sampling period in which the chip was busy, 0 to 100.
    """

    kind: str
    used_bytes: int | None
    limit_bytes: int | None
    load_percent: float | None


@dataclass(frozen=True)
class InfoReport(Result):
    """The result of `%tpu_info`.

    Attributes
    ----------
    host, accelerator, chips, hosts
        As in `SetupReport`; `hosts` of the slice.
    connected
        Name of the framework that holds the devices in this process, or None.
    connected_since
        When it took them, in seconds since 1970; None when nobody does, or nobody saw it.
    devices
        One row per device: of the connected runtime, else of the chips.
    versions
        Installed packages that matter.
    holders
        Who holds the chip, one sentence each.
    stale
        Loaded packages whose files were replaced.
    limits
        What this host lacks for long runs.
    costs
        What goes on costing money, and the command that ends it.
    warnings
        What detection found odd.
    """

    kind: ClassVar[str] = "info-report"

    host: str
    accelerator: str | None
    chips: int
    hosts: int
    connected: str | None
    devices: tuple[DeviceRow, ...]
    versions: dict[str, str]
    holders: tuple[str, ...]
    connected_since: float | None = None
    stale: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    costs: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def view(self) -> View:
        """Return what a person is shown."""
        chips = render.count(self.chips, "chip")
        what = f"{self.accelerator}, {chips}" if self.chips else self.accelerator
        head = f"{what or 'no TPU here'} ({PLACES[self.host]})"
        rows = tuple(
            (
                str(index),
                row.kind,
                _of(row.used_bytes, row.limit_bytes),
                "not measured" if row.load_percent is None else f"{row.load_percent:.0f} %",
            )
            for index, row in enumerate(self.devices)
        )
        table = Table(("device", "kind", "memory", "load"), rows)
        lines = [
            self._state(),
            ", ".join(f"{name} {version}" for name, version in self.versions.items())
            or "no framework is installed",
            *(self.holders or ("nobody holds a TPU chip" if self.chips else "no chip to hold",)),
            *self.costs,
        ]
        if not rows:
            lines.append("no memory and no load to measure: there is no chip, nothing is connected")
        if self.stale:
            lines.append(f"replaced while loaded, restart the kernel: {', '.join(self.stale)}")
        notes = (*self.warnings, *self.limits)
        return View(head, tuple(lines), (table,) if rows else (), notes=notes)

    def _state(self) -> str:
        if self.connected is None:
            return "not connected"
        if self.connected_since is None:
            return f"connected: {self.connected}, started before tpu_magic looked"
        return f"connected: {self.connected}, since {_clock(self.connected_since)}"


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _of(used: int | None, limit: int | None) -> str:
    if limit is None:
        return render.size(used)
    return f"{render.size(used)} of {render.size(limit)}"


def gather(
    probe: Probe | None = None,
    holding: Callable[[], Holding] = owners,
    running: Callable[[], list[Adapter]] = frameworks.running,
    monitor: Callable[[HostFacts, Mapping[str, str]], list[DeviceRow]] | None = None,
) -> InfoReport:
    """Look at devices, versions and holders; connect to nothing and import no framework.

    Parameters
    ----------
    probe
        What detection looks at.
    holding
        Says who holds the chip.
    running
        Returns the adapters whose runtime is up.
    monitor
        Reads memory and load of the chips (default: libtpu's monitoring, in a child).
    """
    probe = probe or Probe()
    facts = detect(probe)
    # Plain torch counts as running once it is loaded, but holds a device on a GPU only.
    live = (each for each in running() if facts.gpu or each.name != "torch-eager")
    adapter = next(live, None)
    measured = (monitor or _monitored)(facts, probe.environ) if facts.tpu else []
    held = holding()
    return InfoReport(
        host=facts.environment,
        accelerator=facts.accelerator,
        chips=facts.chips,
        hosts=facts.hosts,
        connected=adapter.name if adapter else None,
        connected_since=adapter.devices().since if adapter else None,
        devices=tuple(_of_runtime(adapter, measured) if adapter else measured or _of_chips(facts)),
        versions=versions.installed(),
        holders=tuple(_holders(held, facts)),
        stale=tuple(versions.stale_modules()),
        limits=tuple(limits(probe.root).sentences(tpu=facts.tpu)),
        costs=tuple(_costs(facts, probe)),
        warnings=facts.warnings,
    )


def _of_runtime(adapter: Adapter, measured: list[DeviceRow]) -> list[DeviceRow]:
    """Return the runtime's devices, with the load where it was measured for each of them."""
    info, memory = adapter.devices(), adapter.memory()
    loads = [row.load_percent for row in measured] if len(measured) == info.count else []
    return [
        DeviceRow(
            info.kind,
            memory[index].used_bytes if index < len(memory) else None,
            memory[index].limit_bytes if index < len(memory) else None,
            loads[index] if loads else None,
        )
        for index in range(info.count)
    ]


def _of_chips(facts: HostFacts) -> list[DeviceRow]:
    """Return the devices that a runtime would make of the chips, with the table's memory."""
    limit = facts.generation.hbm_bytes_per_device if facts.generation else None
    return [DeviceRow(facts.accelerator or "TPU", None, limit, None)] * facts.devices


def _monitored(facts: HostFacts, environ: Mapping[str, str]) -> list[DeviceRow]:
    """Ask libtpu's monitoring; an empty list where it has no answer."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _MONITOR],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=_MONITOR_TIMEOUT_S,
            env=child_environ(facts, environ),
        )
        answer = json.loads(done.stdout)
        return [
            DeviceRow(facts.accelerator or "TPU", int(used), int(total), float(busy))
            for used, total, busy in zip(*answer.values(), strict=True)
        ]
    except (OSError, subprocess.SubprocessError, ValueError):
        return []


def _holders(held: Holding, facts: HostFacts) -> list[str]:
    lines = held.sentences()
    for index, owner in enumerate(held.owners):
        if owner.started is not None:
            lines[index] += f" (running since {_clock(owner.started)})"
    if lock := held.lock_sentence():
        lines.append(lock)
    if facts.tpu and held.unreadable and not held.owners:
        lines.append(f"{held.unreadable} processes of other accounts could not be looked into")
    return lines


def _costs(facts: HostFacts, probe: Probe) -> list[str]:
    """Say what costs money when one is done, and the command that ends it."""
    if facts.environment == "tpu-host":
        return [f"if this is a Cloud TPU VM, it costs money until it is deleted: {_deletion({})}"]
    if facts.environment != "cloud-tpu-vm":
        return []
    what = "this TPU VM" if facts.hosts == 1 else f"this TPU slice of {facts.hosts} hosts"
    described = metadata.tpu_env(probe.attribute("tpu-env") or "")
    return [f"{what} costs money until it is deleted, also when idle: {_deletion(described)}"]


def _deletion(described: Mapping[str, str]) -> str:
    name, zone = described.get("NODE_ID"), described.get("ZONE")
    command = f"gcloud compute tpus tpu-vm delete {name or 'NAME'} --zone {zone or 'ZONE'}"
    lookup = f"gcloud compute tpus tpu-vm list --zone {zone or 'ZONE'}"
    return command if name and zone else f"{command} (what they are: {lookup})"
