"""Results to show: one of each kind that the extension draws."""

from __future__ import annotations

import nbformat

from tpu_magic.frameworks.base import CellFacts, Compile, Counters, DeviceInfo
from tpu_magic.report.cell_report import assemble
from tpu_magic.timing import stats
from tpu_magic.timing.compare import Candidate, CompareResult, Pair
from tpu_magic.timing.result import Runs, TimingResult

FOUR = DeviceInfo("XLA CPU", 4, 4, on_tpu=False, simulated=True)


def cell_report():
    """Return the report of a cell that compiled more than it should."""
    facts = CellFacts(
        reached_device=True,
        trace_s=0.5,
        input_wait_s=0.25,
        device_wait_s=0.375,
        steps=40,
        examples=1280,
        global_batch=32,
        compiled=[Compile(3, f"({rows}, 64)") for rows in range(20, 32)],
        moved=["net (4 parameters)"],
    )
    counters = Counters(compiles=12, compile_s=1.0, host_reads=40, wait_s=0.125)
    return assemble(
        device=FOUR,
        framework="torch",
        facts=facts,
        counters=counters,
        memory=(),
        wall_s=3.0,
        connect_s=0.0,
    )


def timing(label="matmul"):
    """Return a timing of fifty runs, with an outlier."""
    seconds = [0.010 + 0.0001 * (index % 17) + 0.00005 * (index % 3) for index in range(49)]
    seconds.append(0.05)
    runs = Runs(seconds, 1, stats.summarize(seconds))
    return TimingResult(
        latency=runs,
        throughput=runs,
        compile_time=0.0,
        precision=3,
        first_call_s=0.5,
        trace_s=0.1,
        compile_s=0.3,
        run_s=0.1,
        compiles=1,
        timed_compiles=0,
        runs_total=60,
        device_kind="XLA CPU",
        on_tpu=False,
        simulated=False,
        num_devices=1,
        matmul_precision="default",
        stopped_by="runs",
        statement="x @ x",
        framework="torch",
        label=label,
    )


def comparison(name="<img src=x onerror=document.title='run'>"):
    """Return a comparison; one candidate is named as somebody would who means harm."""
    times = {"x @ x": [0.010, 0.011, 0.010], name: [0.005, 0.006, 0.005], "x @ y": [0.01] * 3}
    candidates = [Candidate(n, n, sorted(t)[1], t, 9) for n, t in times.items()]
    pairs = [
        Pair("x @ x", name, 0.5, 0.46, 0.55, 0.99, "faster"),
        Pair("x @ x", "x @ y", 0.98, None, None, None, "cannot tell"),
        Pair(name, "x @ y", 1.9, 1.7, 2.1, 0.99, "slower"),
    ]
    return CompareResult(
        candidates=candidates,
        pairs=pairs,
        self_ratio=Pair("x @ x", "x @ x", 1.0, 0.98, 1.02, 0.99, "same"),
        rounds=3,
        left_out=0,
        stopped_by="precision",
        mode="latency",
        device_label="XLA CPU × 1 · not a TPU",
    )


def notebook(*results):
    """Return a saved notebook with each result as the output of a cell."""
    cells = []
    for number, result in enumerate(results, 1):
        output = nbformat.v4.new_output("display_data", data=result._repr_mimebundle_())
        source = f"# output {number}"
        cells.append(nbformat.v4.new_code_cell(source, outputs=[output], execution_count=number))
    return nbformat.v4.new_notebook(
        cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    )
