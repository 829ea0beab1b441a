"""The text of a cell becomes ordinary code; every line keeps its number."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpu_magic.cell import source

B = "get_ipython().tpu_cell.begin('')()"


def rewritten(text):
    return "".join(source.rewrite_text(text.splitlines(keepends=True)))


@pytest.mark.parametrize(
    ("cell", "code"),
    [
        ("%%tpu_run\nx\n", B + "\nx\n"),
        ("%%tpu_run --a 'b'  # c\nx\n", "get_ipython().tpu_cell.begin(\"--a 'b'  # c\")()\nx\n"),
        ("%%tpu_run\n\n    x\n    y\n", B + "\n\nx\ny\n"),
        ("%%tpu_run\n%%time\nx\n",
         B + "\nget_ipython().run_cell_magic('time', '', 'x\\n')\n"),
        ("%%tpu_run ?\n", "%%tpu_run ?\n"),
        ("%%tpu_runs\nx\n", "%%tpu_runs\nx\n"),
        ("x\n%%tpu_run\n", "x\n%%tpu_run\n"),
        ("%%tpu_run --help\nx\n", "get_ipython().tpu_cell.show_help()\n"),
        ("%%tpu_run\nfrom __future__ import a\nx\n", f"\nfrom __future__ import a; {B}\nx\n"),
        ("%%tpu_run\nfrom __future__ import a  # why\n",
         f"\nfrom __future__ import a; {B}  # why\n"),
        ("%%tpu_run\nfrom __future__ import (a,\n  b)\nx\n",
         f"\nfrom __future__ import (a,\n  b); {B}\nx\n"),
        ("%%tpu_run\nfrom __future__ import a; x\n", f"\nfrom __future__ import a; {B}; x\n"),
        ("%%tpu_run\n# c\n'doc'\nfrom __future__ import a\nfrom __future__ import b\n",
         f"\n# c\n'doc'\nfrom __future__ import a\nfrom __future__ import b; {B}\n"),
    ],
)  # fmt: skip
def test_the_magic_line_becomes_a_call_on_the_same_line(cell, code):
    assert rewritten(cell) == code


@pytest.mark.parametrize(
    ("cell", "problem"),
    [
        ("%%tpu_run\n", source.NO_BODY),
        ("%%tpu_run\n  \n\n", source.NO_BODY),
        ("%%tpu_run\n%%timeit -n1\nx\n", source.TIMER_BELOW),
    ],
)
def test_a_cell_that_cannot_run_is_told_why(cell, problem):
    call = ast.parse(rewritten(cell).strip()).body[0].value.func
    assert [ast.literal_eval(argument) for argument in call.args] == ["", problem]


_LINES = st.lists(st.sampled_from(["x = 1", "", "# c", "y(", ")", "'''", "%time z", "!ls", "\\"]))


@given(_LINES)
def test_no_body_changes_a_line_number_or_raises(lines):
    cell = ["%%tpu_run\n", *(f"{line}\n" for line in lines)]
    code = source.rewrite_text(list(cell))
    assert len(code) == len(cell)
    if any(line.strip() for line in lines):
        first = next(i for i, line in enumerate(cell) if i and line.strip())
        assert code[first + 1 :] == cell[first + 1 :]


def test_rewriting_is_done_once():
    assert rewritten(rewritten("%%tpu_run\nx\n")) == rewritten("%%tpu_run\nx\n")


def tree_of(cell):
    return ast.parse(rewritten(cell))


def test_the_arguments_are_found_in_the_tree_also_after_future_imports():
    assert source.begin_arguments(tree_of("%%tpu_run --a\nx\n")) == "--a"
    future = tree_of("%%tpu_run --a\nfrom __future__ import annotations\nx\n")
    assert source.begin_arguments(future) == "--a"
    assert source.begin_arguments(ast.parse("x\nbegin()()\nf")) is None


@pytest.mark.parametrize(
    ("text", "interactivity", "code"),
    [
        ("1\nx", "last_expr", "1\nget_ipython().tpu_cell.end(x)()"),
        ("x = 1", "last_expr", "x = 1\nget_ipython().tpu_cell.end()()"),
        ("x", "last", "get_ipython().tpu_cell.end(x)()"),
        ("for i in x:\n    i", "last",
         "if True:\n    for i in x:\n        i\n    get_ipython().tpu_cell.end()()"),
        ("x = 1", "last_expr_or_assign", "x = 1\nget_ipython().tpu_cell.end(x)()"),
        ("x, y = 1, 2", "last_expr_or_assign", "x, y = (1, 2)\nget_ipython().tpu_cell.end()()"),
        ("x.y = 1", "last_expr_or_assign", "x.y = 1\nget_ipython().tpu_cell.end()()"),
        ("x = y = 1", "last_expr_or_assign", "x = y = 1\nget_ipython().tpu_cell.end()()"),
        ("await x", "last_expr", "get_ipython().tpu_cell.end(await x)()"),
    ],
)  # fmt: skip
def test_the_last_act_of_a_cell_is_its_end(text, interactivity, code):
    tree = ast.parse(text)
    source.add_end(tree, interactivity)
    assert ast.unparse(tree) == code
    compile(tree, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_begin_is_put_behind_future_imports_on_the_first_statements_line():
    tree = ast.parse("\nfrom __future__ import annotations\n\nx\n")
    source.add_begin(tree, "--a")
    assert [type(node).__name__ for node in tree.body] == ["ImportFrom", "Expr", "Expr"]
    assert tree.body[1].lineno == 4
    assert source.begin_arguments(tree) == "--a"


def test_a_repeated_cell_keeps_its_lines_in_both_copies():
    tree = tree_of("%%tpu_run --repeat 2\na\n\nb\n")
    source.add_repeat(tree)
    source.add_end(tree, "last_expr")
    _, loop, first, last = tree.body
    assert [node.lineno for node in loop.body] == [2, 4, 2]
    assert (first.lineno, last.lineno) == (2, 4)
    assert ast.unparse(loop).splitlines()[0] == "while get_ipython().tpu_cell.again():"
    assert ast.unparse(loop).splitlines()[-1].strip() == "get_ipython().tpu_cell.end()()"
    assert loop.body[1] is not last


def test_a_cell_with_nothing_to_repeat_stays_as_it_is():
    tree = tree_of("%%tpu_run --repeat 2\n# nothing\n")
    before = ast.dump(tree)
    source.add_repeat(tree)
    assert ast.dump(tree) == before
