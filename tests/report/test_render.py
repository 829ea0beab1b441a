"""Units and tables, as a person reads them."""

import pytest

from tpu_magic.report import render


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "not measured"),
        (0.0, "0 s"),
        (125.4, "2 min 5 s"),
        (59.94, "59.9 s"),
        (1.0, "1.00 s"),
        (0.0123, "12.3 ms"),
        (0.25, "250 ms"),
        (7.8e-6, "7.80 µs"),
        (3e-9, "3.00 ns"),
    ],
)
def test_seconds(value, expected):
    assert render.seconds(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "not measured"),
        (512, "512 B"),
        (1536, "1.50 KiB"),
        (int(15.75 * 2**30), "15.8 GiB"),
        (2**50, "1024 TiB"),
    ],
)
def test_size(value, expected):
    assert render.size(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(None, "not measured"), (12340.4, "12 340/s"), (31.04, "31.0/s")]
)
def test_rate(value, expected):
    assert render.rate(value) == expected


VIEW = render.View(
    "headline",
    ("a line",),
    (render.Table(("name", "value"), (("x", "1"), ("longer", "2")), caption="table"),),
    render.Figure("<svg/>", "▁█", "a picture"),
    ("a note",),
)


def test_text_lines_up_its_columns():
    assert render.text(VIEW).splitlines() == [
        "headline",
        "  a line",
        "  table",
        "  name    value",
        "  x       1",
        "  longer  2",
        "▁█",
        "  ! a note",
    ]


def test_html_has_everything_the_text_has_and_no_script_or_colour():
    html = render.html(VIEW)
    for words in ("headline", "a line", "table", "longer", "a note", "<svg/>"):
        assert words in html
    assert 'aria-label="a picture"' in html
    assert "<script" not in html
    assert "color:#" not in html.replace(" ", "")
