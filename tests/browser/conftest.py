"""JupyterLab and Notebook 7 in Debian's Chromium, with real kernels.

Needs JupyterLab, Notebook, playwright and Chromium, and the extension built
(`jlpm build:prod` in `labextension/`). What is missing skips these tests with its name;
with `TPU_MAGIC_BROWSER=required` it fails them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "tpu_magic" / "labextension"
TOKEN = "browser-tests"
TIMEOUT_MS = 60_000
FAKE = (
    "%load_ext tpu_magic\n"
    "from tests.support import fake_framework\nfake = fake_framework.install()\nimport torch\n"
    "fake.compiling = lambda: False"
)
# Lab's readiness: a Run that is pressed before this is dropped.
_READY = """() => {
    const session = window.jupyterapp?.shell.currentWidget?.sessionContext;
    const kernel = session?.session?.kernel;
    return !!(session?.isReady && kernel?.connectionStatus === 'connected'
        && kernel.status === 'idle');
}"""
_HAS_RUN = """index => {
    const model = window.jupyterapp.shell.currentWidget.content.widgets[index].model;
    return model.executionCount !== null && model.executionState !== 'running';
}"""
_CHROMIUM = (
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def _missing():
    for module in ("jupyterlab", "notebook", "playwright"):
        if find_spec(module) is None:
            return f"no {module} in this environment"
    if shutil.which("chromium") is None:
        return "no chromium on this machine"
    if not (BUILT / "static" / "style.js").exists():
        return "the JupyterLab extension is not built"
    return None


@pytest.fixture(scope="session")
def browser():
    """Return Chromium."""
    if (missing := _missing()) is not None:
        if os.environ.get("TPU_MAGIC_BROWSER") == "required":
            pytest.fail(missing)
        pytest.skip(missing)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=list(_CHROMIUM)
        )
        yield chromium
        chromium.close()


class Server:
    """A Jupyter server of its own folders."""

    def __init__(self, application: str, folder: Path, theme: str | None = None) -> None:
        self.application, self.folder = application, folder
        self.notebooks = folder / "notebooks"
        self.notebooks.mkdir(parents=True)
        extensions = folder / "jupyter" / "labextensions"
        extensions.mkdir(parents=True)
        (extensions / "tpu-magic-lab").symlink_to(BUILT)
        self._settings("apputils-extension", "notification", {"fetchNews": "false"})
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def _settings(self, plugin: str, name: str, values: dict) -> None:
        target = self.folder / "settings" / "@jupyterlab" / plugin
        target.mkdir(parents=True, exist_ok=True)
        (target / f"{name}.jupyterlab-settings").write_text(json.dumps(values))

    def start(self) -> None:
        """Start it, and return when it answers."""
        names = ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR")
        folders = {f"JUPYTER_{name}": str(self.folder / name.lower()) for name in names}
        environment = {
            **os.environ,
            **folders,
            "JUPYTER_PATH": str(self.folder / "jupyter"),
            "IPYTHONDIR": str(self.folder / "ipython"),
            "JUPYTERLAB_SETTINGS_DIR": str(self.folder / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(self.folder / "workspaces"),
            "PYTHONPATH": str(ROOT),
            "PYTHONWARNINGS": "ignore",
            "CPU_NUM_DEVICES": "4",
        }
        self.log = (self.folder / "server.log").open("w")
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                self.application,
                "--no-browser",
                "--allow-root",
                "--ip=127.0.0.1",
                f"--ServerApp.port={self.port}",
                "--ServerApp.port_retries=0",
                f"--IdentityProvider.token={TOKEN}",
                f"--ServerApp.root_dir={self.notebooks}",
                "--expose-app-in-browser",
            ],
            env=environment,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(self.url("api/status"), timeout=5).close()
                return
            if self.process.poll() is not None:
                break
        raise AssertionError((self.folder / "server.log").read_text())

    def stop(self) -> None:
        """Stop it with its kernels."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.log.close()

    def url(self, path: str) -> str:
        """Return an address on it."""
        return f"http://127.0.0.1:{self.port}/{path}?token={TOKEN}"


@pytest.fixture(scope="session")
def lab_server(browser, tmp_path_factory):
    """Return a running JupyterLab."""
    server = Server("jupyterlab", tmp_path_factory.mktemp("lab"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def notebook_server(browser, tmp_path_factory):
    """Return a running Notebook 7."""
    server = Server("notebook", tmp_path_factory.mktemp("notebook"))
    server.start()
    yield server
    server.stop()


class FrontEnd:
    """A page with a notebook."""

    def __init__(self, server: Server, page) -> None:
        self.server, self.page = server, page
        page.set_default_timeout(TIMEOUT_MS)
        self.told: list[str] = []
        page.on("console", lambda message: self.told.append(f"{message.type}: {message.text}"))

    def open(self, name: str, *cells: str, notebook=None, ready: bool = True) -> None:
        """Write a notebook, and open it."""
        made = notebook or nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(cell) for cell in cells],
            metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
        )
        nbformat.write(made, self.server.notebooks / name)
        if self.server.application == "jupyterlab":
            self.page.goto(self.server.url(f"lab/tree/{name}") + "&reset")
        else:
            self.page.goto(self.server.url(f"notebooks/{name}"))
        if ready:
            self.ready()

    def ready(self) -> None:
        """Wait until the kernel of the notebook in front takes cells."""
        self.page.wait_for_function(_READY)

    def run(self, index: int, wait: bool = True) -> None:
        """Run a cell of the notebook in front."""
        self.select(index)
        self.page.evaluate("() => { void window.jupyterapp.commands.execute('notebook:run-cell') }")
        if wait:
            self.page.wait_for_function(_HAS_RUN, arg=index)
            self.ready()

    def select(self, index: int) -> None:
        """Make a cell the active one."""
        self.page.evaluate(
            "i => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = i }", index
        )

    def command(self, name: str) -> None:
        """Run a command, and wait until it is done."""
        self.page.evaluate("name => window.jupyterapp.commands.execute(name)", name)

    def source(self, index: int) -> str:
        """Return the text of a cell."""
        return self.page.evaluate(
            "i => window.jupyterapp.shell.currentWidget.content.widgets[i]"
            ".model.sharedModel.getSource()",
            index,
        )

    @property
    def status(self):
        """Return the status line."""
        if self.server.application == "jupyterlab":
            return self.page.locator(
                ".jp-StatusBar-Widget .tpu-Status button, #jp-main-statusbar .tpu-Status button"
            ).first
        return self.page.locator(".jp-Toolbar .tpu-Status button")

    def says(self, pattern, timeout_ms: int = TIMEOUT_MS) -> str:
        """Wait until the status line matches; return it."""
        from playwright.sync_api import expect

        expect(self.status).to_have_text(pattern, timeout=timeout_ms)
        return self.status.inner_text()


def _front_end(server, browser, request, tmp_path):
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    made = FrontEnd(server, page)
    yield made
    if getattr(request.node, "failed", False):
        page.screenshot(path=tmp_path / "failed.png")
        print("screenshot:", tmp_path / "failed.png")
        print("\n".join(made.told[-30:]))
    with contextlib.suppress(Exception):
        page.evaluate("() => window.jupyterapp.serviceManager.sessions.shutdownAll()")
    page.close()


@pytest.fixture
def lab(lab_server, browser, request, tmp_path):
    """Return a page of JupyterLab."""
    yield from _front_end(lab_server, browser, request, tmp_path)


@pytest.fixture
def notebook7(notebook_server, browser, request, tmp_path):
    """Return a page of Notebook 7."""
    yield from _front_end(notebook_server, browser, request, tmp_path)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Note a failure, so that the page's picture is kept."""
    outcome = yield
    if outcome.get_result().failed:
        item.failed = True


@pytest.fixture
def gate(tmp_path):
    """Return what a cell waits at until the test opens it: `gate.code`, `gate.open()`."""

    class Gate:
        path = tmp_path / "gate"
        code = f"open({str(path)!r}).read()"

        def open(self):
            self.path.write_text("")

    os.mkfifo(Gate.path)
    return Gate()
