"""One view, three renderings: text for terminals, HTML for notebooks, both without scripts."""

from __future__ import annotations

import html as _html
from dataclasses import dataclass, field

# Only `currentColor` and transparency: the same markup is right on dark and light pages.
_STYLE = {
    "box": "font-family:var(--jp-code-font-family,monospace);font-size:90%;line-height:1.45;"
    "margin:.3em 0;white-space:pre-wrap",
    "dim": "opacity:.75",
    "cell": "padding:.1em .9em .1em 0;text-align:left;border:none;background:none",
    "note": "margin:.15em 0",
}
_TIME_UNITS = ((1.0, "s", 1.0), (1e-3, "ms", 1e3), (1e-6, "µs", 1e6), (1e-12, "ns", 1e9))


@dataclass(frozen=True)
class Table:
    """Rows under a header; every cell is already text."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""


@dataclass(frozen=True)
class Figure:
    """A picture in both forms: SVG markup for HTML, block characters for a terminal."""

    svg: str
    text: str
    description: str


@dataclass(frozen=True)
class View:
    """What a person is shown, before it is text or HTML.

    Attributes
    ----------
    headline
        The one line that matters.
    lines
        Plain lines below it.
    tables
        Tables below the lines.
    figure
        A picture, if there is one.
    notes
        Advice and warnings, one sentence each; shown last, marked.
    """

    headline: str
    lines: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    figure: Figure | None = None
    notes: tuple[str, ...] = field(default=())


def text(view: View) -> str:
    """Return the view for a terminal."""
    parts = [view.headline, *(f"  {line}" for line in view.lines)]
    parts += [_text_table(table) for table in view.tables]
    if view.figure is not None:
        parts.append(view.figure.text)
    parts += [f"  ! {note}" for note in view.notes]
    return "\n".join(parts)


def html(view: View) -> str:
    """Return the view as HTML: escaped, inline style, no script, readable on any theme."""
    parts = [f"<strong>{_html.escape(view.headline)}</strong>"]
    parts += [f'<div style="{_STYLE["dim"]}">{_html.escape(line)}</div>' for line in view.lines]
    parts += [_html_table(table) for table in view.tables]
    if view.figure is not None:
        label = _html.escape(view.figure.description, quote=True)
        parts.append(f'<div role="img" aria-label="{label}">{view.figure.svg}</div>')
    parts += [
        f'<div role="note" style="{_STYLE["note"]}">⚠ {_html.escape(note)}</div>'
        for note in view.notes
    ]
    return f'<div style="{_STYLE["box"]}">{"".join(parts)}</div>'


def _text_table(table: Table) -> str:
    rows = [table.header, *table.rows] if any(table.header) else list(table.rows)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    padded = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows)
    lines = [f"  {'  '.join(cells)}".rstrip() for cells in padded]
    return "\n".join([f"  {table.caption}", *lines] if table.caption else lines)


def _html_table(table: Table) -> str:
    def row(cells: tuple[str, ...], tag: str) -> str:
        style = _STYLE["cell"]
        inner = "".join(f'<{tag} style="{style}">{_html.escape(c)}</{tag}>' for c in cells)
        return f'<tr style="background:none">{inner}</tr>'

    caption = f"<caption>{_html.escape(table.caption)}</caption>" if table.caption else ""
    head = f"<thead>{row(table.header, 'th')}</thead>" if any(table.header) else ""
    body = "".join(row(cells, "td") for cells in table.rows)
    return f'<table style="border:none">{caption}{head}<tbody>{body}</tbody></table>'


def seconds(value: float | None) -> str:
    """Return a duration with a unit that fits it: `1.23 s`, `45.6 ms`, `7.8 µs`.

    >>> seconds(0.0123)
    '12.3 ms'
    >>> seconds(None)
    'not measured'
    """
    if value is None:
        return "not measured"
    if value >= 60:  # noqa: PLR2004
        minutes, rest = divmod(value, 60)
        return f"{int(minutes)} min {rest:.0f} s"
    unit, factor = next(
        ((unit, factor) for smallest, unit, factor in _TIME_UNITS if abs(value) >= smallest),
        ("s", 1.0),
    )
    return f"{_significant(value * factor)} {unit}"


def size(value: float | None) -> str:
    """Return a number of bytes with a binary unit: `15.7 GiB`, `512 B`."""
    if value is None:
        return "not measured"
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:  # noqa: PLR2004
            return f"{_significant(amount)} {unit}"
        amount /= 1024
    return f"{_significant(amount)} TiB"


def count(number: int, noun: str) -> str:
    """Return a number with its noun: `1 step`, `12 345 steps`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}".replace(",", " ")


def rate(value: float | None) -> str:
    """Return a rate with thousands separated: `12 340/s`."""
    if value is None:
        return "not measured"
    return f"{value:,.0f}/s".replace(",", " ") if value >= 100 else f"{_significant(value)}/s"  # noqa: PLR2004


def _significant(value: float) -> str:
    """Return three significant digits without an exponent."""
    if value == 0:
        return "0"
    magnitude = abs(value)
    digits = 0 if magnitude >= 100 else 1 if magnitude >= 10 else 2  # noqa: PLR2004
    return f"{value:.{digits}f}"
