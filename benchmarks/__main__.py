"""All benchmarks: `python -m benchmarks`, or some: `python -m benchmarks loading training`."""

from __future__ import annotations

import importlib
import sys

ALL = ("loading", "training")


def main() -> None:
    for name in sys.argv[1:] or ALL:
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
