"""`--profile` for torch cells: what host and device did, written by XLA's own profiler.

Seen to write device operations, steps and compiler passes of XLA's CPU devices; on a TPU the
same profiler also reads the chip's own counters.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from IPython.core.error import UsageError
from torch_xla.debug import profiler

_DEFAULT = "tpu_profile"
_WHERE = (
    "profile: the newest folder in {folder} (*.trace.json.gz opens in ui.perfetto.dev, the "
    "whole in TensorBoard's profile plugin: tensorboard --logdir {root})"
)
_RUNNING = (
    "--profile: a profile is being taken in this kernel already; end it with "
    "torch_xla.debug.profiler.stop_trace()"
)


def sentence(folder: str) -> str:
    """Say where the profile of a cell lies, for its report."""
    root = _root(folder)
    return _WHERE.format(folder=root / "plugins" / "profile", root=root)


@contextmanager
def profiling(folder: str) -> Iterator[None]:
    """Write a profile of what runs in this context into a folder (`tpu_profile` when empty).

    Raises
    ------
    UsageError
        When the folder cannot be made, or a profile is being taken already.
    """
    root = _root(folder)
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--profile: {root} cannot be made ({error.strerror})") from None
    try:
        profiler.start_trace(root)
    except RuntimeError:
        raise UsageError(_RUNNING) from None
    try:
        yield
    finally:
        profiler.stop_trace()


def _root(folder: str) -> Path:
    return Path(folder or _DEFAULT).expanduser().absolute()
