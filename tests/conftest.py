"""Fixtures: a fresh shell, one connected to virtual devices, and real kernels."""

from __future__ import annotations

import os
import signal
import sys

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from tests.support import fake_framework
from tests.support.kernels import Kernel
from tpu_magic import frameworks

# A runner that starts in the background hands down an ignored SIGINT, also to kernels; the
# tests of interrupts need what a person's process has.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Virtual devices of the tests that share this process's runtime: more than one, so that
# everything is tested sharded; few, since every program is compiled for each.
DEVICES = 2
# A second environment to run real kernels in: IPython 7.34 with ipykernel 6.17 on the newest
# Python, as Colab has them. tools/environment.py makes it and sets this.
OTHER_PYTHON = os.environ.get("TPU_MAGIC_COLAB_PYTHON")


class RaisingShell(InteractiveShell):
    """A shell whose cells raise what went wrong in them."""

    def run(self, source: str, **options: object) -> object:
        """Run a cell as a frontend does, raise its error, and return its value."""
        options.setdefault("store_history", True)
        result = self.run_cell(source, **options)
        result.raise_error()
        return result.result

    def showtraceback(self, exc_tuple: object = None, **_: object) -> None:
        """Stay quiet: `run` raises the error of a cell. One in a callback is a fault of ours."""
        if sys._getframe(1).f_code.co_name == "trigger":
            self.callback_errors.append(sys.exc_info()[1])


def _make_shell(tmp_path):
    RaisingShell.clear_instance()
    config = Config()
    config.HistoryManager.enabled = False
    shell = RaisingShell.instance(config=config, ipython_dir=str(tmp_path / "ipython"))
    shell.run_line_magic("load_ext", "tpu_magic")
    return shell


@pytest.fixture
def shell(tmp_path):
    """Return a fresh shell with the extension loaded; nothing is connected by it."""
    shell = _make_shell(tmp_path)
    shell.callback_errors = []
    yield shell
    for error in shell.callback_errors:
        raise error
    shell.run_line_magic("unload_ext", "tpu_magic")
    shell.reset(new_session=False)
    shell.history_manager.end_session()
    RaisingShell.clear_instance()


@pytest.fixture
def torch_shell(shell):
    """Return a fresh shell in a process that is connected to torch on `DEVICES` devices."""
    pytest.importorskip("torch_xla")
    from tpu_magic.frameworks import adapter

    adapter("torch").connect(simulate=DEVICES)
    return shell


@pytest.fixture
def fake(monkeypatch):
    """Return a framework made of nothing, in the place of torch."""
    package, adapter = fake_framework.package(), fake_framework.Fake()
    monkeypatch.setitem(sys.modules, "torch", package)
    monkeypatch.setitem(sys.modules, "_fake_adapter", fake_framework.module_of(adapter))
    monkeypatch.setitem(frameworks.REGISTRY, "torch", ("_fake_adapter", "make"))
    frameworks.adapter.cache_clear()
    yield adapter
    frameworks.adapter.cache_clear()


@pytest.fixture
def fake_shell(fake, shell):
    """Return a fresh shell whose torch is the fake; `shell.fake` is its adapter."""
    shell.fake = fake
    shell.user_ns["torch"] = sys.modules["torch"]
    return shell


def _pythons():
    yield pytest.param(sys.executable, id="this-python")
    if OTHER_PYTHON:
        yield pytest.param(OTHER_PYTHON, id="colab-python")


@pytest.fixture(params=_pythons())
def kernel(request):
    """Return a real kernel with the extension loaded, for each environment there is."""
    with Kernel(request.param) as kernel:
        kernel.run("%load_ext tpu_magic").check()
        yield kernel


@pytest.fixture(params=_pythons(), scope="module")
def _one_kernel(request):
    with Kernel(request.param) as kernel:
        kernel.run("%load_ext tpu_magic").check()
        yield kernel


@pytest.fixture
def fake_kernel(_one_kernel):
    """Return a real kernel whose torch is a fake named `fake`, one for a module's tests."""
    _one_kernel.run(
        "%tpu_run off\n%reset -f\n"
        "from tests.support import fake_framework\nfake = fake_framework.install()\nimport torch"
    ).check()
    return _one_kernel
