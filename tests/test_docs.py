"""The pages name every option that the magics have, and no other."""

import re
from pathlib import Path

import pytest

from tpu_magic.cell import engine
from tpu_magic.check.options import PARSER
from tpu_magic.setup.options import PARSER as SETUP_PARSER
from tpu_magic.timing.options import COMPARE, TIMEIT

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = {
    "tpu_run.md": [engine.parser],
    "tpu_timeit.md": [TIMEIT, COMPARE],
    "tpu_setup.md": [SETUP_PARSER],
    "tpu_check.md": [PARSER],
}


def options_of(parser):
    return {name for action in parser._actions for name in action.option_strings}


@pytest.mark.parametrize("page", PAGES)
def test_every_option_is_on_its_page(page):
    rows = [line for line in (DOCS / page).read_text().splitlines() if line.startswith("| `-")]
    named = {
        name
        for row in rows
        for name in re.findall(r"(?<![\w-])-{1,2}[a-z][a-z-]*", row.split("|")[1])
    }
    known = set().union(*map(options_of, PAGES[page]))
    assert named == known


def test_every_page_is_in_the_index():
    index = (DOCS / "index.md").read_text()
    assert set(re.findall(r"\]\((\w[\w-]*\.md)\)", index)) == {
        page.name for page in DOCS.glob("*.md") if page.name != "index.md"
    }
