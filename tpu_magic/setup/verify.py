"""Does it really work: in a child process with a timeout, so that an abort costs no variable.

Where this process holds the devices already, in the process itself.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tpu_magic.frameworks.base import Adapter
from tpu_magic.host.detect import HostFacts
from tpu_magic.setup import child as once
from tpu_magic.setup.signatures import explain

TIMEOUT_S = 180.0
MARK = "tpu_magic verified: "
_SHELL_SIGNAL = 128
_TAIL = 3
_GOOGLE = ("cloud-tpu-vm", "gke")


@dataclass(frozen=True)
class Verdict:
    """What came of using a framework once.

    Attributes
    ----------
    ok
        Whether import, devices and a matrix product with a checked result all worked.
    device, count
        `TPU`, or what else the runtime reports, and the number of devices; None on failure.
    message
        What failed, in words; empty when nothing did.
    """

    ok: bool
    device: str | None
    count: int | None
    message: str


def verify(
    adapter: str,
    facts: HostFacts,
    environ: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
    program: str | None = None,
) -> Verdict:
    """Use a framework once in a child process and check the result.

    Parameters
    ----------
    adapter
        Name of the adapter whose framework is meant.
    facts
        Where this is; decides what the child must not ask or load.
    environ
        The person's environment (default: this process's).
    timeout_s
        Seconds until the child and its children are ended.
    program
        What the child runs (default: `child.py`).
    """
    if program is None:
        program = Path(__file__).with_name("child.py").read_text(encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "-c", program, adapter],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=child_environ(facts, os.environ if environ is None else environ),
        start_new_session=True,
    ) as child:
        try:
            output, _ = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            _end(child)
            output, _ = child.communicate()
            return _failed(output, f"it did not finish in {timeout_s:g} s")
        except BaseException:
            _end(child)
            raise
    found = _result(output)
    if child.returncode != 0 or found is None:
        return _failed(output, exit_in_words(child.returncode))
    return _compared(
        float(found["total"]), float(found["expected"]), str(found["device"]), int(found["count"])
    )


def verify_here(adapter: Adapter) -> Verdict:
    """Use a framework once in this process, which holds the devices: no child could have them.

    Parameters
    ----------
    adapter
        The adapter, connected.
    """
    try:
        info = adapter.devices()
        product = adapter.square([[float(x) for x in row] for row in once.matrix()])
    except Exception as error:  # noqa: BLE001 - whatever the runtime raises is the finding
        return _failed(f"{type(error).__name__}: {error}", "it failed in this kernel")
    kind = "TPU" if info.on_tpu else info.kind
    return _compared(sum(map(sum, product)), once.expected(), kind, info.count)


def _compared(total: float, expected: float, device: str, count: int) -> Verdict:
    if total != expected:
        wrong = f"a matrix product came out wrong: {total:g} instead of {expected:g}"
        return Verdict(False, None, None, wrong)
    return Verdict(True, device, count, "")


def child_environ(facts: HostFacts, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the child's environment; what the person set stays as it is.

    Off Google's hosts the metadata server is not asked (that hung for minutes), and torch
    loads no backend by itself (with torch_tpu and no TPU it ended the process).
    """
    defaults = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    if facts.environment not in _GOOGLE:
        defaults["TPU_SKIP_MDS_QUERY"] = "1"
    if not facts.tpu:
        defaults["PJRT_DEVICE"] = "CPU"
    if not facts.tpu and not facts.gpu:
        defaults["JAX_PLATFORMS"] = "cpu"
    return {**defaults, **environ}


def exit_in_words(status: int) -> str:
    """Return what an exit status says: a signal's name, or an end without a word."""
    number = -status if status < 0 else status - _SHELL_SIGNAL
    if number in set(signal.Signals):
        return f"it was ended by {signal.Signals(number).name}"
    return f"it ended with status {status}" if status else "it ended without an answer"


def _result(output: str) -> dict[str, float | str] | None:
    for line in output.splitlines():
        if line.startswith(MARK):
            found: dict[str, float | str] = json.loads(line[len(MARK) :])
            return found
    return None


def _failed(output: str, how: str) -> Verdict:
    known = explain(output)
    said = [line.strip() for line in output.splitlines() if line.strip()]
    why = known.sentence() if known else "last words: " + " | ".join(said[-_TAIL:])
    return Verdict(False, None, None, f"{how}; {why}" if said else how)


def _end(child: subprocess.Popen[str]) -> None:
    """End the child with everything that it started."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
