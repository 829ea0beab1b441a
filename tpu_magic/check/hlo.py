"""A compiled program as the compiler prints it, read into plain objects. Knows no framework."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

# The space of a device's main memory; others are on-chip.
_MAIN_MEMORY = "0"
_ELEMENT_BITS = {
    "pred": 8, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "s16": 16, "u16": 16, "s32": 32, "u32": 32,
    "s64": 64, "u64": 64, "f16": 16, "bf16": 16, "f32": 32, "f64": 64, "c64": 64, "c128": 128,
    "f8e4m3fn": 8, "f8e5m2": 8, "f8e4m3b11fnuz": 8, "token": 0,
}  # fmt: skip
_ARRAY = re.compile(r"([a-z]\w*)\[([\d,<=]*)\](?:\{([\d,]*)(?::([^}]*))?\})?")
_NAME = re.compile(r"%([\w.\-]+)")
_HEADER = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
_INSTRUCTION = re.compile(r"\s*(ROOT )?%([\w.\-]+) = ")


@dataclass(frozen=True)
class Array:
    """The type of an array with its layout.

    Attributes
    ----------
    element, shape
        `bf16` and its dimensions.
    minor_to_major
        Its dimensions from the one whose neighbours are adjacent in memory.
    tile
        The first tiling of the layout: what the last dimensions are padded to multiples of.
    space
        Memory space; `0` is the device's main memory.
    """

    element: str
    shape: tuple[int, ...]
    minor_to_major: tuple[int, ...] = ()
    tile: tuple[int, ...] = ()
    space: str = _MAIN_MEMORY

    @property
    def elements(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Return the bytes of its values."""
        return self._bytes(self.elements)

    @property
    def padded_bytes(self) -> int:
        """Return the bytes that it takes in memory, where tiles are whole."""
        order = self.minor_to_major or tuple(reversed(range(len(self.shape))))
        sizes = [self.shape[dimension] for dimension in order]
        for place, tile in enumerate(reversed(self.tile)):
            if place < len(sizes):
                sizes[place] = -(-sizes[place] // tile) * tile
        return self._bytes(math.prod(sizes))

    @property
    def in_main_memory(self) -> bool:
        """Say whether it lives in the device's main memory."""
        return self.space == _MAIN_MEMORY

    def _bytes(self, elements: int) -> int:
        return elements * _ELEMENT_BITS.get(self.element, 32) // 8

    def __str__(self) -> str:
        return f"{self.element}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes
    ----------
    arrays
        The arrays of its result: one, or those of a tuple.
    operands
        Names of the instructions that it takes.
    text
        What stands between its parentheses.
    rest
        Its attributes as printed.
    """

    name: str
    opcode: str
    arrays: tuple[Array, ...]
    operands: tuple[str, ...]
    text: str
    rest: str
    root: bool

    def attribute(self, name: str) -> str:
        """Return an attribute without braces; an empty text when it has none of the name."""
        match = re.search(rf"\b{name}=(?:\{{([^}}]*)\}}|([^\s,]+))", self.rest)
        return (match[1] or match[2] or "") if match else ""

    def called(self, name: str) -> list[str]:
        """Return the computations that an attribute names."""
        return _NAME.findall(self.attribute(name))

    @property
    def operation(self) -> str:
        """Return what the framework called it: `aten__convolution`, `jit(f)/dot_general`."""
        match = re.search(r'op_name="([^"]*)"', self.rest)
        return match[1] if match else ""

    @property
    def frame(self) -> int:
        """Return the number of its stack frame; 0 for none."""
        match = re.search(r"stack_frame_id=(\d+)", self.rest)
        return int(match[1]) if match else 0

    @property
    def cycles(self) -> int:
        """Return the compiler's estimate of its cycles; 0 where it has none."""
        match = re.search(r'"estimated_cycles":"(\d+)"', self.rest)
        cycles = int(match[1]) if match else 0
        return cycles if cycles < 1 << 62 else 0


@dataclass
class Computation:
    """A computation: its instructions by name, in order."""

    name: str
    instructions: dict[str, Instruction] = field(default_factory=dict)

    @cached_property
    def root(self) -> Instruction:
        """Return what it returns."""
        return next(item for item in self.instructions.values() if item.root)


@dataclass
class Module:
    """A compiled program."""

    computations: dict[str, Computation] = field(default_factory=dict)
    entry: str = ""
    files: dict[int, str] = field(default_factory=dict)
    locations: dict[int, tuple[int, int]] = field(default_factory=dict)
    stack: dict[int, tuple[int, int]] = field(default_factory=dict)

    def frames(self, number: int) -> Iterator[tuple[str, int]]:
        """Yield file and line of a stack frame and its callers, the innermost first."""
        while number in self.stack:
            location, parent = self.stack[number]
            file, line = self.locations.get(location, (0, 0))
            yield self.files.get(file, ""), line
            # The printed parent is one more than the frame's own number.
            if parent - 1 == number:
                return
            number = parent - 1


def arrays_of(text: str) -> tuple[Array, ...]:
    """Return the arrays of a printed type."""
    return tuple(_array(match) for match in _ARRAY.finditer(text))


def _array(match: re.Match[str]) -> Array:
    element, shape, order, layout = match.groups()
    tile = re.search(r"T\(([\d,]*)\)", layout or "")
    space = re.search(r"S\((\d+)\)", layout or "")
    return Array(
        element,
        tuple(int(size.strip("<=")) for size in shape.split(",") if size),
        _numbers(order),
        _numbers(tile[1]) if tile else (),
        space[1] if space else _MAIN_MEMORY,
    )


def _numbers(text: str | None) -> tuple[int, ...]:
    return tuple(int(item) for item in (text or "").split(",") if item)


def parse(text: str) -> Module:
    """Return the module that a text holds."""
    module = Module()
    current: Computation | None = None
    lines = iter(text.splitlines())
    for line in lines:
        if line in _TABLES:
            _read_table(module, line, lines)
        elif line == "}":
            current = None
        elif current is not None:
            if _INSTRUCTION.match(line):
                made = _instruction(line)
                current.instructions[made.name] = made
        elif header := _HEADER.match(line):
            current = Computation(header[2])
            module.computations[current.name] = current
            if header[1]:
                module.entry = current.name
    return module


_TABLES = {"FileNames", "FunctionNames", "FileLocations", "StackFrames"}


def _read_table(module: Module, name: str, lines: Iterator[str]) -> None:
    for line in lines:
        number, _, rest = line.partition(" ")
        if not number.isdigit():
            return
        fields = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", rest)}
        if name == "FileNames":
            module.files[int(number)] = rest.strip('"')
        elif name == "FileLocations":
            module.locations[int(number)] = (fields["file_name_id"], fields["line"])
        elif name == "StackFrames":
            module.stack[int(number)] = (
                fields["file_location_id"],
                fields.get("parent_frame_id", 0),
            )


def _instruction(line: str) -> Instruction:
    match = _INSTRUCTION.match(line)
    assert match is not None, line  # noqa: S101 - the caller looked
    start = match.end()
    end = _closing(line, start) + 1 if line[start] == "(" else line.index(" ", start)
    opening = line.index("(", end)
    closing = _closing(line, opening)
    text = line[opening + 1 : closing]
    return Instruction(
        name=match[2],
        opcode=line[end:opening].strip(),
        arrays=arrays_of(line[start:end]),
        operands=tuple(_NAME.findall(text)),
        text=text,
        rest=line[closing + 1 :],
        root=bool(match[1]),
    )


def _closing(text: str, opening: int) -> int:
    """Return where the parenthesis that opens at `opening` is closed."""
    depth = 0
    for match in re.compile(r"[()]").finditer(text, opening):
        depth += 1 if match.group() == "(" else -1
        if depth == 0:
            return match.start()
    raise ValueError(f"no closing parenthesis in {text[:80]!r}")
