"""Facts of machines that are not here, and doubles of what setup acts with."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np

from tpu_magic.frameworks.base import DeviceInfo, Memory
from tpu_magic.host import chips
from tpu_magic.host.detect import HostFacts
from tpu_magic.host.owners import Holding
from tpu_magic.setup import command, install, versions
from tpu_magic.setup.command import Tools, run
from tpu_magic.setup.options import SetupOptions
from tpu_magic.setup.situation import Situation
from tpu_magic.setup.verify import Verdict

PLAIN = HostFacts("plain", None, None, 0, 0, 1, False, ("no TPU chip on the PCI bus",), ())
V5E = dataclasses.replace(
    PLAIN,
    environment="colab",
    accelerator="TPU v5e",
    generation=chips.by_name("v5e"),
    chips=1,
    devices=1,
    reasons=("1 TPU v5e chip(s) on the PCI bus",),
)
GPU = dataclasses.replace(PLAIN, environment="gpu", accelerator="NVIDIA GPU", gpu=True)


def situation(installed=None, facts=PLAIN, python=(3, 12), framework="torch", **more):
    return Situation(facts, framework, dict(installed or {}), python, **more)


class FakeAdapter:
    """An adapter that counts what is asked of it."""

    name = "torch"

    def __init__(self, kind="XLA CPU", count=4, on_tpu=False, note=""):
        self.info = DeviceInfo(kind, count, count, on_tpu, not on_tpu, note)
        self.calls = []
        self.held = False
        self.squares = 0
        self.off_by = 0.0
        self.error = None

    def connect(self, *, simulate=None, require_tpu=False):
        self.calls.append((simulate, require_tpu))
        self.held = True
        return self.info

    def connected(self):
        return self.held

    def devices(self):
        return self.info

    def memory(self):
        return [Memory(2**20, None, 2**30)]

    def square(self, rows):
        self.squares += 1
        if self.error is not None:
            raise self.error
        product = np.array(rows) @ np.array(rows)
        product[-1, -1] += self.off_by
        return product.tolist()

    def arrays(self, value):
        return [value] if isinstance(value, bytearray) else []

    def on_device(self, array):
        return array.startswith(b"device")


class FakePackages:
    """What is installed, for `importlib.metadata` and for an installer's commands."""

    def __init__(self, monkeypatch, installed, requires=None):
        self.installed = dict(installed)
        self.commands = []
        self.fail = ""
        requires = requires or {}
        missing = versions.importlib.metadata.PackageNotFoundError

        def version(name):
            if name not in self.installed:
                raise missing(name)
            return self.installed[name]

        def requirements(name):
            if name not in self.installed:
                raise missing(name)
            return requires.get(name)

        monkeypatch.setattr(versions.importlib.metadata, "version", version)
        monkeypatch.setattr(versions.importlib.metadata, "requires", requirements)

    def run(self, command, line):
        if "freeze" in command:
            for name, version in self.installed.items():
                line(f"{name}=={version}")
            return 0
        self.commands.append(list(command))
        if "uninstall" in command:
            for name in [name for name in self.installed if name in command]:
                del self.installed[name]
            return 0
        if self.fail and "--no-deps" not in command:
            line(self.fail)
            return 1
        for word in command[command.index("install") + 1 :]:
            name, exact, version = word.partition("==")
            if exact and "=" not in name:
                self.installed[name] = version
        line("Successfully installed")
        return 0


class World:
    """A setup with doubles for everything that it acts with."""

    def __init__(self, monkeypatch, folder):
        self.monkeypatch = monkeypatch
        self.facts = PLAIN
        self.environ = {}
        self.adapter = FakeAdapter()
        self.holding = Holding()
        self.verdict = Verdict(True, "CPU", 1, "")
        self.verified = []
        self.asked = []
        self.answer = None
        self.said = []
        self.boot = "boot-1"
        self.folder = folder
        self.packages = None
        self.user_ns = {}
        self.install(torch="2.9.0", torch_xla="2.9.0")

    def install(self, requires=None, **installed):
        self.packages = FakePackages(
            self.monkeypatch, {k.replace("__", "-"): v for k, v in installed.items()}, requires
        )

    def run(self, consent=False, **options):
        return run(SetupOptions(**options), self, consent=consent, tools=self.tools())

    def tools(self):
        def ask(question):
            self.asked.append(question)
            if self.answer is None:
                raise EOFError
            return self.answer

        def check(*words):
            self.verified.append(words)
            return self.verdict

        return Tools(
            detect=lambda: self.facts,
            environ=self.environ,
            boot=lambda: self.boot,
            holding=lambda: self.holding,
            adapter=lambda name: self.adapter,
            run=self.packages.run,
            verify=check,
            ask=ask,
            say=self.said.append,
            folder=self.folder,
        )

    def magic(self, shell, line):
        """Run `%tpu_setup` in a shell with these doubles, and return its report."""
        tools = self.tools()
        self.monkeypatch.setattr(command, "Tools", lambda: tools)
        shell.run(f"%tpu_setup {line} --quiet -o setup_report")
        return shell.user_ns["setup_report"]


def make_world(monkeypatch, folder):
    """Return a plain machine with a fitting torch; no framework counts as loaded."""
    monkeypatch.setattr(versions, "_replaced", set())
    for name in versions.MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(command, "_is_terminal", lambda: True)
    monkeypatch.setattr(install, "find_installer", lambda: install.pip(sys.executable))
    return World(monkeypatch, folder)
