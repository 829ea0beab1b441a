from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from IPython.core.error import UsageError

from tests.support.indexes import breaking_index
from tpu_magic.setup import install
from tpu_magic.setup.situation import Plan

PIP = install.pip("/py")
UV = install.uv("/bin/uv", "/py")


def plan(**parts):
    return Plan("torch", "torch", **parts)


def test_pip_is_told_everything_in_one_call():
    made = install.commands(
        plan(
            installs=("torch==2.9.0+cpu", "torch_xla==2.9.0"),
            uninstalls=("torch_tpu",),
            constraints=("numpy==2.1.3",),
            indexes=("https://i",),
            links=("https://l",),
        ),
        PIP,
        "/c.txt",
    )
    pip = ["/py", "-m", "pip"]
    assert made == [
        [*pip, "uninstall", "--yes", "torch_tpu"],
        [
            *pip,
            "install",
            "--extra-index-url",
            "https://i",
            "--find-links",
            "https://l",
            "--constraint",
            "/c.txt",
            "torch==2.9.0+cpu",
            "torch_xla==2.9.0",
        ],
    ]


def test_uv_is_pointed_at_this_environment_and_looks_on_every_index():
    (command,) = install.commands(plan(installs=("a==1",), indexes=("https://i",)), UV, "/c.txt")
    assert command[:5] == ["/bin/uv", "pip", "install", "--python", "/py"]
    assert command[-3:] == ["--index-strategy", "unsafe-best-match", "a==1"]
    assert "--constraint" not in command
    assert UV.uninstall(["a"]) == ["/bin/uv", "pip", "uninstall", "--python", "/py", "a"]


@pytest.mark.parametrize("wrong", ["--index-url=http://evil", "./here", "a; rm -rf /", ""])
def test_only_requirements_reach_the_command_line(wrong):
    with pytest.raises(ValueError):
        install.commands(plan(installs=(wrong,)), PIP, None)


def test_a_plan_as_text_can_be_pasted_into_a_shell(tmp_path):
    first, second = install.as_text(
        plan(installs=("keras>=3.10",), constraints=("numpy==2.1.3", "torch==2.9.0+cpu")), PIP
    )
    subprocess.run(["/bin/sh", "-c", first], cwd=tmp_path, check=True)
    assert (tmp_path / "constraints.txt").read_text() == "numpy==2.1.3\ntorch==2.9.0+cpu\n"
    assert second.endswith("--constraint constraints.txt 'keras>=3.10'")
    assert install.as_text(plan(uninstalls=("x",)), PIP)[0].endswith("uninstall --yes x")
    assert install.as_text(plan(), PIP) == ()


def test_the_installer_is_the_environments_own(monkeypatch):
    monkeypatch.setattr(install.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(install.shutil, "which", lambda name: "/bin/uv")
    assert install.find_installer() == install.uv("/bin/uv", sys.executable)
    monkeypatch.setattr(install.shutil, "which", lambda name: None)
    assert install.find_installer() is None
    monkeypatch.setattr(install.importlib.util, "find_spec", lambda name: object())
    assert install.find_installer() == install.pip(sys.executable)


@pytest.fixture
def packages(fake_packages):
    return fake_packages({"torch": "2.9.0", "numpy": "2.1.3"})


def execute(packages, made, tmp_path, **more):
    return install.install(made, PIP, tmp_path / "logs" / "setup.log", packages.run, **more)


def test_what_came_is_told_and_the_output_is_kept(packages, tmp_path):
    seen = []
    real = packages.run

    def talking(command, line):
        line("WARNING: a page of no interest")
        return real(command, line)

    packages.run = talking
    made = plan(installs=("torch_xla==2.9.0",), constraints=("torch==2.9.0", "numpy==2.1.3"))
    outcome = execute(packages, made, tmp_path, progress=seen.append)
    assert outcome.ok
    assert outcome.changed == ("torch_xla==2.9.0",)
    assert outcome.restored is None
    log = Path(outcome.log_file).read_text()
    assert "no interest" in log
    assert "Successfully installed" in log
    assert seen == ["Successfully installed"]
    (command,) = packages.commands
    constraints = Path(command[command.index("--constraint") + 1])
    assert constraints.read_text() == "torch==2.9.0\nnumpy==2.1.3\n"


def test_a_failure_half_way_is_taken_back(packages, tmp_path):
    before = dict(packages.installed)
    packages.fail = "ERROR: [Errno 28] No space left on device"
    made = plan(installs=("torch_xla==2.9.0",), uninstalls=("numpy",))
    outcome = execute(packages, made, tmp_path)
    assert not outcome.ok
    assert outcome.restored is True
    assert packages.installed == before
    assert "disk is full" in outcome.message
    assert outcome.changed == ()


def test_what_came_before_the_failure_is_removed_again(packages, tmp_path):
    real = packages.run

    def breaking(command, line):
        if "torch_xla==2.9.0" in command:
            packages.installed.update({"torch_xla": "2.9.0", "numpy": "2.5.5"})
            line("Connection broken: IncompleteRead")
            return 2
        return real(command, line)

    packages.run = breaking
    outcome = execute(packages, plan(installs=("torch_xla==2.9.0",)), tmp_path)
    assert outcome.restored is True
    assert packages.installed == {"torch": "2.9.0", "numpy": "2.1.3"}
    assert "download broke off" in outcome.message


def test_a_way_back_that_fails_is_admitted(packages, tmp_path):
    real = packages.run

    def breaking(command, line):
        if "freeze" in command or "uninstall" in command:
            return real(command, line)
        line("something unheard of")
        return 1

    packages.run = breaking
    made = plan(installs=("torch_xla==2.9.0",), uninstalls=("numpy",))
    outcome = execute(packages, made, tmp_path)
    assert outcome.restored is False
    assert "something unheard of" in outcome.message


def test_a_failure_without_a_word(packages, tmp_path):
    real = packages.run
    packages.run = lambda command, line: real(command, line) if "freeze" in command else 1
    outcome = execute(packages, plan(installs=("a==1",)), tmp_path)
    assert (outcome.message, outcome.restored) == ("it said nothing", True)


def test_an_interrupt_is_taken_back_and_passed_on(packages, tmp_path):
    real = packages.run

    def interrupted(command, line):
        if "torch_xla==2.9.0" in command:
            packages.installed["torch_xla"] = "2.9.0"
            raise KeyboardInterrupt
        return real(command, line)

    packages.run = interrupted
    with pytest.raises(KeyboardInterrupt):
        execute(packages, plan(installs=("torch_xla==2.9.0",)), tmp_path)
    assert "torch_xla" not in packages.installed


def test_without_a_snapshot_nothing_is_changed(packages, tmp_path):
    def mute(command, line):
        assert "freeze" in command
        line("No module named pip")
        return 1

    packages.run = mute
    with pytest.raises(UsageError, match=r"nothing was changed.*No module named pip"):
        execute(packages, plan(installs=("a==1",)), tmp_path)


def test_a_child_is_read_line_by_line_and_its_status_returned():
    lines = []
    program = "import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)"
    assert install.run_child([sys.executable, "-c", program], lines.append) == 3
    assert sorted(lines) == ["one", "two"]


def test_an_interrupt_ends_the_installer():
    def stop(line):
        raise KeyboardInterrupt

    program = "import time; print('started', flush=True); time.sleep(600)"
    with pytest.raises(KeyboardInterrupt):
        install.run_child([sys.executable, "-c", program], stop)


# The rest runs real pip and uv in a throw-away environment, with wheels made here.


def wheel(folder: Path, name: str, version: str, requires: str = "") -> Path:
    """Make a wheel that holds one module."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    if requires:
        metadata += f"Requires-Dist: {requires}\n"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}.py", f"__version__ = '{version}'\n")
        file.writestr(f"{info}/METADATA", metadata)
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True, timeout=120)
    wheels = folder / "wheels"
    wheels.mkdir()
    for version in ("1.0", "2.0"):
        wheel(wheels, "tm_first", version)
    wheel(wheels, "tm_second", "1.0")
    broken = wheel(wheels, "tm_broken", "1.0", requires="tm_first==2.0")
    broken.write_bytes(broken.read_bytes()[:-40])
    return folder / "venv" / "bin" / "python", wheels


@pytest.fixture(params=["pip", "uv"])
def real(request, environment, monkeypatch):
    python, wheels = environment
    if request.param == "uv" and not shutil.which("uv"):
        pytest.skip("uv is not installed")
    for tool in ("PIP", "UV"):  # only the wheels made here
        monkeypatch.setenv(f"{tool}_NO_INDEX", "1")
        monkeypatch.setenv(f"{tool}_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    made = (
        install.pip(str(python))
        if request.param == "pip"
        else install.uv(shutil.which("uv"), str(python))
    )
    lines = []
    for name in ("tm_first", "tm_second"):
        install.run_child(made.uninstall([name]), lines.append)
    assert install.run_child(made.install(["tm_first==1.0"]), lines.append) == 0, lines
    return made


@pytest.fixture
def online(real, monkeypatch):
    """Let the installers ask an index, with few retries."""
    for name in ("PIP_NO_INDEX", "UV_NO_INDEX", "PIP_EXTRA_INDEX_URL", "UV_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (("PIP_RETRIES", "1"), ("UV_HTTP_RETRIES", "0"), ("UV_NO_CACHE", "1")):
        monkeypatch.setenv(name, value)

    def use(address):
        for name in ("PIP_INDEX_URL", "UV_DEFAULT_INDEX"):
            monkeypatch.setenv(name, address)
        return real

    return use


def test_a_download_that_breaks_off_is_told_and_nothing_has_changed(online, tmp_path):
    with breaking_index("tm_third-1.0-py3-none-any.whl") as address:
        made = online(address)
        before = frozen(made)
        outcome = install.install(plan(installs=("tm_third==1.0",)), made, tmp_path / "log.txt")
    assert not outcome.ok
    assert "broke off" in outcome.message, Path(outcome.log_file).read_text()
    assert outcome.restored is True
    assert frozen(made) == before


def test_an_index_that_cannot_be_reached_is_told_as_such(online, tmp_path):
    made = online("http://127.0.0.1:1/simple")
    outcome = install.install(plan(installs=("tm_third==1.0",)), made, tmp_path / "log.txt")
    assert (outcome.ok, outcome.restored) == (False, True)
    assert "cannot be reached" in outcome.message, Path(outcome.log_file).read_text()


def frozen(made):
    lines = []
    assert install.run_child(made.freeze(), lines.append) == 0
    return {line for line in lines if line.startswith("tm")}


def test_a_real_install_moves_only_what_it_may(real, tmp_path):
    made = plan(installs=("tm_second==1.0",), constraints=("tm_first==1.0",))
    outcome = install.install(made, real, tmp_path / "log.txt")
    assert outcome.ok, outcome
    assert {line.replace("-", "_") for line in outcome.changed} == {"tm_second==1.0"}
    assert {line.replace("-", "_") for line in frozen(real)} == {"tm_first==1.0", "tm_second==1.0"}
    again = install.install(made, real, tmp_path / "log.txt")
    assert (again.ok, again.changed) == (True, ())


def test_a_real_download_that_is_broken_leaves_the_environment_as_it_was(real, tmp_path):
    before = frozen(real)
    made = plan(installs=("tm_broken==1.0",), uninstalls=("tm_first",))
    outcome = install.install(made, real, tmp_path / "log.txt")
    assert not outcome.ok
    assert outcome.restored is True
    assert "broke off" in outcome.message
    assert frozen(real) == before


def test_constraints_that_contradict_are_explained(real, tmp_path):
    made = plan(installs=("tm_first==2.0",), constraints=("tm_first==1.0",))
    outcome = install.install(made, real, tmp_path / "log.txt")
    assert (outcome.ok, outcome.restored) == (False, True)
    assert "pins contradict" in outcome.message


def test_a_release_that_is_nowhere_is_explained(real, tmp_path):
    outcome = install.install(plan(installs=("tm_first==9.9",)), real, tmp_path / "log.txt")
    assert not outcome.ok
    assert "no wheel" in outcome.message or "pins contradict" in outcome.message
