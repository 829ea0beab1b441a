"""Pictures of each part in light and dark, for people to look at; the colours are tested."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.browser.conftest import FAKE
from tests.lab import results

pytestmark = pytest.mark.browser

# By name of the picture: the theme, and the contrast of text that it asks for (WCAG 2.1, 1.4.3
# and, for who needs more, 1.4.6).
THEMES = {
    "light": ("JupyterLab Light", 4.5),
    "dark": ("JupyterLab Dark", 4.5),
    "contrast": ("JupyterLab Dark High Contrast", 7.0),
}
_COLOURS = """node => {
    const shown = getComputedStyle(node);
    let ground = node;
    while (getComputedStyle(ground).backgroundColor.endsWith(', 0)') && ground.parentElement) {
        ground = ground.parentElement;
    }
    const numbers = text => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
    const fill = node instanceof SVGElement ? shown.fill : shown.color;
    return [numbers(fill), numbers(getComputedStyle(ground).backgroundColor)];
}"""


def _luminance(colour):
    """Return the relative luminance of an sRGB colour (WCAG 2.1)."""
    parts = [value / 255 for value in colour]
    linear = [
        value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4 for value in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(node):
    light, dark = sorted((_luminance(each) for each in node.evaluate(_COLOURS)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", THEMES)
def test_every_part_can_be_read(lab, theme, tmp_path):
    saved = results.notebook(results.cell_report(), results.timing(), results.comparison("x @ z"))
    first = results.nbformat.v4.new_code_cell(FAKE)
    second = results.nbformat.v4.new_code_cell(
        "%%tpu_run -q\nfrom tpu_magic.frameworks.base import Compile\n"
        "fake.session.facts.compiled = [Compile(3, f'({n}, 64)') for n in range(12)]\n"
        "fake.compiles += 12"
    )
    saved.cells[:0] = [first, second]
    name, asked = THEMES[theme]
    lab.open(f"looks-{theme}.ipynb", notebook=saved)
    lab.page.evaluate(
        "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})",
        name,
    )
    lab.page.wait_for_function("name => document.body.dataset.jpThemeName === name", arg=name)
    lab.run(0)
    lab.run(1)
    lab.command("tpu-magic:show-panel")
    lab.page.locator(".tpu-Panel article").first.wait_for()
    lab.says("XLA CPU × 2 · not a TPU")
    folder = Path(os.environ.get("TPU_MAGIC_SCREENSHOTS", tmp_path))
    lab.page.screenshot(path=folder / f"lab-{theme}.png")
    outputs = lab.page.locator(".tpu-Result")
    for index, kind in enumerate(("cell", "timing", "compare")):
        outputs.nth(index).scroll_into_view_if_needed()
        outputs.nth(index).screenshot(path=folder / f"{kind}-{theme}.png")
    lab.page.locator(".tpu-Panel").screenshot(path=folder / f"panel-{theme}.png")
    read = (
        ".tpu-Status button",
        ".tpu-Panel p",
        ".tpu-Panel .tpu-Button",
        ".tpu-Result-text div",
        ".tpu-Result-tools button",
        ".tpu-Readout",
        ".tpu-Axis text",
    )
    low = {
        name: _contrast(node)
        for name in read
        for node in lab.page.locator(f"{name}:visible").all()[:3]
        if _contrast(node) < asked
    }
    assert low == {}
