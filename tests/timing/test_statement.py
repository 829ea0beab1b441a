"""The timed code: names, values, set-up, IPython syntax, and where errors point."""

import ast
import traceback

import pytest
from IPython.core.error import UsageError

from tpu_magic.timing.statement import parse


def run_of(shell, body, setup=None, local_ns=None, **how):
    return parse(shell, body, setup, local_ns).starter(**how)()


def call(run, times=1):
    """Make calls; return what the last one handed out."""
    outputs = list(run.send([None] * times))
    next(run)
    return outputs


def test_the_value_of_the_last_expression_is_handed_out(shell):
    shell.user_ns["x"] = 3
    assert call(run_of(shell, "x * 2")) == [6]


def test_a_trailing_semicolon_does_not_lose_the_value(shell):
    shell.user_ns["x"] = 3
    assert call(run_of(shell, "x * 2;")) == [6]


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        ("y = x + 1", [4]),
        ("y = x + 1; z = x + 2", [4, 5]),
        ("a, (b, *c) = 1, (2, 3)", [1, 2, [3]]),
        ("if x > 100:\n    y = 1", []),
        ("for i in range(3):\n    y = i", [2, 2]),
        ("with open(__import__('os').devnull) as f:\n    y = 7\nf = None", [None, 7]),
        ("x += 1", [4]),
        ("(y := 5)", [5, 5]),
        ("pass", []),
        ("[i for i in range(3)]", [[0, 1, 2]]),
        ("'one  two'", ["one  two"]),
    ],
)
def test_what_the_code_binds_is_handed_out(shell, body, outputs):
    shell.user_ns.update(x=3, i="untouched")
    assert call(run_of(shell, body)) == outputs


def test_names_do_not_leak(shell):
    before = dict(shell.user_ns)
    call(run_of(shell, "y = 1\nimport json\ndef g(): pass\n", "z = 2"))
    assert dict(shell.user_ns) == before


def test_reassigning_a_variable_works_and_leaves_it_alone(shell):
    shell.user_ns["x"] = 1
    run = run_of(shell, "x = x + 1")
    assert call(run) == [2]
    assert call(run, times=3) == [5]  # state lives on from call to call
    assert shell.user_ns["x"] == 1


def test_every_start_begins_anew(shell):
    start = parse(shell, "x.append(1)\nlen(x)", "x = []").starter()
    assert call(start(), times=3) == [3]
    assert call(start(), times=2) == [2]


def test_the_set_up_may_reassign_a_variable(shell):
    shell.user_ns["x"] = 1
    assert call(run_of(shell, "x", "x = x + 1")) == [2]
    assert shell.user_ns["x"] == 1


def test_outputs_are_dropped_before_the_next_call(shell):
    class Tracked:
        alive = 0

        def __init__(self):
            Tracked.alive += 1

        def __del__(self):
            Tracked.alive -= 1

    shell.user_ns.update(Tracked=Tracked, y=None)  # y exists from an earlier cell
    run = run_of(shell, "y = Tracked()\nfor k in range(2):\n    z = Tracked()\nTracked()")
    outputs = run.send([None])
    assert Tracked.alive == 3
    del outputs
    next(run)
    assert Tracked.alive == 0


def test_a_name_that_the_next_call_needs_is_kept(shell):
    run = run_of(shell, "total = total + 1", "total = 10")
    assert [call(run), call(run)] == [[11], [12]]


def test_deleting_an_input_fails_in_the_second_call(shell):
    shell.user_ns["x"] = 1
    statement = parse(shell, "del x")
    assert statement.deleted == {"x"}
    run = statement.starter()()
    call(run)
    with pytest.raises(UnboundLocalError):
        call(run)
    assert shell.user_ns["x"] == 1


def test_functions_and_comprehensions_see_the_names(shell):
    shell.user_ns["x"] = 3
    assert call(run_of(shell, "[x + k for _ in range(2)]", "k = 1")) == [[4, 4]]
    assert call(run_of(shell, "(lambda: x + k)()", "k = 1")) == [4]


def test_names_are_those_that_the_code_takes_from_the_namespace(shell):
    shell.user_ns.update(x=1, y=2, z=3, f=len, w=4)
    names = parse(shell, "y = f([x for _ in range(2)])\nw += 1\n", "q = z").names
    assert names >= {"x", "z", "f", "w"}
    assert not names & {"y", "q"}


def test_replaced_values_are_what_the_code_sees(shell):
    shell.user_ns["x"] = 1
    assert call(run_of(shell, "x + 1", replaced={"x": 10})) == [11]
    assert call(run_of(shell, "(lambda: x)()", replaced={"x": 10})) == [10]
    assert shell.user_ns["x"] == 1


def test_remade_values_are_made_in_every_call(shell):
    shell.user_ns["x"] = 1
    made = []

    def make():
        made.append(1)
        return len(made)

    run = run_of(shell, "x * 100", remade={"x": make})
    assert [call(run), call(run)] == [[100], [200]]


def test_local_names_of_the_calling_function_win(shell):
    shell.user_ns["x"] = 1
    assert call(run_of(shell, "x + y", local_ns={"x": 10, "y": 5})) == [15]
    assert "y" not in shell.user_ns


def test_ipython_syntax_works(shell):
    shell.user_ns["x"] = 1
    run = run_of(shell, "%timeit -n1 -r1 -q x\nx + 1\n", "pass")
    assert call(run) == [2]


def test_ast_transforms_apply(shell, monkeypatch):
    class Double(ast.NodeTransformer):
        def visit_Constant(self, node):
            if isinstance(node.value, int):
                return ast.copy_location(ast.Constant(node.value * 2), node)
            return node

    monkeypatch.setattr(shell, "ast_transformers", [*shell.ast_transformers, Double()])
    assert call(run_of(shell, "a + 4", "a = 3")) == [14]


@pytest.mark.parametrize("body", ["return 1", "yield 1", "break", "x +"])
def test_code_that_is_wrong_alone_is_wrong_here(shell, body):
    with pytest.raises(SyntaxError):
        parse(shell, body)


@pytest.mark.parametrize(
    "body", ["await f()", "async with f() as g: pass", "[x async for x in f()]"]
)
def test_await_is_refused_in_words(shell, body):
    with pytest.raises(UsageError, match="code with `await` cannot be timed"):
        parse(shell, body)


def test_await_inside_a_function_of_the_code_is_fine(shell):
    assert call(run_of(shell, "async def g():\n    await h()\n1\n", ""))[0] == 1


@pytest.mark.parametrize("body", ["", "   ", "# only a comment", "\n\n"])
def test_nothing_to_time_is_said(shell, body):
    with pytest.raises(UsageError, match="nothing to time"):
        parse(shell, body)


def _lines(error, filename):
    return [
        (frame.lineno, frame.line)
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == filename
    ]


def test_errors_point_at_the_line_of_the_cell(shell):
    statement = parse(shell, "a = 1\n1 / (a - 1)\n", "")
    with pytest.raises(ZeroDivisionError) as caught:
        call(statement.starter()())
    # Line 1 of the cell is the magic's.
    assert _lines(caught.value, statement.filename) == [(3, "1 / (a - 1)")]


def test_errors_of_the_set_up_point_at_the_first_line(shell):
    statement = parse(shell, "1\n", "1 / 0")
    with pytest.raises(ZeroDivisionError) as caught:
        statement.starter()()
    assert _lines(caught.value, statement.filename) == [(1, "1 / 0")]


def test_errors_point_at_the_line_that_the_magic_stands_on(shell):
    shell.user_ns.update(parse=parse, shell=shell)
    cell = "1\n\nstatement = parse(shell, '1 / 0')\n"
    shell.run_cell(cell, store_history=False).raise_error()
    statement = shell.user_ns["statement"]
    with pytest.raises(ZeroDivisionError) as caught:
        call(statement.starter()())
    assert _lines(caught.value, statement.filename) == [(3, "1 / 0")]


def test_compile_time_is_measured(shell):
    assert 0 < parse(shell, "sum(range(10))").compile_time < 60
