"""The report of a cell: its figures, its words, and both forms of it."""

import json

import pytest

from tpu_magic.frameworks.base import CellFacts, Compile, Counters, DeviceInfo, Memory
from tpu_magic.report.cell_report import CellReport, assemble

FOUR = DeviceInfo("XLA CPU", 4, 4, on_tpu=False, simulated=True)


def make(device=FOUR, memory=(), wall_s=3.0, connect_s=0.0, counters=None, **facts):
    facts = {"reached_device": True, "trace_s": 0.5, "input_wait_s": 0.25, **facts}
    return assemble(
        device=device,
        framework="torch",
        facts=CellFacts(**facts),
        counters=counters
        or Counters(compiles=2, compile_s=1.0, host_reads=1, wait_s=0.125, bytes_to_device=2048),
        memory=memory,
        wall_s=wall_s,
        connect_s=connect_s,
    )


def test_wall_time_is_cut_once():
    report = make(device_wait_s=0.375)
    assert report.device_wait_s == pytest.approx(0.5)  # the final wait and the blocked reads
    assert report.other_s == pytest.approx(3.0 - 0.5 - 1.0 - 0.25 - 0.5)
    parts = (
        report.trace_s,
        report.compile_s,
        report.input_wait_s,
        report.device_wait_s,
        report.other_s,
    )
    assert sum(parts) == pytest.approx(report.wall_s)


def test_parts_that_pass_the_wall_time_by_rounding_are_scaled_to_it():
    report = make(wall_s=1.75, device_wait_s=0.0)
    total = 0.5 + 1.0 + 0.25 + 0.125
    assert report.trace_s == pytest.approx(0.5 * 1.75 / total)
    assert report.other_s == 0


def test_what_is_not_measured_stays_none():
    report = make(trace_s=None, counters=Counters())
    assert report.trace_s is None
    assert report.compile_s is None
    assert report.host_reads is None
    assert report.peak_memory_bytes is None
    assert report.examples_per_s is None
    assert report.other_s == pytest.approx(3.0 - 0.25)


def test_examples_per_second_leaves_out_connecting():
    assert make(examples=300, wall_s=4.0, connect_s=1.0).examples_per_s == pytest.approx(100.0)


def test_peak_memory_is_the_fullest_device():
    assert make(memory=[Memory(1, 10, 100), Memory(1, 30, 100)]).peak_memory_bytes == 30


def test_headline_says_device_batch_and_precision():
    text = str(make(global_batch=64))
    assert text.splitlines()[0] == (
        "torch · XLA CPU × 4 · not a TPU · global 64 = 4 × 16 · precision default"
    )


def test_a_batch_that_does_not_divide_shows_its_rest():
    assert "global 30 = 4 × 7 + 2" in str(make(global_batch=30))


def test_one_device_has_no_sum():
    one = DeviceInfo("TPU v5e", 1, 1, on_tpu=True, simulated=False)
    headline = str(make(device=one, global_batch=64)).splitlines()[0]
    assert headline == "torch · TPU v5e × 1 · batch 64 · precision default"


def test_a_cell_that_never_reached_the_device_says_so_first():
    report = make(reached_device=False, unreached_reason="no model was called")
    assert str(report).startswith("nothing in this cell ran on the device: no model was called")


def test_text_and_html_show_the_same_figures():
    bundle = make(global_batch=64, steps=264, moved=["net (14 parameters)"])._repr_mimebundle_()
    for figure in ("global 64 = 4 × 16", "compile 1.00 s", "264 steps", "net (14 parameters)"):
        assert figure in bundle["text/plain"]
        assert figure in bundle["text/html"]
    data = bundle["application/vnd.tpu-magic.cell-report+json"]
    assert (data["kind"], data["version"], data["steps"]) == ("cell-report", 1, 264)
    json.dumps(data)


def test_html_is_data_and_never_markup():
    bundle = make(moved=["<script>alert(1)</script>"])._repr_mimebundle_()
    assert "<script>" not in bundle["text/html"]
    assert "&lt;script&gt;" in bundle["text/html"]


def test_three_pieces_of_advice_at_most_and_how_many_more():
    counters = Counters(compiles=60, compile_s=1.0, host_reads=60, fallbacks={"aten::nonzero": 1})
    report = make(
        counters=counters,
        compiled=[Compile(7, "(4, 8)", step) for step in range(60)],
        steps=60,
        float64=["x"],
        global_batch=4,
        input_wait_s=2.9,
        trace_s=0.0,
    )
    assert len(report.advice) == 6
    shown = [line for line in str(report).splitlines() if line.startswith("  ! ")]
    assert len(shown) == 4
    assert shown[-1] == "  ! 3 more in the report's `advice`"


def test_comes_back_from_json_equal():
    report = make(global_batch=64, steps=20, counters=Counters(host_reads=40, compiles=1))
    assert report.advice
    again = CellReport.from_json(report.to_json())
    assert again == report


def test_a_foreign_or_newer_file_is_refused():
    data = make().to_dict()
    with pytest.raises(ValueError, match="timing-result"):
        CellReport.from_dict({**data, "kind": "timing-result"})
    with pytest.raises(ValueError, match="newer"):
        CellReport.from_dict({**data, "version": 99})


def test_saving_leaves_a_whole_file_or_none(tmp_path):
    report = make()
    path = tmp_path / "report.json"
    report.save(path)
    assert CellReport.from_json(path.read_text()) == report
    with pytest.raises(FileNotFoundError):
        report.save(tmp_path / "missing" / "report.json")
    assert list(tmp_path.iterdir()) == [path]
