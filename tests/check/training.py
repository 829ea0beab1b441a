"""A training cell of torch, and a hash of what a check of it must leave as it is."""

import hashlib
import pickle

SIZE, BATCH = 1024, 256
NETWORK = f"""
import random, numpy, torch
from torch import nn
torch.manual_seed(0)
first, second = (nn.Linear({SIZE}, {SIZE}, bias=False) for _ in range(2))
net = nn.Sequential(first, nn.ReLU(), second)
opt = torch.optim.Adam(net.parameters())
X, Y = torch.randn(4 * {BATCH}, {SIZE}), torch.randn(4 * {BATCH}, {SIZE})
data = torch.utils.data.TensorDataset(X, Y)
loader = torch.utils.data.DataLoader(data, batch_size={BATCH}, shuffle=True, num_workers=2)
losses = []

def train(epochs):
    for epoch in range(epochs):
        for x, y in loader:
            opt.zero_grad()
            loss = ((net(x) - y) ** 2).mean()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        print(epoch, loss)
"""
CELL = """
train(90)
torch.save(net.state_dict(), FILE)
with open(FILE, "w") as file:
    file.write("lost")
!echo no
net.eval()
with torch.no_grad():
    predicted = torch.cat([net(x) for x, y in loader])
"""


def state(shell, *files):
    """Return a hash of everything that a check must leave as it is."""
    names = shell.user_ns
    torch = names["torch"]
    parts = [
        *(tensor.numpy().tobytes() for tensor in names["net"].state_dict().values()),
        pickle.dumps(names["opt"].state_dict()),
        torch.get_rng_state().numpy().tobytes(),
        pickle.dumps((names["random"].getstate(), names["numpy"].random.get_state())),
        names["X"].numpy().tobytes(),
        repr((names["losses"], sorted(names), names["net"].training)).encode(),
        *(path.read_bytes() for path in files),
    ]
    return hashlib.sha256(b"".join(parts)).hexdigest()
