"""Loops are left once a round brings nothing new, and only then."""

import types

from tpu_magic.check import loops


def run(source, rounds, **names):
    names["__builtins__"] = {**vars(__import__("builtins"))}
    loops.give(names["__builtins__"], rounds)
    exec(compile(loops.asking(source, "<cell>"), "<cell>", "exec"), names)
    return names


def programs(rounds):
    """Return what stands for handing a program over: a name seen before is not new."""
    seen, order = set(), []

    def hand_over(name):
        order.append(name)
        rounds.ended += 1
        rounds.new += name not in seen
        seen.add(name)

    return hand_over, order


def test_a_training_loop_is_left_at_its_steady_step():
    rounds = loops.Rounds()
    step, order = programs(rounds)
    run("for i in range(90):\n    step('first' if i == 0 else 'steady')", rounds, step=step)
    assert order == ["first", "steady", "steady"]
    assert rounds.cut == [("<cell>", 1)]


def test_epochs_with_an_evaluation():
    rounds = loops.Rounds()
    step, order = programs(rounds)
    source = """\
for epoch in range(90):
    for batch in range(100):
        step('train')
    for batch in range(100):
        step('evaluate')
after = step('after')
"""
    run(source, rounds, step=step)
    assert order == ["train"] * 2 + ["evaluate"] * 2 + ["train", "evaluate", "after"] or (
        order == ["train"] * 2 + ["evaluate"] * 2 + ["train"] * 2 + ["evaluate"] * 2 + ["after"]
    )


def test_a_loop_that_hands_nothing_over_runs_to_its_end():
    found = run("total = 0\nfor i in range(100):\n    total += i", loops.Rounds())
    assert found["total"] == 4950


def test_while_loops_and_continue():
    rounds = loops.Rounds()
    step, order = programs(rounds)
    run("while True:\n    step('a')\n    if True:\n        continue", rounds, step=step)
    assert order == ["a", "a"]


def test_a_loop_entered_again_begins_anew():
    rounds = loops.Rounds()
    step, order = programs(rounds)
    run("def f():\n    for i in range(9):\n        step('a')\nf()\nf()", rounds, step=step)
    assert order == ["a"] * 3  # two rounds, then one: its first round brought nothing new


def test_line_numbers_stay():
    tree = loops.asking("x = 1\nfor i in y:\n    z = i\n\n    w = i", "<cell>")
    lines = {node.lineno for node in tree.body}
    assert lines == {1, 2}
    assert tree.body[-1].body[-1].lineno == 5


def test_functions_of_known_source_are_given_the_question():
    source = "def f(step):\n    for i in range(9):\n        step('a')\n"
    made = {}
    exec(compile(source, "<other>", "exec"), made)
    closure = types.FunctionType((lambda: made).__code__, {}, closure=(types.CellType(1),))
    rounds = loops.Rounds()
    loops.give(
        made["__builtins__"]
        if isinstance(made["__builtins__"], dict)
        else vars(made["__builtins__"]),
        rounds,
    )
    loops.recode([made["f"], closure], {"<other>": source})
    step, order = programs(rounds)
    made["f"](step)
    assert order == ["a", "a"]
    assert rounds.cut == [("<other>", 2)]
    vars(__import__("builtins")).pop("__tpu_check__", None)
