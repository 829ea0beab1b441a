from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest
from IPython.core.error import StdinNotImplementedError, UsageError

from tpu_magic import frameworks
from tpu_magic.host.owners import Holding, Owner
from tpu_magic.options import split_words
from tpu_magic.setup import command, stamp, versions
from tpu_magic.setup.command import Tools
from tpu_magic.setup.options import PARSER, SetupOptions
from tpu_magic.setup.verify import Verdict

OTHER = Owner(77, "python -m ipykernel_launcher", "ann", None, True, False, ("/dev/accel0",))


def parse(line):
    return PARSER.parse_as(SetupOptions, split_words(line))


def test_every_option_is_read():
    line = (
        "--check --dry-run --yes --framework keras --version 2.8 --device tpu --simulate 8 "
        "--require-tpu --no-connect --reset --quiet -o setup"
    )
    assert parse(line) == SetupOptions(
        check=True,
        dry_run=True,
        yes=True,
        framework="keras",
        version="2.8",
        device="tpu",
        simulate=8,
        require_tpu=True,
        no_connect=True,
        reset=True,
        quiet=True,
        output="setup",
    )
    assert parse("") == SetupOptions()


def test_help_can_be_shown():
    assert "%%tpu_check" in PARSER.format_help()


@pytest.mark.parametrize("line", ["--simulate 0", "--device npu", "--framework tensorflow"])
def test_a_bad_value_is_one_line(line):
    with pytest.raises(UsageError, match=r"%tpu_setup: .*--help"):
        parse(line)


@pytest.mark.parametrize("version", ["2.8; rm -rf /", "--pre", "latest"])
def test_a_version_that_is_none_never_reaches_a_command(world, version):
    with pytest.raises(UsageError, match="is no version"):
        world.run(version=version, yes=True)
    assert world.packages.commands == []


def test_everything_fits_verifies_once_and_connects(world):
    first = world.run(framework="torch", simulate=4)
    assert (first.verified, first.connected, first.devices) == (True, True, 4)
    assert first.plan == first.installed == ()
    assert first.device == world.adapter.info.label()
    assert str(first).startswith("no TPU here: XLA CPU")
    assert world.adapter.calls == [(4, False)]
    assert world.verified[0][0] == "torch"
    world.adapter.held = False
    second = world.run(framework="torch")
    assert second.verified is True
    assert len(world.verified) == 1
    assert world.packages.commands == []


def test_a_connected_kernel_is_verified_in_itself_and_once(world):
    world.adapter.held = True
    report = world.run()
    assert (report.connected, report.verified) == (True, True)
    assert (world.verified, world.adapter.squares) == ([], 1)
    assert world.run().verified is True
    assert world.adapter.squares == 1


def test_a_connected_kernel_that_computes_wrong_is_an_error(world):
    world.adapter.held = True
    world.adapter.off_by = 1.0
    for _ in range(2):  # and nothing is remembered as verified
        with pytest.raises(UsageError, match=r"torch does not work here: .* came out wrong"):
            world.run()


def test_an_error_of_a_connected_runtime_is_a_finding(world):
    world.adapter.held = True
    world.adapter.error = RuntimeError("RESOURCE_EXHAUSTED: out of memory allocating 64 KiB")
    with pytest.raises(UsageError, match=r"failed in this kernel; .*more memory than the device"):
        world.run()
    world.adapter.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        world.run()


def test_a_connected_runtime_that_is_not_on_the_tpu_is_an_error(world, places):
    world.install(torch="2.9.0", torch_xla="2.9.0", libtpu="0.0.21")
    world.facts = places["v5e"]
    world.adapter.held = True
    with pytest.raises(UsageError, match="a TPU is here, but torch computed on XLA CPU"):
        world.run()


@pytest.mark.parametrize("change", ["boot", "version"])
def test_another_boot_or_package_set_is_verified_again(world, change):
    world.run(no_connect=True)
    if change == "boot":
        world.boot = "boot-2"
    else:
        world.install(torch="2.9.1", torch_xla="2.9.0")
    world.run(no_connect=True)
    assert len(world.verified) == 2


def test_a_look_changes_nothing_and_asks_for_no_adapter(world):
    world.install(torch="2.8.0")
    report = world.run(check=True, yes=True, reset=True)
    assert "torch_xla==2.8.1" in report.plan[-1]
    assert report.connected is False
    assert report.verified is None
    assert (world.adapter.calls, world.verified, world.packages.commands) == ([], [], [])
    assert not world.folder.exists()


def test_a_look_knows_what_was_verified(world):
    world.run(no_connect=True)
    assert world.run(check=True).verified is True


def test_a_dry_run_prints_commands(world):
    world.install(numpy="2.1.3")
    report = world.run(framework="torch", dry_run=True)
    assert report.plan[0] == r"printf '%s\n' numpy==2.1.3 > constraints.txt"
    assert report.plan[1].startswith(f"{sys.executable} -m pip install")
    assert any(reason.startswith("Python 3.") for reason in report.reasons)
    assert world.packages.commands == []


def test_without_consent_the_plan_is_shown_and_nothing_done(world):
    world.install(torch="2.9.0")
    report = world.run()
    assert len(world.asked) == 1
    assert "torch_xla==2.9.0" in world.said[0]
    assert "--yes" in report.reasons[-1]
    assert (report.connected, world.packages.commands) == (False, [])


@pytest.mark.parametrize("error", [EOFError, OSError, StdinNotImplementedError])
def test_a_frontend_that_cannot_ask_is_no_consent(world, error):
    world.install(torch="2.9.0")
    tools = world.tools()

    def ask(question):
        raise error

    report = command.run(SetupOptions(), world, tools=Tools(**{**vars(tools), "ask": ask}))
    assert report.installed == ()


def test_nobody_is_asked_where_nobody_sits(world, monkeypatch):
    monkeypatch.setattr(command, "_is_terminal", lambda: False)
    world.install(torch="2.9.0")
    world.answer = "y"
    assert world.run().installed == ()
    assert world.asked == []
    world.kernel = object()
    assert world.run().installed == ("torch_xla==2.9.0",)


@pytest.mark.parametrize("answer", ["n", "", "yess", "nay"])
def test_only_yes_is_yes(world, answer):
    world.install(torch="2.9.0")
    world.answer = answer
    assert world.run().installed == ()


@pytest.mark.parametrize("way", ["option", "trait", "prompt"])
def test_consent_installs_verifies_and_connects(world, way):
    world.install(torch="2.9.0", numpy="2.1.3")
    world.answer = "Y" if way == "prompt" else None
    report = world.run(consent=way == "trait", yes=way == "option")
    assert report.installed == ("torch_xla==2.9.0",)
    assert report.versions["torch_xla"] == "2.9.0"
    assert (report.plan, report.verified, report.connected) == ((), True, True)
    assert len(world.asked) == (way == "prompt")
    assert len(world.packages.commands) == 1
    assert "Successfully installed" in world.said
    second = world.run(yes=True)
    assert second.installed == ()
    assert len(world.packages.commands) == 1


def test_a_loaded_package_that_is_replaced_needs_a_restart(world, loaded):
    world.install(torch="2.13.0")
    loaded("torch", "2.13.0")
    report = world.run(version="2.9", yes=True)
    assert report.restart_needed
    assert str(report).startswith("restart the kernel now")
    assert (report.connected, report.verified, world.adapter.calls) == (False, None, [])
    assert versions.stale_modules() == ["torch"]
    again = world.run()
    assert (again.restart_needed, again.connected) == (True, False)
    assert any("torch: the files were replaced" in reason for reason in again.reasons)


def test_a_failed_install_says_why_and_what_state_it_left(world):
    world.install(torch="2.9.0")
    world.packages.fail = "Temporary failure in name resolution"
    with pytest.raises(UsageError, match=r"cannot be reached.*as it was.*log: .*\.log"):
        world.run(yes=True)
    assert world.packages.installed == {"torch": "2.9.0"}
    assert world.adapter.calls == []


def test_an_environment_without_an_installer(world, monkeypatch):
    monkeypatch.setattr(command.install, "find_installer", lambda: None)
    world.install(torch="2.9.0")
    assert "pip install" in world.run(check=True).plan[-1]
    with pytest.raises(UsageError, match="ensurepip"):
        world.run(yes=True)


def test_a_refusal_is_one_line_with_the_ways_out(world):
    world.install(torch="2.13.0")
    with pytest.raises(UsageError) as error:
        world.run(yes=True)
    assert "\n" not in str(error.value)
    assert "--version 2.9" in str(error.value)
    assert "torch_tpu==0.2.0" in str(error.value)
    look = world.run(check=True)
    assert look.refusal
    assert len(look.ways) == 2


def test_a_verification_that_fails_stops_before_connecting(world):
    world.verdict = Verdict(False, None, None, "it was ended by SIGABRT")
    for _ in range(2):
        with pytest.raises(UsageError, match="torch does not work here: it was ended by SIGABRT"):
            world.run()
    assert world.adapter.calls == []
    assert len(world.verified) == 2


def test_a_tpu_that_the_framework_does_not_use_is_an_error(world, places):
    world.install(torch="2.9.0", torch_xla="2.9.0", libtpu="0.0.21")
    world.facts = places["v5e"]
    with pytest.raises(UsageError, match="a TPU is here, but torch computed on CPU"):
        world.run()
    assert not stamp.is_verified("x", world.folder, "boot-1")
    world.verdict = Verdict(True, "TPU", 1, "")
    assert world.run().verified is True


def test_a_busy_chip_is_refused_with_its_holder(world, places):
    world.install(torch="2.9.0", torch_xla="2.9.0", libtpu="0.0.21")
    world.facts = places["v5e"]
    world.verdict = Verdict(True, "TPU", 1, "")
    world.holding = Holding((OTHER,))
    with pytest.raises(UsageError, match=r"busy: a notebook kernel of ann, pid 77"):
        world.run()
    assert world.verified == []
    world.environ = {"TPU_VISIBLE_CHIPS": "1"}  # the other may hold other chips
    assert world.run().connected


def test_tensorflow_before_torch_xla_is_refused(world, loaded):
    loaded("tensorflow")
    with pytest.raises(UsageError, match="ends the process"):
        world.run(framework="torch")
    assert (world.verified, world.adapter.calls) == ([], [])


def test_an_import_of_torch_that_would_end_the_kernel_is_refused(world):
    world.install(torch="2.13.0", torch_tpu="0.2.0")
    with pytest.raises(UsageError, match="libtpu is not installed"):
        world.run(device="cpu")
    assert (world.verified, world.adapter.calls) == ([], [])


@pytest.mark.parametrize("more", [{"require_tpu": True}, {"device": "tpu"}])
def test_a_tpu_that_is_required_and_not_there(world, more):
    with pytest.raises(UsageError, match="no TPU here: no TPU chip on the PCI bus"):
        world.run(**more)


def test_the_plan_for_a_tpu_can_be_seen_without_one(world):
    report = world.run(device="tpu", dry_run=True)
    assert "libtpu==0.0.21" in report.plan[-1]


def test_a_gpu_that_is_asked_for_and_not_there(world):
    with pytest.raises(UsageError, match="no GPU"):
        world.run(device="gpu")


def test_no_connect_leaves_the_devices_alone(world):
    report = world.run(no_connect=True)
    assert (report.verified, report.connected, world.adapter.calls) == (True, False, [])


def test_reset_says_what_a_restart_loses(world):
    world.adapter.held = True
    world.user_ns = {
        "net": bytearray(b"device"),
        "x": bytearray(b"host"),
        "_hidden": bytearray(b"device"),
        "n": 3,
    }
    with pytest.raises(UsageError, match=r"restart the kernel; .*on the device: net$"):
        world.run(reset=True)
    world.user_ns = {}
    with pytest.raises(UsageError, match=r"restart the kernel$"):
        world.run(reset=True)


def test_reset_without_a_connection_is_a_setup(world):
    report = world.run(reset=True)
    assert report.connected
    assert any("nothing to reset" in reason for reason in report.reasons)


@pytest.mark.parametrize(
    ("installed", "framework"),
    [
        ({}, "torch"),
        ({"keras": "3.15.1", "jax": "0.7.2"}, "keras"),
        ({"jax": "0.7.2"}, "jax"),
        ({"tensorflow__cpu": "2.20.0"}, "tf"),
        ({"torch": "2.9.0", "keras": "3.15.1"}, "torch"),
    ],
)
def test_auto_takes_what_is_installed(world, installed, framework):
    world.install(**installed)
    assert world.run(check=True).framework == framework


def test_auto_takes_what_is_loaded_first(world, loaded):
    world.install(torch="2.9.0", jax="0.7.2")
    loaded("jax", "0.7.2")
    assert world.run(check=True).framework == "jax"


def test_keras_is_verified_on_the_backend_of_the_plan(world):
    world.install(keras="3.15.1", jax="0.7.2")
    world.run(framework="keras", no_connect=True)
    adapter, _, environ = world.verified[0]
    assert (adapter, environ["KERAS_BACKEND"]) == ("keras", "jax")


def test_an_adapter_that_is_not_there_yet_is_said_before_anything_is_done(world, monkeypatch):
    monkeypatch.setattr(frameworks, "REGISTRY", {})
    world.install()
    tools = Tools(**{**vars(world.tools()), "adapter": frameworks.adapter.__wrapped__})
    with pytest.raises(UsageError, match="not there yet"):
        command.run(SetupOptions(framework="tf", yes=True), world, tools=tools)
    assert world.packages.commands == []


def test_torch_tpu_is_verified_and_left_to_plain_cells(world, places):
    world.install(torch="2.13.0", torch_tpu="0.2.0", libtpu="0.0.50.1")
    world.facts = places["v5e"]
    world.verdict = Verdict(True, "TPU", 1, "")
    report = world.run()
    assert [words[0] for words in world.verified] == ["torch-tpu"]
    assert (report.verified, report.connected, world.adapter.calls) == (True, False, [])
    (said,) = (note for note in report.warnings if "TorchTPU" in note)
    assert "--version 2.9" in said
    with pytest.raises(UsageError, match="does not drive TorchTPU"):
        frameworks.adapter("torch-tpu")


def test_notes_of_the_device_are_shown(world, fake_adapter):
    world.adapter = fake_adapter(note="1 of 8 devices: started in cell 3")
    assert str(world.run()).splitlines()[-1] == "  ! 1 of 8 devices: started in cell 3"


def test_one_host_of_a_slice_is_not_started_alone(world, places):
    world.install(torch="2.9.0", torch_xla="2.9.0", libtpu="0.0.21")
    world.facts = dataclasses.replace(places["v5e"], hosts=4)
    world.verdict = Verdict(True, "TPU", 1, "")
    with pytest.raises(UsageError, match="1 of 4 hosts"):
        world.run()
    assert (world.verified, world.adapter.calls) == ([], [])
    world.environ = {"TPU_PROCESS_BOUNDS": "1,1,1"}
    assert world.run().connected


def test_a_plan_on_a_slice_comes_with_the_command_for_every_host(world, places):
    world.install(torch="2.9.0")
    world.facts = dataclasses.replace(places["v5e"], hosts=4)
    (way,) = world.run(check=True).ways
    assert "--worker=all --command" in way
    assert "torch_xla==2.9.0" in way


def test_quiet_says_nothing(world):
    world.install(torch="2.9.0")
    world.run(yes=True, quiet=True)
    assert world.said == []


def test_the_good_path_is_quick_and_imports_no_framework(tmp_path):
    program = (
        "import sys, time\n"
        "import IPython\n"
        "start = time.perf_counter()\n"
        "from tpu_magic.setup.command import run\n"
        "from tpu_magic.setup.options import SetupOptions\n"
        "report = run(SetupOptions(check=True, framework='torch'), None)\n"
        "print(time.perf_counter() - start)\n"
        "assert not {'torch', 'torch_xla', 'jax', 'tensorflow', 'keras'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        env={"XDG_CACHE_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )
    assert float(done.stdout) < 3  # the promise is 0.3 s; a shared machine gets a margin
