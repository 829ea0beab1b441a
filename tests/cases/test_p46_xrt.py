"""P46: variables of the removed XRT runtime are named, and left alone."""

from __future__ import annotations

import os

OLD = "localservice;0;localhost:51011"


def test_the_variable_is_named_as_ignored_and_kept(shell, monkeypatch):
    monkeypatch.setenv("XRT_TPU_CONFIG", OLD)
    shell.run("%tpu_setup --check --quiet -o found")
    expected = "XRT_TPU_CONFIG is from the removed XRT runtime and is ignored; PJRT is used"
    assert expected in shell.user_ns["found"].warnings
    assert shell.user_ns["found"].host != "legacy-tpu-node"
    assert os.environ["XRT_TPU_CONFIG"] == OLD


def test_the_old_node_itself_is_explained(shell, monkeypatch):
    monkeypatch.setenv("XRT_TPU_CONFIG", "tpu_worker;0;10.0.0.2:8470")
    shell.run("%tpu_setup --check --quiet -o found")
    found = shell.user_ns["found"]
    if found.chips == 0:
        assert found.host == "legacy-tpu-node"
        assert any("choose a runtime" in warning for warning in found.warnings)
