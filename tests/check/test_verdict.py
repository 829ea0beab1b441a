"""What a person reads: the one line, and what is said of a search."""

from dataclasses import replace

import pytest

from tpu_magic.check.verdict import CheckReport, CheckTable, ProgramReport, operations
from tpu_magic.report import render

GIB = 2**30
FITS = CheckReport(
    "v5e-1", compiles=True, fits=True, hbm_needed_bytes=int(4.6 * GIB),
    hbm_limit_bytes=int(15.75 * GIB), floor_s=0.0156, bound_by="compute",
    programs=[ProgramReport("line 3: opt.step()", trains=True)],
)  # fmt: skip


def test_the_one_line():
    assert FITS.headline() == (
        "fits v5e-1: 4.60 GiB of 15.75 GiB a chip; floor 15.6 ms a step, bound by compute at bf16"
    )
    large = CheckReport(
        "v5e-1", compiles=False, fits=False, hbm_needed_bytes=20 * GIB, hbm_limit_bytes=16 * GIB
    )
    assert large.headline().endswith("needs 20.00 GiB of 16.00 GiB a chip, 4.00 GiB too much")
    assert CheckReport("v5e-1", error="it crashed", line=4).headline() == (
        "no verdict for v5e-1: it crashed (line 4)"
    )


def test_a_search_says_what_was_tried():
    found = CheckReport(
        "v5e-1", fit_name="batch", fit_batch=96, fit_tried={"64": True, "128": False, "96": True}
    )
    assert "batch = 96 fits; 128 does not" in str(found)
    none = CheckReport("v5e-1", fit_name="batch", fit_tried={"64": False, "1": False})
    assert "no batch that was tried fits (down to 1)" in str(none)


def test_an_estimate_is_labelled_and_absent_without_being_asked_for():
    assert "estimate" not in str(FITS)
    timed = CheckReport("v5e-1", compiles=True, fits=True, estimate_s=0.02, optimization="full")
    assert "compiler's estimate, never measured: 20.0 ms\n" in f"{timed}\n"


@pytest.mark.parametrize(("kind", "derived"), [("TPU v5 lite", True), ("TPU v4", False)])
def test_an_estimate_by_a_clock_that_nobody_published_says_so(kind, derived):
    timed = CheckReport(
        "x", compiles=True, fits=True, estimate_s=0.02, optimization="full", device_kind=kind
    )
    assert ("20.0 ms; by a clock that is derived, not published" in str(timed)) == derived


def test_a_table_has_a_row_for_each_target_and_goes_to_json_and_back():
    table = CheckTable([FITS, CheckReport("v2-8", error="no answer")])
    assert CheckTable.from_json(table.to_json()) == table
    assert "fits v5e-1" in render.html(table.view())


def test_a_table_without_any_verdict_gives_the_reason():
    nothing = [CheckReport(name, error="nothing ran\nmore") for name in ("v2-8", "v5e-1")]
    assert CheckTable(nothing).view().headline == "no verdict: nothing ran"
    larger = replace(FITS, fits=False)
    assert CheckTable([larger, *nothing]).view().headline == "fits none of the targets"
    assert CheckTable([FITS, larger]).view().headline == f"fits {FITS.target}"


def test_operations():
    assert [operations(n) for n in (None, 12, 35.1e6, 2.5e12)] == [
        "cannot be counted", "12", "35.1 M", "2.5 T",
    ]  # fmt: skip
