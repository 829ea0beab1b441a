"""P13: weights that are one on the host are one on the device, and again on the host."""

import pytest

TIED = """
import torch, tpu_magic
class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(5, 3)
        self.head = torch.nn.Linear(3, 5, bias=False)
        {tie}
    def forward(self, index):
        return self.head(self.embed(index))
torch.manual_seed(0)
tiny = Tiny()
other = torch.nn.Linear(3, 5, bias=False)
other.weight = tiny.embed.weight
optimizer = torch.optim.SGD([tiny.embed.weight], lr=0.1)
"""
STEP = """\
%%tpu_run -q
tiny(torch.arange(4)).pow(2).sum().backward()
optimizer.step()
"""


def test_the_same_object_stays_the_same_object(torch_shell):
    shell = torch_shell
    shell.run(TIED.format(tie="self.head.weight = self.embed.weight"))
    shell.run(STEP)
    tiny, other = shell.user_ns["tiny"], shell.user_ns["other"]
    assert tiny.head.weight is tiny.embed.weight is other.weight
    assert len(list(tiny.parameters())) == 1
    assert tiny.embed.weight.device.type == "xla"
    shell.run("tpu_magic.to_host(tiny)")
    assert tiny.head.weight is tiny.embed.weight is other.weight
    assert tiny.embed.weight.device.type == "cpu"


def test_two_parameters_on_one_memory_stay_on_one(torch_shell):
    import torch

    shell = torch_shell
    shell.run(TIED.format(tie="self.head.weight.data = self.embed.weight.data"))
    shell.run(STEP)
    tiny = shell.user_ns["tiny"]
    assert tiny.head.weight is not tiny.embed.weight
    # the optimizer steps one of them; the other one must have followed
    assert torch.equal(tiny.head.weight.cpu(), tiny.embed.weight.cpu())
    shell.run("tpu_magic.to_host(tiny)")
    with torch.no_grad():
        tiny.embed.weight.fill_(2.0)
    assert tiny.head.weight.tolist()[0] == pytest.approx([2.0, 2.0, 2.0])
