"""P10: `print(loss.item())` in each step cuts the step's program; the report says so once."""

LOOP = """\
%%tpu_run -q -o report
printed = []
for step in range(20):
    optimizer.zero_grad()
    loss = net(x).pow(2).sum()
    loss.backward()
    {read}
    optimizer.step()
"""
EARLIER = """
import torch
torch.manual_seed(0)
net = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
x = torch.randn(8, 3)
"""


def host_losses():
    import torch

    torch.manual_seed(0)
    net = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    x = torch.randn(8, 3)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = net(x).pow(2).sum()
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    return losses


def test_every_read_is_counted_at_its_line_and_what_was_read_is_right(torch_shell):
    import pytest

    torch_shell.run(EARLIER)
    torch_shell.run(LOOP.format(read="printed.append(loss.item())"))
    report = torch_shell.user_ns["report"]
    assert report.host_reads == 20
    (advice,) = [item for item in report.advice if item.code == "host-reads"]
    assert "20 host reads in 20 steps" in advice.message
    assert advice.line == 7
    assert torch_shell.user_ns["printed"] == pytest.approx(host_losses(), rel=1e-4)


def test_reading_now_and_then_is_no_matter(torch_shell):
    torch_shell.run(EARLIER)
    torch_shell.run(LOOP.format(read="step % 10 or printed.append(loss.item())"))
    report = torch_shell.user_ns["report"]
    assert report.host_reads == 2
    assert not [item for item in report.advice if item.code == "host-reads"]
