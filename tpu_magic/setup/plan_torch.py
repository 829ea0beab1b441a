"""The plan for torch: which torch_xla fits the installed torch, and what to do when none does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from packaging.version import Version

from tpu_magic.setup import versions as table
from tpu_magic.setup.situation import Plan, Situation, name_of
from tpu_magic.setup.versions import TorchRelease, minor, public

_PLACEHOLDER = Version("1.0")  # an empty package, which pip takes where no wheel fits
_LIBTPUS = ("libtpu", "libtpu-nightly")
_TWO_LIBTPUS = (
    "libtpu and libtpu-nightly are both installed, into the same folder: "
    "both have to go before one comes back"
)

_xla_plan = partial(Plan, "torch", "torch")
_eager_plan = partial(Plan, "torch", "torch-eager")
_successor_plan = partial(Plan, "torch", "torch-tpu")


def torch_plan(situation: Situation) -> Plan:
    """Return the plan for torch on a device: the first line whose condition holds."""
    torch, xla = situation.versions.get("torch", ""), _torch_xla(situation)
    matching = bool(torch and xla) and minor(xla or "0") == minor(torch)
    successor = situation.has("torch_tpu")
    plain_cpu = situation.device == "cpu" and (situation.facts.tpu or not matching)
    choices: tuple[tuple[object, Callable[[], Plan]], ...] = (
        (situation.target == "gpu", lambda: _on_gpu(situation, torch)),
        (situation.version, lambda: _asked_for(situation, situation.version or "")),
        (xla and successor, lambda: _both(situation, xla or "")),
        (torch and plain_cpu, lambda: _eager_plan(reasons=(f"torch {torch} runs as it is",))),
        (successor, lambda: _torch_tpu(situation)),
        (matching, lambda: _matching(situation)),
        (torch and xla, lambda: _mismatch(situation, torch, xla or "")),
        (torch, lambda: _beside_torch(situation, torch)),
        (True, lambda: _without_torch(situation, xla)),
    )
    return next(make for condition, make in choices if condition)()


def _on_gpu(situation: Situation, torch: str) -> Plan:
    """Plan for torch itself: its default build is the one for GPUs."""
    wanted = situation.version
    if torch and (wanted is None or public(torch).startswith(wanted)):
        return _eager_plan(reasons=(f"torch {torch} runs on the GPU as it is",))
    why = f"torch {wanted} is asked for" if wanted else "torch is not installed"
    return _eager_plan(installs=(f"torch=={wanted}" if wanted else "torch",), reasons=(why,))


def _without_torch(situation: Situation, xla: str | None) -> Plan:
    row = table.release_for(torch_xla=xla) if xla else _newest(situation)
    return _release(situation, row, ("torch is not installed",), keep_torch=False)


def _torch_xla(situation: Situation) -> str | None:
    """Return the version of a real torch_xla."""
    found = situation.versions.get("torch_xla")
    return None if found is None or Version(found) <= _PLACEHOLDER else found


def _newest(situation: Situation) -> TorchRelease | None:
    """Return the newest release with wheels for this Python."""
    return next((row for row in table.TORCH_XLA if _has_wheel(situation, row)), None)


def _has_wheel(situation: Situation, row: TorchRelease) -> bool:
    first, last = row.pythons
    return first <= situation.python[1] <= last


def _libtpu(situation: Situation, row: TorchRelease) -> str:
    """Return the libtpu to install: the first of the row's with a wheel for this Python."""
    return next(
        pin
        for pin in row.libtpu
        if situation.python[1] not in table.LIBTPU_WITHOUT_WHEEL.get(pin, ())
    )


def _matching(situation: Situation) -> Plan:
    """Plan for a torch and a torch_xla of the same release: at most libtpu is missing.

    A libtpu other than the pinned one is left alone: product images mix pins on purpose,
    and verification says whether it works.
    """
    torch, xla = situation.versions["torch"], situation.versions["torch_xla"]
    reason = f"torch {torch} and torch_xla {xla} are of the same release"
    row = table.release_for(torch_xla=xla)
    if situation.target != "tpu" or row is None:
        return _xla_plan(reasons=(reason,))
    uninstalls, installs, why = _libtpu_changes(situation, row, lenient=True)
    links = row.links if installs else ()
    return _xla_plan(uninstalls=uninstalls, installs=installs, links=links, reasons=(reason, *why))


def _libtpu_changes(
    situation: Situation, row: TorchRelease, *, lenient: bool
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return what goes, what comes, and why, so that there is one libtpu that fits the release."""
    here = {name: f"{name}=={situation.versions[name]}" for name in _LIBTPUS if situation.has(name)}
    wanted = _libtpu(situation, row)
    if not here:
        return (), (wanted,), ("libtpu is missing, without which the TPU cannot be opened",)
    if len(here) > 1:
        return _LIBTPUS, (wanted,), (_TWO_LIBTPUS,)
    ((name, pin),) = here.items()
    if pin in row.libtpu:
        return (), (), ()
    why = f"{pin} is not what torch_xla {row.torch_xla} was built for ({' or '.join(row.libtpu)})"
    if lenient:
        return (), (), (why,)
    return () if name == name_of(wanted) else (name,), (wanted,), (why,)


def _mismatch(situation: Situation, torch: str, xla: str) -> Plan:
    """Plan for a torch_xla of another release than torch: torch_xla follows torch."""
    why = (
        f"torch {public(torch)} and torch_xla {public(xla)} are different releases; "
        f"torch_xla {public(xla)} needs torch {minor(xla)}.x"
    )
    row = table.release_for(torch=torch)
    if row is None or not _has_wheel(situation, row):
        plan = _no_release(situation, torch)
        return replace(plan, refusal=f"{why}, and {plan.refusal}")
    plan = _release(situation, row, (why,), keep_torch=True)
    back = f"%tpu_setup --version {minor(xla)} moves torch instead, to {minor(xla)}"
    return replace(plan, ways=(back,))


def _beside_torch(situation: Situation, torch: str) -> Plan:
    """Plan for a torch without torch_xla: the release of the same number, torch stays."""
    row = table.release_for(torch=torch)
    if row is None:
        return _no_release(situation, torch)
    reason = f"torch {torch} is installed and stays; torch_xla {row.torch_xla} is its release"
    return _release(situation, row, (reason,), keep_torch=True)


def _no_release(situation: Situation, torch: str) -> Plan:
    """Refuse a torch that no torch_xla exists for, with the ways out."""
    newest = _newest(situation) or table.TORCH_XLA[0]
    down = (
        f"%tpu_setup --version {newest.minor} puts torch {newest.torch} (CPU build) and "
        f"torch_xla {newest.torch_xla} in its place"
    )
    ways = [down]
    first, last = map(Version, table.TORCH_TPU_TORCH)
    if first <= Version(public(torch)) <= last:
        ways.append(
            f"keep torch {public(torch)} and use its successor TorchTPU, on a TPU only and "
            "without %%tpu_run, which does not drive it yet: "
            f"pip install torch_tpu=={table.TORCH_TPU} libtpu=={table.TORCH_TPU_LIBTPU}"
        )
    return _xla_plan(
        refusal=f"there is no torch_xla for torch {public(torch)}: the last one for "
        f"Python 3.{situation.python[1]} is {newest.torch_xla}, for torch {newest.minor}.x",
        ways=tuple(ways),
    )


def _asked_for(situation: Situation, version: str) -> Plan:
    """Plan for a release that the person named, or refuse with those that there are."""
    rows = (row for row in table.TORCH_XLA if version in (row.minor, row.torch_xla, row.torch))
    row = next(rows, None)
    if row is None:
        known = ", ".join(row.minor for row in table.TORCH_XLA if _has_wheel(situation, row))
        return _xla_plan(
            refusal=f"torch_xla has no release {version}",
            ways=(f"releases with wheels for Python 3.{situation.python[1]}: {known or 'none'}",),
        )
    torch, xla = situation.versions.get("torch"), _torch_xla(situation)
    keep = bool(torch) and minor(torch or "0") == row.minor
    if keep and xla and minor(xla) == row.minor:
        return _both(situation, xla) if situation.has("torch_tpu") else _matching(situation)
    reason = f"release {row.minor} is asked for"
    return _release(situation, row, (reason,), keep_torch=keep)


def _release(
    situation: Situation,
    row: TorchRelease | None,
    reasons: tuple[str, ...],
    *,
    keep_torch: bool,
) -> Plan:
    """Plan the packages of one release."""
    if row is None or not _has_wheel(situation, row) or not situation.linux_x86_64:
        return _no_wheel(situation, row)
    installs: list[str] = []
    if not keep_torch:
        installs.append(f"torch=={row.torch}+cpu")
        companions = [name for name in ("torchvision", "torchaudio") if situation.has(name)]
        installs += [f"{name}=={getattr(row, name)}+cpu" for name in companions]
        reasons = (*reasons, "torch comes in its CPU build: the TPU and XLA's CPU need no CUDA")
    if situation.versions.get("torch_xla") != row.torch_xla:
        installs.append(f"torch_xla=={row.torch_xla}")
    uninstalls = ("torch_tpu",) if situation.has("torch_tpu") else ()
    if situation.target == "tpu":
        goes, comes, why = _libtpu_changes(situation, row, lenient=False)
        uninstalls, reasons = (*uninstalls, *goes), (*reasons, *why)
        installs += [*comes, *(() if situation.has("tpu-info") else ("tpu-info",))]
    if (found := situation.versions.get("torch_xla")) and Version(found) <= _PLACEHOLDER:
        reasons = (*reasons, f"torch_xla {found} is an empty placeholder package")
    return _xla_plan(
        installs=tuple(installs),
        uninstalls=uninstalls,
        indexes=() if keep_torch else (table.TORCH_CPU_INDEX,),
        links=row.links if situation.target == "tpu" else (),
        reasons=reasons,
    )


def _no_wheel(situation: Situation, row: TorchRelease | None) -> Plan:
    """Refuse a Python or a platform that the release has no wheels for."""
    row = row or table.TORCH_XLA[0]
    newest = _newest(situation)
    ways = []
    if not situation.linux_x86_64:
        refusal = "torch_xla has wheels for Linux on x86-64 only"
        ways.append("%tpu_setup --device cpu uses torch as it is")
    else:
        first, last = row.pythons
        refusal = (
            f"torch_xla {row.torch_xla} has wheels for Python 3.{first} to 3.{last}, "
            f"this is 3.{situation.python[1]}"
        )
        if newest is not None:
            ways.append(f"%tpu_setup --version {newest.minor} has wheels for this Python")
    return _xla_plan(refusal=refusal, ways=tuple(ways))


def _both(situation: Situation, xla: str) -> Plan:
    """Plan for torch_xla beside torch_tpu: the one that does not fit torch goes."""
    torch = situation.versions.get("torch", "")
    keep_xla = bool(torch) and minor(torch) == minor(xla)
    wrong = "torch_tpu" if keep_xla else "torch_xla"
    reason = (
        f"torch_xla {xla} and torch_tpu {situation.versions['torch_tpu']} exclude each other "
        f"(torch {minor(xla)} against torch {table.TORCH_TPU_TORCH[0]} and later); "
        f"with torch {torch or 'missing'}, {wrong} is the one that cannot work"
    )
    plan = _xla_plan if keep_xla else _successor_plan
    return plan(uninstalls=(wrong,), reasons=(reason,))


def _torch_tpu(situation: Situation) -> Plan:
    """Say what a torch_tpu that is installed can do here."""
    found, torch = situation.versions["torch_tpu"], situation.versions.get("torch", "")
    first, last = map(Version, table.TORCH_TPU_TORCH)
    reasons = [f"torch {torch or 'missing'} with torch_tpu {found}, the successor of torch_xla"]
    if not torch or not first <= Version(public(torch)) <= last:
        return _successor_plan(
            refusal=f"torch_tpu {found} needs torch {first} to {last}, found {torch or 'none'}",
            reasons=tuple(reasons),
            ways=(f"pip install torch_tpu=={table.TORCH_TPU} 'torch>={first},<={last}'",),
        )
    if not situation.has("libtpu"):
        return _successor_plan(
            installs=(f"libtpu=={table.TORCH_TPU_LIBTPU}",),
            reasons=(
                *reasons,
                "libtpu is missing: with it missing, `import torch` ends the process",
            ),
        )
    if not situation.facts.tpu:
        return _successor_plan(
            refusal="there is no TPU here, and torch_tpu ends the process at its first tensor "
            "without one: it is left alone",
            reasons=tuple(reasons),
            ways=("%tpu_setup on a TPU runtime", "%tpu_setup --device cpu uses torch as it is"),
        )
    return _successor_plan(reasons=tuple(reasons))
