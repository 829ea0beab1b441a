"""The timed code: compiled as `%timeit` does, run one call or one run at a time.

The code becomes a generator that waits to be told how many calls to make, makes them, hands
out what they computed, and drops it when told to. So the clock, the waiting and the freeing
stay outside, and the person's names live on from call to call without leaking.
"""

from __future__ import annotations

import ast
import inspect
import symtable
import sys
import textwrap
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from IPython.core.error import UsageError

from tpu_magic.tracebacks import running_cell

Run = Generator[Any, Any, None]
"""One execution of the set-up and then any number of calls.

`send(calls)` makes one call per item of an iterable and returns the list of what the last one
computed; `next()` after it drops that.
"""

_TEMPLATE = """
def _tpu_run({parameters}):
    _tpu_setup
    while True:
        for _tpu_call in (yield):
            _tpu_body
        _tpu_collect
        yield _tpu_outputs
        _tpu_drop
"""
_CAPTURE = """
try:
    _tpu_outputs.append({name})
except UnboundLocalError:
    pass
"""


@dataclass(frozen=True)
class _Names:
    """What code does with names: binds, binds and also uses, and reads from outside."""

    bound: frozenset[str]
    used: frozenset[str]
    read: frozenset[str]


@dataclass(frozen=True)
class _Parts:
    """The code as trees; the names that it binds, and those of them that a call can drop."""

    setup: list[ast.stmt]
    body: list[ast.stmt]
    outputs: frozenset[str]
    dropped: frozenset[str]


@dataclass(frozen=True)
class Statement:
    """Timed code, parsed and checked, that can be started any number of times.

    Attributes
    ----------
    names
        Names that the code takes from the person's namespace.
    deleted
        Names that it deletes.
    filename
        The name under which tracebacks find the code.
    compile_time
        Seconds that Python took to compile it.
    """

    names: frozenset[str]
    deleted: frozenset[str]
    filename: str
    _shell: Any = field(repr=False)
    _locals: Mapping[str, Any] = field(repr=False)
    _parts: _Parts = field(repr=False)
    _parameters: frozenset[str] = field(repr=False)
    compile_time: float = 0.0

    def inputs(self) -> dict[str, Any]:
        """Return the person's values that the code uses, by name."""
        return {name: self._value(name) for name in sorted(self.names)}

    def _value(self, name: str) -> Any:
        return self._locals[name] if name in self._locals else self._shell.user_ns[name]

    def starter(
        self,
        replaced: Mapping[str, Any] | None = None,
        remade: Mapping[str, Callable[[], Any]] | None = None,
    ) -> Callable[[], Run]:
        """Return what runs the set-up and gives the run, ready for its first call.

        Parameters
        ----------
        replaced
            Values that the code sees in place of the namespace's, by name.
        remade
            What makes the value of a name anew in every call, as part of the call.
        """
        replaced, remade = dict(replaced or {}), dict(remade or {})
        values = {name: self._value(name) for name in self._parameters}
        values |= replaced | {f"_tpu_make_{name}": make for name, make in remade.items()}
        function = self._function(values, remade)

        def start() -> Run:
            run: Run = function(**values)
            next(run)
            return run

        return start

    def _function(self, parameters: Iterable[str], remade: Iterable[str] = ()) -> Any:
        """Compile the generator function."""
        tree = _generator(self._parts, parameters, remade)
        scope: dict[str, Any] = {}
        code = self._shell.compile(tree, self.filename, "exec")
        exec(code, self._shell.user_ns, scope)  # noqa: S102 - running the person's code is the job
        function = scope["_tpu_run"]
        # To the person it is code of a cell: tracebacks and `inspect` show all its lines.
        names = ("co_name", "co_qualname")[: 2 if sys.version_info >= (3, 11) else 1]
        function.__code__ = function.__code__.replace(**dict.fromkeys(names, "<module>"))
        return function


def parse(
    shell: Any, body: str, setup: str | None = None, local_ns: Mapping[str, Any] | None = None
) -> Statement:
    """Parse code to time as `%timeit` would: IPython's syntax and AST transforms apply.

    Parameters
    ----------
    shell
        The IPython shell; its namespace is where the code's names are looked up.
    body
        The timed code.
    setup
        The code on the magic's line in the cell form, run once before; None in the line form.
    local_ns
        Names of the function that the magic is called in, if it is.

    Raises
    ------
    IPython.core.error.UsageError
        When there is nothing to time, or the code uses `await`.
    SyntaxError
        When the code is not Python; it is the person's error, with their line.
    """
    sources = [shell.transform_cell(part) for part in (setup, body) if part is not None]
    text = "\n" * (_calling_line(shell.user_ns) - 1)
    trees = []
    for source in sources:
        tree = shell.compile.ast_parse(source)
        trees.append(ast.increment_lineno(shell.transform_ast(tree), text.count("\n")))
        text += source if source.endswith("\n") else source + "\n"
    body_tree = trees[-1]
    setup_tree = trees[0] if setup is not None else ast.Module([], [])
    if not body_tree.body:
        raise UsageError("there is nothing to time: write a statement after the options")
    filename = shell.compile.cache(text, running_cell(shell))
    for tree in trees:
        _check_alone(shell, tree, filename)
    before, timed = _names(setup_tree), _names(body_tree)
    local = {} if local_ns is None or local_ns is shell.user_ns else dict(local_ns)
    known = set(shell.user_ns) | set(local)
    bound, read = before.bound | timed.bound, before.read | timed.read
    # A name that the code binds is local to it: it starts with the person's value, if any.
    parameters = (bound & known) | (read & set(local))
    carried = before.bound | (timed.used & known)
    statement = Statement(
        names=(read | (bound & (before.used | timed.used))) & known,
        deleted=_deleted(body_tree),
        filename=filename,
        _shell=shell,
        _locals=local,
        _parts=_Parts(setup_tree.body, body_tree.body, timed.bound, timed.bound - carried),
        _parameters=parameters,
    )
    started = time.perf_counter()
    statement.starter()
    return replace(statement, compile_time=time.perf_counter() - started)


def _calling_line(namespace: Mapping[str, Any]) -> int:
    """Return the line of the person's cell that the magic was called from (1 if unknown)."""
    frame = sys._getframe()  # noqa: SLF001 - the only way to the caller's line
    while frame is not None:
        if frame.f_globals is namespace:
            return frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return 1


def _check_alone(shell: Any, tree: ast.Module, filename: str) -> None:
    """Compile the code outside the timing function, where `return` and the like are errors."""
    code = compile(tree, filename, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        raise UsageError(
            "code with `await` cannot be timed: while it waits, other tasks run on the clock; "
            "time the work itself in a plain function"
        )
    shell.compile(tree, filename, "exec")


def _names(tree: ast.Module) -> _Names:
    """Return what code does with names when it is the body of a function."""
    source = f"def f():\n{textwrap.indent(ast.unparse(tree), ' ') or ' pass'}"
    top = symtable.symtable(source, "<names>", "exec").get_children()[0]
    bound = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_local()}
    bound -= _comprehension_names(tree)
    used = {
        node.target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
    }
    used |= _deleted(tree)
    read: set[str] = set()
    tables = [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        symbols = table.get_symbols()
        read |= {symbol.get_name() for symbol in symbols if symbol.is_global()}
        used |= {
            symbol.get_name()
            for symbol in symbols
            if symbol.is_free() or (table is top and symbol.is_referenced())
        }
    return _Names(frozenset(bound), frozenset(used & bound), frozenset(read))


def _comprehension_names(tree: ast.Module) -> set[str]:
    """Return the names that only comprehensions bind; from Python 3.12 they look local."""
    comprehensions = [node for node in ast.walk(tree) if isinstance(node, ast.comprehension)]
    inside = {id(node) for each in comprehensions for node in ast.walk(each.target)}
    stored = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    elsewhere = {node.id for node in stored if id(node) not in inside}
    return {node.id for node in stored} - elsewhere


def _deleted(tree: ast.Module) -> frozenset[str]:
    """Return the names that `del` statements of the code delete."""
    return frozenset(
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del)
    )


def _generator(parts: _Parts, parameters: Iterable[str], remade: Iterable[str]) -> ast.Module:
    """Put the code into the generator function.

    What the body binds is handed out. What it does not need in its next call is dropped
    before that, so that freeing it is not timed.
    """
    make = [f"{name} = _tpu_make_{name}()" for name in sorted(remade)]
    body = [*ast.parse("\n".join(make)).body, *parts.body]
    last = body[-1]
    collect = ["_tpu_outputs = []"]
    if isinstance(last, ast.Expr):
        keep = ast.Assign([ast.Name("_tpu_value", ast.Store())], last.value)
        body[-1] = ast.copy_location(keep, last)
        collect = ["_tpu_outputs = [_tpu_value]"]
    collect += [_CAPTURE.format(name=name) for name in sorted(parts.outputs)]
    drop = ["_tpu_value = _tpu_outputs = None"]
    drop += [f"{name} = None" for name in sorted(remade)]
    drop += [f"{name} = None; del {name}" for name in sorted(parts.dropped)]
    template = ast.parse(_TEMPLATE.format(parameters=", ".join(sorted(parameters))))
    for node in ast.walk(template):
        if isinstance(node, (ast.stmt, ast.expr)):
            node.lineno = node.end_lineno = 1  # a module's code begins there, as this is to look
    filled: ast.Module = _Fill(
        {
            "_tpu_setup": parts.setup,
            "_tpu_body": body,
            "_tpu_collect": ast.parse("\n".join(collect)).body,
            "_tpu_drop": ast.parse("\n".join(drop)).body,
        }
    ).visit(template)
    return ast.fix_missing_locations(filled)


class _Fill(ast.NodeTransformer):
    """Replace the placeholders of the template by statements."""

    def __init__(self, parts: Mapping[str, list[ast.stmt]]) -> None:
        self._parts = parts

    def visit_Expr(self, node: ast.Expr) -> Any:
        """Return the statements for a placeholder, else the node itself."""
        name = node.value.id if isinstance(node.value, ast.Name) else ""
        return self._parts.get(name, node)
