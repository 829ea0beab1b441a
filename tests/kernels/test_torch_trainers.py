"""Trainers of other libraries in a cell: accelerate, Lightning, Hugging Face's `Trainer`.

What they must come to is worked out by the same code in a process that never sees an XLA
device.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

import pytest

from tests.support.kernels import ANSI, RUNTIME_VARIABLES, Kernel

pytestmark = [pytest.mark.kernel, pytest.mark.torch, pytest.mark.timeout(600)]

OFFLINE = {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
PRELUDE = """
import torch
from torch.utils.data import DataLoader, TensorDataset

def mlp():
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
def batches():
    return DataLoader(TensorDataset(torch.randn(40, 6), torch.randn(40, 1)), batch_size=8)
"""
ACCELERATE = """
from accelerate import Accelerator
torch.manual_seed(0)
net, loader = mlp(), batches()
opt = torch.optim.Adam(net.parameters(), lr=0.05)
accelerator = Accelerator()
net, opt, loader = accelerator.prepare(net, opt, loader)
losses = []
for epoch in range(2):
    for x, y in loader:
        with accelerator.accumulate(net):
            opt.zero_grad()
            loss = torch.nn.functional.mse_loss(net(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
    losses.append(loss.item())
result = [losses, accelerator.unwrap_model(net).state_dict()]
"""
LIGHTNING = """
import lightning as L
class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = mlp()
    def step(self, name, batch):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.net(x), y)
        self.log(name, loss)
        return loss
    def training_step(self, batch, index): return self.step("loss", batch)
    def validation_step(self, batch, index): return self.step("val", batch)
    def configure_optimizers(self): return torch.optim.Adam(self.parameters(), lr=0.05)
torch.manual_seed(0)
net, loader = Lit(), batches()
quiet = dict(enable_progress_bar=False, logger=False, enable_checkpointing=False,
             enable_model_summary=False)
trainer = L.Trainer(max_epochs=2, **quiet)
trainer.fit(net, loader, loader)
result = [{k: float(v) for k, v in trainer.callback_metrics.items()}, net.state_dict()]
"""
HUGGING_FACE = """
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
torch.manual_seed(0)
net = BertForSequenceClassification(BertConfig(
    vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
data = [dict(input_ids=torch.randint(0, 50, (12,)), attention_mask=torch.ones(12, dtype=torch.long),
             labels=torch.tensor(i % 2)) for i in range(40)]
args = TrainingArguments(
    output_dir="unused", num_train_epochs=2, per_device_train_batch_size=8, report_to=[],
    save_strategy="no", logging_steps=5, learning_rate=1e-3, seed=3, disable_tqdm=True)
trainer = Trainer(model=net, args=args, train_dataset=data, eval_dataset=data[:10])
trainer.train()
losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
result = [losses, trainer.evaluate()["eval_loss"], trainer.predict(data[:10]).predictions,
          net.state_dict()]
"""


@dataclass
class Case:
    """A trainer's loop, and where it leaves its model (Lightning takes it back itself)."""

    code: str
    left_on: str = "xla"


CASES = {
    "accelerate": Case(ACCELERATE),
    "lightning": Case(LIGHTNING, left_on="cpu"),
    "hugging face trainer": Case(HUGGING_FACE),
}


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Return a function that gives the file of a case's result on the processor alone."""
    folder, files = tmp_path_factory.mktemp("expected"), {}

    def of(name):
        if name not in files:
            files[name] = path = folder / f"{name}.pt"
            code = f"{PRELUDE}{CASES[name].code}\ntorch.save(result, {str(path)!r})"
            code += "\nassert next(net.parameters()).device.type == 'cpu'"
            environment = {
                # Not what the runtime of the tests' own process left there (XLA_USE_SPMD).
                **{k: v for k, v in os.environ.items() if not k.startswith(RUNTIME_VARIABLES)},
                **OFFLINE,
                "USE_TORCH_XLA": "0",
                "CUDA_VISIBLE_DEVICES": "",
            }
            done = subprocess.run(
                [sys.executable, "-W", "ignore", "-c", code],
                env=environment,
                cwd=folder,
                check=False,
                timeout=300,
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done.stderr
        return files[name]

    return of


@pytest.fixture(scope="module", params=[1, 4], ids="{0} devices".format)
def on_devices(request):
    """Return a kernel with 1 or 4 virtual devices."""
    pytest.importorskip("torch_xla")
    with Kernel(sys.executable, devices=request.param, **OFFLINE) as kernel:
        kernel.run("%load_ext tpu_magic\n%config TpuMagics.live = False").check()
        kernel.run(f"from tests.support.pasted import same\n{PRELUDE}").check()
        kernel.devices = request.param
        yield kernel


@pytest.mark.parametrize("name", CASES)
def test_it_trains_on_the_device_with_the_numbers_of_the_host(on_devices, expected, name):
    case = CASES[name]
    reply = on_devices.run(f"%%tpu_run\n{case.code}", timeout=300).check()
    on_devices.run(
        f"same(result, torch.load({str(expected(name))!r}, weights_only=False))\n"
        f"assert next(net.parameters()).device.type == {case.left_on!r}"
    ).check()
    (report,) = reply.reports
    assert report["reached_device"]
    assert report["num_devices"] == on_devices.devices
    assert (report["steps"], report["examples"], report["global_batch"]) == (10, 80, 8)


@pytest.mark.parametrize("accelerator", ["tpu", "gpu"])
def test_lightning_is_not_to_choose_a_device(on_devices, accelerator):
    reply = on_devices.run(
        f"%%tpu_run\nimport lightning as L\nL.Trainer(accelerator={accelerator!r})"
    )
    assert reply.ename == "MisconfigurationException"
    (line,) = ANSI.sub("", reply.stdout).strip().splitlines()
    assert line.startswith("in a %%tpu_run cell leave `accelerator` out")


def test_lightning_asks_for_chips_again_after_the_cell(on_devices):
    asked = "XLAAccelerator.auto_device_count()"
    on_devices.run(
        "from lightning.fabric.accelerators.xla import XLAAccelerator\n"
        "from torch_xla._internal import tpu\n"
        "before, tpu.num_available_devices = tpu.num_available_devices, lambda: 8\n"
        "XLAAccelerator.auto_device_count.cache_clear()"
    ).check()
    try:
        assert on_devices.run(asked).check().value == "8"
        inside = on_devices.run(f"%%tpu_run -q\ntorch.ones(2, 2) @ torch.ones(2, 2)\n{asked}")
        assert inside.check().value == "0"
        assert on_devices.run(asked).check().value == "8"
    finally:
        on_devices.run(
            "tpu.num_available_devices = before\nXLAAccelerator.auto_device_count.cache_clear()"
        ).check()
