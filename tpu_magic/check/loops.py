"""Cutting loops at their steady step: a loop whose round brought no new program is left.

A cell that trains for 90 epochs is the same few programs over and over. Loops of the cell,
and of functions that the notebook defined, get a question at the head of their body:
has the last round brought anything new?
"""

from __future__ import annotations

import ast
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count

_KEEPER = "__tpu_check__"
_NUMBERS = count()


@dataclass
class Rounds:
    """What loops ask; knows how many programs ended, and how many of them were new.

    Attributes
    ----------
    ended, new
        Counted up by whoever captures programs.
    cut
        File and line of loops that were left early.
    """

    ended: int = 0
    new: int = 0
    cut: list[tuple[str, int]] = field(default_factory=list)
    _at: dict[int, tuple[int, int]] = field(default_factory=dict)

    def enter(self, loop: int) -> None:
        """Begin a loop anew."""
        self._at.pop(loop, None)

    def settled(self, loop: int, filename: str, line: int) -> bool:
        """Say whether the round before ran programs, and none that was not seen before."""
        before, now = self._at.get(loop), (self.ended, self.new)
        self._at[loop] = now
        if before is None or now[0] == before[0] or now[1] != before[1]:
            return False
        if (filename, line) not in self.cut:
            self.cut.append((filename, line))
        return True


class _Asking(ast.NodeTransformer):
    """Puts the question into every loop."""

    def __init__(self, filename: str) -> None:
        self._filename = filename

    def _loop(self, node: ast.For | ast.While) -> list[ast.stmt]:
        self.generic_visit(node)
        number = next(_NUMBERS)
        enter = ast.parse(f"{_KEEPER}.enter({number})").body[0]
        where = f"{number}, {self._filename!r}, {node.lineno}"
        ask = ast.parse(f"if {_KEEPER}.settled({where}): break").body[0]
        for added in (enter, ask):
            for part in ast.walk(added):
                ast.copy_location(part, node)
        node.body.insert(0, ask)
        return [enter, node]

    visit_For = _loop  # noqa: N815 - ast's names
    visit_While = _loop  # noqa: N815


def asking(source: str, filename: str) -> ast.Module:
    """Return the tree of some code with the question in its loops; line numbers stay."""
    tree = ast.parse(source, filename)
    asked: ast.Module = _Asking(filename).visit(tree)
    return ast.fix_missing_locations(asked)


def give(builtins: dict[str, object], rounds: Rounds) -> None:
    """Let any code ask, by a name of the builtins."""
    builtins[_KEEPER] = rounds


def recode(functions: Iterable[types.FunctionType], sources: Mapping[str, str]) -> None:
    """Put the question into the loops of functions whose source is known; others stay."""
    known: dict[str, dict[tuple[str, int], types.CodeType]] = {}
    for function in functions:
        code = function.__code__
        if code.co_filename not in sources:
            continue
        if code.co_filename not in known:
            known[code.co_filename] = _codes(sources[code.co_filename], code.co_filename)
        made = known[code.co_filename].get((code.co_name, code.co_firstlineno))
        if made is not None and made.co_freevars == code.co_freevars:
            function.__code__ = made


def _codes(source: str, filename: str) -> dict[tuple[str, int], types.CodeType]:
    """Return every function's code in a source, with the question, by name and line."""
    try:
        pending = [compile(asking(source, filename), filename, "exec", dont_inherit=True)]
    except (SyntaxError, ValueError):
        return {}
    found = {}
    while pending:
        code = pending.pop()
        found[code.co_name, code.co_firstlineno] = code
        pending += [item for item in code.co_consts if isinstance(item, types.CodeType)]
    return found
