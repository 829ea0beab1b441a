"""Print the truth table and the rates of false verdicts.

Needs torch and torch_xla; runs on XLA's CPU device where there is no TPU. About ten minutes,
`--quick` under two. Other work on the machine shows as spread.
"""

from __future__ import annotations

import argparse
import sys
import time

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from benchmarks.timing import truth, verdicts
from benchmarks.timing.workloads import EAGER, JAX, KERAS, PLAIN, WORKLOADS, XLA
from tpu_magic.frameworks import adapter
from tpu_magic.timing.result import duration


def main() -> int:
    """Run the benchmark; return 1 when a figure is off by more than is allowed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short workloads, few pairs")
    parser.add_argument("--only", choices=("truth", "verdicts"), help="one half")
    wanted = parser.parse_args()
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    shell.run_line_magic("load_ext", "tpu_magic")
    started = time.perf_counter()
    # What is on the host runs before the XLA runtime is up: then nothing moves there. Keras
    # loads TensorFlow, after which torch_xla could not be loaded.
    places = (PLAIN, EAGER, JAX, XLA, KERAS)
    off = 0
    if wanted.only != "verdicts":
        pairs = 5 if wanted.quick else 11
        head = ("", "by hand", "ours ÷", "A÷A", "pairs", "%timeit ÷", "torch.utils.benchmark ÷", "")
        row = "{:56} {:>10} {:>8} {:>13} {:>6} {:>10} {:>24}  {}"
        print(row.format(*head))
        for place in places:
            if place == XLA:
                print(f"{adapter('torch').connect().label()}:")
            for workload in WORKLOADS:
                if workload.where != place or (wanted.quick and workload.long):
                    continue
                found = truth.measure(shell, workload, 3 if workload.long else pairs)
                low, high = found.spread
                print(
                    row.format(
                        f"{workload.name} ({workload.where})",
                        duration(found.reference_s),
                        f"{found.ratio:.3f}",
                        f"{low:.2f} … {high:.2f}",
                        found.pairs,
                        _over(found.timeit_s, found.reference_s),
                        _over(found.torch_benchmark_s, found.reference_s),
                        found.verdict(),
                    ),
                    flush=True,
                )
                off += found.verdict() == "OFF"
    if wanted.only != "truth":
        same, more, limit = (4, 4, 2.0) if wanted.quick else (42, 20, 5.0)
        for place in (PLAIN, EAGER, XLA):
            if place == XLA:
                adapter("torch").connect()
            rates = verdicts.measure(shell, place, same, more, limit)
            print(
                f"verdicts ({place}): A against A {dict(rates.same)}, false {rates.false():.0%}; "
                f"A against 1.10 A {dict(rates.more)}, found {rates.found():.0%}",
                flush=True,
            )
    print(f"took {time.perf_counter() - started:.0f} s")
    return 1 if off else 0


def _over(seconds: float | None, reference: float) -> str:
    return "-" if seconds is None else f"{seconds / reference:.3f}"


if __name__ == "__main__":
    sys.exit(main())
