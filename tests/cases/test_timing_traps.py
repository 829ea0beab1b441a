"""The traps of timing on a lazy device that are on no list of cases, each on the real runtime."""

import gc

import pytest
from IPython.core.error import UsageError

pytest.importorskip("torch_xla")
pytestmark = pytest.mark.torch


@pytest.fixture
def xla(torch_shell):
    torch_shell.run("import torch, torch_xla\nx = torch.randn(64, 64).to('xla')")
    return torch_shell


def codes(result):
    return {suspicion.code for suspicion in result.suspicions}


def test_a_recompile_while_timing_is_told_and_not_blended(xla):
    xla.run("sizes = iter(range(1, 10**6))\ndef f():\n    return x[: next(sizes) % 50 + 1] * 1.5\n")
    result = xla.run("%tpu_timeit -o -q --mode latency -r 6 f()")
    assert {"compile", "not-settled"} & codes(result)
    assert result.timed_compiles > 0
    steady = xla.run("%tpu_timeit -o -q --mode latency -r 6 x[:50] * 1.5")
    assert not {"compile", "not-settled"} & codes(steady)


def test_reading_a_value_in_the_timed_code_is_told(xla):
    assert "transfer" in codes(xla.run("%tpu_timeit -o -q -r 5 x.sum().item()"))
    assert "transfer" not in codes(xla.run("%tpu_timeit -o -q -r 5 x.sum()"))


def test_an_operation_that_runs_on_the_host_is_told(xla):
    # torch_xla 2.9 has no kernel for it.
    result = xla.run("%tpu_timeit -o -q -r 5 torch.digamma(x)")
    names = {suspicion.code: suspicion.message for suspicion in result.suspicions}
    assert "aten::digamma" in names["fallback"]
    assert "fallback" not in codes(xla.run("%tpu_timeit -o -q -r 5 x + x.T"))


def test_host_inputs_are_moved_before_and_stay_the_persons(xla):
    xla.run("h = torch.randn(64, 64)")
    result = xla.run("%tpu_timeit -o -q -r 5 h @ x")
    assert result.moved == ["h"]
    assert result.framework == "torch"
    assert "transfer" not in codes(result)
    assert xla.user_ns["h"].device.type == "cpu"


def test_moving_can_be_timed(xla):
    xla.run("h = torch.randn(2000, 2000)")
    without = xla.run("%tpu_timeit -o -q --mode latency -r 15 h[0] + 1")
    including = xla.run("%tpu_timeit -o -q --mode latency -r 15 --include-transfer h[0] + 1")
    assert including.moved == []
    assert including.median > 2 * without.median


def test_a_model_on_the_host_is_named(xla):
    xla.run("net = torch.nn.Linear(64, 2)")
    with pytest.raises(UsageError, match=r"net \(Linear\) is on the host"):
        xla.run("%tpu_timeit net(x)")


def test_the_host_can_be_asked_for(xla):
    xla.run("h = torch.randn(8, 8)")
    result = xla.run("%tpu_timeit -o -q -r 5 --device cpu h @ h")
    assert result.framework == "torch-eager"
    assert codes(result) <= {"drift", "autocorrelation", "slow-run"}


def test_plain_code_beside_a_device_is_plain(xla):
    result = xla.run("%tpu_timeit -o -q -n 1000 -r 5 1 + 1")
    assert result.framework == "plain"
    assert result.median < 1e-5


def test_an_interrupt_keeps_what_there_is(xla, capsys):
    xla.run(
        "calls = iter(range(10**6))\n"
        "def f():\n"
        "    if next(calls) == 25:\n"
        "        raise KeyboardInterrupt\n"
        "    return x @ x\n"
    )
    assert gc.isenabled()
    result = xla.run("%tpu_timeit -o -r 100 f()")
    assert result.stopped_by == "interrupt"
    assert result.runs_total == 26
    assert "it was interrupted" in capsys.readouterr().out
    assert gc.isenabled()


def test_a_require_of_a_tpu_is_kept(xla):
    with pytest.raises(UsageError, match=r"--require-tpu"):
        xla.run("%tpu_timeit --device tpu x @ x")


def test_the_matmul_precision_and_versions_are_kept(xla):
    result = xla.run("%tpu_timeit -o -q -r 3 x @ x")
    assert result.matmul_precision == "default"
    assert {"torch", "torch_xla", "session"} <= set(result.environment)
    assert not result.on_tpu
