"""What a plan is made from, and what it is: plain objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tpu_magic.host.detect import HostFacts


@dataclass(frozen=True)
class Situation:
    """Everything that a plan is made from.

    Attributes
    ----------
    facts
        What detection found.
    framework
        What the setup is for: `torch`, `keras`, `tf` or `jax`.
    versions
        Installed packages that matter, by distribution name.
    python
        Major and minor version.
    linux_x86_64
        Whether the platform is the only one that the TPU packages have wheels for.
    environ
        Environment variables.
    loaded
        Modules that this process has imported.
    demands
        What each installed package wants of libtpu.
    version
        Release of the framework that is asked for (`2.8`, `2.9.0`); None for what fits best.
    device
        `tpu`, `gpu`, `cpu`, or `auto` for the best that is here.
    """

    facts: HostFacts
    framework: str
    versions: Mapping[str, str]
    python: tuple[int, int]
    linux_x86_64: bool = True
    environ: Mapping[str, str] = field(default_factory=dict)
    loaded: tuple[str, ...] = ()
    demands: Mapping[str, str] = field(default_factory=dict)
    version: str | None = None
    device: str = "auto"

    def has(self, *packages: str) -> bool:
        """Whether any of the packages is installed."""
        return any(package in self.versions for package in packages)

    @property
    def target(self) -> str:
        """The device that is meant: `auto` is the best that is here."""
        best = "tpu" if self.facts.tpu else "gpu" if self.facts.gpu else "cpu"
        return best if self.device == "auto" else self.device


@dataclass(frozen=True)
class Plan:
    """What to do, and why.

    Attributes
    ----------
    framework
        The framework that the plan is for, resolved from `auto`.
    adapter
        Name of the adapter that runs it, for `tpu_magic.frameworks.adapter`.
    installs, uninstalls
        Requirements with exact pins, and names.
    constraints
        Exact pins of what is installed and must not move.
    indexes, links
        Further package indexes and pages with wheels.
    environ
        Variables that the framework needs before it is imported (`KERAS_BACKEND`).
    reasons
        Why, in words.
    refusal
        Why nothing can be planned; empty otherwise.
    ways
        What the person can do, when refused or when there is a choice.
    """

    framework: str
    adapter: str
    installs: tuple[str, ...] = ()
    uninstalls: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    refusal: str = ""
    ways: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.installs or self.uninstalls or self.refusal)

    @property
    def changed(self) -> tuple[str, ...]:
        """Names of the packages that the plan changes."""
        return (*self.uninstalls, *(name_of(text) for text in self.installs))


def name_of(requirement: str) -> str:
    """Return the name in a requirement of ours."""
    return requirement.partition("==")[0].partition(">=")[0]
