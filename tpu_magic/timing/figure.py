"""Pictures of timings: a histogram, in SVG for notebooks and in blocks for terminals."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tpu_magic.report.render import Figure

_BLOCKS = " ▁▂▃▄▅▆▇█"
_BINS = 40
_WIDTH, _HEIGHT = 360, 56


def histogram(samples: Sequence[float], show: Callable[[float], str]) -> Figure | None:
    """Return a histogram of samples; None where there is nothing to see (all equal, or few).

    The axis ends at the 98th percentile, since one outlier would flatten the rest into one
    bar; what lies beyond is counted in the last bar, and the axis says so.

    Parameters
    ----------
    samples
        The samples.
    show
        Turns a value on the axis into text.
    """
    ordered = sorted(samples)
    low, high = ordered[0], ordered[max(0, round(len(ordered) * 0.98) - 1)]
    if len(ordered) < 3 or high <= low:  # noqa: PLR2004 - two bars are no picture
        return None
    bins = min(_BINS, len(ordered))
    counts = [0] * bins
    for sample in ordered:
        counts[min(bins - 1, int((sample - low) / (high - low) * bins))] += 1
    most = max(counts)
    beyond = sum(sample > high for sample in ordered)
    axis = f"{show(low)} … {show(high)}" + (
        f", {beyond} beyond, to {show(ordered[-1])}" * (beyond > 0)
    )
    bars = "".join(_BLOCKS[-(-count * (len(_BLOCKS) - 1) // most)] for count in counts)
    return Figure(
        svg=_bars_svg(counts, axis),
        text=f"  {bars}  {axis}",
        description=f"Histogram of {len(ordered)} runs: {axis}",
    )


def _bars_svg(counts: Sequence[int], axis: str) -> str:
    step = _WIDTH / len(counts)
    tallest = max(counts)
    bars = "".join(
        f'<rect x="{index * step:.1f}" y="{_HEIGHT * (1 - count / tallest):.1f}" '
        f'width="{step * 0.85:.1f}" height="{_HEIGHT * count / tallest:.1f}"/>'
        for index, count in enumerate(counts)
        if count
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT + 18}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT + 18}" fill="currentColor">'
        f'<g opacity=".6">{bars}</g>'
        f'<rect y="{_HEIGHT}" width="{_WIDTH}" height="1"/>'
        f'<text y="{_HEIGHT + 14}" font-size="11">{axis}</text></svg>'
    )
