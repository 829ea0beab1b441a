"""The side panel: devices, the last cells, and the way to a line."""

from __future__ import annotations

import re

import pytest

from tests.browser.conftest import FAKE

pytestmark = pytest.mark.browser


@pytest.fixture
def panel(lab):
    """Return the panel of a notebook that is connected; `panel.page` has the rest."""
    lab.open(
        "panel.ipynb",
        FAKE,
        "%%tpu_run -q\nfrom tpu_magic.frameworks.base import Compile\n\n"
        "fake.session.facts.compiled = [Compile(4, f'({n}, 64)') for n in range(12)]\n"
        "fake.compiles += 12",
        "%%tpu_run -q\n1 / 0",
    )
    lab.run(0)
    lab.command("tpu-magic:show-panel")
    return lab.page.locator(".tpu-Panel")


def test_it_says_why_it_shows_nothing(lab):
    lab.open("plain.ipynb", "1")
    lab.command("tpu-magic:show-panel")
    reason = lab.page.locator(".tpu-Panel-reason")
    reason.filter(has_text="run %load_ext tpu_magic").wait_for()


def test_before_the_first_cell_it_says_what_connects(panel):
    panel.get_by_text("Not connected: the first %%tpu_run cell connects.").wait_for()
    assert re.search(r"host: processors \d+ % busy", panel.inner_text())


def test_it_shows_the_device_and_the_cells_that_ran(panel, lab):
    lab.run(1)
    lab.run(2)
    panel.get_by_text("XLA CPU × 2 · not a TPU").wait_for()
    panel.locator("article").nth(1).wait_for()
    titles = panel.locator("article > button").all_inner_texts()
    assert titles[0].startswith("[3] ")
    assert titles[0].endswith(" · failed")
    assert titles[1].startswith("[2] ")
    assert panel.locator("article svg[role=img]").count() >= 1


def test_advice_leads_to_its_line(panel, lab):
    lab.run(1)
    panel.locator("li button", has_text="(line 4)").click()
    lab.page.wait_for_function(
        """() => {
            const cell = window.jupyterapp.shell.currentWidget.content.activeCell;
            return cell.model.sharedModel.getSource().startsWith('%%tpu_run -q\\nfrom')
                && cell.editor.getCursorPosition().line === 3 && cell.editor.hasFocus();
        }"""
    )


def test_the_settings_switch_the_parts_off(panel, lab):
    lab.says("tpu_magic · not connected")
    switch = """async ([key, value]) => {
        const app = window.jupyterapp;
        const settings = await app.resolveOptionalService?.('settings');
        await app.serviceManager.settings.save(
            'tpu-magic-lab:plugin', JSON.stringify({[key]: value}));
    }"""
    lab.page.evaluate(switch, ["panel", False])
    lab.page.reload()
    lab.ready()
    lab.says("tpu_magic · not connected")
    assert panel.count() == 0
    lab.page.evaluate(switch, ["status", False])
    lab.page.reload()
    lab.ready()
    assert lab.status.is_hidden()
    lab.page.evaluate(switch, ["status", True])


def test_notebook_7_has_the_panel_too(notebook7):
    notebook7.open("panel.ipynb", FAKE, "%%tpu_run -q\n1")
    notebook7.run(0)
    notebook7.run(1)
    notebook7.command("tpu-magic:show-panel")
    notebook7.page.locator(".tpu-Panel article").first.wait_for()
