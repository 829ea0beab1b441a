"""P04: the same time for one and for fifty repetitions, since dropped results are not computed."""

import pytest

pytest.importorskip("torch_xla")
pytestmark = pytest.mark.torch


@pytest.fixture
def matrix_shell(torch_shell):
    torch_shell.run("import torch\na = torch.randn(500, 500).to('xla')")
    torch_shell.run("%tpu_timeit -q -r 3 a @ a")
    return torch_shell


@pytest.mark.parametrize("mode", ["latency", "throughput"])
def test_one_and_fifty_loops_have_the_same_time_per_loop(matrix_shell, mode):
    one = matrix_shell.run(f"%tpu_timeit -o -q --mode {mode} -n 1 -r 25 a @ a")
    fifty = matrix_shell.run(f"%tpu_timeit -o -q --mode {mode} -n 50 -r 5 a @ a")
    assert fifty.loops == 50
    # Were fifty dropped or merged into one, the ratio would be a fiftieth.
    assert 0.3 < fifty.median / one.median < 3


def test_every_call_is_executed(matrix_shell):
    from tpu_magic.frameworks import adapter

    before = adapter("torch").counters()
    result = matrix_shell.run("%tpu_timeit -o -q -n 7 -r 3 a @ a")
    counted = adapter("torch").counters().since(before)
    assert counted.executions >= result.runs_total > 40
    assert counted.compiles == 0


def test_work_whose_result_nobody_uses_is_told(matrix_shell):
    matrix_shell.run("def f():\n    a @ a\n")
    result = matrix_shell.run("%tpu_timeit -o -q -r 5 f()")
    assert "no-output" in {suspicion.code for suspicion in result.suspicions}
    result = matrix_shell.run("%tpu_timeit -o -q -r 5 a @ a")
    assert "no-output" not in {suspicion.code for suspicion in result.suspicions}
