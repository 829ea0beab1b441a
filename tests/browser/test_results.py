"""Saved results in JupyterLab: drawn, read by keyboard, copied; data all the way."""

from __future__ import annotations

import pytest

from tests.browser.conftest import TIMEOUT_MS
from tests.lab import results

pytestmark = pytest.mark.browser


@pytest.fixture
def shown(lab):
    """Return a page of a notebook with one result of each kind; nobody trusts it."""
    saved = results.notebook(results.cell_report(), results.timing(), results.comparison())
    lab.open("results.ipynb", notebook=saved)
    lab.page.locator(".tpu-Figure").nth(2).wait_for(timeout=TIMEOUT_MS)
    return lab


def _figure(shown, index):
    return shown.page.locator(".tpu-Figure").nth(index)


def test_results_are_drawn_also_in_a_notebook_that_nobody_trusts(shown):
    trusted = shown.page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.content.widgets[0].model.trusted"
    )
    assert not trusted
    assert shown.page.locator(".tpu-Figure svg[role=img]").count() == 3
    # The kernel's own picture is not shown beside it.
    assert shown.page.locator(".tpu-Result-text svg").count() == 0


def test_the_text_beside_the_picture_is_the_kernels_own(shown):
    texts = shown.page.locator(".tpu-Result-text").all_inner_texts()
    made = (results.cell_report(), results.timing(), results.comparison())
    for text, result in zip(texts, made, strict=True):
        assert "".join(result.view().headline.split()) in "".join(text.split())


def test_a_name_that_looks_like_markup_is_text(shown):
    assert shown.page.locator(".tpu-Result img").count() == 0
    assert shown.page.title() != "run"
    assert "<img" in _figure(shown, 2).inner_text()


def test_a_histogram_is_read_with_the_keyboard(shown):
    figure = _figure(shown, 1)
    figure.locator("svg").focus()
    shown.page.keyboard.press("ArrowRight")
    assert figure.locator(".tpu-Readout").inner_text().endswith("from 10.0 ms to 10.0 ms")
    shown.page.keyboard.press("End")
    assert "to 50.0 ms" in figure.locator(".tpu-Readout").inner_text()


def test_a_comparison_is_read_with_the_pointer(shown):
    figure = _figure(shown, 2)
    figure.locator(".tpu-Mark").nth(1).hover()
    said = figure.locator(".tpu-Readout").inner_text()
    assert said == "x @ y: 0.980 times the time of x @ x (too little to tell), cannot tell"


def test_the_runs_are_copied_as_csv(shown):
    shown.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    shown.page.locator(".tpu-Result-tools button").nth(1).click()
    shown.page.locator(".tpu-Result-tools", has_text="Copied").wait_for()
    lines = shown.page.evaluate("() => navigator.clipboard.readText()").splitlines()
    assert lines[0] == "run,seconds_per_call"
    assert [float(line.split(",")[1]) for line in lines[1:]] == results.timing().timings


def test_a_result_of_a_later_format_is_shown_as_the_kernel_made_it(lab):
    saved = results.notebook(results.timing())
    bundle = saved.cells[0].outputs[0].data
    bundle[results.TimingResult.mime_type()]["version"] = 99
    lab.open("later.ipynb", notebook=saved)
    lab.page.locator(".tpu-Result-text", has_text="matmul").wait_for()
    assert lab.page.locator(".tpu-Figure").count() == 0


def test_results_are_drawn_in_notebook_7(notebook7):
    notebook7.open("results.ipynb", notebook=results.notebook(results.timing()))
    notebook7.page.locator(".tpu-Figure svg[role=img]").wait_for()
