"""What one more, un-timed call tells: the work in it, its program, and whether waiting waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from tpu_magic.frameworks.base import Adapter

# The test of waiting reads a small array, so that the transfer itself takes no time to speak of.
_SMALL_BYTES = 2**20
_LEAST_S = 2e-3
_TRIES = 3
_waits: WeakKeyDictionary[Adapter, bool] = WeakKeyDictionary()


@dataclass(frozen=True)
class Probe:
    """What the probing calls told; None where the adapter cannot tell.

    Attributes
    ----------
    flops
        Floating-point operations of a call, in matrix products, convolutions and attention.
    program
        A hash of the program that a call makes.
    waits
        Whether the adapter's wait was seen to wait.
    """

    flops: int | None = None
    program: str | None = None
    waits: bool | None = None


def probe(
    adapter: Adapter,
    call: Callable[[], Any],
    drop: Callable[[], None],
    call_s: float,
    wall: Callable[[], float] = time.perf_counter,
) -> Probe:
    """Make a few calls that are not timed.

    Parameters
    ----------
    call, drop
        Makes a call and returns its outputs; drops what the call left.
    call_s
        What a call was measured to take, in seconds.
    """
    flops, program = None, None
    if hasattr(adapter, "inspect"):
        flops, program = adapter.inspect(call)
        adapter.materialize(())
        adapter.wait()
        drop()
    if adapter not in _waits and hasattr(adapter, "read"):
        # A wait that lies does so each time. A read that was slow once is no proof: the first of
        # an array over several devices compiles a program, and a busy machine has pauses.
        for _ in range(_TRIES):
            outputs = call()
            waits = _wait_is_real(adapter, outputs, call_s, wall)
            del outputs
            drop()
            if waits is not False:
                break
        if waits is not None:
            _waits[adapter] = waits
    return Probe(flops, program, _waits.get(adapter))


def _wait_is_real(
    adapter: Adapter, outputs: Any, call_s: float, wall: Callable[[], float]
) -> bool | None:
    """Say whether nothing was left to do after waiting; None when this call cannot show it.

    A value that is read back cannot arrive before it is computed. So after a wait that waits,
    reading takes as long as reading again; after one that lies, it takes the work as well.
    """
    adapter.materialize(outputs)
    adapter.wait()
    small = (
        array
        for array in adapter.arrays(outputs)
        if adapter.on_device(array) and getattr(array, "nbytes", _SMALL_BYTES + 1) <= _SMALL_BYTES
    )
    array = next(small, None)
    if array is None:
        return None
    started = wall()
    adapter.read(array)  # type: ignore[attr-defined] # the caller has looked
    first = wall()
    adapter.read(array)  # type: ignore[attr-defined]
    extra = (first - started) - (wall() - first)
    if extra > max(2 * call_s, _LEAST_S):
        return False
    # Work too short to be seen proves nothing.
    return True if call_s > max(2 * extra, _LEAST_S) else None
