"""The answer of `%%tpu_check`: its figures, and how it is shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from tpu_magic.host import chips
from tpu_magic.report import render
from tpu_magic.report.advice import Advice
from tpu_magic.report.render import Table, View
from tpu_magic.report.result import Result

_MOST_ROWS = 6
_GIB = 2**30


@dataclass(frozen=True)
class Buffer:
    """An array in the device's memory, with where it comes from."""

    bytes: int
    array: str
    what: str
    place: str


@dataclass(frozen=True)
class Collective:
    """A kind of exchange between devices: how often, and bytes of one; None for unknown."""

    kind: str
    count: int | None
    bytes: int


@dataclass(frozen=True)
class Share:
    """A part of the compiler's estimated cycles."""

    name: str
    cycles: int
    share: float


@dataclass(frozen=True)
class ProgramReport:
    """One program that the cell hands to the device. Sizes are of one device, in bytes.

    Attributes
    ----------
    name
        The person's line that ends it.
    line
        Its number in the cell.
    runs
        How often it was seen until the cell was cut.
    flops, matrix_flops
        Operations on one device with loops counted, and those of the matrix unit.
    padding_bytes
        What the tiles of the layouts add to arguments and outputs.
    by_operation, by_module, by_line
        The compiler's estimated cycles, only with `--estimate`.
    """

    name: str
    line: int | None = None
    runs: int = 1
    trains: bool = False
    compiles: bool | None = None
    fits: bool | None = None
    hbm_needed_bytes: int | None = None
    arguments_bytes: int | None = None
    outputs_bytes: int | None = None
    aliased_bytes: int | None = None
    temporaries_bytes: int | None = None
    code_bytes: int | None = None
    flops: float | None = None
    matrix_flops: float | None = None
    floor_s: float | None = None
    bound_by: str | None = None
    estimate_s: float | None = None
    padding_bytes: int | None = None
    compile_s: float | None = None
    cached: bool = False
    error: str = ""
    buffers: list[Buffer] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)
    by_operation: list[Share] = field(default_factory=list)
    by_module: list[Share] = field(default_factory=list)
    by_line: list[Share] = field(default_factory=list)


@dataclass(frozen=True)
class CheckReport(Result):
    """Whether a cell compiles for a TPU and fits, and what it costs at least.

    The figures at the top are those of the largest program. Sizes are bytes of one device,
    times seconds; what is not known is None.

    Attributes
    ----------
    target
        `v5e-4`; `devices` of it are used, each a `unit` (chip, or core where it is half).
    compiles, fits
        None when the compiler came to no answer.
    hbm_needed_bytes, hbm_limit_bytes
        Memory that the program needs, and that the compiler has on the target.
    flops
        Operations of a step on one device, loops counted.
    floor_s, bound_by
        The least time of a step, and whether compute or memory sets it.
    estimate_s
        The compiler's estimate, never measured; only with `--estimate`.
    optimization
        `O1` or `full`.
    refused
        What the cell would have done to files, network and processes.
    error, line
        What went wrong, and the person's line.
    fit_batch
        The largest value of `--fit-batch`'s name that was seen to fit, if it was asked for.
    """

    kind: ClassVar[str] = "check-report"

    target: str
    compiles: bool | None = None
    fits: bool | None = None
    hbm_needed_bytes: int | None = None
    hbm_limit_bytes: int | None = None
    arguments_bytes: int | None = None
    outputs_bytes: int | None = None
    aliased_bytes: int | None = None
    temporaries_bytes: int | None = None
    flops: float | None = None
    floor_s: float | None = None
    bound_by: str | None = None
    estimate_s: float | None = None
    optimization: str = "O1"
    precision: str = "default"
    compile_s: float | None = None
    refused: list[str] = field(default_factory=list)
    error: str = ""
    line: int | None = None
    advice: list[Advice] = field(default_factory=list)
    code_bytes: int | None = None
    framework: str = ""
    device_kind: str = ""
    devices: int = 1
    unit: str = "chip"
    programs: list[ProgramReport] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    capture_s: float | None = None
    capture_peak_bytes: int | None = None
    compiler_peak_bytes: int | None = None
    compiler: str = ""
    fit_name: str = ""
    fit_batch: int | None = None
    fit_tried: dict[str, bool] = field(default_factory=dict)

    def view(self) -> View:
        """Return the verdict in one line, then the tables."""
        largest = self.programs[0] if self.programs else None
        tables = [_programs(self.programs)] if len(self.programs) > 1 else []
        if largest is not None and largest.arguments_bytes is not None:
            tables += [self._figures(largest), *_costs(largest)]
        if largest is not None and largest.buffers:
            tables.append(_buffers(largest))
        return View(
            headline=self.headline(),
            lines=tuple(self._lines()),
            tables=tuple(tables),
            notes=tuple(item.message for item in self.advice),
        )

    def headline(self) -> str:
        """Return the verdict."""
        where = f" (line {self.line})" if self.line is not None else ""
        if self.compiles is None:
            return f"no verdict for {self.target}: {_first_line(self.error)}{where}"
        if self.fits is False and self.hbm_needed_bytes is None:
            return f"does not fit {self.target}: {_first_line(self.error)}{where}"
        if self.fits is False:
            limit = self.hbm_limit_bytes or 0
            over = self.hbm_needed_bytes - limit if self.hbm_needed_bytes is not None else 0
            return (
                f"does not fit {self.target}: needs {_gib(self.hbm_needed_bytes)} of "
                f"{_gib(limit)} a {self.unit}, {_gib(over)} too much"
            )
        if not self.compiles:
            return f"does not compile for {self.target}: {_first_line(self.error)}{where}"
        text = (
            f"fits {self.target}: {_gib(self.hbm_needed_bytes)} of "
            f"{_gib(self.hbm_limit_bytes)} a {self.unit}"
        )
        if self.floor_s is not None:
            step = "step" if self.programs and self.programs[0].trains else "run"
            at = "bf16" if self.precision in ("default", "bf16") else f"{self.precision} precision"
            floor = render.seconds(self.floor_s)
            text += f"; floor {floor} a {step}, bound by {self.bound_by} at {at}"
        return text

    def _lines(self) -> list[str]:
        lines = []
        if self.estimate_s is not None:
            lines.append(
                f"compiler's estimate, never measured: {render.seconds(self.estimate_s)}"
                + ("; by a clock that is derived, not published" if self._clock_derived() else "")
                + ("; exchange between devices not counted" if self._exchanges() else "")
            )
        if self.compiles and self.error:
            where = f"line {self.line}: " if self.line is not None else ""
            lines.append(f"the cell stopped there: {where}{_first_line(self.error)}")
        if self.fit_name:
            lines.append(self._fit_line())
        about = [f"{self.devices} × {self.device_kind}" if self.device_kind else "", self.compiler]
        if self.compile_s is not None:
            cached = all(item.cached for item in self.programs)
            took = f"compiled at {self.optimization} in {render.seconds(self.compile_s)}"
            about.append(took + (", kept from before" if cached else ""))
        if self.capture_s is not None:
            about.append(f"recorded in {render.seconds(self.capture_s)}")
        if self.capture_peak_bytes is not None:
            peak = f"memory of the children up to {render.size(self.capture_peak_bytes)}"
            if self.compiler_peak_bytes is not None:
                peak += f" and {render.size(self.compiler_peak_bytes)}"
            about.append(peak)
        lines.append(" · ".join(item for item in about if item))
        if self.cut:
            lines.append(f"cut at its steady step, and nothing run: {'; '.join(self.cut)}")
        lines += [f"refused: {text}" for text in self.refused]
        lines += list(self.notes)
        return lines

    def _fit_line(self) -> str:
        """Return what the search for the largest batch found, as far as it was asked."""
        refused = [int(size) for size, fits in self.fit_tried.items() if not fits]
        if self.fit_batch is None:
            return f"no {self.fit_name} that was tried fits (down to {min(refused)})"
        above = f"; {min(refused)} does not" if refused else ""
        return f"{self.fit_name} = {self.fit_batch} fits{above}"

    def _exchanges(self) -> bool:
        return bool(self.programs and self.programs[0].collectives)

    def _clock_derived(self) -> bool:
        generation = chips.by_device_kind(self.device_kind)
        return generation is not None and generation.clock_derived

    def _figures(self, program: ProgramReport) -> Table:
        rows = [
            ("arguments", _gib(program.arguments_bytes)),
            ("outputs", _gib(program.outputs_bytes)),
            ("of these, in place of arguments", _gib(program.aliased_bytes)),
            ("temporaries", _gib(program.temporaries_bytes)),
            ("code", _gib(program.code_bytes)),
            ("padding in arguments and outputs", _gib(program.padding_bytes)),
            ("operations", operations(program.flops)),
        ]
        if program.floor_s is not None:
            rows.append(("floor", f"{render.seconds(program.floor_s)} ({program.bound_by})"))
        rows += [
            (item.kind, f"{'?' if item.count is None else item.count} × {render.size(item.bytes)}")
            for item in program.collectives[:_MOST_ROWS]
        ]
        return Table(("", f"a {self.unit}"), tuple(rows))


@dataclass(frozen=True)
class CheckTable(Result):
    """The verdicts of one cell for several targets."""

    kind: ClassVar[str] = "check-table"

    reports: list[CheckReport] = field(default_factory=list)

    def view(self) -> View:
        """Return one row for each target."""
        good = [report.target for report in self.reports if report.fits]
        reasons = {_first_line(report.error) for report in self.reports if report.error}
        if good:
            headline = f"fits {', '.join(good)}"
        elif all(report.fits is None for report in self.reports) and len(reasons) == 1:
            headline = f"no verdict: {reasons.pop()}"
        else:
            headline = "fits none of the targets"
        rows = tuple(
            (
                report.target,
                {True: "yes", False: "no", None: "?"}[report.fits],
                _gib(report.hbm_needed_bytes),
                _gib(report.hbm_limit_bytes),
                _known_seconds(report.floor_s),
                report.bound_by or "",
                _first_line(report.error)[:60] if report.error else "",
            )
            for report in self.reports
        )
        header = ("target", "fits", "needs", "of", "floor", "bound by", "")
        first = self.reports[0] if self.reports else None
        return View(
            headline,
            lines=tuple(f"refused: {text}" for text in first.refused) if first else (),
            tables=(Table(header, rows, "a chip, or a core where a chip is two devices"),),
            notes=tuple(item.message for item in first.advice if item.code in _OF_THE_CELL)
            if first
            else (),
        )


# Advice that does not depend on the target.
_OF_THE_CELL = frozenset({"host-read", "float64", "host-kernel"})


def _programs(programs: list[ProgramReport]) -> Table:
    rows = tuple(
        (
            item.name,
            _gib(item.hbm_needed_bytes),
            operations(item.flops),
            _known_seconds(item.floor_s),
            {True: "yes", False: "no", None: "?"}[item.fits],
        )
        for item in programs
    )
    header = ("program", "needs", "operations", "floor", "fits")
    return Table(header, rows, "programs, largest first")


def _buffers(program: ProgramReport) -> Table:
    rows = tuple(
        (render.size(item.bytes), item.array, item.what, item.place)
        for item in program.buffers[:_MOST_ROWS]
    )
    return Table(("size", "array", "of", "from"), rows, "largest arrays")


def _costs(program: ProgramReport) -> list[Table]:
    return [
        Table(
            (title, "share"),
            tuple((item.name, f"{item.share:.0%}") for item in shares[:_MOST_ROWS]),
            "compiler's estimate, never measured",
        )
        for title, shares in (
            ("operation", program.by_operation),
            ("module", program.by_module),
            ("line", program.by_line),
        )
        if shares
    ]


def operations(value: float | None) -> str:
    """Return a number of operations with a unit: `35.1 M`, `2.5 T`."""
    if value is None:
        return "cannot be counted"
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f}"


def _known_seconds(value: float | None) -> str:
    return "" if value is None else render.seconds(value)


def _gib(value: int | None) -> str:
    """Return a size; from one GiB on with two decimals, as limits are told (15.75 GiB)."""
    if value is None:
        return "unknown"
    return f"{value / _GIB:.2f} GiB" if value >= _GIB else render.size(value)


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "the compiler gave no answer"
