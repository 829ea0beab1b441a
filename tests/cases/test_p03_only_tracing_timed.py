"""P03: a timer that does not wait for the device sees only tracing."""

import time

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_xla")
pytestmark = pytest.mark.torch


def _waiting_clock(call):
    """Time a call by hand: end the step, and wait until the device is done."""
    import torch_xla
    from torch_xla.core import xla_model

    started = time.perf_counter()
    output = call()
    torch_xla.sync()
    xla_model.wait_device_ops()
    elapsed = time.perf_counter() - started
    del output
    return elapsed


def test_it_agrees_with_a_clock_that_waits(torch_shell):
    torch_shell.run("import torch\nx = torch.randn(700, 700).to('xla')")
    call = eval("lambda: x @ x @ x", torch_shell.user_ns)
    for _ in range(3):
        _waiting_clock(call)
    ratios = []
    for _ in range(7):
        before = [_waiting_clock(call) for _ in range(5)]
        ours = torch_shell.run("%tpu_timeit -o -q --mode latency -r 10 x @ x @ x")
        ratios.append(ours.median / sorted(before)[2])
    # In turns on the same machine; only tracing would be a hundredth.
    assert 0.5 < sorted(ratios)[3] < 2


def test_tracing_compiling_and_running_are_apart(torch_shell, capsys):
    torch_shell.run("import torch\nx = torch.randn(321, 321).to('xla')")
    result = torch_shell.run("%tpu_timeit -o -r 7 x @ x + 321")
    assert result.compiles == 1
    assert result.timed_compiles == 0
    assert 0 < result.trace_s < result.compile_s
    assert result.trace_s + result.compile_s + result.run_s == pytest.approx(result.first_call_s)
    assert result.median < result.first_call_s
    shown = capsys.readouterr().out
    assert "trace" in shown
    assert "not a TPU" in shown


def test_a_small_result_of_much_work_is_waited_for(torch_shell):
    torch_shell.run("import torch\nx = torch.randn(600, 600).to('xla')")
    much = torch_shell.run("%tpu_timeit -o -q --mode latency -r 9 (x @ x @ x @ x).sum()")
    little = torch_shell.run("%tpu_timeit -o -q --mode latency -r 9 (x[0] @ x).sum()")
    assert much.median > 5 * little.median
