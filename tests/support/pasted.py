"""Run the same cells on the host and on the device, and compare what they leave behind."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from textwrap import dedent

# What float32 arithmetic in another order may differ by after ten steps.
TOLERANCE = 2e-4


@dataclass
class Both:
    """One piece of code after two runs: `host` and `device` are the two namespaces."""

    host: dict
    device: dict
    report: object

    def check_same(self, *names, tolerance=TOLERANCE):
        """Fail unless the named results have the same values after both runs."""
        for name in names:
            same(self.device[name], self.host[name], tolerance, name)
        return self


def run_both(shell, earlier, cell, options=""):
    """Run `earlier` and then `cell` on the host alone, then with the cell on the device."""
    import torch

    earlier, cell = dedent(earlier), dedent(cell)
    host = {"__name__": "host_run", "__builtins__": builtins}
    for source in (earlier, cell):
        torch.manual_seed(0)
        exec(compile(source, "<host run>", "exec"), host)
    torch.manual_seed(0)
    shell.run(earlier)
    torch.manual_seed(0)
    shell.run(f"%%tpu_run -q -o report --framework torch {options}\n{cell}")
    return Both(host, shell.user_ns, shell.user_ns["report"])


def same(got, expected, tolerance=TOLERANCE, where="result"):
    """Fail unless two values are the same, whatever device their tensors are on."""
    import numpy as np
    import torch

    if isinstance(expected, torch.nn.Module):
        got, expected = got.state_dict(), expected.state_dict()
    if isinstance(expected, torch.optim.Optimizer):
        got, expected = got.state_dict()["state"], expected.state_dict()["state"]
    if isinstance(expected, torch.Tensor):
        assert isinstance(got, torch.Tensor), f"{where}: {type(got)}"
        assert got.dtype == expected.dtype, f"{where}: {got.dtype} for {expected.dtype}"
        assert got.shape == expected.shape, f"{where}: {got.shape} for {expected.shape}"
        torch.testing.assert_close(
            got.detach().cpu(),
            expected.detach(),
            rtol=tolerance,
            atol=tolerance,
            msg=lambda text: f"{where}: {text}",
        )
    elif isinstance(expected, (float, np.ndarray, np.generic)):
        np.testing.assert_allclose(got, expected, tolerance, tolerance, err_msg=where)
    elif isinstance(expected, dict):
        assert list(got) == list(expected), where
        for key in expected:
            same(got[key], expected[key], tolerance, f"{where}[{key!r}]")
    elif isinstance(expected, (list, tuple)):
        assert len(got) == len(expected), where
        for index, pair in enumerate(zip(got, expected, strict=True)):
            same(*pair, tolerance, f"{where}[{index}]")
    else:
        assert got == expected, where
