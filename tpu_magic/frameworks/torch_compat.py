"""Where torch on XLA differs from torch on the host: made the same while a cell runs.

Each entry replaces a function of torch by one that does for device tensors what torch does
for host tensors; calls with host tensors go to the original.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch_xla
from torch import Tensor
from torch.nn import functional
from torch.optim import optimizer
from torch.overrides import has_torch_function_variadic

Function = Callable[..., Any]
# A replacement is made of what it replaces; None where there was nothing.
Replace = Callable[[Any], Any]


def _batch_norm(original: Function) -> Function:
    """Average the variance of a sample, not of a population, as torch does.

    XLA's kernel adds the biased variance to `running_var`: after ten steps of 16 rows, a
    model in evaluation is off in the second digit.
    """

    @functools.wraps(original)
    def batch_norm(  # noqa: PLR0917 - torch's own signature
        input: Tensor,  # noqa: A002 - torch's name for it
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Any:
        __tracebackhide__ = True
        arguments = (input, running_mean, running_var, weight, bias, training, momentum, eps)
        if has_torch_function_variadic(input, weight):
            return original(*arguments)  # a mode: it calls this function again, by its name
        values = input.numel() // input.shape[1] if input.dim() > 1 else 0
        if not training or running_var is None or values < 2 or running_var.device.type != "xla":  # noqa: PLR2004
            return original(*arguments)
        # The kernel gives (1 - m) old + m var; torch, (1 - m) old + m var n / (n - 1). Written
        # by way of `data`, which backward does not watch; it does not need these values.
        unbias = values / (values - 1)
        running = running_var.data
        old = running * ((1 - momentum) * (1 - unbias))
        result = original(*arguments)
        running.copy_(torch.add(old, running_var.data, alpha=unbias))
        return result

    return batch_norm


def _embedding(original: Function) -> Function:
    """Give dense gradients where sparse ones were asked for: XLA has no sparse tensors."""

    @functools.wraps(original)
    def embedding(input: Tensor, weight: Tensor, *args: Any, **kwargs: Any) -> Any:  # noqa: A002
        __tracebackhide__ = True
        if weight.device.type == "xla":
            kwargs["sparse"] = False
            args = args[:4]
        return original(input, weight, *args, **kwargs)

    return embedding


def _index_select(original: Function) -> Function:
    """Select as an index does: where the rows are split, the partitioner ends the process.

    It fails a check when the positions come from `sort` or `max`.
    """

    @functools.wraps(original)
    def index_select(input: Tensor, dim: Any, index: Tensor, **kwargs: Any) -> Any:  # noqa: A002
        __tracebackhide__ = True
        there = input.device.type == "xla" and type(dim) is int
        if not there or kwargs or index.dim() != 1 or not input.dim():
            return original(input, dim, index, **kwargs)
        return input[(slice(None),) * (dim % input.dim()) + (index,)]

    return index_select


def _addmm(original: Function) -> Function:
    """Compute `beta` and `alpha` on the device; its kernel knows only 1 and falls back."""

    @functools.wraps(original)
    def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, **kwargs: Any) -> Any:  # noqa: A002
        __tracebackhide__ = True
        beta, alpha = kwargs.get("beta", 1), kwargs.get("alpha", 1)
        if (beta, alpha) == (1, 1) or "out" in kwargs or mat1.device.type != "xla":
            return original(input, mat1, mat2, **kwargs)
        return beta * input + alpha * (mat1 @ mat2)

    return addmm


def _absolute(original: Function) -> Function:
    """Return the real modulus of complex numbers; XLA's kernel calls it complex."""

    @functools.wraps(original)
    def absolute(input: Tensor, *args: Any, **kwargs: Any) -> Any:  # noqa: A002
        __tracebackhide__ = True
        if not args and not kwargs and input.is_complex() and input.device.type == "xla":
            return torch.view_as_real(input).square().sum(-1).sqrt()
        return original(input, *args, **kwargs)

    return absolute


def _clone(original: Function) -> Function:
    """Give a clone memory of its own: XLA's shares the original's until its first step end.

    A clone that was read before it is written to takes the original's buffer with it.
    """

    @functools.wraps(original)
    def clone(input: Tensor, *args: Any, **kwargs: Any) -> Any:  # noqa: A002 - torch's name
        __tracebackhide__ = True
        return original(computed(input), *args, **kwargs)

    return clone


def _copy(original: Function) -> Function:
    """Copy values, not a reference to the source's memory, which XLA's kernel does.

    After `target.copy_(source)` (`load_state_dict`) and a step end, writing to the target
    would give the buffer of both away.
    """

    @functools.wraps(original)
    def copy_(target: Tensor, source: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return original(target, computed(source), *args, **kwargs)

    return copy_


def _foreach_copy(original: Function) -> Function:
    @functools.wraps(original)
    def _foreach_copy_(targets: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return original(targets, [computed(source) for source in sources], *args, **kwargs)

    return _foreach_copy_


def computed(tensor: Any) -> Any:
    """Return a device tensor as the result of an operation, which has a buffer of its own."""
    if isinstance(tensor, Tensor) and tensor.device.type == "xla":
        return tensor.reshape(tensor.shape)
    return tensor


def _fused_devices(original: Function) -> Function:
    """Let `fused=True` be asked for on the device; the cell takes the plain step instead."""

    @functools.wraps(original)
    def supported() -> list[str]:
        return [*original(), "xla"]

    return supported


def _script(original: Function) -> Function:
    """Script with torch's own functions: what the compiler reads must be their source."""

    @functools.wraps(original)
    def script(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        ours = [
            (owner, name, getattr(owner, name))
            for owner, name, _ in TABLE
            if owner in (functional, torch)
        ]
        try:
            for owner, name, function in ours:
                # The compiler calls `script` again for what it meets: then there is none.
                setattr(owner, name, getattr(function, "__wrapped__", function))
            return original(*args, **kwargs)
        finally:
            for owner, name, function in ours:
                setattr(owner, name, function)

    return script


def _inference_mode(original: Function) -> Function:
    """Run `inference_mode` as `no_grad`: in it, XLA refuses every view of an ordinary tensor."""

    @functools.wraps(original)
    def __enter__(context: Any) -> None:  # noqa: N807
        if not context.mode:
            original(context)
            return
        context._inference_mode_context = torch.no_grad()  # noqa: SLF001 - left by its __exit__
        context._inference_mode_context.__enter__()  # noqa: SLF001

    return __enter__


class DeviceModule:
    """What `torch.cuda` is for CUDA, as far as torch's own code asks for it (checkpointing)."""

    _initialized = True

    @staticmethod
    def device(_: Any) -> AbstractContextManager[None]:
        """Return a context in which a device is the current one: there is one."""
        return contextlib.nullcontext()

    @staticmethod
    def device_count() -> int:
        """Return 1: one device stands for all."""
        return 1

    @staticmethod
    def get_rng_state(_: Any = None) -> Tensor:
        """Return the state of the device's generator."""
        from torch_xla.core import xla_model

        state = xla_model.get_rng_state()  # 64 bits without a sign
        return torch.tensor(state - (1 << 64) if state >> 63 else state)

    @staticmethod
    def set_rng_state(state: Tensor, _: Any = None) -> None:
        """Set the state of the device's generator."""
        torch_xla.manual_seed(int(state) % (1 << 64))


# where, which function, what makes its replacement
TABLE: tuple[tuple[Any, str, Replace], ...] = (
    (functional, "batch_norm", _batch_norm),
    (functional, "embedding", _embedding),
    (torch, "index_select", _index_select),
    (Tensor, "index_select", _index_select),
    (torch, "addmm", _addmm),
    (torch, "abs", _absolute),
    (Tensor, "abs", _absolute),
    (Tensor, "__abs__", _absolute),
    (torch, "clone", _clone),
    (Tensor, "clone", _clone),
    (Tensor, "copy_", _copy),
    (torch, "_foreach_copy_", _foreach_copy),
    (optimizer, "_get_fused_kernels_supported_devices", _fused_devices),
    (torch.jit, "script", _script),
    (torch.inference_mode, "__enter__", _inference_mode),
    (torch, "xla", lambda _: DeviceModule),
)
