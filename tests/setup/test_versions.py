from __future__ import annotations

import sys

import pytest

from tpu_magic.setup import versions


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    monkeypatch.setattr(versions, "_replaced", set())
    for name in versions.MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.parametrize(
    ("version", "expected"), [("2.9.0+cpu", "2.9"), ("2.10.1", "2.10"), ("3", "3.0")]
)
def test_minor(version, expected):
    assert versions.minor(version) == expected


def test_row_of_a_release():
    assert versions.release_for(torch="2.8.0+cpu").torch_xla == "2.8.1"
    assert versions.release_for(torch_xla="2.5.0").torchvision == "0.20.1"
    assert versions.release_for(torch="2.13.0") is None


def test_rows_are_in_order_and_their_torch_is_of_the_same_number():
    rows = versions.TORCH_XLA
    assert [row.minor for row in rows] == sorted(
        (row.minor for row in rows), key=lambda text: -int(text.split(".")[1])
    )
    for row in rows:
        assert versions.minor(row.torch) == row.minor
        # torchvision 0.N goes with torch 2.(N - 15): pytorch.org, previous versions
        assert int(row.torchvision.split(".")[1]) == int(row.minor.split(".")[1]) + 15
        assert versions.public(row.torchaudio) == row.torch


def test_installed_versions_come_from_metadata(fake_packages):
    fake_packages({"torch": "2.9.0+cpu", "numpy": None, "rich": "1"})
    assert versions.installed() == {"torch": "2.9.0+cpu"}


def test_demands_for_libtpu_are_read_from_the_packages(fake_packages):
    fake_packages(
        {"torch_xla": "2.9.0", "jax": "0.7.2", "tensorflow-tpu": "2.20.0", "torch_tpu": "0.2.0"},
        {
            "torch_xla": ['libtpu==0.0.21; extra == "tpu"', 'tpu-info; extra == "tpu"'],
            "jax": ["numpy>=2", "not a requirement at all !!", 'libtpu==0.0.23; extra == "tpu"'],
            "tensorflow-tpu": ["LibTPU~=0.0.14"],
        },
    )
    installed = versions.installed()
    assert versions.libtpu_demands(installed) == {
        "torch_xla": "==0.0.21",
        "jax": "==0.0.23",
        "tensorflow-tpu": "~=0.0.14",
    }
    assert versions.libtpu_demands({"torch": "2.9.0"}) == {}


def test_a_package_that_vanished_demands_nothing(fake_packages):
    fake_packages({})
    assert versions.libtpu_demands({"jax": "0.7.2"}) == {}


def test_a_module_older_than_its_metadata_is_stale(fake_packages, loaded):
    fake_packages({"torch": "2.9.0", "torch_xla": "2.9.0", "numpy": "2.1.3"})
    loaded("torch", "2.8.0+cpu")
    loaded("torch_xla", "2.9.0")
    loaded("numpy")
    assert versions.stale_modules() == ["torch"]


@pytest.mark.parametrize("own", ["2.9.0+cu128", "2.9.0", "2.9"])
def test_a_build_of_the_same_release_is_not_stale(fake_packages, loaded, own):
    fake_packages({"torch": "2.9.0"})
    loaded("torch", own)
    assert versions.stale_modules() == []


def test_one_module_of_several_distributions(fake_packages, loaded):
    fake_packages({"tensorflow-cpu": "2.20.0"})
    loaded("tensorflow", "2.20.0")
    assert versions.stale_modules() == []
    loaded("tensorflow", "2.19.0")
    assert versions.stale_modules() == ["tensorflow"]


def test_versions_that_are_none_are_compared_as_text(fake_packages, loaded):
    fake_packages({"jax": "0.7.2"})
    loaded("jax", "unknown build")
    assert versions.stale_modules() == ["jax"]


def test_a_module_without_metadata_is_not_judged(fake_packages, loaded):
    fake_packages({})
    loaded("torch", "2.9.0")
    assert versions.stale_modules() == []


def test_what_an_install_replaced_stays_stale(fake_packages, loaded):
    fake_packages({"torch": "2.9.0"})
    loaded("torch", "2.9.0")
    versions.note_replaced(["torch"])
    assert versions.stale_modules() == ["torch"]


def test_loaded_modules_of_distributions(loaded):
    loaded("torch_xla")
    loaded("tensorflow")
    assert versions.loaded(["torch-xla", "tensorflow-cpu", "jax"]) == ["torch_xla", "tensorflow"]


def test_fingerprint_changes_with_whatever_decides():
    one = versions.fingerprint({"torch": "2.9.0"}, adapter="torch")
    assert one == versions.fingerprint({"torch": "2.9.0"}, adapter="torch")
    assert one != versions.fingerprint({"torch": "2.9.1"}, adapter="torch")
    assert one != versions.fingerprint({"torch": "2.9.0"}, adapter="jax")
