"""Whether a framework was replaced on disk under this kernel: asked before each cell, cheaply."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from tpu_magic.setup.versions import MODULES, stale_modules


class StaleWatch:
    """Asks `stale_modules` again only when something was installed or another package loaded.

    Reading package metadata takes milliseconds; an install always changes the time stamp of
    the folder that holds it.
    """

    def __init__(self, find: Callable[[], list[str]] = stale_modules) -> None:
        self._find = find
        self._known: tuple[object, ...] | None = None
        self._stale: list[str] = []

    def problem(self) -> str | None:
        """Return why cells cannot run in this kernel any more; None while they can."""
        folders = filter(_holds_packages, sys.path)
        state = (*(id(sys.modules.get(name)) for name in MODULES), *map(_changed, folders))
        if state != self._known:
            self._known, self._stale = state, self._find()
        if not self._stale:
            return None
        return (
            f"{' and '.join(self._stale)} was replaced on disk while this kernel runs: "
            "restart the kernel (its variables will be lost), then run the cell again"
        )


def _holds_packages(folder: str) -> bool:
    return folder.endswith(("site-packages", "dist-packages"))


def _changed(folder: str) -> int:
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return 0
