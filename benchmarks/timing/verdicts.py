"""How often `%%tpu_compare` is wrong: A against A, and A against 1.10 A."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from benchmarks.timing.workloads import EAGER, PLAIN, XLA

# Ten equal pieces of work against ten, and against eleven.
_CODE = {
    PLAIN: ("x = list(range(200))", "for _ in range({n}): sum(x)"),
    EAGER: (
        "import torch; x = torch.randn(128, 128)",
        "for _ in range({n}): x @ x",
    ),
    XLA: (
        "import torch; x = torch.randn(256, 256).to('xla') / 16\n"
        "def chain(n):\n"
        "    y = x\n"
        "    for _ in range(n):\n"
        "        y = y @ x\n"
        "    return y\n",
        "chain({n})",
    ),
}


@dataclass(frozen=True)
class Rates:
    """Verdicts counted, for the same work and for work of 1.10 times."""

    where: str
    same: Counter[str]
    more: Counter[str]

    def false(self) -> float:
        """Return the share of "faster" or "slower" for the same work."""
        return (self.same["faster"] + self.same["slower"]) / self.same.total()

    def found(self) -> float:
        """Return the share of "slower" for 1.10 times the work."""
        return self.more["slower"] / self.more.total()


def measure(shell: Any, where: str, pairs: int, found_pairs: int, limit: float) -> Rates:
    """Compare again and again on one kind of device."""
    setup, code = _CODE[where]
    exec(setup, shell.user_ns)

    def verdict(other: int) -> str:
        cell = f"a: {code.format(n=10)}\nb: {code.format(n=other)}\n"
        options = f"-o -q --time-limit {limit}"
        return shell.run_cell_magic("tpu_compare", options, cell).pairs[0].verdict

    return Rates(
        where,
        Counter(verdict(10) for _ in range(pairs)),
        Counter(verdict(11) for _ in range(found_pairs)),
    )
