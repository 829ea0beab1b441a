"""tpu_magic: run, time and check notebook cells on TPUs.

`%load_ext tpu_magic` registers the magics. Loading imports no framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__version__ = "0.1.0"

# Public names, each imported when it is first used.
_PUBLIC = {
    "CellReport": "tpu_magic.report.cell_report",
    "TimingResult": "tpu_magic.timing.result",
    "SetupReport": "tpu_magic.setup.report",
    "device": "tpu_magic.placement",
    "to_host": "tpu_magic.placement",
}
__all__ = ["__version__", "load_ipython_extension", "unload_ipython_extension", *_PUBLIC]


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics and the cell engine with the shell."""
    from tpu_magic.magics import load

    load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Take back everything that loading registered."""
    from tpu_magic.magics import unload

    unload(shell)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_PUBLIC[name]), name)
