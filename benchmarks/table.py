"""Tables on a terminal, by the product's own renderer."""

from __future__ import annotations

from tpu_magic.report import render


def show(title: str, header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print a table under its title."""
    print(render.text(render.View(title, (), (render.Table(header, tuple(rows)),))), flush=True)
