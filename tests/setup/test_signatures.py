from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tpu_magic.setup import signatures

REPOSITORY = Path(__file__).resolve().parents[2]

# What the programs really print, by the code of the row that must recognise it.
SAID = {
    "torch-mismatch": [
        "ImportError: /x/_XLAC.cpython-311-x86_64-linux-gnu.so: undefined symbol: _ZN5torch4lazy",
        "ImportError: /x/lib.so: undefined symbol: _ZN3c104cuda14ExchangeDeviceEi",
    ],
    "libtpu-newer": [
        (
            "Unexpected PJRT_Plugin_Attributes_Args size: expected 32, got 24. The plugin is "
            "likely built with a later version than the framework"
        ),
        "Mismatched PJRT plugin PJRT API version (0.47) and framework PJRT API version 0.40",
    ],
    "chip-held": ["The TPU is already in use by process with pid 4242. Not attempting to load"],
    "lock-file": [
        (
            "ABORTED: Internal error when accessing libtpu multi-process lockfile. Run "
            '"$ sudo rm /tmp/libtpu_lockfile".'
        ),
    ],
    "device-permission": ["Failed to open /dev/accel0: Permission denied"],
    "device-busy": ["open(/dev/vfio/0): Device or resource busy: Couldn't open iommu group"],
    "no-chip": ["RuntimeError: TPU initialization failed: No jellyfish device found."],
    "no-libtpu": ["OSError: libtpu not found"],
    "tensorflow-no-tpu": [
        "No OpKernel was registered to support Op 'ConfigureDistributedTPU' used by node",
        "NotFoundError: TPUs not found in the cluster. Failed in initialization",
    ],
    "no-tpu-name": [
        "ValueError: Please provide a TPU Name to connect to.",
        "KeyError: 'COLAB_TPU_ADDR'",
    ],
    "llvm-twice": [
        (
            ": CommandLine Error: Option 'debug-counter' registered more than once!\n"
            "LLVM ERROR: inconsistency in registered CommandLine options"
        ),
    ],
    "numpy-abi": [
        (
            "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected "
            "96 from C header, got 88 from PyObject"
        ),
        "A module that was compiled using NumPy 1.x cannot be run in\nNumPy 2.1.3 as it may crash",
    ],
    "already-initialised": [
        (
            "RuntimeError: Runtime is already initialized. Do not use the XLA device before "
            "calling xmp.spawn."
        ),
    ],
    "waits-for-hosts": [
        (
            "TPU backend initialization is taking more than 60.0 seconds. Did you run your code on "
            "all TPU hosts?"
        ),
    ],
    "device-memory": ["RESOURCE_EXHAUSTED: Attempting to allocate 4.00G"],
    "disk-full": [
        "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
        "error: failed to write: No space left on device (os error 28)",
    ],
    "offline": [
        (
            "NewConnectionError(': Failed to establish a new connection: [Errno -3] Temporary "
            "failure in name resolution')"
        ),
        "cause: client error (Connect)\n cause: tcp connect error",
        "Caused by: dns error: failed to lookup address information: Name or service not known",
    ],
    "broken-download": [
        "urllib3.exceptions.ProtocolError: ('Connection broken: IncompleteRead(1 bytes read)')",
        "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.",
        "error: error decoding response body",
        "ERROR: Wheel 'a' located at /tmp/pip-unpack-1/a-1.0-py3-none-any.whl is invalid.",
        "error: No solution found when resolving dependencies\n Failed to read from zip file",
    ],
    "no-wheel": [
        "ERROR: No matching distribution found for libtpu==0.0.21",
        "ERROR: torch_xla-2.0-cp310.whl is not a supported wheel on this platform.",
    ],
    "pins-conflict": [
        "ERROR: ResolutionImpossible: for help visit https://pip.pypa.io",
        "No solution found when resolving dependencies:",
    ],
    "read-only": [
        "OSError: [Errno 30] Read-only file system: '/usr/lib'",
        "ERROR: [Errno 13] Permission denied: '/usr/lib/python3/dist-packages/x'",
    ],
    "externally-managed": ["error: externally-managed-environment"],
}


@pytest.mark.parametrize(
    ("code", "said"), [(code, text) for code, texts in SAID.items() for text in texts]
)
def test_each_signature_is_recognised_within_other_output(code, said):
    found = signatures.explain(f"first line\n{said}\nlast line")
    assert found.code == code
    assert "{" not in found.sentence()
    assert found.sentence() == f"{found.cause}: {found.cure}"


def test_every_row_has_a_recorded_text_and_a_name_of_its_own():
    codes = [row.code for row in signatures.SIGNATURES]
    assert sorted(codes) == sorted(SAID)
    assert len(set(codes)) == len(codes)


def test_what_was_matched_is_named():
    assert "4242" in signatures.explain(SAID["chip-held"][0]).cause


@pytest.mark.parametrize("text", ["", "ValueError: shapes do not match", "AttributeError: torch"])
def test_an_unknown_error_is_not_explained(text):
    assert signatures.explain(text) is None


def test_the_page_of_errors_is_current(monkeypatch, tmp_path):
    written = (REPOSITORY / "docs" / "errors.md").read_text(encoding="utf-8")
    assert written == signatures.page(), "run tools/errors_page.py"


def test_the_page_is_written_by_its_tool(monkeypatch):
    kept = {}
    monkeypatch.setattr(Path, "write_text", lambda self, text, encoding: kept.update({self: text}))
    runpy.run_path(str(REPOSITORY / "tools" / "errors_page.py"), run_name="__main__")
    assert kept == {REPOSITORY / "docs" / "errors.md": signatures.page()}
