"""What was verified here before: one small file, valid for a package set until the next boot."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

_NAME = "verified.json"


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder for stamps and logs; not made yet."""
    environ = os.environ if environ is None else environ
    base = environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "tpu_magic"


def boot_id(root: Path = Path("/")) -> str:
    """Return what changes with each boot; empty where the system does not say."""
    try:
        return (root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def is_verified(fingerprint: str, folder: Path, boot: str) -> bool:
    """Say whether this package set was verified since the last boot."""
    return bool(boot) and fingerprint in _read(folder, boot)


def mark_verified(fingerprint: str, folder: Path, boot: str) -> None:
    """Remember that this package set works. A home that cannot be written costs time only."""
    content = {"boot": boot, "verified": sorted({*_read(folder, boot), fingerprint})}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{_NAME}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(content, file)
        Path(temporary).replace(folder / _NAME)
    except OSError:
        return


def _read(folder: Path, boot: str) -> list[str]:
    try:
        content = json.loads((folder / _NAME).read_text(encoding="utf-8"))
        return list(content["verified"]) if content["boot"] == boot else []
    except (OSError, ValueError, KeyError, TypeError):
        return []
