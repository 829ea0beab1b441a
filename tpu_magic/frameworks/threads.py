"""How many threads XLA needs for several CPU devices, so that none waits for ever."""

from __future__ import annotations

import os

# XLA reads it once, when the devices are made.
_THREADS = "PJRT_NPROC"
_FEW = (
    "these {count} devices were made before tpu_magic, with fewer threads than XLA needs when "
    "programs queue up: a cell may stand still for ever. Restart the kernel and let "
    "%tpu_setup --simulate {count} make them, or set {name}={value} first"
)


def enough_threads(devices: int) -> dict[str, str]:
    """Return the variable that makes XLA's pool of threads large enough for several CPU devices.

    By itself it has one thread a core, or a device if there are more of those. Each device's part
    of a program holds one while it waits for the others' at an all-reduce, and each part of the
    next program holds one while it waits for its turn: with fewer than two a device the last
    parts of the first find none, and all wait for ever (jax), or XLA ends the process (torch_xla
    2.9). Seen with 2 cores, 4 and 8 devices: stuck within seconds below two, never with two or
    more; more than two for what other threads start.
    """
    wanted = 4 * devices
    if devices <= 1 or wanted <= _cores() or _THREADS in os.environ or "NPROC" in os.environ:
        return {}
    return {_THREADS: str(wanted)}


def few_threads(devices: int) -> str:
    """Return what to say of CPU devices that were made without them; empty when they suffice."""
    for name, value in enough_threads(devices).items():
        return _FEW.format(count=devices, name=name, value=value)
    return ""


def _cores() -> int:
    """Return on how many cores this process may run."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
