"""Time of `%load_ext tpu_magic` against an empty extension, each in a fresh process.

Promise: at most 20 ms more, and no framework in `sys.modules`.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys

from benchmarks.table import show

PAIRS = 15
_CHILD = """
import json, sys, time, types
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
config = Config()
config.HistoryManager.enabled = False
shell = InteractiveShell.instance(config=config)
empty = types.ModuleType("empty_extension")
empty.load_ipython_extension = lambda shell: None
sys.modules["empty_extension"] = empty
started = time.perf_counter()
shell.run_line_magic("load_ext", sys.argv[1])
took = time.perf_counter() - started
frameworks = [n for n in ("torch", "torch_xla", "tensorflow", "keras", "jax", "numpy")
              if n in sys.modules]
print(json.dumps([took, frameworks]))
"""


def once(extension: str) -> tuple[float, list[str]]:
    # With bytecode, as an installed package has it.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, extension],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    took, frameworks = json.loads(done.stdout.splitlines()[-1])
    return took, frameworks


def main() -> None:
    once("tpu_magic")  # writes the bytecode
    more, loaded = [], set()
    for _ in range(PAIRS):
        empty, _ = once("empty_extension")
        ours, frameworks = once("tpu_magic")
        more.append(1e3 * (ours - empty))
        loaded.update(frameworks)
    quartiles = statistics.quantiles(more, n=4)
    show(
        "loading: %load_ext tpu_magic against an empty extension",
        ("more, median", "quartiles", "pairs", "promise", "frameworks loaded"),
        [
            (
                f"{statistics.median(more):.1f} ms",
                f"{quartiles[0]:.1f} … {quartiles[2]:.1f} ms",
                str(PAIRS),
                "at most 20 ms",
                ", ".join(sorted(loaded)) or "none",
            )
        ],
    )


if __name__ == "__main__":
    main()
