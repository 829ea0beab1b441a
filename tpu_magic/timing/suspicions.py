"""Reasons to doubt a timing: a table of rules over what was measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tpu_magic.frameworks.base import DeviceInfo
from tpu_magic.report.render import size
from tpu_magic.timing import stats
from tpu_magic.timing.measurement import Measurement, Series
from tpu_magic.timing.result import Suspicion, duration

_DRIFT = 0.05
_CORRELATION = 0.5
# Scalars that a program takes as arguments (a step count) are a few bytes, and no transfer.
_TRANSFER_BYTES = 1024
_TRANSFER_READS = 0.01


@dataclass(frozen=True)
class Evidence:
    """What the rules look at.

    Attributes
    ----------
    measured
        What the runner saw.
    device
        Where it ran.
    wants_device
        Whether the framework has a device other than the host, so that not being on a TPU
        and having no array to wait for mean something.
    inputs_timed
        Whether moving the inputs was timed on purpose.
    changed
        What the code changed in place, as a person would name it.
    peak_flops
        Peak of all devices together in floating-point operations per second, where known.
    """

    measured: Measurement
    device: DeviceInfo
    wants_device: bool = True
    inputs_timed: bool = False
    changed: tuple[str, ...] = ()
    peak_flops: float | None = None

    @property
    def leading(self) -> Series:
        """The series that the headline is made of."""
        return next(iter(self.measured.series.values()))


def find(evidence: Evidence) -> list[Suspicion]:
    """Return every suspicion that the evidence supports, in the order of the table."""
    found = ((code, rule(evidence)) for code, rule in RULES.items())
    return [Suspicion(code, message) for code, message in found if message]


def _not_a_tpu(seen: Evidence) -> str:
    if not seen.wants_device or seen.device.on_tpu:
        return ""
    return (
        f"not a TPU: these are times of {seen.device.kind}, and say nothing about a TPU's; "
        "%tpu_setup shows what this machine has"
    )


def _wait_lies(seen: Evidence) -> str:
    if seen.measured.seen.waits is not False:
        return ""
    return (
        "waiting returned before the work was done (reading a value back then took the rest): "
        "these times are too short; end the code with a read of a value"
    )


def _above_peak(seen: Evidence) -> str:
    flops, peak = seen.measured.seen.flops, seen.peak_flops
    if not flops or not peak:
        return ""
    fastest = min(stats.summarize(each.timings).median for each in seen.measured.series.values())
    if flops <= peak * fastest:
        return ""
    return (
        f"{flops / fastest:.3g} FLOP/s would be above the chip's peak of {peak:.3g}: the wait, or "
        "the counting, is not to be trusted; compare with a longer computation"
    )


def _compiled(seen: Evidence) -> str:
    compiles = seen.measured.counted.compiles
    if not compiles:
        return ""
    aside = sum(len(s.compiled) for s in seen.measured.series.values() if s.compiled != s.runs)
    what = f"{aside} runs are left out" if aside else "the figures include compiling"
    return (
        f"{compiles} compiles while timing: {what}; keep shapes and Python numbers the same "
        "from call to call"
    )


def _not_settled(seen: Evidence) -> str:
    if seen.measured.settled:
        return ""
    return "compiling had not stopped when timing began; find out what changes from call to call"


def _fallback(seen: Evidence) -> str:
    names = seen.measured.counted.fallbacks
    if not names:
        return ""
    listed = ", ".join(sorted(names))
    return f"ran on the host for want of a device kernel: {listed}; use another operation"


def _transfer(seen: Evidence) -> str:
    counted = seen.measured.counted
    calls = max(1, seen.measured.timed_calls)
    sent, reads = (counted.bytes_to_device or 0) / calls, (counted.host_reads or 0) / calls
    told = []
    if sent >= _TRANSFER_BYTES and not seen.inputs_timed:
        told.append(f"{size(sent)} to the device")
    if reads >= _TRANSFER_READS:
        told.append(f"host reads: {reads:.3g}")
    if not told:
        return ""
    return (
        f"the timed code moves data (per call: {', '.join(told)}); make inputs on the device "
        "before, and read values (.item(), .cpu(), print) after"
    )


def _no_output(seen: Evidence) -> str:
    measured = seen.measured
    # Where executions are not counted, work is not dropped either: jax and TensorFlow are eager.
    if not seen.wants_device or measured.output_arrays or measured.counted.executions != 0:
        return ""
    return (
        "nothing was computed on the device: the code gives no array back and changes none, "
        "so its work is dead code; end it with the result"
    )


def _drift(seen: Evidence) -> str:
    change = stats.drift(seen.leading.timings)
    if change is None or abs(change) < _DRIFT:
        return ""
    return (
        f"the last half ran {abs(change):.0%} {'slower' if change > 0 else 'faster'} than the "
        "first: the machine warmed up, slowed down or was shared, or the code's state grows"
    )


def _dependence(seen: Evidence) -> str:
    timings = seen.leading.timings
    correlation = stats.autocorrelation(timings)
    worth = stats.effective_size(timings)
    if correlation is None or correlation < _CORRELATION or worth > len(timings) / 2:
        return ""
    return (
        f"neighbouring runs are alike (autocorrelation {correlation:.2f}): {len(timings)} runs "
        f"are worth {worth:.0f}; compare with %%tpu_compare only"
    )


def _spread(seen: Evidence) -> str:
    timings = seen.leading.timings
    middle, worst = stats.summarize(timings).median, max(timings)
    if len(timings) > 1 and worst > 4 * middle and worst > 1e-6:  # noqa: PLR2004 - as %timeit
        return (
            f"the slowest run took {duration(worst)}, {worst / middle:.1f} times the median: the "
            "machine was busy, or results are cached"
        )
    return ""


def _changed(seen: Evidence) -> str:
    if not seen.changed:
        return ""
    return (
        f"the code changed {', '.join(seen.changed)}, and it really ran "
        f"{seen.measured.runs_total:,} times; make what it changed anew before you go on"
    )


RULES: dict[str, Callable[[Evidence], str]] = {
    "not-a-tpu": _not_a_tpu,
    "no-output": _no_output,
    "wait-lies": _wait_lies,
    "above-peak": _above_peak,
    "compile": _compiled,
    "not-settled": _not_settled,
    "fallback": _fallback,
    "transfer": _transfer,
    "state-changed": _changed,
    "drift": _drift,
    "autocorrelation": _dependence,
    "slow-run": _spread,
}
