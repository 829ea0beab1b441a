"""What is odd here and would go wrong later: a table of rules over the situation, each one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from tpu_magic.frameworks import NOT_YET
from tpu_magic.setup import versions as table
from tpu_magic.setup.situation import Situation

Rule = Callable[[Situation], Iterator[str]]


def findings(situation: Situation) -> tuple[str, ...]:
    """Return every finding, in the order of the rules."""
    return tuple(line for rule in RULES for line in rule(situation))


def demands_line(situation: Situation) -> str | None:
    """Return `libtpu 0.0.21.1 (wanted by torch_xla: ==0.0.21, jax: ==0.0.23)`.

    None where libtpu is of no concern: there is no TPU and it is not installed.
    """
    if not situation.has("libtpu") and not (situation.demands and situation.facts.tpu):
        return None
    found = situation.versions.get("libtpu", "is not installed")
    wants = ", ".join(f"{name}: {want}" for name, want in situation.demands.items())
    return f"libtpu {found}" + (f" (wanted by {wants})" if wants else "")


def _is_on(environ: Mapping[str, str], name: str) -> bool:
    return environ.get(name, "").lower() not in {"", "0", "false"}


def _hidden_bfloat16(situation: Situation) -> Iterator[str]:
    for name in ("XLA_USE_BF16", "XLA_DOWNCAST_BF16"):
        if _is_on(situation.environ, name):
            yield (
                f"{name} is set: tensors that say float32 hold bfloat16 (1.001 becomes 1.0) and "
                "sums of losses go wrong; unset it before the kernel starts and use "
                "%%tpu_run --precision bf16"
            )


def _old_runtime(situation: Situation) -> Iterator[str]:
    names = [name for name in situation.environ if name.startswith("XRT_")]
    if names:
        verb = "is" if len(names) == 1 else "are"
        yield (
            f"{', '.join(sorted(names))} {verb} from the removed XRT runtime and {verb} ignored; "
            "PJRT is used"
        )
    if client := situation.versions.get("cloud-tpu-client"):
        yield f"cloud-tpu-client {client} is obsolete: it served the removed XRT runtime"


def _hidden_tpu(situation: Situation) -> Iterator[str]:
    if not situation.facts.tpu:
        return
    for name in ("PJRT_DEVICE", "JAX_PLATFORMS"):
        value = situation.environ.get(name, "")
        if value and "tpu" not in value.lower():
            yield f"{name}={value} is set, so the TPU that is here would not be used"


def _library_path(situation: Situation) -> Iterator[str]:
    path = situation.environ.get("TPU_LIBRARY_PATH")
    if path and not Path(path).exists():
        yield f"TPU_LIBRARY_PATH={path} does not exist"


def _fatal_imports(situation: Situation) -> Iterator[str]:
    if situation.framework == "torch":
        yield from fatal_imports(situation, xla=situation.has("torch_xla"))


def fatal_imports(situation: Situation, *, xla: bool) -> Iterator[str]:
    """Say which imports would end this process, every variable lost; `xla`: torch_xla is one."""
    loaded = situation.loaded
    if xla and "tensorflow" in loaded and "torch_xla" not in loaded:
        yield (
            "tensorflow is loaded in this kernel, and importing torch_xla after it ends the "
            "process: restart the kernel and connect before importing tensorflow"
        )
    if "torch" not in loaded and situation.has("torch_tpu"):
        missing = [] if situation.has("libtpu") else ["libtpu is not installed"]
        if missing := [*missing, *_library_path(situation)]:
            yield (
                f"{missing[0]}, and with torch_tpu installed `import torch` then ends the "
                f"process: pip install libtpu=={table.TORCH_TPU_LIBTPU}, or pip uninstall torch_tpu"
            )


def _plain_tensorflow(situation: Situation) -> Iterator[str]:
    beside = situation.has("torch_xla") and situation.has("tensorflow")
    if beside and situation.framework == "torch":
        yield (
            "tensorflow can conflict with torch_xla: tensorflow-cpu does not claim the TPU "
            "(pip uninstall tensorflow; pip install tensorflow-cpu)"
        )


def _two_libtpus(situation: Situation) -> Iterator[str]:
    if situation.has("libtpu") and situation.has("libtpu-nightly"):
        yield (
            "libtpu and libtpu-nightly are both installed into the same folder: the last one "
            "installed is used, and removing one breaks the other"
        )


def _libtpu_wanted(situation: Situation) -> Iterator[str]:
    """Name who wants another libtpu. A statement, no verdict: images mix pins and work."""
    found = situation.versions.get("libtpu")
    if not found or situation.target != "tpu":
        return
    unhappy = [
        f"{name} (wants {want})"
        for name, want in situation.demands.items()
        if want != "any" and not _within(found, want)
    ]
    if unhappy:
        yield f"with libtpu {found}, {' and '.join(unhappy)} may not find the TPU"


def _within(version: str, want: str) -> bool:
    try:
        return Version(version) in SpecifierSet(want)
    except InvalidSpecifier:
        return True


def _not_driven(situation: Situation) -> Iterator[str]:
    both = situation.has("torch") and situation.has("torch_tpu")
    if both and situation.framework == "torch" and situation.device != "cpu":
        yield ": ".join(NOT_YET["torch-tpu"])


def _end_of_line(situation: Situation) -> Iterator[str]:
    if situation.framework == "torch" and situation.has("torch_xla"):
        last = table.TORCH_XLA[0]
        yield (
            f"torch_xla has ended: {last.torch_xla} for torch {last.minor} is its last release and "
            f"goes on working; its successor is TorchTPU, for torch {table.TORCH_TPU_TORCH[0]} "
            "and later (google-pytorch.github.io/torch_tpu)"
        )


RULES: tuple[Rule, ...] = (
    _hidden_tpu,
    _fatal_imports,
    _plain_tensorflow,
    _hidden_bfloat16,
    _two_libtpus,
    _libtpu_wanted,
    _library_path,
    _old_runtime,
    _not_driven,
    _end_of_line,
)
