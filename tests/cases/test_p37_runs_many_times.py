"""P37: timed code runs many times, and what it changes stays changed."""

import random

import pytest


def test_it_says_how_often_the_code_ran(shell, capsys):
    shell.run("steps = []")
    shell.run("%tpu_timeit steps.append(1)")
    shown = capsys.readouterr().out
    assert f"{len(shell.user_ns['steps']):,} times, warm-up included" in shown
    assert "the code changed steps" in shown


def test_given_loops_and_runs_bound_it(shell):
    shell.run("steps = []")
    result = shell.run("%tpu_timeit -o -q -n 3 -r 2 steps.append(1)")
    assert len(shell.user_ns["steps"]) == result.runs_total == 1 + 3 * 2


def test_code_that_works_once_says_in_which_call_it_failed(shell):
    shell.run("pool = [1, 2, 3]")
    with pytest.raises(IndexError, match="pop from empty list") as caught:
        shell.run("%tpu_timeit -q pool.pop()")
    assert caught.value.__notes__ == ["raised in call 4 of the timed code"]


def test_pythons_and_numpys_random_numbers_are_as_if_it_had_not_run(shell):
    numpy = pytest.importorskip("numpy")
    shell.user_ns.update(random=random, numpy=numpy)
    random.seed(1)
    numpy.random.seed(1)
    expected = random.random(), numpy.random.rand()
    random.seed(1)
    numpy.random.seed(1)
    shell.run("%tpu_timeit -q -r 3 random.random(), numpy.random.rand()")
    assert (random.random(), numpy.random.rand()) == expected


@pytest.mark.torch
def test_training_steps_that_really_happened_are_told(torch_shell):
    torch_shell.run(
        "import torch\n"
        "net = torch.nn.Linear(4, 2).to('xla')\n"
        "opt = torch.optim.Adam(net.parameters())\n"
        "x = torch.randn(8, 4).to('xla')\n"
        "def step():\n"
        "    opt.zero_grad()\n"
        "    net(x).square().mean().backward()\n"
        "    opt.step()\n"
    )
    result = torch_shell.run(
        "%%tpu_timeit -o -q -r 5\nopt.zero_grad()\nnet(x).square().mean().backward()\nopt.step()\n"
    )
    told = {suspicion.code: suspicion.message for suspicion in result.suspicions}
    assert "net" in told["state-changed"]
    assert f"{result.runs_total:,} times" in told["state-changed"]
    assert "no-output" not in told  # nothing is returned, yet all of it was computed
    steps = {int(state["step"]) for state in torch_shell.user_ns["opt"].state.values()}
    assert steps == {result.runs_total}
    forward = torch_shell.run("%tpu_timeit -o -q -r 5 net(x)")
    assert "state-changed" not in {suspicion.code for suspicion in forward.suspicions}


@pytest.mark.torch
def test_the_devices_random_numbers_are_as_if_it_had_not_run(torch_shell):
    torch_shell.run("import torch, torch_xla\nx = torch.ones(3).to('xla')")
    seed = "torch.manual_seed(3); torch_xla.manual_seed(3)"
    draw = "torch.rand(3).tolist(), torch.rand(3, device='xla').tolist()"
    expected = torch_shell.run(f"{seed}\n{draw}")
    torch_shell.run(seed)
    torch_shell.run("%tpu_timeit -q -r 5 torch.rand(3); torch.rand(3, device='xla')")
    assert torch_shell.run(draw) == expected
