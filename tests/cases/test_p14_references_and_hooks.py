"""P14: who holds a parameter, a hook on it or its gradient, holds it after the move too."""

EARLIER = """
import torch, tpu_magic
torch.manual_seed(0)
lin = torch.nn.Linear(2, 1)
reference = lin.weight
group = [lin.weight, lin.bias]
hits, done = [], []
lin.weight.register_hook(lambda gradient: hits.append(tuple(gradient.shape)))
lin.weight.register_post_accumulate_grad_hook(lambda parameter: done.append(parameter is reference))
lin.weight.note = "mine"
lin(torch.ones(1, 2)).sum().backward()
"""


def test_references_hooks_attributes_and_gradients_survive(torch_shell):
    import torch

    shell = torch_shell
    shell.run(EARLIER)
    gradient = shell.user_ns["lin"].weight.grad
    shell.run("%%tpu_run -q\nlin(torch.ones(1, 2)).sum().backward()")
    lin = shell.user_ns["lin"]
    assert lin.weight.device.type == "xla"
    assert lin.weight is shell.user_ns["reference"] is shell.user_ns["group"][0]
    assert shell.user_ns["hits"] == [(1, 2), (1, 2)]
    assert shell.user_ns["done"] == [True, True]
    assert lin.weight.note == "mine"
    # two backward passes of ones: the first, on the host, was not lost
    assert torch.equal(lin.weight.grad.cpu(), torch.tensor([[2.0, 2.0]]))
    assert lin.weight.grad is gradient
    shell.run("tpu_magic.to_host(lin)\nlin(torch.ones(1, 2)).sum().backward()")
    assert shell.user_ns["lin"].weight is shell.user_ns["reference"]
    assert len(shell.user_ns["hits"]) == 3
    assert torch.equal(lin.weight.grad, torch.tensor([[3.0, 3.0]]))
