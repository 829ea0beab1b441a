"""Objects as notebooks make them: models, holders, optimizers, hooks, averages, copies."""

from __future__ import annotations

import textwrap

import pytest

from tests.support.pasted import run_both

pytestmark = pytest.mark.torch

EARLIER = """
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F
X = torch.randn(16, 6)
Y = (X[:, 0] > 0).long()
T = X.sum(1, keepdim=True)
losses = []
def make_net():
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 2))
def steps(net, opt, n=10, x=X, y=Y):
    for _ in range(n):
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.detach())
"""
TEN_STEPS = "steps(net, opt)"


def test_adafactor_reads_no_more_than_it_does_by_itself(torch_shell):
    """Torch's own Adafactor asks for two norms a parameter in each step; the move adds nothing."""
    kind = "\nnet = make_net()\nopt = torch.optim.Adafactor(net.parameters(), lr=0.01)\n"
    both = run_both(torch_shell, EARLIER + kind, TEN_STEPS)
    both.check_same("losses", "net", "opt", tolerance=3e-3)
    assert both.report.host_reads == 10 * 2 * len(list(both.host["net"].parameters()))


def test_optimizers_of_every_class(torch_shell):
    """Each optimizer of torch.optim, with state from before the move, ends where the host's does."""
    import inspect

    import torch

    skipped = {"Optimizer", "SparseAdam", "LBFGS", "Adafactor"}
    kinds = [
        name
        for name, kind in vars(torch.optim).items()
        if inspect.isclass(kind) and issubclass(kind, torch.optim.Optimizer) and name not in skipped
    ]
    assert len(kinds) >= 11
    earlier = EARLIER + textwrap.dedent(f"""
        kinds = {kinds!r}
        pairs = []
        for kind in kinds:
            torch.manual_seed(1)
            net = make_net()
            # Muon takes matrices only
            params = [p for p in net.parameters() if p.dim() == 2 or kind != "Muon"]
            opt = getattr(torch.optim, kind)(params, lr=0.01)
            steps(net, opt, 3)
            pairs.append((net, opt))
        losses.clear()
        """)
    cell = """
        for net, opt in pairs:
            steps(net, opt)
        nets, opts = [net for net, _ in pairs], [opt for _, opt in pairs]
        """
    both = run_both(torch_shell, earlier, cell)
    # Adam-like steps turn rounding noise of tiny gradients into shares of a step (lr 0.01).
    both.check_same("losses", "nets", "opts", tolerance=3e-3)
    assert both.report.host_reads == 0
    assert both.report.compiles <= 3 * len(kinds)


CELLS = {
    "tied weights": (
        """
        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.emb = nn.Embedding(20, 8)
                self.out = nn.Linear(8, 20, bias=False)
                self.out.weight = self.emb.weight
            def forward(self, i): return self.out(self.emb(i).mean(1))
        net = Tied()
        opt = torch.optim.Adam(net.parameters(), lr=0.01)
        I = torch.randint(0, 20, (16, 5))
        Y = torch.randint(0, 20, (16,))
        """,
        "steps(net, opt, x=I, y=Y)\nlosses.append(float(net.out.weight is net.emb.weight))",
        4,
    ),
    "two modules with one weight": (
        """
        enc, dec = nn.Linear(6, 12), nn.Linear(12, 6)
        dec.weight = nn.Parameter(enc.weight.detach().t().clone())
        mid = nn.Linear(6, 12)
        mid.weight = enc.weight
        net = nn.ModuleList([enc, dec, mid])
        opt = torch.optim.AdamW([*enc.parameters(), *dec.parameters(), mid.bias])
        """,
        """
        for _ in range(10):
            opt.zero_grad()
            loss = F.mse_loss(dec(torch.tanh(enc(X)) + mid(X)), X)
            loss.backward()
            opt.step()
            losses.append(loss.detach())
        losses.append(float(enc.weight is mid.weight))
        """,
        4,
    ),
    "in a list, a dict and a holder": (
        """
        from types import SimpleNamespace
        class Trainer:
            def __init__(self, model): self.model, self.opt = model, torch.optim.Adam(model.parameters())
            def fit(self, n):
                for _ in range(n):
                    self.opt.zero_grad()
                    loss = F.cross_entropy(self.model(X), Y)
                    loss.backward()
                    self.opt.step()
                    losses.append(loss.detach())
        trainer = Trainer(make_net())
        models = {"a": make_net()}
        listed = [make_net()]
        held = SimpleNamespace(net=make_net())
        """,
        """
        trainer.fit(5)
        net = trainer.model
        for m in (models["a"], listed[0], held.net):
            steps(m, torch.optim.SGD(m.parameters(), lr=0.1), 3)
        """,
        8,
    ),
    "made in the cell": (
        "",
        """
        net = make_net()
        opt = torch.optim.Adam(net.parameters(), lr=0.01)
        sched = torch.optim.lr_scheduler.StepLR(opt, 3, 0.5)
        for _ in range(10):
            steps(net, opt, 1)
            sched.step()
        losses.append(opt.param_groups[0]["lr"])
        """,
        5,
    ),
    "to the device of copied code": (
        "",
        """
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        net = make_net().to(device)
        opt = torch.optim.Adam(net.parameters(), lr=0.01)
        steps(net, opt, 10, X.to(device), Y.to(device))
        """,
        5,
    ),
    "device variable of an earlier cell": (
        "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
        "net = make_net().to(device)\nopt = torch.optim.Adam(net.parameters(), lr=0.01)",
        """
        net.to(device)
        steps(net, opt, 10, X.to(device), Y.to(device))
        """,
        4,
    ),
    "LSTM": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn = nn.LSTM(3, 8, num_layers=2, batch_first=True, bidirectional=True)
                self.head = nn.Linear(16, 2)
            def forward(self, x):
                h0 = torch.zeros(4, x.size(0), 8)
                out, (h, c) = self.rnn(x, (h0, torch.zeros(4, x.size(0), 8)))
                return self.head(out[:, -1])
        net = Net()
        opt = torch.optim.Adam(net.parameters(), lr=0.01)
        S = torch.randn(16, 4, 3)
        """,
        "steps(net, opt, x=S)",
        4,
    ),
    "GRU, trained before": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn = nn.GRU(3, 8, batch_first=True)
                self.head = nn.Linear(8, 2)
            def forward(self, x): return self.head(self.rnn(x)[0][:, -1])
        net = Net()
        opt = torch.optim.RMSprop(net.parameters(), lr=0.01)
        S = torch.randn(16, 4, 3)
        steps(net, opt, 3, x=S)
        """,
        "steps(net, opt, x=S)",
        4,
    ),
    "a cell unrolled by hand": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.cell = nn.GRUCell(3, 8)
                self.head = nn.Linear(8, 2)
            def forward(self, x):
                h = torch.zeros(x.shape[0], 8)
                out = torch.zeros(x.shape[0], x.shape[1], 8)
                for t in range(x.shape[1]):
                    h = self.cell(x[:, t], h)
                    out[:, t] = h
                return self.head(out.mean(1))
        net = Net()
        opt = torch.optim.Adam(net.parameters(), lr=0.01)
        S = torch.randn(16, 4, 3)
        """,
        "steps(net, opt, x=S)",
        4,
    ),
    "transformer with a positional encoding as an attribute": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.emb = nn.Embedding(20, 16)
                self.pe = torch.zeros(50, 16)
                pos = torch.arange(0, 50).unsqueeze(1)
                self.pe[:, 0::2] = torch.sin(pos / 10)
                self.pe[:, 1::2] = torch.cos(pos / 10)
                layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
                self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
                self.head = nn.Linear(16, 2)
            def forward(self, i):
                b, t = i.shape
                positions = torch.arange(t)
                mask = torch.triu(torch.full((t, t), float("-inf")), diagonal=1)
                x = self.emb(i) + self.pe[positions] + self.pe[:t]
                return self.head(self.enc(x, mask=mask)[:, -1])
        net = Net()
        # Not Adam: the bias of the keys has no true gradient, and Adam steps by the sign of
        # what rounding leaves of it.
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        I = torch.randint(0, 20, (16, 5))
        """,
        "steps(net, opt, x=I)",
        4,
    ),
    "attention": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.att = nn.MultiheadAttention(6, 2, batch_first=True)
                self.head = nn.Linear(6, 2)
            def forward(self, x):
                y, w = self.att(x, x, x)
                return self.head(y.mean(1))
        net = Net()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        S = torch.randn(16, 4, 6)
        """,
        "steps(net, opt, x=S)",
        4,
    ),
    "batch norm, dropout off, evaluation": (
        """
        net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.BatchNorm1d(12), nn.Linear(12, 2))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        """,
        """
        steps(net, opt)
        net.eval()
        with torch.no_grad():
            losses.append(net(X))
        losses.append(float(net[2].num_batches_tracked))
        """,
        6,
    ),
    "weight norm, spectral norm, parametrizations": (
        """
        import warnings
        from torch.nn.utils import parametrizations, parametrize
        class Symmetric(nn.Module):
            def forward(self, w): return w.triu() + w.triu(1).t()
        a = parametrizations.weight_norm(nn.Linear(6, 12))
        b = parametrizations.spectral_norm(nn.Linear(12, 12))
        c = nn.Linear(12, 12)
        parametrize.register_parametrization(c, "weight", Symmetric())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            d = nn.utils.weight_norm(nn.Linear(12, 2))
        net = nn.Sequential(a, nn.Tanh(), b, nn.Tanh(), c, nn.Tanh(), d)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        """,
        TEN_STEPS,
        8,
    ),
    "average of weights": (
        """
        from torch.optim.swa_utils import AveragedModel, update_bn, SWALR, get_ema_multi_avg_fn
        net = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 2))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        ema = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))
        swa = AveragedModel(net)
        sched = SWALR(opt, swa_lr=0.05)
        """,
        """
        for _ in range(10):
            steps(net, opt, 1)
            ema.update_parameters(net)
            swa.update_parameters(net)
            sched.step()
        update_bn([X, X], swa)
        losses += [ema.state_dict(), swa.state_dict()]
        """,
        16,
    ),
    "average by hand": (
        """
        net = make_net()
        ema = copy.deepcopy(net)
        opt = torch.optim.Adam(net.parameters(), lr=0.01)
        """,
        """
        shadow = {k: v.clone() for k, v in net.state_dict().items()}
        for _ in range(10):
            steps(net, opt, 1)
            with torch.no_grad():
                for p, q in zip(net.parameters(), ema.parameters()):
                    q.mul_(0.9).add_(p, alpha=0.1)
                for k, v in net.state_dict().items():
                    shadow[k] = 0.9 * shadow[k] + 0.1 * v
        losses += [ema.state_dict(), shadow]
        """,
        6,
    ),
    "best weights kept and loaded back": (
        """
        net = make_net()
        opt = torch.optim.SGD(net.parameters(), lr=0.5)
        """,
        """
        best, best_state = float("inf"), None
        for _ in range(10):
            steps(net, opt, 1)
            value = losses[-1].item()
            if value < best:
                best, best_state = value, copy.deepcopy(net.state_dict())
        other = make_net()
        other.load_state_dict(best_state)
        net.load_state_dict(best_state)
        losses += [best, net(X), other(X)]
        """,
        16,
    ),
    "frozen part, parameter groups, clipping": (
        """
        net = make_net()
        for p in net[0].parameters(): p.requires_grad = False
        opt = torch.optim.AdamW([{"params": net[2].weight}, {"params": [net[2].bias], "lr": 0.1}], lr=0.01)
        """,
        """
        for _ in range(10):
            opt.zero_grad()
            loss = F.cross_entropy(net(X), Y)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(net.parameters(), 0.1)
            nn.utils.clip_grad_value_(net.parameters(), 0.05)
            opt.step()
            losses += [loss.detach(), norm]
        """,
        4,
    ),
    "schedulers that read": (
        """
        net = make_net()
        opt = torch.optim.SGD(net.parameters(), lr=0.5)
        sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=0, threshold=0.5)
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10)
        """,
        """
        for _ in range(6):
            steps(net, opt, 1)
            sched.step(losses[-1])
            losses.append(opt.param_groups[0]["lr"])
            cosine.step()
        """,
        12,
    ),
    "learning rate changes each step": (
        """
        net = make_net()
        opt = torch.optim.Adam(net.parameters(), lr=0.1)
        sched = torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=20)
        """,
        """
        for _ in range(10):
            steps(net, opt, 1)
            sched.step()
        """,
        4,
    ),
    "hooks of all kinds": (
        """
        net = make_net()
        seen = []
        net[0].weight.register_hook(lambda g: g * 0.5)
        net[0].bias.register_post_accumulate_grad_hook(lambda p: seen.append(tuple(p.shape)))
        net[2].register_forward_hook(lambda m, a, out: out * 2)
        net[2].register_forward_pre_hook(lambda m, a: (a[0] + 1,))
        net[2].register_full_backward_hook(lambda m, gi, go: seen.append("full"))
        net.register_load_state_dict_post_hook(lambda m, k: seen.append("loaded"))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        opt.register_step_post_hook(lambda *a: seen.append("stepped"))
        """,
        """
        steps(net, opt, 3)
        net.load_state_dict(net.state_dict())
        losses.append(seen)
        """,
        4,
    ),
    "a list of parameters": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.ws = nn.ParameterList([torch.randn(6, 6) * 0.1 for _ in range(3)])
                self.scale = nn.ParameterDict({"s": nn.Parameter(torch.ones(6))})
                self.out = nn.Linear(6, 2)
            def forward(self, x):
                for w in self.ws:
                    x = torch.tanh(x @ w) * self.scale["s"]
                return self.out(x)
        net = Net()
        opt = torch.optim.Adam(net.parameters(), lr=0.01)
        """,
        TEN_STEPS,
        4,
    ),
    "parameters without a module": (
        """
        W = torch.randn(6, 2, requires_grad=True)
        b = torch.zeros(2, requires_grad=True)
        opt = torch.optim.SGD([W, b], lr=0.1)
        net = make_net()
        """,
        """
        for _ in range(10):
            opt.zero_grad()
            loss = F.cross_entropy(X @ W + b, Y)
            loss.backward()
            opt.step()
            losses.append(loss.detach())
        losses += [W, b]
        net(X)
        """,
        5,
    ),
    "updates by hand": (
        """
        W = torch.randn(6, 2, requires_grad=True)
        b = torch.zeros(2, requires_grad=True)
        net = make_net()
        """,
        """
        for _ in range(10):
            loss = F.cross_entropy(X @ W + b, Y)
            loss.backward()
            with torch.no_grad():
                W -= 0.1 * W.grad
                b -= 0.1 * b.grad
            W.grad.zero_()
            b.grad = None
            losses.append(loss.detach())
        losses += [W, b]
        net(X)
        """,
        6,
    ),
    "sparse embedding": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.emb = nn.Embedding(20, 8, sparse=True)
                self.out = nn.Linear(8, 2)
            def forward(self, i): return self.out(self.emb(i).mean(1))
        net = Net()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        I = torch.randint(0, 20, (16, 5))
        """,
        "steps(net, opt, x=I)",
        4,
    ),
    "options of optimizers": (
        """
        nets = [make_net() for _ in range(4)]
        opts = [torch.optim.Adam(nets[0].parameters(), foreach=True),
                torch.optim.Adam(nets[1].parameters(), fused=True),
                torch.optim.AdamW(nets[2].parameters(), amsgrad=True, capturable=False),
                torch.optim.SGD(nets[3].parameters(), lr=0.1, nesterov=True, momentum=0.9, foreach=True)]
        net = nets[0]
        for n, o in zip(nets, opts): steps(n, o, 2)
        """,
        """
        for n, o in zip(nets, opts):
            steps(n, o, 5)
        losses += [n.state_dict() for n in nets]
        """,
        16,
    ),
    "LBFGS": (
        """
        net = nn.Linear(6, 1)
        opt = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=4, history_size=4)
        """,
        """
        def closure():
            opt.zero_grad()
            loss = F.mse_loss(net(X), T)
            loss.backward()
            return loss
        for _ in range(4):
            losses.append(opt.step(closure).detach())
        """,
        6,
    ),
    "two optimizers against each other": (
        """
        G = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6))
        D = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1), nn.Sigmoid())
        opt_g = torch.optim.Adam(G.parameters(), lr=0.002, betas=(0.5, 0.999))
        opt_d = torch.optim.Adam(D.parameters(), lr=0.002, betas=(0.5, 0.999))
        bce = nn.BCELoss()
        net = nn.ModuleList([G, D])
        """,
        """
        for _ in range(10):
            real, fake = torch.ones(16, 1), torch.zeros(16, 1)
            z = torch.randn(16, 4)
            opt_d.zero_grad()
            made = G(z)
            d_loss = bce(D(X), real) + bce(D(made.detach()), fake)
            d_loss.backward()
            opt_d.step()
            opt_g.zero_grad()
            g_loss = bce(D(made), real)
            g_loss.backward()
            opt_g.step()
            losses += [d_loss.detach(), g_loss.detach()]
        """,
        6,
    ),
    "autocast and a gradient scaler": (
        """
        import warnings
        net = make_net()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        """,
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scaler = torch.amp.GradScaler("cuda", enabled=torch.cuda.is_available())
            old = torch.cuda.amp.GradScaler(enabled=torch.cuda.is_available())
            for i in range(10):
                opt.zero_grad()
                with torch.autocast("cuda", enabled=False):
                    loss = F.cross_entropy(net(X), Y)
                s = scaler if i % 2 else old
                s.scale(loss).backward()
                s.unscale_(opt)
                s.step(opt)
                s.update()
                losses.append(loss.detach())
        """,
        10,
    ),
    "a function with its own backward": (
        """
        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x
            @staticmethod
            def backward(ctx, g):
                x, = ctx.saved_tensors
                return g * 2 * x * 0.5
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 2)
            def forward(self, x): return self.b(Square.apply(self.a(x)))
        net = Net()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        """,
        TEN_STEPS,
        4,
    ),
    "checkpointing": (
        """
        from torch.utils.checkpoint import checkpoint
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 2)
            def forward(self, x):
                return self.b(checkpoint(lambda y: torch.tanh(self.a(y)), x, use_reentrant=False))
        net = Net()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        """,
        TEN_STEPS,
        4,
    ),
    "functional transforms": (
        """
        from torch.func import functional_call, grad, vmap
        net = make_net()
        """,
        """
        params = {k: v.detach() for k, v in net.named_parameters()}
        def loss_of(p, x, y):
            return F.cross_entropy(functional_call(net, p, (x[None],)), y[None])
        per_sample = vmap(grad(loss_of), in_dims=(None, 0, 0))(params, X, Y)
        losses += [per_sample, torch.autograd.functional.jacobian(lambda x: net(x).sum(0), X)]
        """,
        16,
    ),
    "gradients by hand": (
        "net = make_net()",
        """
        x = X.clone().requires_grad_(True)
        out = net(x)
        g, = torch.autograd.grad(out.sum(), x, create_graph=True)
        penalty = ((g.norm(2, dim=1) - 1) ** 2).mean()
        penalty.backward()
        losses += [g.detach(), [p.grad for p in net.parameters() if p.grad is not None]]
        adv = X.clone()
        adv.requires_grad = True
        F.cross_entropy(net(adv), Y).backward()
        losses += [adv.grad, (adv + 0.1 * adv.grad.sign()).detach()]
        """,
        6,
    ),
    "a scripted module": (
        """
        import warnings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            net = torch.jit.script(nn.Sequential(nn.Linear(6, 12), nn.SiLU(), nn.Linear(12, 2)))
            traced = torch.jit.trace(make_net(), X)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        """,
        """
        steps(net, opt)
        losses.append(traced(X).detach())
        """,
        6,
    ),
    "a module in parallel wrapping": (
        """
        inner = make_net()
        net = nn.DataParallel(inner)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        """,
        TEN_STEPS,
        4,
    ),
    "a deep copy in the cell": (
        "net = make_net()\nopt = torch.optim.SGD(net.parameters(), lr=0.1)",
        """
        steps(net, opt, 3)
        twin = copy.deepcopy(net)
        steps(net, opt, 3)
        other = torch.optim.SGD(twin.parameters(), lr=0.1)
        steps(twin, other, 3)
        losses.append(twin(X).detach())
        """,
        8,
    ),
    "weights drawn again in the cell": (
        "net = make_net()",
        """
        def init(m):
            if isinstance(m, nn.Linear):
                nn.init.xavier_uniform_(m.weight)
                nn.init.zeros_(m.bias)
        net.apply(init)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        steps(net, opt)
        """,
        4,
    ),
    "gradients looked at": (
        "net = make_net()\nopt = torch.optim.SGD(net.parameters(), lr=0.1)",
        """
        steps(net, opt, 3)
        norms = [p.grad.norm().item() for p in net.parameters()]
        total = sum(p.numel() for p in net.parameters())
        flat = nn.utils.parameters_to_vector(net.parameters())
        nn.utils.vector_to_parameters(flat * 0.5, net.parameters())
        losses += [norms, total, flat.detach(), net[0].weight.data.abs().max().item()]
        """,
        12,
    ),
    "lazy layers": (
        "net = nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(2))",
        """
        net(X)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        steps(net, opt, 5)
        """,
        5,
    ),
    "a convolutional net": (
        """
        net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2))
        opt = torch.optim.Adam(net.parameters(), lr=0.01)
        P = torch.randn(16, 1, 8, 8)
        """,
        "steps(net, opt, x=P)",
        4,
    ),
    "a variational autoencoder's parts": (
        """
        class VAE(nn.Module):
            def __init__(self):
                super().__init__()
                self.enc, self.mu, self.lv, self.dec = nn.Linear(6, 8), nn.Linear(8, 2), nn.Linear(8, 2), nn.Linear(2, 6)
            def encode(self, x):
                h = F.relu(self.enc(x))
                return self.mu(h), self.lv(h)
            def decode(self, z): return torch.sigmoid(self.dec(z))
        net = VAE()
        opt = torch.optim.Adam(net.parameters(), lr=0.01)
        """,
        """
        for _ in range(10):
            opt.zero_grad()
            mu, lv = net.encode(X)
            eps = torch.randn(16, 2)
            out = net.decode(mu + eps * torch.exp(0.5 * lv))
            loss = F.binary_cross_entropy(out, torch.sigmoid(X), reduction="sum") \\
                - 0.5 * torch.sum(1 + lv - mu.pow(2) - lv.exp())
            loss.backward()
            opt.step()
            losses.append(loss.detach())
        sample = net.decode(torch.randn(3, 2)).detach()
        losses.append(sample)
        """,
        6,
    ),
    "averages of models that were not called": (
        """
        net = make_net()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        """,
        """
        average, target = copy.deepcopy(net), copy.deepcopy(net)
        for _ in range(5):
            steps(net, opt, n=1)
            with torch.no_grad():
                for mean, now in zip(average.parameters(), net.parameters()):
                    mean.data.mul_(0.9).add_(now.data, alpha=0.1)
            for slow, now in zip(target.parameters(), net.parameters()):
                slow.data.copy_(0.05 * now.data + 0.95 * slow.data)
        losses += [average(X).detach(), target(X).detach()]
        """,
        8,
    ),
    "packed sequences": (
        """
        from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn = nn.LSTM(6, 5, batch_first=True, bidirectional=True)
                self.head = nn.Linear(10, 2)
            def forward(self, x, lengths):
                packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
                out, (h, _) = self.rnn(packed)
                out, _ = pad_packed_sequence(out, batch_first=True)
                return self.head(torch.cat([h[-2], h[-1]], 1) + out.mean(1))
        net = Net()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        S = torch.randn(4, 5, 6)
        """,
        """
        for step in range(4):
            lengths = torch.tensor([5, 2 + step % 3, 3, 1])
            loss = F.cross_entropy(net(S, lengths), Y[:4])
            opt.zero_grad(); loss.backward(); opt.step()
            losses.append(loss.item())
        """,
        12,
    ),
    "a small language model": (
        """
        place = "cuda" if torch.cuda.is_available() else "cpu"
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.word, self.position = nn.Embedding(9, 8), nn.Embedding(4, 8)
                self.head = nn.Linear(8, 9)
                self.register_buffer("mask", torch.tril(torch.ones(4, 4)))
            def forward(self, words):
                length = words.shape[1]
                x = self.word(words) + self.position(torch.arange(length, device=place))
                weights = (x @ x.transpose(-2, -1)).masked_fill(
                    self.mask[:length, :length] == 0, float("-inf"))
                return self.head(F.softmax(weights, dim=-1) @ x)
        net = Net()
        text = torch.randint(0, 9, (30,))
        """,
        """
        place = "cuda" if torch.cuda.is_available() else "cpu"
        net.to(place)
        opt = torch.optim.AdamW(net.parameters(), lr=0.01)
        for _ in range(4):
            starts = torch.randint(25, (5,))
            words = torch.stack([text[i:i + 4] for i in starts]).to(place)
            following = torch.stack([text[i + 1:i + 5] for i in starts]).to(place)
            loss = F.cross_entropy(net(words).view(-1, 9), following.view(-1))
            opt.zero_grad(); loss.backward(); opt.step()
        words = torch.zeros((1, 1), dtype=torch.long, device=place)
        for _ in range(6):
            following = net(words[:, -4:])[:, -1, :].argmax(-1, keepdim=True)
            words = torch.cat((words, following), dim=1)
        losses += words[0].tolist() + [loss.item()]
        """,
        10,
    ),
    "an image that is optimised": (
        """
        net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Conv2d(3, 2, 3))
        net.requires_grad_(False)
        image, wanted = torch.rand(1, 1, 8, 8), torch.rand(1, 2, 4, 4)
        """,
        """
        image.requires_grad_(True)
        opt = torch.optim.LBFGS([image], max_iter=12)
        def closure():
            opt.zero_grad()
            loss = F.mse_loss(net(image), wanted)
            loss.backward()
            return loss
        losses += [opt.step(closure).item(), opt.step(closure).item()]
        """,
        6,
    ),
    "policy gradients": (
        """
        from torch.distributions import Categorical, Normal
        net = make_net()
        opt = torch.optim.Adam(net.parameters(), lr=0.01)
        """,
        """
        for _ in range(5):
            dist = Categorical(logits=net(X))
            loss = -(dist.log_prob(Y) * T[:, 0]).mean() - 0.01 * dist.entropy().mean()
            loss = loss - 1e-3 * Normal(0.0, 1.0).log_prob(net(X)).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.detach())
        """,
        8,
    ),
}


@pytest.mark.parametrize("kind", CELLS)
def test_the_numbers_are_those_of_the_host(torch_shell, kind):
    earlier, cell, most_compiles = CELLS[kind]
    both = run_both(torch_shell, EARLIER + textwrap.dedent(earlier), cell)
    both.check_same("losses", "net", tolerance=1e-3)
    assert both.report.reached_device
    assert next(both.device["net"].parameters()).device.type == "xla"
    assert both.report.compiles <= most_compiles
