"""Errors that people meet: the text that gives them away, their cause, and the cure.

One table. docs/errors.md is made from it (tools/errors_page.py), and every row has a test.
Sources are issue numbers of the projects named, or "seen" for what was run here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Signature:
    """How an error is recognised, and what to say.

    Attributes
    ----------
    code
        Short name, the anchor on the page of errors.
    pattern
        Regular expression searched in the output; named groups may be used in `cause` and
        `cure` as `{name}`.
    cause, cure
        One sentence each; the cure is a command or an action.
    source
        Where it was seen.
    """

    code: str
    pattern: str
    cause: str
    cure: str
    source: str


@dataclass(frozen=True)
class Explained:
    """A recognised error."""

    code: str
    cause: str
    cure: str

    def sentence(self) -> str:
        """Return cause and cure as one line."""
        return f"{self.cause}: {self.cure}"


SIGNATURES = (
    Signature(
        "torch-mismatch",
        r"_XLAC[\w.\-]*\.so: undefined symbol|undefined symbol: \w*(?:c10|torch|at)\w*",
        "torch and torch_xla are of different releases, so torch_xla cannot be loaded",
        "run %tpu_setup to install the torch_xla of this torch, then restart the kernel",
        "seen (torch 2.13 with torch_xla 2.9.0); pytorch/xla#2259",
    ),
    Signature(
        "libtpu-newer",
        r"Unexpected PJRT_\w+ size: expected (?P<expected>\d+), got (?P<got>\d+)"
        r"|Mismatched PJRT plugin PJRT API version",
        "libtpu and the framework were built for different versions of their interface",
        "run %tpu_setup to install the libtpu that the framework was built for",
        "Kaggle/docker-python#1499, pytorch/xla#6949",
    ),
    Signature(
        "chip-held",
        r"The TPU is already in use by process with pid (?P<pid>\d+)",
        "process {pid} holds the TPU",
        "%tpu_info says who it is; shut that notebook kernel down, or end the process if it is "
        "yours",
        "jax-ml/jax#10192",
    ),
    Signature(
        "lock-file",
        r"Internal error when accessing libtpu multi-process lockfile"
        r"|libtpu_lockfile.*(?:Permission denied|Operation not permitted)",
        "libtpu cannot take its lock file: a process has it, or another user's was left over",
        "%tpu_info says whether anyone holds the chip; if nobody does, remove libtpu_lockfile "
        "from the temporary folder",
        "jax-ml/jax#10192",
    ),
    Signature(
        "device-permission",
        r"(?:/dev/(?:accel|vfio/)\S*)[^\n]*(?:Permission denied|Operation not permitted|EPERM)"
        r"|(?:Permission denied|Operation not permitted)[^\n]*/dev/(?:accel|vfio/)",
        "this account may not open the TPU's device node",
        "run Jupyter in a group that may (ls -l /dev/accel* /dev/vfio), "
        "or start the container with --privileged",
        "pytorch/xla#5616",
    ),
    Signature(
        "device-busy",
        r"(?:/dev/(?:accel|vfio/)\S*)[^\n]*(?:Device or resource busy|EBUSY)"
        r"|Couldn't open[^\n]*(?:accel|vfio)[^\n]*busy",
        "the TPU's device node is open in another process",
        "%tpu_info says who holds it; shut that notebook kernel down",
        "pytorch/xla#3947",
    ),
    Signature(
        "no-chip",
        r"No jellyfish device found|TPU initialization failed",
        "libtpu found no TPU chip on this machine",
        "choose a runtime with a TPU, or run without one (PJRT_DEVICE=CPU)",
        "seen (torch_xla 2.9.0 and jax with libtpu, no TPU)",
    ),
    Signature(
        "no-libtpu",
        r"libtpu not found|libtpu\.so: cannot open shared object file",
        "PJRT_DEVICE asks for the TPU, but libtpu is not installed",
        "run %tpu_setup, which installs the libtpu of this torch_xla",
        "seen (torch_xla 2.9.0)",
    ),
    Signature(
        "tensorflow-no-tpu",
        r"No OpKernel was registered to support Op 'ConfigureDistributedTPU'"
        r"|TPUs not found in the cluster",
        "this TensorFlow was built without TPU support",
        "use Keras on JAX (%tpu_setup --framework keras), or tensorflow-tpu in an environment "
        "of its own",
        "seen (tensorflow-cpu 2.21); tensorflow#96203",
    ),
    Signature(
        "no-tpu-name",
        r"Please provide a TPU Name to connect to|KeyError: 'COLAB_TPU_ADDR'",
        "the code expects a TPU on another machine, as before 2024; today it is attached",
        "use TPUClusterResolver(tpu='local'), or %tpu_setup --framework keras",
        "seen (TensorFlow 2.21); colabtools#4637",
    ),
    Signature(
        "llvm-twice",
        r"CommandLine Error: Option '[\w-]+' registered more than once",
        "tensorflow was imported before torch_xla, and the two cannot meet in that order",
        "restart the kernel and import torch_xla first, or use one framework in a kernel",
        "seen (tensorflow 2.21, torch_xla 2.9.0)",
    ),
    Signature(
        "numpy-abi",
        r"numpy\.dtype size changed|compiled using NumPy 1\.x cannot be run in\s+NumPy 2",
        "a package was built for another NumPy than the one that is installed",
        "restart the kernel; if it stays, reinstall the package that is named above the error",
        "colabtools#5115, colabtools#5238",
    ),
    Signature(
        "already-initialised",
        r"Runtime is already initialized\. Do not use the XLA device before calling",
        "the devices were opened in this kernel, and processes cannot be spawned after that",
        "restart the kernel and connect with %tpu_setup --no-connect before launching",
        "pytorch/xla#9303",
    ),
    Signature(
        "waits-for-hosts",
        r"TPU backend initialization is taking more than [\d.]+ seconds",
        "the program was started on one host of a slice and waits for the others",
        "start the same program on every host, or use a slice of one host",
        "jax-ml/jax#19971",
    ),
    Signature(
        "device-memory",
        r"RESOURCE_EXHAUSTED|Ran out of memory in memory space hbm",
        "the program needs more memory than the device has",
        "make the batch smaller, or free what earlier cells left on the device",
        "pytorch/xla#3470",
    ),
    Signature(
        "disk-full",
        r"No space left on device|\[Errno 28\]|os error 28",
        "the disk is full",
        "free some (df -h; pip cache purge) and run %tpu_setup again",
        "pip, uv",
    ),
    Signature(
        "offline",
        r"Temporary failure in name resolution|Name or service not known"
        r"|NameResolutionError|Network is unreachable|getaddrinfo failed"
        r"|dns error|tcp connect error|Failed to establish a new connection|Could not connect"
        r"|ConnectTimeoutError",
        "the package index cannot be reached from here",
        "switch the session's internet on (Kaggle: Settings > Internet), or use what is installed",
        "pip, uv",
    ),
    Signature(
        "broken-download",
        r"IncompleteRead|Connection broken|Read timed out|ReadTimeoutError"
        r"|connection (?:was )?closed before|error decoding response body"
        r"|DO NOT MATCH THE HASHES|[Hh]ash mismatch|is not a zip file|Failed to read from zip file"
        r"|Wheel '[^']+' located at \S+ is invalid",
        "a download broke off",
        "run %tpu_setup again; nothing was changed",
        "pip, uv",
    ),
    Signature(
        "no-wheel",
        r"No matching distribution found for (?P<what>\S+)"
        r"|is not a supported wheel on this platform"
        r"|has no wheels with a matching",
        "the index has no wheel of it for this Python and platform",
        "%tpu_setup --dry-run says which Pythons have one",
        "pytorch/xla#5802",
    ),
    Signature(
        "pins-conflict",
        r"ResolutionImpossible|No solution found when resolving dependencies",
        "the pins contradict each other",
        "%tpu_setup --check lists which package wants what; leave one of them out",
        "seen (torch_xla[tpu] 2.9.0 with jax[tpu] 0.7.1)",
    ),
    Signature(
        "read-only",
        r"Read-only file system|\[Errno 13\] Permission denied: '[^']*(?:site|dist)-packages",
        "the environment's packages may not be changed by this account",
        "make an environment of your own: python -m venv ~/tpu && ~/tpu/bin/pip install ipykernel",
        "pip",
    ),
    Signature(
        "externally-managed",
        r"externally[- ]managed",
        "this Python belongs to the operating system, whose package manager guards it",
        "make an environment of your own: python3 -m venv ~/tpu && ~/tpu/bin/pip install ipykernel",
        "PEP 668",
    ),
)


def explain(text: str) -> Explained | None:
    """Return cause and cure of the first signature that is found in some output."""
    for row in SIGNATURES:
        if match := re.search(row.pattern, text):
            words = {name: value or "" for name, value in match.groupdict().items()}
            return Explained(row.code, row.cause.format(**words), row.cure.format(**words))
    return None


def page() -> str:
    """Return the page of errors as Markdown."""
    parts = [
        "# Errors and their cures",
        "",
        "Made from `tpu_magic/setup/signatures.py` by `tools/errors_page.py`; change it there.",
    ]
    for row in SIGNATURES:
        cause, cure = (re.sub(r"\{(\w+)\}", r"*\1*", text) for text in (row.cause, row.cure))
        parts += [
            "",
            f"## {row.code}",
            "",
            f"* Recognised by: `{row.pattern}`",
            f"* Cause: {cause}.",
            f"* Cure: {cure}.",
            f"* Source: {row.source}.",
        ]
    return "\n".join(parts) + "\n"
