from __future__ import annotations

import pytest

from tpu_magic.setup.findings import demands_line, fatal_imports, findings

XLA = {"torch": "2.9.0", "torch_xla": "2.9.0"}


@pytest.fixture
def find(make_situation, places):
    def look(installed=None, place="plain", **more):
        return findings(make_situation(installed, places[place], **more))

    return look


def test_a_clean_machine_has_no_findings(find):
    assert find({}, environ={"XLA_USE_BF16": "0", "XLA_DOWNCAST_BF16": ""}) == ()
    assert find({"jax": "0.7.2"}, framework="jax") == ()


@pytest.mark.parametrize("name", ["XLA_USE_BF16", "XLA_DOWNCAST_BF16"])
def test_hidden_bfloat16(find, name):
    (line,) = find({}, environ={name: "1"})
    assert name in line
    assert "--precision bf16" in line


def test_variables_of_the_removed_runtime(find):
    (line,) = find({}, environ={"XRT_TPU_CONFIG": "localservice;0;localhost:51011"})
    assert line == ("XRT_TPU_CONFIG is from the removed XRT runtime and is ignored; PJRT is used")
    (line,) = find({}, environ={"XRT_WORKERS": "a", "XRT_DEVICE_MAP": "b"})
    assert "XRT_DEVICE_MAP, XRT_WORKERS are" in line
    (line,) = find({"cloud-tpu-client": "0.10"})
    assert "obsolete" in line


@pytest.mark.parametrize(("name", "value"), [("PJRT_DEVICE", "CPU"), ("JAX_PLATFORMS", "cpu")])
def test_a_variable_that_hides_the_tpu(find, name, value):
    (line,) = find({}, "v5e", environ={name: value})
    assert f"{name}={value}" in line
    assert find({}, "plain", environ={name: value}) == ()
    assert find({}, "v5e", environ={name: "TPU"}) == ()


def test_a_library_path_that_does_not_exist(find, tmp_path):
    (line,) = find({}, environ={"TPU_LIBRARY_PATH": str(tmp_path / "no.so")})
    assert "does not exist" in line
    installed = {"torch_tpu": "0.2.0", "libtpu": "0.0.52"}
    fatal, _ = find(installed, environ={"TPU_LIBRARY_PATH": str(tmp_path / "no.so")})
    assert "ends the process" in fatal
    assert find({}, environ={"TPU_LIBRARY_PATH": str(tmp_path)}) == ()


def test_tensorflow_before_torch_xla(find):
    (line, _) = find(XLA, loaded=("tensorflow",))
    assert "restart the kernel" in line
    assert len(find(XLA, loaded=("torch_xla", "tensorflow"))) == 1
    assert find(XLA, loaded=("tensorflow",), framework="keras") == ()


def test_torch_tpu_without_its_library_makes_importing_torch_fatal(find, make_situation):
    (line,) = find({"torch_tpu": "0.2.0"})
    assert line.startswith("libtpu is not installed, and with torch_tpu installed `import torch`")
    assert find({"torch_tpu": "0.2.0", "libtpu": "0.0.52"}) == ()
    assert find({"torch_tpu": "0.2.0"}, loaded=("torch",)) == ()
    assert list(fatal_imports(make_situation(XLA, loaded=("tensorflow",)), xla=False)) == []


def test_plain_tensorflow_beside_torch_xla(find):
    assert "tensorflow-cpu" in find({**XLA, "tensorflow": "2.20.0"})[0]
    assert len(find({**XLA, "tensorflow-cpu": "2.20.0"})) == 1


def test_two_libtpus(find):
    (line,) = find({"libtpu": "0.0.21", "libtpu-nightly": "0.1.dev1"})
    assert "same folder" in line


def test_all_demands_for_libtpu_are_listed(find, make_situation, places):
    installed = {"libtpu": "0.0.21.1", "jax": "0.7.2"}
    demands = {"torch_xla": "==0.0.21.1", "jax": "==0.0.23", "tensorflow-tpu": "any"}
    assert find(installed, framework="jax", demands=demands) == ()  # no TPU to find
    (line,) = find(installed, "v5e", framework="jax", demands=demands)
    assert line == "with libtpu 0.0.21.1, jax (wants ==0.0.23) may not find the TPU"
    assert demands_line(make_situation(installed, demands=demands)) == (
        "libtpu 0.0.21.1 (wanted by torch_xla: ==0.0.21.1, jax: ==0.0.23, tensorflow-tpu: any)"
    )
    assert find(installed, "v5e", framework="jax", demands={"jax": "=>1"}) == ()  # not readable
    assert find(installed, "v5e", framework="jax", demands={"jax": ">=0.0.21"}) == ()
    assert demands_line(make_situation({})) is None
    assert demands_line(make_situation({"libtpu": "1"})) == "libtpu 1"
    assert demands_line(make_situation({}, demands={"jax": "==0.0.23"})) is None
    line = demands_line(make_situation({}, places["v5e"], demands={"jax": "==0.0.23"}))
    assert line == "libtpu is not installed (wanted by jax: ==0.0.23)"


def test_the_end_of_torch_xla_is_said_with_its_successor(find):
    (line,) = find(XLA)
    assert "2.9.0" in line
    assert "TorchTPU" in line
    assert find(XLA, framework="jax") == ()
