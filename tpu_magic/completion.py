"""Completion of the magics' options, in every front end: IPython's own completer asks here."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tpu_magic import options

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_HOOK = "complete_command"
# A magic, and where its parser is (imported when it is first completed).
_PARSERS = {
    "tpu_run": ("tpu_magic.cell.engine", "parser"),
    "tpu_timeit": ("tpu_magic.timing.options", "TIMEIT"),
    "tpu_compare": ("tpu_magic.timing.options", "COMPARE"),
    "tpu_check": ("tpu_magic.check.options", "PARSER"),
}
_KEYS = [escape + name for name in _PARSERS for escape in ("%", "%%")]


def complete(_shell: Any, event: Any) -> list[str]:
    """Return what may stand at the cursor of a magic's line (IPython's interface).

    Parameters
    ----------
    event
        `command` (the magic with its escape) and `symbol` (the word before the cursor).
    """
    if event.command == "%tpu_run" and not event.symbol.startswith("-"):
        return ["on", "off"]
    if event.symbol and not event.symbol.startswith("-"):
        return []  # code, a name or a file: other completers know those
    module, attribute = _PARSERS[event.command.lstrip("%")]
    parser: options.Parser = getattr(importlib.import_module(module), attribute)
    return parser.option_names()


def register(shell: InteractiveShell) -> None:
    """Let the shell complete the options of our magics."""
    for key in _KEYS:
        shell.set_hook(_HOOK, complete, str_key=key)


def unregister(shell: InteractiveShell) -> None:
    """Undo `register`."""
    for key in _KEYS:
        shell.strdispatchers[_HOOK].strs.pop(key, None)
