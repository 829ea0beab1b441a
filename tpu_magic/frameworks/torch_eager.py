"""PyTorch as it runs by itself: on the processor, or on a CUDA GPU where there is one."""

from __future__ import annotations

import platform
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

from tpu_magic.frameworks.base import (
    Availability,
    DeviceInfo,
    Memory,
    Rows,
)
from tpu_magic.frameworks.untouched import Untouched


class TorchEager(Untouched):
    """Eager PyTorch. Its tensors stay where the person put them; nothing is moved.

    On the processor a call has ended when it returns; on a GPU it is waited for.
    """

    name = "torch-eager"
    no_devices = "eager torch runs on no TPU: use --framework torch"
    no_cell = "a cell without the magic runs on eager torch; leave the magic away"

    @property
    def synchronous(self) -> bool:
        """Whether calls have ended when they return: yes until a GPU has been used."""
        return not _uses_gpu()

    def availability(self) -> Availability:
        """Say whether torch is installed, importing nothing."""
        if find_spec("torch") is None:
            return Availability(False, "torch is not installed", "%tpu_setup --framework torch")
        return Availability(usable=True)

    def connected(self) -> bool:
        """Say whether torch is loaded."""
        return "torch" in sys.modules

    def devices(self) -> DeviceInfo:
        """Return the GPU when it has been used, else the processor."""
        if not _uses_gpu():
            return DeviceInfo("CPU (eager torch)", 1, 1, on_tpu=False, simulated=False)
        import torch

        kind = f"CUDA GPU ({torch.cuda.get_device_name()})"
        return DeviceInfo(kind, 1, torch.cuda.device_count(), on_tpu=False, simulated=False)

    def wait(self) -> None:
        """Block until every GPU has finished; nothing to do on the processor."""
        if not self.synchronous:
            import torch

            for index in range(torch.cuda.device_count()):
                torch.cuda.synchronize(index)

    def memory(self) -> list[Memory]:
        """Return the memory of each GPU that has been used."""
        if not _uses_gpu():
            return []
        import torch

        def of(index: int) -> Memory:
            free, total = torch.cuda.mem_get_info(index)
            return Memory(total - free, torch.cuda.max_memory_allocated(index), total)

        return [of(index) for index in range(torch.cuda.device_count())]

    def arrays(self, value: Any) -> Iterator[Any]:
        """Yield every tensor in containers, modules and optimizers, each once."""
        if not self.connected():
            return
        yield from _tensors(value, set())

    def on_device(self, array: Any) -> bool:
        """Say yes for every tensor with data: eager torch computes where they are."""
        return bool(array.device.type != "meta")

    def revision(self, array: Any) -> int:
        """Return how often a tensor was written to in place."""
        return int(array._version)  # noqa: SLF001 - torch has no public name for it

    def read(self, array: Any) -> None:
        """Bring a tensor's values to the host, which cannot end before they are computed."""
        array.cpu()

    def inspect(self, call: Callable[[], Any]) -> tuple[int | None, str | None]:
        """Make a call; return its floating-point operations, and no program: there is none."""
        flops, _ = count_flops(call)
        return flops, None

    def rng_state(self) -> Any:
        """Return the states of torch's generators: the processor's, and each used GPU's."""
        import torch

        return torch.get_rng_state(), torch.cuda.get_rng_state_all() if _uses_gpu() else []

    def set_rng_state(self, state: Any) -> None:
        """Put those states back."""
        import torch

        processor, gpus = state
        torch.set_rng_state(processor)
        if gpus:
            torch.cuda.set_rng_state_all(gpus)

    def square(self, rows: Rows) -> Rows:
        """Return the product of a matrix with itself, on the GPU where there is one."""
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
        matrix = torch.tensor(rows, dtype=torch.float32, device=device)
        product: Rows = (matrix @ matrix).tolist()
        return product

    def versions(self) -> dict[str, str]:
        """Return the versions of torch and Python."""
        found = {"python": platform.python_version()}
        with suppress(PackageNotFoundError):
            found["torch"] = version("torch")
        return found

    def matmul_precision(self) -> str:
        """Return torch's setting for float32 matrix products."""
        import torch

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch 2.9 warns of its own getter
            return str(torch.get_float32_matmul_precision())


def count_flops(call: Callable[[], Any]) -> tuple[int | None, Any]:
    """Make a call; return its floating-point operations by torch's counter, and its outputs.

    Counts matrix products, convolutions and attention; None when there are none of them.
    """
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        outputs = call()
    return counter.get_total_flops() or None, outputs


def _uses_gpu() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def _tensors(value: Any, seen: set[int]) -> Iterator[Any]:
    import torch

    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, torch.nn.Module):
        yield from value.parameters()
        yield from value.buffers()
    elif isinstance(value, torch.optim.Optimizer):
        for group in value.param_groups:
            yield from group["params"]
        yield from _tensors(list(value.state.values()), seen)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item, seen)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from _tensors(item, seen)
