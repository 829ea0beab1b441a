"""Where am I: which product, which chip, how many, read from files and variables only.

Nothing is opened that a TPU runtime would open, no framework is imported, and the metadata
server is asked only where a chip makes a Google host likely, once, with a timeout.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tpu_magic.host import chips as table
from tpu_magic.host import metadata
from tpu_magic.host.chips import Generation

# Lists of a slice's hosts. One name, or Kaggle's `local`, is one host.
_HOST_LISTS = ("TPU_WORKER_HOSTNAMES", "TPU_PROCESS_ADDRESSES")
# Every environment that detection knows, as a person says it after "on".
PLACES = {
    "colab": "Colab",
    "kaggle": "Kaggle",
    "gke": "a Kubernetes (GKE) pod",
    "cloud-tpu-vm": "a Cloud TPU VM",
    "tpu-host": "a machine with a TPU",
    "legacy-tpu-node": "the client of an old TPU node",
    "gpu": "a GPU machine",
    "plain": "a plain machine",
}


@dataclass(frozen=True)
class Probe:
    """What detection may look at; a test hands in a recorded machine.

    Attributes
    ----------
    root
        Folder that holds `sys`, `dev` and `proc`.
    environ
        Environment variables.
    metadata
        Returns an instance attribute of the metadata server, or None; never raises.
    modules
        Names of loaded modules (Colab's kernels load `google.colab`).
    """

    root: Path = Path("/")
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    metadata: Callable[[str], str | None] | None = None
    modules: Collection[str] = field(default_factory=lambda: sys.modules)

    def attribute(self, key: str) -> str | None:
        """Return an instance attribute, or None where there is no metadata server."""
        if self.metadata is not None:
            return self.metadata(key)
        return metadata.attribute(key, self.environ)


@dataclass(frozen=True)
class HostFacts:
    """What detection found.

    Attributes
    ----------
    environment
        A key of `PLACES`; `tpu-host` is a chip and nothing else known.
    accelerator
        `TPU v5e`, `TPU` (a chip without a public name), `NVIDIA GPU`, or None.
    generation
        The row of the chip table, or None.
    chips, devices
        TPU chips of this host that this process may use, and the devices that a runtime
        makes of them.
    hosts
        Hosts that must run the same program.
    gpu
        Whether an NVIDIA device node exists; marker variables are not believed.
    reasons
        What was looked at and found, in words.
    warnings
        What is likely to go wrong, one sentence each.
    """

    environment: str
    accelerator: str | None
    generation: Generation | None
    chips: int
    devices: int
    hosts: int
    gpu: bool
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def tpu(self) -> bool:
        """Whether a TPU chip is here."""
        return self.chips > 0


@dataclass(frozen=True)
class _Bus:
    """The chips that a machine shows: on the bus, and as nodes that can be opened."""

    generation: Generation | None = None
    chips: int = 0
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def detect(probe: Probe | None = None) -> HostFacts:
    """Return what this machine is and has. Never raises.

    Decision table and its evidence: the first line that matches wins, in this order: legacy
    TPU node, Colab, Kaggle, GKE, Cloud TPU VM, a TPU elsewhere, a GPU machine, a plain one.
    """
    probe = probe or Probe()
    env = probe.environ
    bus = _chips(probe)
    gpu = _has_gpu(probe)
    reasons = [*bus.reasons, _gpu_sentence(gpu)]
    warnings = list(bus.warnings)

    environment, why = _environment(probe, bus, gpu=gpu)
    reasons.append(why)
    hosts, how = _hosts(probe, environment, bus)
    reasons += how
    if environment == "legacy-tpu-node":
        warnings.append(
            "this is the old TPU node, a TPU on another machine: current torch, jax and "
            "tensorflow cannot reach it; choose a runtime with the TPU attached "
            "(Colab: Runtime > Change runtime type > v5e-1), then run %tpu_setup again"
        )
    if (promise := _promised(env, environment)) and not bus.chips:
        warnings.append(
            f"{promise}, but no TPU chip is visible here: everything would run on the CPU; "
            "restart the session on a TPU runtime"
        )
    if hosts > 1:
        warnings.append(
            f"this is 1 of {hosts} hosts of a slice: every host must run the same program and "
            "have the same packages"
        )

    visible, limited = _visible(env, bus.chips)
    if limited:
        reasons.append(limited)
    generation = bus.generation
    label = generation.label if generation else "TPU"
    per_chip = generation.devices_per_chip if generation else 1
    accelerator = label if bus.chips else "NVIDIA GPU" if gpu else None
    return HostFacts(
        environment=environment,
        accelerator=accelerator,
        generation=generation,
        chips=visible,
        devices=visible * per_chip,
        hosts=hosts,
        gpu=gpu,
        reasons=tuple(reasons),
        warnings=tuple(warnings),
    )


def _environment(probe: Probe, bus: _Bus, *, gpu: bool) -> tuple[str, str]:
    """Return the product and the evidence for it: the first that has any."""
    return next((name, why) for name, why in _evidence(probe, bus, gpu=gpu) if why)


def _evidence(probe: Probe, bus: _Bus, *, gpu: bool) -> Iterator[tuple[str, str]]:
    """Yield products in the order of the decision table, each with its evidence or an empty text.

    Lazy: the metadata server is not asked when an earlier line matches.
    """
    env = probe.environ
    legacy = None if bus.chips else _legacy(env)
    yield "legacy-tpu-node", f"{legacy} is set and no chip is attached" if legacy else ""
    if "google.colab" in probe.modules:
        yield "colab", "the google.colab module is loaded"
    yield "colab", _set(env, "COLAB_RELEASE_TAG")
    yield "kaggle", _set(env, "KAGGLE_KERNEL_RUN_TYPE", "KAGGLE_URL_BASE")
    if bus.chips:
        in_slice = _set(env, *_HOST_LISTS, "TPU_PROCESS_ADDRESSES_PATH")
        pod = env.get("KUBERNETES_SERVICE_HOST")
        yield "gke", f"a Kubernetes pod where {in_slice}" if pod and in_slice else ""
        if _may_ask(env) and probe.attribute("agent-worker-number") is not None:
            yield "cloud-tpu-vm", "the metadata server answers as on a Cloud TPU VM"
        yield "tpu-host", "a TPU chip, and no sign of a known product"
    yield "gpu", "a GPU and no TPU" if gpu else ""
    yield "plain", "no sign of a TPU product in the environment variables"


def _set(env: Mapping[str, str], *names: str) -> str:
    """Say which of the variables has a value. Presence is not enough: CPU images set some empty."""
    return next((f"{name} is set" for name in names if env.get(name)), "")


def _legacy(env: Mapping[str, str]) -> str | None:
    """Name the variable that points to a TPU on another machine.

    `XRT_TPU_CONFIG=localservice;…` is left over on images of today and is no such thing.
    """
    starts = {
        "COLAB_TPU_ADDR": "",
        "XRT_TPU_CONFIG": "tpu_worker;",
        "TPU_NAME": "grpc://",
        "TPU_IP_ADDRESS": "",
    }
    return next((n for n, start in starts.items() if env.get(n) and env[n].startswith(start)), None)


def _promised(env: Mapping[str, str], environment: str) -> str | None:
    """Say which variable promises a TPU."""
    if environment == "colab" and env.get("COLAB_TPU_1VM") == "1":
        return "Colab says that this is a TPU runtime (COLAB_TPU_1VM=1)"
    if environment == "kaggle" and env.get("ISTPUVM"):
        return "Kaggle says that this is a TPU session (ISTPUVM)"
    if env.get("PJRT_DEVICE", "").upper() == "TPU":
        return "PJRT_DEVICE=TPU is set"
    return None


def _chips(probe: Probe) -> _Bus:
    """Count distinct chips on the bus, those with a device node where nodes can be seen.

    Libraries count functions of the bus; a chip may have two. A container may see the bus of
    the whole machine and the nodes of some chips only. Bounds variables are never used: on a
    single-chip Colab they say four.
    """
    functions = _bus_functions(probe.root)
    nodes = _nodes(probe.root)
    if not functions:
        return _chips_without_bus(probe, nodes)
    generations = {generation for _, generation, _ in functions}
    generation = next(iter(generations)) if len(generations) == 1 else None
    on_bus = len({chip for chip, _, _ in functions})
    with_node = len({chip for chip, _, group in functions if group in nodes["vfio"]})
    # Where groups cannot be told, by the number of nodes, of whichever family there are.
    usable = with_node or min(on_bus, len(nodes["accel"]) or len(nodes["vfio"]))
    found = f"{on_bus} {generation.label if generation else 'TPU'} chip(s) on the PCI bus"
    if usable == on_bus:
        return _Bus(generation, on_bus, (f"{found}, each with its device node",))
    if usable:
        warning = f"{found}, but device nodes of {usable} only: the others cannot be opened here"
        return _Bus(generation, usable, (found,), (warning,))
    warning = f"{found}, but no /dev/accel* or /dev/vfio/N is visible: opening them may fail"
    return _Bus(generation, on_bus, (found,), (warning,))


def _chips_without_bus(probe: Probe, nodes: Mapping[str, Collection[str]]) -> _Bus:
    """Count chips by their nodes alone, as in a container without /sys.

    A vfio group can be any device, so it counts only beside an accelerator type.
    """
    kind = table.by_accelerator_type(probe.environ.get("TPU_ACCELERATOR_TYPE", ""))
    groups = nodes["vfio"] if kind else ()
    count = len(nodes["accel"]) or len(groups)
    if not count:
        return _Bus(reasons=("no TPU chip on the PCI bus, no /dev/accel*, no /dev/vfio/N of one",))
    generation = kind[0] if kind else None
    if generation and groups:
        count = max(1, count // generation.devices_per_chip)
    where = "/dev/accel*" if nodes["accel"] else "/dev/vfio/*"
    return _Bus(generation, count, (f"{count} chip(s) by {where}; the PCI bus shows none",))


def _bus_functions(root: Path) -> list[tuple[str, Generation | None, str]]:
    """List a bus address without function, a generation and an IOMMU group per TPU function."""
    found = []
    for path in _entries(root / "sys/bus/pci/devices"):
        if _number(path / "vendor") != table.VENDOR:
            continue
        device = _number(path / "device") or 0
        if device not in table.PCI_DEVICES:
            continue
        generation = table.by_pci(device, _number(path / "subsystem_device"))
        try:
            group = (path / "iommu_group").readlink().name
        except OSError:
            group = ""
        found.append((path.name.rpartition(".")[0], generation, group))
    return found


def _nodes(root: Path) -> dict[str, set[str]]:
    """Return the device nodes that chips have: numbers of /dev/accelN and /dev/vfio/N."""
    accel = {p.name for p in _entries(root / "dev") if re.fullmatch(r"accel\d+", p.name)}
    vfio = {p.name for p in _entries(root / "dev/vfio") if p.name.isdecimal()}
    return {"accel": accel, "vfio": vfio}


def _has_gpu(probe: Probe) -> bool:
    """Look for a device node: `NVIDIA_VISIBLE_DEVICES` is set on Colab's CPU images as well."""
    names = {path.name for path in _entries(probe.root / "dev")}
    return any(re.fullmatch(r"nvidia\d+|dxg", name) for name in names)


def _gpu_sentence(gpu: bool) -> str:
    return "an NVIDIA device node is there" if gpu else "no NVIDIA device node"


def _visible(env: Mapping[str, str], chips: int) -> tuple[int, str]:
    """Apply the variables that restrict a process to some of the chips."""
    for name in ("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES"):
        listed = [word for word in env.get(name, "").split(",") if word.strip()]
        if listed and len(listed) < chips:
            return len(listed), f"{name}={env[name]} leaves {len(listed)} of {chips} chips"
    return chips, ""


def _hosts(probe: Probe, environment: str, bus: _Bus) -> tuple[int, list[str]]:
    """Count the hosts of the slice, by the metadata server or the lists in the environment."""
    env = probe.environ
    if not bus.chips:
        return 1, []
    count, reasons = 1, []
    if environment == "cloud-tpu-vm":
        text = probe.attribute("worker-network-endpoints") or ""
        count, source = len(_endpoints(text)), "the metadata server"
    else:
        count, source = max(
            ((len(_endpoints(env.get(name, ""))), name) for name in _HOST_LISTS),
            key=lambda pair: pair[0],
        )
    count = max(1, count)
    if count > 1:
        reasons.append(f"{count} hosts by {source}")
    slices = env.get("MEGASCALE_NUM_SLICES", "")
    if slices.isdecimal() and int(slices) > 1:
        count *= int(slices)
        reasons.append(f"{slices} slices by MEGASCALE_NUM_SLICES")
    return count, reasons


def _endpoints(text: str) -> list[str]:
    """Split a list of hosts: plain names (new form) or `name:id:address` triples (old form)."""
    return [word for word in text.split(",") if word.strip()]


def _may_ask(env: Mapping[str, str]) -> bool:
    """Whether the metadata server may be asked."""
    return env.get("TPU_SKIP_MDS_QUERY", "").lower() not in {"1", "true"}


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text().strip(), 16)
    except (OSError, ValueError):
        return None
