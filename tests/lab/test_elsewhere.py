"""What the extension draws is all there without it: as HTML and as text, and nothing runs."""

from __future__ import annotations

import pytest
from bs4 import BeautifulSoup
from nbconvert import HTMLExporter

from tests.lab import results

RESULTS = {
    "cell-report": results.cell_report,
    "timing-result": results.timing,
    "compare-result": results.comparison,
}


def _outputs(result):
    body, _ = HTMLExporter().from_notebook_node(results.notebook(result))
    return BeautifulSoup(body, "html.parser").select_one(".jp-OutputArea-output")


@pytest.mark.parametrize("kind", RESULTS)
def test_a_converted_notebook_says_all_that_the_text_says(kind):
    result = RESULTS[kind]()
    assert result.kind == kind
    shown = "".join(_outputs(result).get_text().split())
    for part in (result.view().headline, *result.view().lines, *result.view().notes):
        assert "".join(part.split()) in shown


@pytest.mark.parametrize("kind", RESULTS)
def test_a_converted_notebook_runs_nothing_of_ours(kind):
    output = _outputs(RESULTS[kind]())
    assert output.find(["script", "img", "iframe", "object"]) is None
    attributes = {name for node in output.find_all(True) for name in node.attrs}
    assert not [name for name in attributes if name.startswith("on")]
