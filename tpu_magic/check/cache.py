"""Answers of the compiler, kept: the same program for the same target is not compiled twice."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

FORMAT = 1
_MOST_BYTES = 1 << 29


def folder() -> Path:
    """Return where answers are kept, by the usual convention for caches."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tpu_magic" / "check"


def key(artifact: bytes, **question: Any) -> str:
    """Return the name of an answer: of the program, and of everything else that is asked."""
    asked = json.dumps({"format": FORMAT, **question}, sort_keys=True)
    return hashlib.sha256(artifact + b"\0" + asked.encode()).hexdigest()


def get(name: str) -> dict[str, Any] | None:
    """Return a kept answer; None where there is none that can be read."""
    try:
        packed = _file(name).read_bytes()
        answer: dict[str, Any] = json.loads(gzip.decompress(packed))
    except (OSError, EOFError, ValueError):
        return None
    return answer


def put(name: str, answer: dict[str, Any]) -> None:
    """Keep an answer; a place that cannot be written is no error."""
    place = folder()
    try:
        place.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=place, suffix=".tmp")
        with os.fdopen(handle, "wb") as file:
            file.write(gzip.compress(json.dumps(answer).encode(), compresslevel=1))
        Path(temporary).replace(_file(name))
        _forget_the_oldest(place)
    except OSError:
        return


def _file(name: str) -> Path:
    return folder() / f"{name}.json.gz"


def _forget_the_oldest(place: Path) -> None:
    """Keep the newest answers, up to a total size."""
    total = 0
    for path in sorted(place.glob("*.json.gz"), key=lambda path: -path.stat().st_mtime):
        total += path.stat().st_size
        if total > _MOST_BYTES:
            path.unlink(missing_ok=True)
