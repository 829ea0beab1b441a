"""P62: a tensor and its views stay linked, whoever of them meets the device."""


def test_a_write_through_a_view_is_seen_by_what_the_device_gets(torch_shell):
    shell = torch_shell
    shell.run("import torch\nx = torch.zeros(1, 4)\nv = x.view(4, 1)\nones = torch.ones(4, 4)")
    shell.run("""%%tpu_run -q
before = (x @ ones).cpu()
v[0][0] = 1
after = (x @ ones).cpu()
x[0, 3] = 2
seen = float(v[3, 0])
""")
    assert shell.user_ns["before"].tolist() == [[0.0] * 4]
    assert shell.user_ns["after"].tolist() == [[1.0] * 4]
    assert shell.user_ns["seen"] == 2.0


def test_views_of_device_tensors_write_through(torch_shell):
    shell = torch_shell
    shell.run("""%%tpu_run -q
import torch
x = torch.ones(20, 4) @ torch.zeros(4, 4)
row, rows = x[3], x[5:7]
row.add_(1)
rows[0] = 5
values = x.cpu()
""")
    values = shell.user_ns["values"]
    assert values[3].tolist() == [1.0] * 4
    assert values[5].tolist() == [5.0] * 4
    assert float(values.sum()) == 24.0


def test_data_writes_reach_the_device_tensor(torch_shell):
    shell = torch_shell
    shell.run("""%%tpu_run -q
import torch
net = torch.nn.Linear(2, 2, bias=False)
net(torch.ones(1, 2))
net.weight.data[0] = 3.0
net.weight.data.mul_(2)
out = net(torch.ones(1, 2)).detach().cpu()
""")
    assert float(shell.user_ns["out"][0, 0]) == 12.0
