from __future__ import annotations

import dataclasses
import time

import pytest

from tpu_magic.host.detect import Probe
from tpu_magic.host.owners import Holding, Owner
from tpu_magic.setup import info, versions
from tpu_magic.setup.info import DeviceRow, InfoReport, gather

KERNEL = Owner(77, "python -m ipykernel_launcher", "ann", 0.0, True, False, ("/dev/vfio/0",))


@pytest.fixture
def machine(tmp_path, monkeypatch):
    monkeypatch.setattr(versions, "installed", lambda: {"torch": "2.9.0"})
    monkeypatch.setattr(versions, "stale_modules", list)

    def make(chips=0, environ=None, metadata=None):
        for index in range(chips):
            folder = tmp_path / f"sys/bus/pci/devices/0000:00:{index:02x}.0"
            folder.mkdir(parents=True)
            (folder / "vendor").write_text("0x1ae0")
            (folder / "device").write_text("0x0063")
            (folder / "iommu_group").symlink_to(f"/groups/{index}")
            node = tmp_path / f"dev/vfio/{index}"
            node.parent.mkdir(parents=True, exist_ok=True)
            node.touch()
        return Probe(tmp_path, environ or {}, (metadata or {}).get, ())

    return make


def look(probe, held=None, adapters=None, measured=()):
    return gather(
        probe,
        holding=lambda: held or Holding(),
        running=lambda: adapters or [],
        monitor=lambda facts, environ: list(measured),
    )


def test_a_plain_machine_says_that_there_is_nothing(machine):
    report = look(machine(), Holding(unreadable=3))
    assert (report.accelerator, report.devices, report.connected) == (None, (), None)
    text = str(report)
    assert text.startswith("no TPU here (a plain machine)")
    assert "not connected" in text
    assert "no chip to hold" in text
    assert "no memory and no load to measure" in text
    assert "other accounts" not in text


def test_chips_have_the_memory_of_the_table_when_nothing_is_connected(machine):
    report = look(machine(chips=2, environ={"TPU_SKIP_MDS_QUERY": "1"}))
    assert report.devices == (DeviceRow("TPU v5e", None, 16 * 2**30, None),) * 2
    assert "nobody holds" in str(report)
    assert "not measured of 16.0 GiB" in str(report)


def test_monitoring_is_shown_when_it_answers(machine):
    rows = [DeviceRow("TPU v5e", 2**30, 16 * 2**30, 87.5)]
    text = str(look(machine(chips=1, environ={"TPU_SKIP_MDS_QUERY": "1"}), measured=rows))
    assert "1.00 GiB of 16.0 GiB" in text
    assert "88 %" in text


def test_a_connected_runtime_is_asked_and_never_connected(machine, fake_adapter):
    live = fake_adapter(count=2)
    report = look(machine(), adapters=[live])
    assert report.connected == "torch"
    assert report.devices == (
        DeviceRow("XLA CPU", 2**20, 2**30, None),
        DeviceRow("XLA CPU", None, None, None),
    )
    assert live.calls == []
    assert "connected: torch, started before tpu_magic looked" in str(report)
    assert "not measured" in str(report)


def test_load_is_joined_to_the_devices_of_the_runtime(machine, fake_adapter):
    live = fake_adapter("TPU v5e", 1, on_tpu=True)
    probe = machine(chips=1, environ={"TPU_SKIP_MDS_QUERY": "1"})
    rows = [DeviceRow("TPU v5e", 0, 1, 50.0)]
    assert look(probe, adapters=[live], measured=rows).devices[0].load_percent == 50.0
    assert look(probe, adapters=[live], measured=rows * 2).devices[0].load_percent is None


def test_holders_are_named_with_their_start(machine):
    probe = machine(chips=1, environ={"TPU_SKIP_MDS_QUERY": "1"})
    unknown = dataclasses.replace(KERNEL, started=None)
    first, second = look(probe, Holding((KERNEL, unknown), 2)).holders
    assert "pid 77" in first
    assert "running since 19" in first  # 1969 or 1970, by the time zone
    assert "since" not in second
    left = Holding((), lock_file="/t/libtpu_lockfile", lock_stale=True)
    assert "left over" in look(probe, left).holders[0]
    assert "2 processes" in look(probe, Holding((), 2)).holders[0]


def test_a_tpu_vm_tells_what_costs_money_and_how_to_end_it(machine):
    answers = {
        "agent-worker-number": "0",
        "worker-network-endpoints": "10.0.0.2",
        "tpu-env": "NODE_ID: 'mine'\nZONE: 'us-central1-a'\n",
    }
    report = look(machine(chips=4, metadata=answers))
    assert report.host == "cloud-tpu-vm"
    assert "gcloud compute tpus tpu-vm delete mine --zone us-central1-a" in report.costs[0]
    del answers["tpu-env"]
    for path in (machine().root / "sys").glob("bus/pci/devices/*"):
        assert path.exists()
    assert "NAME --zone ZONE" in look(Probe(machine().root, {}, answers.get, ())).costs[0]
    answers.update({"worker-network-endpoints": "10.0.0.2,10.0.0.3", "tpu-env": "ZONE: 'eu-a'"})
    (line,) = look(Probe(machine().root, {}, answers.get, ())).costs
    assert line.startswith("this TPU slice of 2 hosts costs money")
    assert "delete NAME --zone eu-a (what they are: gcloud compute tpus tpu-vm list" in line


def test_a_tpu_of_unknown_home_may_cost_money_and_a_notebook_product_bills_itself(machine):
    silent = {"TPU_SKIP_MDS_QUERY": "1"}
    (line,) = look(machine(chips=1, environ=silent)).costs
    assert line.startswith("if this is a Cloud TPU VM, it costs money")
    colab = Probe(machine().root, {**silent, "COLAB_RELEASE_TAG": "r"}, {}.get, ())
    assert look(colab).costs == ()


def test_the_kernel_says_since_when_it_holds_the_devices(machine, fake_adapter, monkeypatch):
    monkeypatch.setattr(time, "localtime", time.gmtime)
    live = fake_adapter(count=1)
    live.info = dataclasses.replace(live.info, since=86400.0 * 365)  # a year after 1970 began
    report = look(machine(), adapters=[live])
    assert "connected: torch, since 1971-01-01 00:00" in str(report)


def test_stale_packages_are_shown(machine, monkeypatch):
    monkeypatch.setattr(versions, "stale_modules", lambda: ["torch"])
    assert "restart the kernel: torch" in str(look(machine()))


def test_json_comes_back(machine):
    report = look(machine(chips=1, environ={"TPU_SKIP_MDS_QUERY": "1"}), Holding((KERNEL,)))
    assert InfoReport.from_json(report.to_json()) == report
    assert report.to_dict()["kind"] == "info-report"


FAKE_LIBTPU = """
class Metric:
    def __init__(self, name):
        self.name = name
    def data(self):
        return {answers}[self.name]
class tpumonitoring:
    get_metric = Metric
"""


@pytest.mark.parametrize(
    ("answers", "rows"),
    [
        (
            {
                "hbm_capacity_usage": ["1024", "2048"],
                "hbm_capacity_total": ["4096", "4096"],
                "duty_cycle_pct": ["12.5", "0.00"],
            },
            [DeviceRow("TPU v5e", 1024, 4096, 12.5), DeviceRow("TPU v5e", 2048, 4096, 0.0)],
        ),
        ({"hbm_capacity_usage": [], "hbm_capacity_total": [], "duty_cycle_pct": []}, []),
        ({"hbm_capacity_usage": ["1"], "hbm_capacity_total": [], "duty_cycle_pct": []}, []),
        ({}, []),
    ],
)
def test_monitoring_runs_in_a_child(tmp_path, places, answers, rows):
    package = tmp_path / "libtpu"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "sdk.py").write_text(FAKE_LIBTPU.replace("{answers}", repr(answers)))
    assert info._monitored(places["v5e"], {"PYTHONPATH": str(tmp_path)}) == rows


def test_monitoring_without_libtpu_is_an_empty_list(places):
    assert info._monitored(places["v5e"], {"PYTHONPATH": "/nowhere"}) == []


def test_plain_torch_holds_a_device_on_a_gpu_only(machine, fake_adapter):
    eager = fake_adapter("CUDA GPU", 1)
    eager.name = "torch-eager"
    assert look(machine(), adapters=[eager]).connected is None
    node = machine().root / "dev" / "nvidia0"
    node.parent.mkdir()
    node.touch()
    report = look(machine(), adapters=[eager])
    assert (report.connected, report.devices[0].kind) == ("torch-eager", "CUDA GPU")


def test_by_default_the_runtimes_of_this_process_are_asked(machine, monkeypatch):
    monkeypatch.setattr(info.frameworks, "REGISTRY", {})
    assert gather(machine(), holding=Holding).connected is None
