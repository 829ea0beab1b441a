"""What a cell needs: which adapter, and under `%tpu_run on` whether the device at all.

Connecting costs seconds, and most of a notebook's first cells import, set constants and
define functions. Doubts are decided for the device: a cell that did not reach it would be
wrong in silence, one that connects early is only early.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import types
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from tpu_magic import frameworks
from tpu_magic.frameworks import choose

if TYPE_CHECKING:
    from tpu_magic.frameworks.base import Adapter

# Line magics that run code of the person's; all others have no business with the device.
_RUN_CODE = frozenset({"time", "timeit", "prun", "run", "memit", "mprun", "lprun", "debug"})
_SHELL_CALLS = frozenset({"system", "getoutput", "run_cell_magic", "set_next_input"})
_LITERAL = (
    ast.Constant, ast.Name, ast.Tuple, ast.List, ast.Dict, ast.Set,
    ast.Attribute, ast.UnaryOp, ast.USub, ast.UAdd, ast.Not, ast.Load,
)  # fmt: skip
# Packages whose objects hold no device arrays and call nothing that makes one.
_HARMLESS = frozenset(sys.stdlib_module_names) | {
    "numpy", "pandas", "matplotlib", "seaborn", "plotly", "PIL", "scipy", "sklearn", "IPython",
    "ipywidgets", "tqdm", "requests", "yaml", "tpu_magic",
}  # fmt: skip
_NAME = re.compile(r"[^\W\d]\w*")
_DEPTH = 6
_PARTS = 200


def adapter_for(
    framework: str, code: str, namespace: Mapping[str, Any], *, required: bool
) -> Adapter | None:
    """Return the adapter for a cell; None when the cell needs none and none is required.

    Raises
    ------
    UsageError
        When one is required, and its framework is not there or cannot be used here.
    """
    if framework == "auto":
        found = choose.framework_of(code, namespace)
        if found is None and required:
            found = choose.installed_framework()
            if found is None:
                raise UsageError(
                    "no framework is installed here: %tpu_setup --framework torch says what to do"
                )
        if found is None:
            return None
        framework = found
    adapter = frameworks.adapter(framework)
    if not required and not (adapter.connected() or may_compute(code, namespace)):
        return None
    availability = adapter.availability()
    if availability.usable:
        return adapter
    if required:
        raise UsageError(availability.sentence())
    return None


def is_inert(tree: ast.Module) -> bool:
    """Say whether a cell only imports, defines, sets constants, or runs magics and `!` lines.

    A cell magic (`%%time`) counts too: its body comes to the AST transformer on its own.
    """
    return all(_inert(node) for node in tree.body)


def _inert(node: ast.stmt) -> bool:
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.Pass)):
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) or _is_magic(node.value)
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        value = node.value
        return value is None or _is_literal(value) or _is_magic(value)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        defaults = [*node.args.defaults, *(item for item in node.args.kw_defaults if item)]
        return not node.decorator_list and all(map(_is_literal, defaults))
    if isinstance(node, ast.ClassDef):
        return not node.decorator_list and all(map(_inert, node.body))
    return False


def _is_literal(node: ast.expr) -> bool:
    return all(isinstance(part, (*_LITERAL, ast.Store)) for part in ast.walk(node))


def _is_magic(node: ast.expr) -> bool:
    """Recognise what IPython makes of `%magic` and `!command`."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    target = node.func.value
    if not (isinstance(target, ast.Call) and isinstance(target.func, ast.Name)):
        return False
    if target.func.id != "get_ipython":
        return False
    if node.func.attr == "run_line_magic":
        name = node.args[0] if node.args else None
        return isinstance(name, ast.Constant) and name.value not in _RUN_CODE
    return node.func.attr in _SHELL_CALLS


def may_compute(code: str, namespace: Mapping[str, Any]) -> bool:
    """Say whether anything that a cell names could reach a framework.

    Names are looked up in the namespace, through the person's own functions, classes and
    containers. What comes from a package that is not known to be harmless counts as a yes.
    """
    seen: set[int] = set()
    names = set(_NAME.findall(code))
    return any(
        _reaches(namespace[name], seen, _DEPTH) for name in names if name in namespace
    ) or any(name in names and name not in _HARMLESS for name in _imported(code))


def _imported(code: str) -> Iterator[str]:
    for match in re.finditer(r"^\s*(?:from|import)\s+([^\W\d]\w*)", code, re.MULTILINE):
        yield match.group(1)


def _reaches(value: Any, seen: set[int], depth: int) -> bool:
    if id(value) in seen:
        return False
    seen.add(id(value))
    parts = _parts(value)
    if parts is None:
        return _package(value) not in _HARMLESS
    if depth == 0 or len(parts) > _PARTS:
        return True  # too much to tell
    return _any(parts, seen, depth - 1)


def _parts(value: Any) -> list[Any] | None:
    """Return what a value of the person's own or a container holds; None for all others."""
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, types.FunctionType) and value.__module__ == "__main__":
        return list(_used_by(value))
    kind = value if isinstance(value, type) else type(value)
    if kind.__module__ != "__main__":
        return None
    held = [] if kind is value else getattr(value, "__dict__", {}).values()
    return [*vars(kind).values(), *kind.__bases__, *held]


def _package(value: Any) -> str:
    """Return the top-level package that a module, function, class or object comes from."""
    if isinstance(value, types.ModuleType):
        name = value.__name__
    elif isinstance(value, (type, types.FunctionType)):
        name = value.__module__
    else:
        name = type(value).__module__
    return (name or "builtins").partition(".")[0]


def _any(values: Any, seen: set[int], depth: int) -> bool:
    return any(_reaches(item, seen, depth) for item in values)


def _used_by(function: types.FunctionType) -> Iterator[Any]:
    """Yield what a function's code names: globals, what it closes over, its defaults."""
    scope = function.__globals__
    yield from (scope[name] for name in _names_in(function.__code__) if name in scope)
    yield from inspect.getclosurevars(function).nonlocals.values()
    yield from function.__defaults__ or ()
    if (wrapped := getattr(function, "__wrapped__", None)) is not None:
        yield wrapped


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)
