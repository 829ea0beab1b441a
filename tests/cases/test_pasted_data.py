"""Data as notebooks feed it: slices, loaders of every kind, factories in the loop and in forward."""

from __future__ import annotations

import pytest

from tests.support.pasted import run_both

pytestmark = pytest.mark.torch

EARLIER = """
import torch
import torch.nn as nn
import torch.nn.functional as F
import numpy as np
from torch.utils.data import DataLoader, TensorDataset, Dataset, random_split, Subset
X = torch.randn(80, 6)
Y = (X[:, 0] > 0).long()
XN, YN = X.numpy().copy(), Y.numpy().copy()
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
loss_fn = nn.CrossEntropyLoss()
losses = []
"""

# what: (more of the earlier cell, the cell, most programs that it may compile)
CELLS = {
    "slices of a tensor": (
        "",
        """
        for i in range(0, 80, 8):
            xb, yb = X[i:i + 8], Y[i:i + 8]
            opt.zero_grad()
            loss = loss_fn(net(xb), yb)
            loss.backward()
            opt.step()
            losses.append(loss.detach())
        """,
        4,
    ),
    "slices of arrays": (
        "",
        """
        for i in range(10):
            xb = torch.from_numpy(XN[i * 8:(i + 1) * 8])
            yb = torch.as_tensor(YN[i * 8:(i + 1) * 8])
            opt.zero_grad()
            loss = loss_fn(net(xb), yb)
            loss.backward()
            opt.step()
            losses.append(loss.detach())
        """,
        4,
    ),
    "the whole set moved, then sliced": (
        "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')",
        """
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        net = net.to(device)
        XD, YD = X.to(device), Y.to(device)
        for i in range(10):
            xb, yb = XD[i * 8:i * 8 + 8], YD[i * 8:i * 8 + 8]
            opt.zero_grad()
            loss = loss_fn(net(xb), yb)
            loss.backward()
            opt.step()
            losses.append(loss.detach())
        """,
        6,
    ),
    "random permutation": (
        "",
        """
        order = torch.randperm(80)
        for i in range(10):
            pick = order[i * 8:(i + 1) * 8]
            opt.zero_grad()
            out = net(X[pick])
            loss = F.cross_entropy(out, Y[pick])
            loss.backward()
            opt.step()
            losses.append(loss.detach())
        accuracy = (net(X).argmax(1) == Y).float().mean()
        losses.append(accuracy)
        """,
        8,
    ),
    "accuracy against a sliced label": (
        "",
        """
        correct = 0
        for i in range(10):
            out = net(X[i * 8:(i + 1) * 8])
            loss = loss_fn(out, Y[i * 8:(i + 1) * 8])
            opt.zero_grad(); loss.backward(); opt.step()
            pred = out.argmax(dim=1)
            correct += (pred == Y[i * 8:(i + 1) * 8]).sum()
        losses.append(correct / 80)
        """,
        6,
    ),
    "hand-written loss": (
        "",
        """
        T = F.one_hot(Y, 2).float()
        for i in range(10):
            opt.zero_grad()
            out = net(X)
            loss = -(T * torch.log(torch.softmax(out, -1) + 1e-9)).sum(-1).mean()
            loss = loss + 1e-3 * sum((p ** 2).sum() for p in net.parameters())
            loss.backward()
            opt.step()
            losses.append(loss.detach())
        """,
        5,
    ),
    "binary cross-entropy with logits": (
        "w = torch.tensor([2.0])",
        """
        for i in range(10):
            opt.zero_grad()
            out = net(X)[:, 0]
            loss = F.binary_cross_entropy_with_logits(out, Y.float(), pos_weight=w)
            loss.backward()
            opt.step()
            losses.append(loss.detach())
        """,
        4,
    ),
    "a loader with shuffling": (
        "loader = DataLoader(TensorDataset(X, Y), batch_size=16, shuffle=True)",
        """
        for epoch in range(2):
            for xb, yb in loader:
                opt.zero_grad()
                loss = loss_fn(net(xb), yb)
                loss.backward()
                opt.step()
                losses.append(loss.detach())
        """,
        4,
    ),
    "a loader made in the cell": (
        "",
        """
        data = torch.randn(40, 6)
        labels = (data.sum(1) > 0).long()
        loader = DataLoader(TensorDataset(data, labels), batch_size=8, shuffle=True, )
        for i, (xb, yb) in enumerate(loader):
            xb, yb = xb.to("cuda", non_blocking=True), yb.cuda()
            opt.zero_grad()
            loss = loss_fn(net(xb), yb)
            loss.backward()
            opt.step()
            losses.append(loss.detach())
        """.replace(
            '"cuda"', 'torch.device("cuda" if torch.cuda.is_available() else "cpu")'
        ).replace("yb.cuda()", "yb"),
        8,
    ),
    "one batch, again and again": (
        "loader = DataLoader(TensorDataset(X, Y), batch_size=16)",
        """
        xb, yb = next(iter(loader))
        for step in range(10):
            opt.zero_grad()
            loss = loss_fn(net(xb), yb)
            loss.backward()
            opt.step()
            losses.append(loss.detach())
        """,
        3,
    ),
    "break, then go on": (
        "loader = DataLoader(TensorDataset(X, Y), batch_size=16)",
        """
        for epoch in range(3):
            for step, (xb, yb) in enumerate(loader):
                if step == 2:
                    break
                opt.zero_grad()
                loss = loss_fn(net(xb), yb)
                loss.backward()
                opt.step()
                losses.append(loss.detach())
        """,
        3,
    ),
    "workers": (
        "loader = DataLoader(TensorDataset(X, Y), batch_size=16, num_workers=1)",
        """
        for xb, yb in loader:
            opt.zero_grad()
            loss = loss_fn(net(xb), yb)
            loss.backward()
            opt.step()
            losses.append(loss.detach())
        """,
        3,
    ),
    "train, validation, and a split": (
        """
        whole = TensorDataset(X, Y)
        train, valid = random_split(whole, [64, 16])
        """,
        """
        train_loader = DataLoader(train, batch_size=16, shuffle=True)
        valid_loader = DataLoader(valid, batch_size=16)
        for epoch in range(2):
            net.train()
            for xb, yb in train_loader:
                opt.zero_grad()
                loss = loss_fn(net(xb), yb)
                loss.backward()
                opt.step()
            net.eval()
            total = 0.0
            with torch.no_grad():
                for xb, yb in valid_loader:
                    total += loss_fn(net(xb), yb).item() * len(xb)
            losses.append(total / len(valid))
        """,
        6,
    ),
    "batches that are dicts": (
        """
        class Rows(Dataset):
            def __len__(self): return 40
            def __getitem__(self, i): return {"x": X[i], "y": Y[i], "name": str(i)}
        loader = DataLoader(Rows(), batch_size=8)
        """,
        """
        for batch in loader:
            opt.zero_grad()
            loss = loss_fn(net(batch["x"]), batch["y"])
            loss.backward()
            opt.step()
            losses.append(loss.detach())
        """,
        3,
    ),
    "batches of a class of their own": (
        """
        from dataclasses import dataclass
        @dataclass
        class Batch:
            x: torch.Tensor
            y: torch.Tensor
        def collate(rows):
            return Batch(torch.stack([r[0] for r in rows]), torch.stack([r[1] for r in rows]))
        loader = DataLoader(TensorDataset(X, Y), batch_size=8, collate_fn=collate)
        """,
        """
        for batch in loader:
            opt.zero_grad()
            loss = loss_fn(net(batch.x), batch.y)
            loss.backward()
            opt.step()
            losses.append(loss.detach())
        """,
        3,
    ),
    "two loaders at a time": (
        """
        one = DataLoader(TensorDataset(X, Y), batch_size=8)
        two = DataLoader(TensorDataset(X.flip(0)), batch_size=8)
        """,
        """
        for (xb, yb), (noise,) in zip(one, two):
            opt.zero_grad()
            loss = loss_fn(net(xb), yb) + 0.01 * net(noise).pow(2).mean()
            loss.backward()
            opt.step()
            losses.append(loss.detach())
        """,
        3,
    ),
    "a progress bar's iterator": (
        """
        class tqdm:
            def __init__(self, it): self.it, self.total, self.notes = it, len(it), []
            def __iter__(self):
                for item in self.it: yield item
            def set_postfix(self, **kw): self.notes.append(kw)
        loader = DataLoader(TensorDataset(X, Y), batch_size=16)
        """,
        """
        bar = tqdm(loader)
        for xb, yb in bar:
            opt.zero_grad()
            loss = loss_fn(net(xb), yb)
            loss.backward()
            opt.step()
            bar.set_postfix(loss=f"{loss.item():.3f}")
        losses = [float(n["loss"]) for n in bar.notes]
        """,
        4,
    ),
    "a training function of an earlier cell": (
        """
        def train(model, loader, optimizer, epochs=1, device="cpu"):
            model.train()
            for _ in range(epochs):
                for data, target in loader:
                    data, target = data.to(device), target.to(device)
                    optimizer.zero_grad()
                    output = model(data)
                    loss = F.nll_loss(F.log_softmax(output, 1), target)
                    loss.backward()
                    optimizer.step()
                    losses.append(loss.detach())
        def test(model, loader, device="cpu"):
            model.eval()
            correct, total = 0, 0
            with torch.no_grad():
                for data, target in loader:
                    data, target = data.to(device), target.to(device)
                    pred = model(data).argmax(dim=1, keepdim=True)
                    correct += pred.eq(target.view_as(pred)).sum().item()
            return correct / len(loader.dataset)
        loader = DataLoader(TensorDataset(X, Y), batch_size=16)
        """,
        """
        train(net, loader, opt, 2)
        losses.append(test(net, loader))
        """,
        6,
    ),
    "factories in the loop": (
        "",
        """
        for i in range(10):
            x = torch.randn(16, 6)
            y = torch.randint(0, 2, (16,))
            opt.zero_grad()
            loss = loss_fn(net(x + 0.1 * torch.rand_like(x)), y)
            loss.backward()
            opt.step()
            losses.append(loss.detach())
        """,
        4,
    ),
    "predictions collected in a list": (
        "loader = DataLoader(TensorDataset(X, Y), batch_size=16)",
        """
        net.eval()
        outs, labels = [], []
        with torch.no_grad():
            for xb, yb in loader:
                outs.append(net(xb).softmax(1).cpu())
                labels.append(yb)
        outs, labels = torch.cat(outs), torch.cat(labels)
        losses = [outs, (outs.argmax(1) == labels).float().mean(), labels]
        """,
        8,
    ),
    "predictions as arrays": (
        "loader = DataLoader(TensorDataset(X, Y), batch_size=16)",
        """
        outs = []
        with torch.inference_mode():
            for xb, yb in loader:
                outs.append(net(xb).numpy())
                outs.append(np.asarray(yb))
                outs.extend(net(xb).detach().cpu().numpy())
        losses = [np.concatenate([o.ravel() for o in outs])]
        """,
        5,
    ),
    "gradient accumulation": (
        "loader = DataLoader(TensorDataset(X, Y), batch_size=8)",
        """
        for epoch in range(2):
            for i, (xb, yb) in enumerate(loader):
                loss = loss_fn(net(xb), yb) / 4
                loss.backward()
                if (i + 1) % 4 == 0:
                    opt.step()
                    opt.zero_grad()
                losses.append(loss.detach())
        """,
        8,
    ),
    "running totals": (
        "loader = DataLoader(TensorDataset(X, Y), batch_size=16)",
        """
        running, best = torch.zeros(1), torch.tensor(float("inf"))
        per_class = torch.zeros(2)
        for xb, yb in loader:
            opt.zero_grad()
            loss = loss_fn(net(xb), yb)
            loss.backward()
            opt.step()
            running += loss.detach()
            best = torch.minimum(best, loss.detach())
            per_class.index_add_(0, yb, torch.ones(len(yb)))
        losses = [running, best, per_class]
        """,
        6,
    ),
    "results written into a tensor": (
        "loader = DataLoader(TensorDataset(X, Y), batch_size=16)\nkept = torch.zeros(5, 16, 2)",
        """
        history = torch.zeros(5)
        with torch.no_grad():
            for i, (xb, yb) in enumerate(loader):
                out = net(xb)
                kept[i] = out
                history[i] = loss_fn(out, yb)
        losses = [history, kept]
        """,
        8,
    ),
    "loaders over a device tensor": (
        "",
        """
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        net.to(device)
        ds = TensorDataset(X.to(device), Y.to(device))
        for xb, yb in DataLoader(ds, batch_size=16, shuffle=True):
            opt.zero_grad()
            loss = loss_fn(net(xb), yb)
            loss.backward()
            opt.step()
            losses.append(loss.detach())
        """,
        4,
    ),
    "normalised by hand": (
        "",
        """
        mu, sd = X.mean(0), X.std(0)
        Z = (X - mu) / sd
        for i in range(5):
            opt.zero_grad()
            loss = loss_fn(net((X - mu) / sd), Y)
            loss.backward()
            opt.step()
            losses.append(loss.detach())
        losses.append(Z)
        """,
        4,
    ),
    "masked loss": (
        "mask = X[:, 1] > 0",
        """
        for i in range(5):
            opt.zero_grad()
            out = net(X)
            loss = F.cross_entropy(out, Y, reduction="none")
            loss = (loss * mask).sum() / mask.sum()
            loss.backward()
            opt.step()
            losses.append(loss.detach())
        out = net(X).detach()
        losses += [out[mask], out[Y == 1], Y[out.argmax(1) == 0], X[out.argmax(1) == Y]]
        """,
        24,
    ),
}


@pytest.mark.parametrize("kind", CELLS)
def test_the_numbers_are_those_of_the_host(torch_shell, kind):
    earlier, cell, most_compiles = CELLS[kind]
    import textwrap

    both = run_both(torch_shell, EARLIER + textwrap.dedent(earlier), cell)
    both.check_same("losses", "net")
    assert both.report.reached_device
    assert next(both.device["net"].parameters()).device.type == "xla"
    assert both.report.compiles <= most_compiles
