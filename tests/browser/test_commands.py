"""Commands write magic lines into cells, and one undo takes them back."""

from __future__ import annotations

import pytest

from tests.browser.conftest import FAKE, TIMEOUT_MS

pytestmark = pytest.mark.browser

LOAD = "%load_ext tpu_magic"


@pytest.fixture
def written(lab):
    """Return a page of a notebook that is loaded, with a plain cell."""
    lab.open("commands.ipynb", FAKE, "a = 20\na + 1")
    lab.run(0)
    return lab


def _wait_for_output(lab, index, text):
    cell = lab.page.locator(".jp-Notebook .jp-Cell").nth(index)
    cell.locator(".jp-OutputArea-output", has_text=text).first.wait_for(timeout=TIMEOUT_MS)


def test_running_a_cell_on_the_tpu_writes_the_line_and_runs_it(written):
    written.select(1)
    written.command("tpu-magic:run")
    assert written.source(1) == "%%tpu_run\na = 20\na + 1"
    _wait_for_output(written, 1, "21")


def test_the_toolbar_button_does_so_too(written):
    written.select(1)
    written.page.locator('.jp-NotebookPanel-toolbar [data-jp-item-name="tpu-run"]').click()
    _wait_for_output(written, 1, "21")
    assert written.source(1).startswith("%%tpu_run\n")


def test_one_undo_takes_the_line_back_and_nothing_else(written):
    cell = written.page.locator(".jp-Notebook .jp-Cell").nth(1)
    cell.locator(".cm-content").click()
    written.page.keyboard.press("Control+End")
    written.page.keyboard.type(" + 1")
    written.command("tpu-magic:run")
    assert written.source(1) == "%%tpu_run\na = 20\na + 1 + 1"
    written.ready()
    written.select(1)
    cell.locator(".cm-content").click()
    written.page.keyboard.press("Control+z")
    assert written.source(1) == "a = 20\na + 1 + 1"


def test_a_line_of_ours_is_replaced(written):
    written.select(1)
    written.command("tpu-magic:run")
    written.ready()
    written.select(1)
    written.page.evaluate("() => { void window.jupyterapp.commands.execute('tpu-magic:check') }")
    written.page.locator(".jp-Dialog .jp-mod-accept").click()
    _wait_for_output(written, 1, "")
    assert written.source(1) == "%%tpu_check --target v5e-1\na = 20\na + 1"
    written.select(1)
    written.command("tpu-magic:plain")
    assert written.source(1) == "a = 20\na + 1"


def test_another_magic_is_not_written_over(lab):
    lab.open("bash.ipynb", "%%bash\nls")
    lab.select(0)
    lab.command("tpu-magic:run")
    assert lab.source(0) == "%%bash\nls"
    lab.page.get_by_text("This cell begins with %%bash").first.wait_for()


def test_the_switch_goes_below_the_loading_line_and_back(lab):
    lab.open("switch.ipynb", LOAD, "1")
    lab.command("tpu-magic:toggle-notebook")
    assert lab.source(0) == f"{LOAD}\n%tpu_run on"
    lab.says("tpu_magic · not connected · on for every cell")
    lab.ready()
    lab.command("tpu-magic:toggle-notebook")
    assert lab.source(0) == f"{LOAD}\n%tpu_run off"
    lab.says("tpu_magic · not connected")


def test_a_notebook_that_does_not_load_the_extension_gets_a_cell_that_does(lab):
    lab.open("bare.ipynb", "1")
    lab.says("no tpu_magic")
    lab.select(0)
    lab.command("tpu-magic:toggle-notebook")
    assert (lab.source(0), lab.source(1)) == (f"{LOAD}\n%tpu_run on", "1")
    lab.says("tpu_magic · not connected · on for every cell")


def test_running_where_nothing_is_loaded_loads_first(lab):
    lab.open("unloaded.ipynb", "40 + 2")
    lab.says("no tpu_magic")
    lab.select(0)
    lab.command("tpu-magic:run")
    _wait_for_output(lab, 1, "42")
    assert (lab.source(0), lab.source(1)) == (LOAD, "%%tpu_run\n40 + 2")


def test_the_body_keeps_its_highlighting_and_completion(written):
    written.page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.content.widgets[1].model.sharedModel"
        ".setSource('%%tpu_run\\nfor item in range(3):\\n    print(item)\\nfake.at_f')"
    )
    cell = written.page.locator(".jp-Notebook .jp-Cell").nth(1)
    plain, keyword = (
        cell.locator(".cm-content").evaluate(
            "(node, word) => [...node.querySelectorAll('span')]"
            ".find(span => span.textContent === word)?.className ?? ''",
            word,
        )
        for word in ("item", "for")
    )
    assert keyword
    assert keyword != plain
    cell.locator(".cm-content").click()
    written.page.keyboard.press("Control+End")
    written.page.keyboard.press("Tab")
    # Lab offers several, and takes the only one.
    written.page.wait_for_function(
        "() => [...document.querySelectorAll('.jp-Completer-item, .jp-Notebook .cm-line')]"
        ".some(node => node.textContent.includes('at_finish'))"
    )
