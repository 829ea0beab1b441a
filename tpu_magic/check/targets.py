"""What a cell can be checked for: one table of TPU slices of one host."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from IPython.core.error import UsageError

from tpu_magic.host import chips
from tpu_magic.host.chips import Generation

ALL = "all"


@dataclass(frozen=True)
class Target:
    """A slice to compile for.

    Attributes
    ----------
    name
        `v5e-4`. The number counts what the product's own names count: TensorCores up to v5p
        and on 7x, chips on v5e and v6e.
    generation
        Its row in the chip table.
    topology
        The compiler's name for it: `v5e:2x2`.
    bounds
        Chips of a host along x, y and z; all of these slices are one host.
    chip_config
        The compiler's name for how cores make devices; `megacore` where two work as one.
    """

    name: str
    generation: Generation
    topology: str
    bounds: tuple[int, int, int]
    chip_config: str

    @property
    def chips(self) -> int:
        """Return the chips of the slice."""
        x, y, z = self.bounds
        return x * y * z

    @property
    def devices(self) -> int:
        """Return the devices that a runtime shows, which is what a program is compiled for."""
        return self.chips * self.generation.devices_per_chip

    @property
    def unit(self) -> str:
        """Return what one device is, as a person says it: `chip`, or `core` where it is half."""
        return "chip" if self.generation.devices_per_chip == 1 else "core"


# name, generation, the compiler's topology, chips of the host, its chip configuration.
# That v4 needs `megacore` was tried: without it the compiler makes two devices of a v4 chip.
_ROWS = (
    ("v2-8", "v2", "v2:2x2", (2, 2, 1), "default"),
    ("v3-8", "v3", "v3:2x2", (2, 2, 1), "default"),
    ("v4-8", "v4", "v4:2x2x1", (2, 2, 1), "megacore"),
    ("v5p-8", "v5p", "v5p:2x2x1", (2, 2, 1), "default"),
    ("v5e-1", "v5e", "v5e:1x1", (1, 1, 1), "default"),
    ("v5e-4", "v5e", "v5e:2x2", (2, 2, 1), "default"),
    ("v5e-8", "v5e", "v5e:2x4", (2, 4, 1), "default"),
    ("v6e-1", "v6e", "v6e:1x1", (1, 1, 1), "default"),
    ("v6e-4", "v6e", "v6e:2x2", (2, 2, 1), "default"),
    ("v6e-8", "v6e", "v6e:2x4", (2, 4, 1), "default"),
    ("7x-2", "7x", "tpu7x:1x1x1", (1, 1, 1), "default"),
    ("7x-8", "7x", "tpu7x:2x2x1", (2, 2, 1), "default"),
)


def _table() -> dict[str, Target]:
    table = {}
    for name, generation, topology, bounds, config in _ROWS:
        row = chips.by_name(generation)
        assert row is not None, generation  # noqa: S101 - the two tables are ours
        table[name] = Target(name, row, topology, bounds, config)
    return table


TARGETS = _table()
# A bare generation is its smallest slice.
_SMALLEST = {target.generation.name: target for target in reversed(TARGETS.values())}


def target_of(text: str) -> Target:
    """Return the target of a name: `v5e-4`, `v5litepod-4`, `tpu7x-8`, or a bare `v5e`.

    Raises
    ------
    UsageError
        When there is none of that name; the nearest is named.
    """
    wanted = text.strip().lower()
    if wanted in TARGETS:
        return TARGETS[wanted]
    generation = chips.by_name(wanted)
    if generation is not None and generation.name in _SMALLEST:
        return _SMALLEST[generation.name]
    known = chips.by_accelerator_type(wanted)
    for target in TARGETS.values():
        if known == (target.generation, target.chips):
            return target
    near = difflib.get_close_matches(wanted, TARGETS, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(TARGETS)} and {ALL}"
    raise UsageError(f"%%tpu_check: no target {text!r}; {hint}")


def targets_of(text: str) -> list[Target]:
    """Return the targets of an option's value: `all`, or names with commas between.

    Raises
    ------
    UsageError
        When a name is not one of a target.
    """
    if text.strip().lower() == ALL:
        return list(TARGETS.values())
    return list({target.name: target for target in map(target_of, text.split(","))}.values())
