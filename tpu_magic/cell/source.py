"""How a `%%tpu_run` cell becomes an ordinary cell: its text, then its tree.

The magic line turns into one call on the same line, so that line numbers, source and
tracebacks are those of a plain cell; the tree gets the call that ends the cell. Both are
pure functions: IPython transforms a cell more than once.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import re
import tokenize
from typing import TypeVar

from IPython.core.inputtransformer2 import cell_magic, leading_indent

N = TypeVar("N", bound=ast.AST)

MAGIC = "%%tpu_run"
_ENGINE = "get_ipython().tpu_cell"
_OPENING = re.compile(r"%%tpu_run(?=\s|$)")
_FUTURE = re.compile(r"from\s+__future__\s+import\b")
_TIMERS = re.compile(r"%%timeit\b")

NO_BODY = f"{MAGIC} has no code below it; write the code on the lines after it"
TIMER_BELOW = (
    "%%timeit below %%tpu_run would time only the recording of the work; use %%tpu_timeit instead"
)


def rewrite_text(lines: list[str]) -> list[str]:
    """Replace the first line `%%tpu_run ARGS` by a call of the engine's `begin`.

    For `shell.input_transformers_cleanup`. Every other line keeps its number. Also done
    here, since IPython does it only at the top of a cell: an indented body is dedented, and
    a cell magic on the body's first line (`%%time`) is turned into its call.
    """
    if not lines or not _OPENING.match(lines[0]):
        return lines
    arguments = lines[0][len(MAGIC) :].strip()
    if arguments == "?":
        return lines  # asks for help, which IPython gives
    if "--help" in arguments.split():
        return [f"{_ENGINE}.show_help()\n"]
    return _with_begin(arguments, lines[1:])


def _with_begin(arguments: str, body: list[str]) -> list[str]:
    first = next((i for i, line in enumerate(body) if line.strip()), None)
    if first is None:
        return [_begin(arguments, NO_BODY), *body]
    body[first:] = leading_indent(body[first:])
    if _TIMERS.match(body[first]):
        return [_begin(arguments, TIMER_BELOW)]
    # What `cell_magic` returns is one line whatever it swallowed.
    body[first:] = cell_magic(body[first:])
    future = _end_of_future_imports(body)
    if future is None:
        return [_begin(arguments), *body]
    # A future import must stay the first statement, or a cell that also awaits is refused.
    row, column = future
    line = body[row]
    body[row] = f"{line[:column]}; {_begin(arguments).rstrip()}{line[column:]}"
    return ["\n", *body]


# IPython's check for a complete cell skips transformers that say so. Without it, terminal
# IPython takes the magic line alone for a complete cell and runs it with no body.
rewrite_text.has_side_effects = True  # type: ignore[attr-defined]


def _begin(arguments: str, problem: str = "") -> str:
    given = [arguments, problem] if problem else [arguments]
    return f"{_ENGINE}.begin({', '.join(map(repr, given))})()\n"


def _end_of_future_imports(lines: list[str]) -> tuple[int, int] | None:
    """Return the line and column where the last of the leading future imports ends, if any."""
    end, number = None, 0
    while number < len(lines):
        code = lines[number].strip()
        is_future = _FUTURE.match(code)
        if is_future or code.startswith(("'", '"')):  # an import, or a docstring above it
            row, column = _end_of_statement(lines[number:])
            number += row
            if is_future:
                end = number, column
        elif code and not code.startswith("#"):
            break
        number += 1
    return end


def _end_of_statement(lines: list[str]) -> tuple[int, int]:
    """Return the line and column where the first statement ends: not in its comment."""
    end = (1, len(lines[0].rstrip()))
    with contextlib.suppress(tokenize.TokenError, SyntaxError):
        for token in tokenize.generate_tokens(iter(lines).__next__):
            if token.type in (tokenize.NEWLINE, tokenize.COMMENT) or token.string == ";":
                break
            end = token.end
    return end[0] - 1, end[1]


def begin_arguments(tree: ast.Module) -> str | None:
    """Return the text after `%%tpu_run` of a tree that came from `rewrite_text`, else None."""
    for node in tree.body[:_SEARCHED]:
        if begin := _begin_of(node):
            return str(ast.literal_eval(begin.args[0]))
    return None


def add_begin(tree: ast.Module, arguments: str) -> None:
    """Put a call of `begin` at the first statement's own line (for `%tpu_run on`)."""
    begin = ast.Call(
        func=_engine_method("begin"), args=[ast.Constant(value=arguments)], keywords=[]
    )
    _mark(begin, "automatic")
    call = ast.Call(func=begin, args=[], keywords=[])
    position = next(i for i, node in enumerate(tree.body) if not _is_future(node))
    tree.body.insert(position, _placed(ast.Expr(call), tree.body[position]))


def add_repeat(tree: ast.Module) -> None:
    """Put a copy of the cell's code before it, to be run while `again()` says so.

    The last run is the cell as it stands, so that its value is shown as ever.
    """
    position = next(i for i, node in enumerate(tree.body) if _begin_of(node)) + 1
    begin = _begin_of(tree.body[position - 1])
    if begin is None or position == len(tree.body):
        return
    _mark(begin, "repeated")
    code = copy.deepcopy(tree.body[position:])
    again = ast.Call(func=_engine_method("again"), args=[], keywords=[])
    loop = ast.While(test=again, body=[*code, ast.Expr(_end_call())], orelse=[])
    tree.body.insert(position, _placed(loop, code[0]))


def add_end(tree: ast.Module, interactivity: str) -> None:
    """Make the cell's last act the call of `end`, with the cell's value going through it.

    `end(value)` returns a callable that gives the value back or raises what the device
    reported: called from the cell's own frame, it adds no frame of ours to a traceback.
    """
    last = tree.body[-1]
    if interactivity == "last_expr_or_assign" and (name := _assigned_name(last)) is not None:
        # IPython would show the assigned name, but looks for it in the last node only.
        tree.body.append(_placed(ast.Expr(_end_call(name)), last))
    elif isinstance(last, ast.Expr) and _begin_of(last) is None:
        last.value = _placed(_end_call(last.value), last.value)
    elif interactivity == "last":
        # The last node runs interactively (a loop shows its values): keep it the last one.
        block = ast.If(test=ast.Constant(value=True), body=[last, ast.Expr(_end_call())], orelse=[])
        tree.body[-1] = _placed(block, last)
    else:
        tree.body.append(_placed(ast.Expr(_end_call()), last))


# `begin` stands first, or after the future imports that had to stay first.
_SEARCHED = 16


def _engine_method(name: str) -> ast.Attribute:
    shell = ast.Call(func=ast.Name(id="get_ipython", ctx=ast.Load()), args=[], keywords=[])
    engine = ast.Attribute(value=shell, attr="tpu_cell", ctx=ast.Load())
    return ast.Attribute(value=engine, attr=name, ctx=ast.Load())


_BEGIN_SHAPE = ast.dump(_engine_method("begin"))


def _begin_of(node: ast.stmt) -> ast.Call | None:
    """Return the call of `begin` in `begin(...)()`; None when a statement is something else."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        begin = node.value.func
        if isinstance(begin, ast.Call) and ast.dump(begin.func) == _BEGIN_SHAPE:
            return begin
    return None


def _mark(begin: ast.Call, name: str) -> None:
    """Pass `name=True` to a call of `begin`."""
    begin.keywords.append(ast.keyword(arg=name, value=ast.Constant(value=True)))


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _end_call(*values: ast.expr) -> ast.Call:
    inner = ast.Call(func=_engine_method("end"), args=list(values), keywords=[])
    return ast.Call(func=inner, args=[], keywords=[])


def _placed(new: N, where: ast.AST) -> N:
    """Give nodes of ours the place of the person's code, for tracebacks."""
    return ast.fix_missing_locations(ast.copy_location(new, where))


def _assigned_name(node: ast.stmt) -> ast.Name | None:
    """Return the name that IPython shows under `last_expr_or_assign`, ready to be read."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        target = node.target
    else:
        return None
    return ast.Name(id=target.id, ctx=ast.Load()) if isinstance(target, ast.Name) else None
