"""Eager torch's adapter, on the processor; a GPU is played by a fake `torch.cuda`."""

import sys
from types import SimpleNamespace

import pytest
from IPython.core.error import UsageError

from tpu_magic.frameworks.base import Adapter, Counters
from tpu_magic.frameworks.torch_eager import TorchEager
from tpu_magic.options import RunOptions

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture
def eager():
    return TorchEager()


@pytest.fixture
def gpu(monkeypatch):
    """Play two GPUs that have been used; returns what was waited for."""
    waited = []
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: 2,
        get_device_name=lambda: "Fake 9000",
        synchronize=waited.append,
        mem_get_info=lambda index: (30 + index, 100),
        max_memory_allocated=lambda index: 50 + index,
        get_rng_state_all=lambda: ["one", "two"],
        set_rng_state_all=lambda states: waited.append(("rng", states)),
    )
    monkeypatch.setattr(torch, "cuda", cuda)
    return waited


def test_it_is_an_adapter(eager):
    assert isinstance(eager, Adapter)
    assert eager.availability().usable
    assert eager.connected()


def test_on_the_processor_calls_end_when_they_return(eager):
    assert eager.synchronous
    eager.wait()
    assert eager.connect().label() == "CPU (eager torch) × 1 · not a TPU"
    assert eager.memory() == []
    before = eager.counters()
    eager.materialize(torch.ones(2) + 1)
    assert eager.counters().since(before) == Counters()


def test_every_used_gpu_is_waited_for(eager, gpu):
    assert not eager.synchronous
    eager.wait()
    assert gpu == [0, 1]


def test_a_used_gpu_is_the_device_and_its_memory_is_told(eager, gpu):
    assert eager.devices().kind == "CUDA GPU (Fake 9000)"
    first, second = eager.memory()
    assert (first.used_bytes, first.peak_bytes, first.limit_bytes) == (70, 50, 100)
    assert (second.used_bytes, second.peak_bytes) == (69, 51)


def test_the_gpus_generators_are_put_back_as_well(eager, gpu):
    eager.set_rng_state(eager.rng_state())
    assert gpu == [("rng", ["one", "two"])]


def test_random_numbers_are_as_before(eager):
    state = eager.rng_state()
    one = torch.rand(4)
    eager.set_rng_state(state)
    assert torch.equal(torch.rand(4), one)


def test_without_torch_nothing_is_imported(eager, monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    assert not eager.connected()
    assert list(eager.arrays([1])) == []
    assert eager.synchronous
    assert "torch" not in sys.modules


def test_a_missing_torch_has_a_cure(eager, monkeypatch):
    monkeypatch.setattr("tpu_magic.frameworks.torch_eager.find_spec", lambda name: None)
    assert eager.availability().sentence() == (
        "torch is not installed: %tpu_setup --framework torch"
    )


@pytest.mark.parametrize("wanted", [{"simulate": 4}, {"require_tpu": True}])
def test_devices_it_does_not_have_are_refused(eager, wanted):
    with pytest.raises(UsageError, match="--framework torch"):
        eager.connect(**wanted)


def test_cells_are_refused(eager):
    with pytest.raises(UsageError, match="leave the magic away"):
        eager.cell(RunOptions(), {})


def test_arrays_are_found_in_whatever_holds_them(eager):
    one, two = torch.ones(1), torch.ones(2)
    net = torch.nn.BatchNorm1d(3)
    optimizer = torch.optim.SGD(net.parameters(), momentum=0.9, lr=0.1)
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert list(eager.arrays([one, {"k": (two, {1})}, "text", one])) == [one, two]
    # Weight, bias; running mean and variance, batches seen.
    assert len(list(eager.arrays(net))) == 5
    # Weight, bias, and a momentum of each.
    assert len(list(eager.arrays(optimizer))) == 4
    endless = [one]
    endless.append(endless)
    assert list(eager.arrays(endless)) == [one]


def test_tensors_stay_where_they_are(eager):
    tensor = torch.ones(1)
    assert eager.to_device(tensor) is tensor
    assert eager.on_device(tensor)
    assert not eager.on_device(torch.ones(1, device="meta"))


def test_revisions_count_writes_in_place(eager):
    tensor = torch.ones(1)
    before = eager.revision(tensor)
    tensor + 1
    assert eager.revision(tensor) == before
    tensor.add_(1)
    assert eager.revision(tensor) == before + 1


def test_versions_and_precision(eager):
    assert eager.versions()["torch"] == torch.__version__.split("+")[0] or torch.__version__
    assert eager.matmul_precision() in {"highest", "high", "medium"}
    eager.read(torch.ones(1))
    assert eager.explain(ValueError(), {}) is None
