"""The largest batch that fits: a bounded search, given a way to ask for one size. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

MOST_PROBES = 8
# The search ends when it is known to this part of the answer.
_NEAR = 1 / 64
_LARGEST = 1 << 20


@dataclass(frozen=True)
class Size:
    """What is known of one batch size: whether it fits, and the bytes that it needs."""

    fits: bool
    needed: int | None


@dataclass
class Search:
    """What a search found.

    Attributes
    ----------
    best
        The largest size that was seen to fit; None when none did.
    tried
        Every size that was asked for, in order.
    matters
        Whether the size changes what is needed at all.
    """

    best: int | None = None
    tried: dict[int, Size] = field(default_factory=dict)
    matters: bool = True


def largest(probe: Callable[[int], Size], start: int, limit: int) -> Search:
    """Search the largest batch size that fits.

    Memory grows nearly in proportion to the batch, so a line through two sizes says where
    to look; what is answered was itself compiled, never only computed.

    Parameters
    ----------
    probe
        Compiles the cell for a size.
    start
        The person's own size.
    limit
        Bytes of the device.
    """
    search = Search()

    def ask(size: int) -> Size:
        search.tried[size] = probe(size)
        return search.tried[size]

    first = ask(start)
    other = ask(start * 2 if first.fits or start == 1 else start // 2)
    if first.needed is not None and first.needed == other.needed:
        search.matters = False
        search.best = start if first.fits else None
        return search
    while len(search.tried) < MOST_PROBES:
        good = max((size for size, found in search.tried.items() if found.fits), default=0)
        bad = min((size for size, found in search.tried.items() if not found.fits), default=None)
        if bad is not None and bad - good <= max(1, int(good * _NEAR)):
            break
        following = _next(search.tried, good, bad, limit)
        if following in search.tried or following > _LARGEST:
            break
        ask(following)
    search.best = max((size for size, found in search.tried.items() if found.fits), default=None)
    return search


def _next(tried: dict[int, Size], good: int, bad: int | None, limit: int) -> int:
    """Return the size to ask for: where the line meets the limit, kept between what is known."""
    highest = bad - 1 if bad is not None else max(good, 1) * 16
    known = sorted((size, found.needed) for size, found in tried.items() if found.needed)
    guess = None
    if len(known) > 1:
        # The two sizes nearest to the limit say most about it.
        (x0, y0), (x1, y1) = sorted(sorted(known, key=lambda one: abs(one[1] - limit))[:2])
        if y1 > y0:
            guess = int(x0 + (limit - y0) * (x1 - x0) / (y1 - y0))
    if guess is None or not good < guess <= highest:
        guess = (good + highest + 1) // 2 if bad is not None else highest
    return guess
