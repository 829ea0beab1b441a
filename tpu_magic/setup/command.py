"""`%tpu_setup`: detect, plan, install on consent, verify, connect, report."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from IPython.core.error import StdinNotImplementedError, UsageError
from packaging.version import InvalidVersion, Version

from tpu_magic import frameworks
from tpu_magic.frameworks.base import Adapter
from tpu_magic.frameworks.choose import framework_of
from tpu_magic.host.detect import HostFacts, detect
from tpu_magic.host.owners import Holding, owners
from tpu_magic.setup import install, stamp, versions
from tpu_magic.setup.findings import demands_line, fatal_imports, findings
from tpu_magic.setup.options import SetupOptions
from tpu_magic.setup.plan import make_plan
from tpu_magic.setup.report import SetupReport
from tpu_magic.setup.situation import Plan, Situation
from tpu_magic.setup.verify import Verdict, verify, verify_here

# What speaks for a framework when nothing is loaded, the first that is installed.
_BY_PACKAGE = {
    "torch_xla": "torch",
    "torch_tpu": "torch",
    "torch": "torch",
    "keras": "keras",
    "jax": "jax",
    "tensorflow": "tf",
    "tensorflow-cpu": "tf",
    "tensorflow-tpu": "tf",
}


@dataclass(frozen=True)
class Tools:
    """What setup acts with; a test hands in its own.

    Attributes
    ----------
    detect
        Says where this is and what it has.
    environ
        The person's environment variables.
    boot
        Returns what changes with each boot.
    holding
        Says who holds the chip.
    adapter
        Returns the adapter of a name.
    run
        Runs an installer's command.
    verify, verify_here
        Use a framework in a child process, or in this one where it holds the devices.
    ask
        Asks the person, and returns the answer.
    say
        Shows one line of progress.
    folder
        Where stamps and logs go.
    """

    detect: Callable[[], HostFacts] = detect
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    boot: Callable[[], str] = stamp.boot_id
    holding: Callable[[], Holding] = owners
    adapter: Callable[[str], Adapter] = frameworks.adapter
    run: install.Runner = install.run_child
    verify: Callable[..., Verdict] = verify
    verify_here: Callable[[Adapter], Verdict] = verify_here
    ask: Callable[[str], str] = input
    say: Callable[[str], None] = print
    folder: Path = field(default_factory=stamp.cache_folder)


def run(
    options: SetupOptions, shell: Any, *, consent: bool = False, tools: Tools | None = None
) -> SetupReport:
    """Set up a framework on the best device that is here.

    Parameters
    ----------
    options
        The parsed options.
    shell
        The IPython shell.
    consent
        Whether the person's configuration allows installing without asking.
    tools
        What it acts with.

    Raises
    ------
    IPython.core.error.UsageError
        When what is asked for cannot be: no TPU and one is required, no release that fits,
        an install or a verification that failed, a chip that someone else holds.
    """
    tools = tools or Tools()
    _refuse_version(options)
    situation = _look(options, tools)
    _refuse_device(options, situation)
    plan = make_plan(situation)
    held = tools.holding()
    report = _report(situation, plan, held)
    if versions.stale_modules():
        return _restart(report)
    if options.check or options.dry_run:
        return _known(report, situation, plan, tools)
    if plan.refusal:
        raise UsageError("; or ".join((plan.refusal, *plan.ways)))
    alone = options.no_connect or plan.adapter in frameworks.NOT_YET
    adapter = None if alone else tools.adapter(plan.adapter)
    if options.reset:
        report = _reset(report, plan, adapter, shell)
    if not plan.fits:
        if not (consent or options.yes or _agrees(report, shell, tools)):
            return _because(report, "nothing was done: %tpu_setup --yes consents to the plan")
        loaded = versions.loaded(plan.changed)
        outcome = _install(plan, options, tools)
        situation = _look(options, tools)
        plan = make_plan(situation)
        report = replace(
            _report(situation, plan, held), installed=outcome.changed, log_file=outcome.log_file
        )
        if loaded:
            versions.note_replaced(loaded)
            return _restart(report)
    if adapter is not None and adapter.connected():
        report = _connect(report, adapter, options)
        return _verify(report, situation, plan, tools, partial(tools.verify_here, adapter))
    _refuse_conflict(situation, plan, held)
    report = _verify(
        report, situation, plan, tools, partial(_in_child, situation, plan, options, tools)
    )
    return report if adapter is None else _connect(report, adapter, options)


def _refuse_version(options: SetupOptions) -> None:
    if options.version is not None and "nightly" not in options.version:
        try:
            Version(options.version)
        except InvalidVersion:
            raise UsageError(
                f"--version {options.version!r} is no version; write it as 2.9 or 2.9.0"
            ) from None


def _look(options: SetupOptions, tools: Tools) -> Situation:
    """Gather the facts, importing no framework."""
    found = versions.installed()
    return Situation(
        facts=tools.detect(),
        framework=_framework(options.framework, found),
        versions=found,
        python=sys.version_info[:2],
        linux_x86_64=(sys.platform, platform.machine()) == ("linux", "x86_64"),
        environ=tools.environ,
        loaded=tuple(name for name in versions.MODULES if name in sys.modules),
        demands=versions.libtpu_demands(found),
        version=options.version,
        device=options.device,
    )


def _framework(asked: str, found: dict[str, str]) -> str:
    if asked != "auto":
        return asked
    installed = next((name for package, name in _BY_PACKAGE.items() if package in found), "torch")
    return framework_of("", {}) or installed


def _refuse_device(options: SetupOptions, situation: Situation) -> None:
    facts = situation.facts
    wants_tpu = options.require_tpu or (options.device == "tpu" and not options.dry_run)
    if wants_tpu and not facts.tpu:
        raise UsageError(f"no TPU here: {'; '.join((*facts.reasons, *facts.warnings))}")
    if options.device == "gpu" and not facts.gpu:
        raise UsageError("no GPU here: there is no NVIDIA device node (/dev/nvidia*)")


def _report(situation: Situation, plan: Plan, held: Holding) -> SetupReport:
    facts = situation.facts
    reasons = (_interpreter(situation), *facts.reasons, demands_line(situation), *plan.reasons)
    holders = (f"the chip is held by {owner.sentence()}" for owner in held.others)
    warnings = (*facts.warnings, *holders, held.lock_sentence(), *findings(situation))
    commands, ways = _commands(plan), plan.ways
    if commands and facts.hosts > 1:
        every = shlex.join(["--worker=all", "--command", " && ".join(commands)])
        ssh = f"gcloud compute tpus tpu-vm ssh NAME --zone ZONE {every}"
        ways = (*ways, f"on all {facts.hosts} hosts, which need the same packages: {ssh}")
    return SetupReport(
        host=facts.environment,
        accelerator=facts.accelerator,
        chips=facts.chips,
        devices=facts.devices,
        versions=dict(situation.versions),
        plan=commands,
        reasons=tuple(filter(None, reasons)),
        framework=situation.framework,
        refusal=plan.refusal,
        ways=ways,
        warnings=tuple(filter(None, warnings)),
    )


def _commands(plan: Plan) -> tuple[str, ...]:
    if plan.fits or plan.refusal:
        return ()
    return install.as_text(plan, install.find_installer() or install.pip(sys.executable))


def _interpreter(situation: Situation) -> str:
    major, minor = situation.python
    return f"Python {major}.{minor} on {sys.platform}, {platform.machine()}"


def _because(report: SetupReport, *reasons: str) -> SetupReport:
    return replace(report, reasons=(*report.reasons, *reasons))


def _restart(report: SetupReport) -> SetupReport:
    names = ", ".join(versions.stale_modules())
    why = f"{names}: the files were replaced while the old ones are loaded in this kernel"
    return replace(_because(report, why), restart_needed=True)


def _reset(report: SetupReport, plan: Plan, adapter: Adapter | None, shell: Any) -> SetupReport:
    """Say what a reset takes: no runtime of ours gives its devices back to a living process."""
    if adapter is None or not adapter.connected():
        return _because(report, "nothing is connected, so there is nothing to reset")
    lost = [
        name
        for name, value in shell.user_ns.items()
        if not name.startswith("_")
        and any(adapter.on_device(array) for array in adapter.arrays(value))
    ]
    raise UsageError(
        f"{plan.framework} cannot give its devices back in a running kernel: restart the kernel"
        + (f"; this loses what is on the device: {', '.join(lost)}" if lost else "")
    )


def _agrees(report: SetupReport, shell: Any, tools: Tools) -> bool:
    """Show the plan and ask, where the frontend can ask."""
    if not hasattr(shell, "kernel") and not _is_terminal():
        return False
    tools.say("\n".join(report.plan))
    try:
        answer = tools.ask("Install this? [y/N] ")
    except (EOFError, OSError, StdinNotImplementedError):
        return False
    return answer.strip().lower() in {"y", "yes"}


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _install(plan: Plan, options: SetupOptions, tools: Tools) -> install.Outcome:
    installer = install.find_installer()
    if installer is None:
        raise UsageError(
            "this environment has neither pip nor uv to install with: "
            f"{sys.executable} -m ensurepip"
        )
    log_file = tools.folder / "logs" / time.strftime("setup-%Y%m%d-%H%M%S.log")
    progress = None if options.quiet else tools.say
    outcome = install.install(plan, installer, log_file, tools.run, progress)
    if not outcome.ok:
        state = "as it was" if outcome.restored else "NOT as it was: see the log"
        raise UsageError(
            f"the install failed: {outcome.message}; the environment is {state} "
            f"(log: {outcome.log_file})"
        )
    return outcome


def _refuse_conflict(situation: Situation, plan: Plan, held: Holding) -> None:
    """Refuse what would end this process, or fall to the CPU in silence."""
    if plan.framework == "torch":
        for blocked in fatal_imports(situation, xla=plan.adapter == "torch"):
            raise UsageError(blocked)
    hosts, alone = situation.facts.hosts, situation.environ.get("TPU_PROCESS_BOUNDS") == "1,1,1"
    if hosts > 1 and not alone and situation.target == "tpu":
        raise UsageError(
            f"this is 1 of {hosts} hosts of a slice, and a TPU that is started on one of them "
            "waits for the others: run the same script on every host (gcloud compute tpus tpu-vm "
            "ssh NAME --zone ZONE --worker=all --command 'python script.py'), or set "
            "TPU_PROCESS_BOUNDS=1,1,1 and TPU_CHIPS_PER_PROCESS_BOUNDS to use this host alone"
        )
    limited = any(situation.environ.get(f"TPU_VISIBLE_{what}") for what in ("CHIPS", "DEVICES"))
    if situation.target == "tpu" and not limited and held.others:
        raise UsageError(f"the TPU is busy: {'; '.join(owner.sentence() for owner in held.others)}")


def _in_child(situation: Situation, plan: Plan, options: SetupOptions, tools: Tools) -> Verdict:
    if not options.quiet:
        tools.say("verifying in a child process (once for a package set) …")
    environ = {**plan.environ, **situation.environ}
    return tools.verify(plan.adapter, situation.facts, environ)


def _verify(
    report: SetupReport,
    situation: Situation,
    plan: Plan,
    tools: Tools,
    use: Callable[[], Verdict],
) -> SetupReport:
    """Use the package set once, unless that was done since the last boot."""
    report = _known(report, situation, plan, tools)
    if report.verified:
        return report
    verdict = use()
    if not verdict.ok:
        raise UsageError(f"{situation.framework} does not work here: {verdict.message}")
    if situation.target == "tpu" and verdict.device != "TPU":
        raise UsageError(
            f"a TPU is here, but {situation.framework} computed on {verdict.device}: "
            + "; ".join(report.warnings)
        )
    stamp.mark_verified(_fingerprint(situation, plan), tools.folder, tools.boot())
    return replace(report, verified=True)


def _known(report: SetupReport, situation: Situation, plan: Plan, tools: Tools) -> SetupReport:
    """Add what is known from before: whether this package set was verified since the boot."""
    key = _fingerprint(situation, plan)
    known = plan.fits and stamp.is_verified(key, tools.folder, tools.boot())
    return replace(report, verified=True) if known else report


def _fingerprint(situation: Situation, plan: Plan) -> str:
    facts = situation.facts
    return versions.fingerprint(
        situation.versions, adapter=plan.adapter, place=facts.environment, chips=facts.chips
    )


def _connect(report: SetupReport, adapter: Adapter, options: SetupOptions) -> SetupReport:
    info = adapter.connect(simulate=options.simulate, require_tpu=options.require_tpu)
    warnings = (*report.warnings, info.note) if info.note else report.warnings
    return replace(
        report, connected=True, device=info.label(), devices=info.count, warnings=warnings
    )
