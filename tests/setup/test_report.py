from __future__ import annotations

import json

import pytest

from tpu_magic.setup.report import SetupReport

VERSIONS = {"torch": "2.9.0+cpu", "torch_xla": "2.9.0"}


def report(**more):
    given = {"host": "plain", "accelerator": None, "chips": 0, "devices": 0, "versions": VERSIONS}
    return SetupReport(**{**given, **more})


def test_ready_on_a_tpu_is_short():
    text = str(
        report(
            host="colab",
            accelerator="TPU v5e",
            chips=1,
            devices=1,
            device="TPU v5e: 1 device",
            connected=True,
            verified=True,
            reasons=("looked here",),
        )
    )
    assert text.splitlines() == [
        "TPU v5e: 1 device, verified",
        "  on Colab: torch 2.9.0+cpu, torch_xla 2.9.0",
    ]


def test_without_a_tpu_the_first_words_say_so():
    made = report(device="XLA CPU, 4 virtual devices", connected=True)
    assert str(made).splitlines()[0] == "no TPU here: XLA CPU, 4 virtual devices"


def test_a_look_shows_reasons_and_that_nothing_is_to_do():
    text = str(report(reasons=("no TPU chip on the PCI bus",), warnings=("XRT_X is ignored",)))
    assert text.splitlines() == [
        "no TPU here",
        "  on a plain machine: torch 2.9.0+cpu, torch_xla 2.9.0",
        "  everything fits, nothing to do",
        "  · no TPU chip on the PCI bus",
        "  ! XRT_X is ignored",
    ]


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"plan": ("pip install a",)}, "pip install a"),
        ({"plan": ("pip install a",), "ways": ("or b",)}, "instead: or b"),
        ({"refusal": "no wheel", "ways": ("take 2.9",)}, "way out: take 2.9"),
        ({"installed": ("a==1",), "log_file": "/l"}, "installed: a==1 (log: /l)"),
        ({"versions": {}}, "on a plain machine: no framework is installed"),
    ],
)
def test_what_is_to_do_is_shown(more, line):
    text = str(report(**more))
    assert line in text
    assert ("nothing to do" in text) == (not ({"plan", "refusal"} & set(more)))


@pytest.mark.parametrize(
    ("more", "headline"),
    [
        ({"accelerator": "TPU v3", "chips": 4, "devices": 8}, "TPU v3: 4 chips, 8 devices, not"),
        ({"accelerator": "NVIDIA GPU"}, "NVIDIA GPU, no TPU"),
        ({"restart_needed": True, "device": "x"}, "restart the kernel now"),
    ],
)
def test_headline(more, headline):
    assert str(report(**more)).startswith(headline)


def test_json_holds_the_contract_and_comes_back():
    made = report(plan=("pip install a",), verified=True, reasons=("r",))
    data = json.loads(made.to_json())
    assert data["kind"] == "setup-report"
    contract = (
        "host accelerator chips devices versions plan installed verified connected "
        "restart_needed reasons"
    )
    assert set(contract.split()) <= set(data)
    assert SetupReport.from_json(made.to_json()) == made
    assert "nothing" not in made._repr_mimebundle_()["text/html"]
