"""Pictures of timings: a histogram, in SVG for notebooks and in blocks for terminals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

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


def intervals(
    rows: Sequence[tuple[str, float, float | None, float | None]], margin: float
) -> Figure | None:
    """Return a plot of ratios with their intervals, and the band around one that means "same".

    Parameters
    ----------
    rows
        Name, ratio, and ends of the interval (None where there is none).
    margin
        Difference that counts as none.
    """
    ends = [value for _, ratio, low, high in rows for value in (ratio, low, high) if value]
    if not ends:
        return None
    band = 1 / (1 + margin), 1 + margin
    left, right = min(*ends, band[0]), max(*ends, band[1])
    room = (right - left) * 0.05
    left, right = left - room, right + room

    def place(value: float, width: int) -> float:
        return (value - left) / (right - left) * width

    lines, marks = [], []
    names = max(len(name) for name, *_ in rows)
    for index, (name, ratio, low, high) in enumerate(rows):
        cells = [
            "░" if band[0] <= left + (cell + 0.5) / _BINS * (right - left) <= band[1] else " "
            for cell in range(_BINS)
        ]
        middle = min(_BINS - 1, int(place(ratio, _BINS)))
        y = 14 + 18 * index
        if low is not None and high is not None:
            ends_at = int(place(low, _BINS)), min(_BINS - 1, int(place(high, _BINS)))
            cells[ends_at[0] : ends_at[1] + 1] = "─" * (ends_at[1] - ends_at[0] + 1)
            start, width = place(low, _WIDTH), place(high, _WIDTH) - place(low, _WIDTH)
            marks.append(f'<rect x="{start:.1f}" y="{y - 1}" width="{width:.1f}" height="2"/>')
        cells[middle] = "●"
        lines.append(f"  {name.ljust(names)}  {''.join(cells)}")
        marks.append(f'<circle cx="{place(ratio, _WIDTH):.1f}" cy="{y}" r="4"/>')
        marks.append(f'<text x="{_WIDTH + 8}" y="{y + 4}" font-size="11">{escape(name)}</text>')
    height = 18 * len(rows) + 28
    shade = (
        f'<rect x="{place(band[0], _WIDTH):.1f}" y="4" height="{height - 24}" opacity=".15" '
        f'width="{place(band[1], _WIDTH) - place(band[0], _WIDTH):.1f}"/>'
        f'<rect x="{place(1, _WIDTH):.1f}" y="4" width="1" height="{height - 24}" opacity=".5"/>'
    )
    axis = f"{left:.3f} … {right:.3f}, shaded: the same within {margin:.0%}"
    return Figure(
        svg=(
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH + 160}" height="{height}" '
            f'fill="currentColor">{shade}{"".join(marks)}'
            f'<text y="{height - 4}" font-size="11">{axis}</text></svg>'
        ),
        text="\n".join([*lines, f"  {' ' * names}  {axis}"]),
        description=f"Time ratios with their intervals: {axis}",
    )
