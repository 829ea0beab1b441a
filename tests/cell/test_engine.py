"""The engine in a shell, on a framework made of nothing."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from pathlib import Path

import pytest
from IPython.core.error import UsageError

from tests.support.untouched import untouched
from tpu_magic.cell import engine as cell
from tpu_magic.frameworks.base import Availability

PACKAGE = Path(cell.__file__).parent


def _raise(error):
    def act():
        raise error

    return act


def _ours(error):
    """Return the frames of ours in an error's traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    return [frame for frame in frames if Path(frame.filename).is_relative_to(PACKAGE)]


@pytest.fixture
def shown(fake_shell):
    """Return the list of reports that are shown."""
    reports = []
    fake_shell.tpu_cell.show = reports.append
    return reports


# --- begin and end ------------------------------------------------------------------------


def test_a_cell_begins_ends_and_is_left_in_this_order(fake_shell):
    fake_shell.run("%%tpu_run\nfake_shell = None\nimport torch")
    assert fake_shell.fake.events == ["connect", "enter", "finish", "leave"]


def test_the_wait_comes_after_the_last_expression(fake_shell):
    fake_shell.user_ns["events"] = fake_shell.fake.events
    fake_shell.run("%%tpu_run\nevents.append('first')\nevents.append('last')")
    assert fake_shell.fake.events == ["connect", "enter", "first", "last", "finish", "leave"]


def test_the_value_is_the_very_object(fake_shell):
    value = object()
    fake_shell.user_ns["value"] = value
    assert fake_shell.run("%%tpu_run\nvalue") is value
    assert fake_shell.user_ns["_"] is value


@pytest.mark.parametrize(
    ("interactivity", "source", "expected"),
    [
        ("last_expr", "1\n2", ["2"]),
        ("last_expr", "x = 3", []),
        ("last", "for i in (1, 2):\n    i + 10", ["11", "12"]),
        ("last", "5", ["5"]),
        ("all", "1\n2\nx = 3", ["1", "2"]),
        ("none", "1\n2", []),
        ("last_expr_or_assign", "x = 41\nx += 1", ["42"]),
        ("last_expr_or_assign", "y: int = 7", ["7"]),
        ("last_expr_or_assign", "a, b = 1, 2", []),
        ("last_expr_or_assign", "6", ["6"]),
    ],
)
def test_every_interactivity_shows_what_a_plain_cell_shows(
    fake_shell, capsys, interactivity, source, expected
):
    fake_shell.ast_node_interactivity = interactivity
    fake_shell.run(source)
    plain = [line for line in capsys.readouterr().out.splitlines() if line]
    fake_shell.run(f"%%tpu_run -q\n{source}")
    ours = [line for line in capsys.readouterr().out.splitlines() if line]
    assert [line.partition(": ")[2] for line in ours] == expected
    assert [line.partition(": ")[2] for line in plain] == expected
    assert fake_shell.fake.events[-2:] == ["finish", "leave"]


def test_a_late_error_is_the_cells_own_at_its_last_line(fake_shell):
    fake_shell.fake.at_finish = _raise(RuntimeError("late"))
    with pytest.raises(RuntimeError, match="late") as caught:
        fake_shell.run("%%tpu_run\nx = 1\n\nx + 1")
    assert _ours(caught.value) == []
    assert traceback.extract_tb(caught.value.__traceback__)[-1].lineno == 4
    assert fake_shell.fake.events[-1] == "leave"


def test_a_late_error_keeps_its_cause_and_its_notes(fake_shell):
    error = RuntimeError("late")
    error.__cause__ = ValueError("why")
    error.__notes__ = ["a note"]
    fake_shell.fake.at_finish = _raise(error)
    with pytest.raises(RuntimeError) as caught:
        fake_shell.run("%%tpu_run\n1")
    assert caught.value is error
    assert isinstance(caught.value.__cause__, ValueError)
    assert caught.value.__notes__ == ["a note"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("no chip"), SystemExit(3)])
def test_what_connecting_raises_has_no_frame_of_ours(fake_shell, error):
    fake_shell.fake.at_connect = _raise(error)
    result = fake_shell.run_cell("%%tpu_run\nx = 1")
    assert result.error_in_exec is error
    assert _ours(error) == []
    assert "x" not in fake_shell.user_ns
    assert fake_shell.fake.events == ["connect"]


def test_what_entering_raises_leaves_nothing_active(fake_shell):
    fake_shell.fake.at_enter = _raise(RuntimeError("cannot patch"))
    with pytest.raises(RuntimeError, match="cannot patch"):
        fake_shell.run("%%tpu_run\n1")
    fake_shell.fake.at_enter = lambda: None
    assert fake_shell.run("%%tpu_run\n2") == 2


@pytest.mark.parametrize("error", ["1/0", "raise KeyboardInterrupt", "raise SystemExit(1)"])
@pytest.mark.filterwarnings("ignore:To exit")
def test_a_cell_that_fails_is_left_and_leaves_all_as_it_was(fake_shell, error):
    fake_shell.run("%%tpu_run\n1")
    with untouched(fake_shell):
        result = fake_shell.run_cell(f"%%tpu_run\n{error}")
    assert not result.success
    assert fake_shell.fake.events[-2:] == ["enter", "leave"]
    assert fake_shell.run("%%tpu_run\n2") == 2


def test_the_checker_notices_what_stays_behind(fake_shell):
    with pytest.raises(AssertionError, match="SOMETHING"), untouched(fake_shell):
        fake_shell.run("%%tpu_run\nimport os\nos.environ['SOMETHING'] = 'left'")
    del os.environ["SOMETHING"]
    with pytest.raises(AssertionError, match="random"), untouched(fake_shell):
        fake_shell.run("%%tpu_run\nimport random\nrandom.random()")


def test_an_empty_cell_reads_counters_and_memory_no_more_than_it_must(fake_shell):
    fake_shell.run("%config TpuMagics.live = False")
    fake_shell.run("%%tpu_run -q\nx = 1")
    fake_shell.run("%config TpuMagics.live = True")
    assert fake_shell.fake.snapshots == 2  # before and after


# --- interrupts while entering and leaving ------------------------------------------------


def test_an_interrupt_while_entering_waits_until_the_cell_can_be_left(fake_shell):
    fake_shell.fake.at_enter = lambda: signal.raise_signal(signal.SIGINT)
    result = fake_shell.run_cell("%%tpu_run\nx = 1")
    assert isinstance(result.error_in_exec, KeyboardInterrupt)
    assert "x" not in fake_shell.user_ns
    assert fake_shell.fake.events == ["connect", "enter", "leave"]


def test_an_interrupt_while_leaving_lets_it_end_and_fails_the_cell(fake_shell):
    fake_shell.fake.at_leave = lambda: signal.raise_signal(signal.SIGINT)
    result = fake_shell.run_cell("%%tpu_run\n1")
    assert isinstance(result.error_in_exec, KeyboardInterrupt)
    assert fake_shell.fake.events[-1] == "leave"


# --- options and refusals -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "cure"),
    [
        ("--framework trch", "did you mean 'torch'"),
        ("--presicion high", "did you mean --precision"),
        ("--repeat 0", "0 is below 1"),
        ("--repeat", "expected one argument"),
        ("-o 1x", "not a variable name"),
        ('--framework "torch', "No closing quotation"),
        ("--profile", "--profile is not there yet for torch"),
        ("stray", "unknown argument 'stray'"),
    ],
)
def test_a_wrong_line_stops_the_cell_in_one_line(fake_shell, line, cure):
    with pytest.raises(UsageError) as caught:
        fake_shell.run(f"%%tpu_run {line}\nran = True")
    assert cure in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "ran" not in fake_shell.user_ns
    assert "enter" not in fake_shell.fake.events


def test_an_unusable_framework_is_refused_with_reason_and_cure(fake_shell):
    fake_shell.fake.usable = Availability(False, "it is broken", "mend it")
    with pytest.raises(UsageError, match="it is broken: mend it"):
        fake_shell.run("%%tpu_run\n1")


@pytest.mark.parametrize("order", ["%%timeit -n1 -r1\n%%tpu_run\n1", "%%tpu_run\n%%timeit\n1"])
def test_timeit_above_and_below_is_refused(fake_shell, order):
    with pytest.raises(UsageError, match="use %%tpu_timeit instead"):
        fake_shell.run(order)
    assert fake_shell.fake.events == []


def test_a_report_is_kept_under_a_name_and_not_shown(fake_shell, shown):
    fake_shell.run("%%tpu_run -q -o kept\n1")
    assert fake_shell.user_ns["kept"] is fake_shell.tpu_cell.last_report
    assert shown == []
    fake_shell.run("%%tpu_run\n1")
    assert shown == [fake_shell.tpu_cell.last_report]


def test_a_failed_cell_that_reached_nothing_shows_no_report(fake_shell, shown):
    fake_shell.fake.reached = False
    fake_shell.run_cell("%%tpu_run\n1/0")
    assert shown == []
    fake_shell.run("%%tpu_run\n1")
    assert [report.reached_device for report in shown] == [False]


def test_a_silent_cell_shows_no_report(fake_shell, shown):
    fake_shell.run("%%tpu_run -o kept\n1", store_history=False, silent=True)
    assert shown == []
    assert fake_shell.fake.events[-1] == "leave"
    assert fake_shell.user_ns["kept"].framework == "torch"


# --- profile ------------------------------------------------------------------------------


def test_profile_is_the_adapters(fake_shell):
    import contextlib

    @contextlib.contextmanager
    def profile(folder):
        fake_shell.fake.events.append(f"profile {folder}")
        yield

    fake_shell.fake.profile = profile
    fake_shell.run("%%tpu_run --profile somewhere\n1")
    assert "profile somewhere" in fake_shell.fake.events


# --- repeat -------------------------------------------------------------------------------


def test_repeat_runs_the_code_so_often_and_shows_the_last_value(fake_shell):
    fake_shell.run("runs = []")
    assert fake_shell.run("%%tpu_run --repeat 3 -o kept\nruns.append(1)\nlen(runs)") == 3
    assert fake_shell.fake.events.count("finish") == 3
    assert fake_shell.fake.events.count("enter") == 1
    assert len(fake_shell.user_ns["kept"].repeats) == 3


def test_the_report_of_a_repeated_cell_says_which_part_varied(fake_shell):
    # The clock stands still but for what the cell does with it.
    now = [0.0]
    fake_shell.tpu_cell.clock = lambda: now[0]
    fake_shell.user_ns.update(now=now, steps=iter([1.0, 1.0, 4.0]))
    fake_shell.fake.waits_s = [0.25, 0.25, 3.25]
    fake_shell.run("%%tpu_run --repeat 3 -o kept\nnow[0] += next(steps)")
    repeats = fake_shell.user_ns["kept"].repeats
    assert [run.wall_s for run in repeats] == [1.0, 1.0, 4.0]
    assert [run.device_wait_s for run in repeats] == [0.25, 0.25, 3.25]
    assert [run.other_s for run in repeats] == [0.75, 0.75, 0.75]
    assert fake_shell.user_ns["kept"].wall_s == 6.0
    assert "3 runs: median 1.00 s, 1.00 s to 4.00 s" in str(fake_shell.user_ns["kept"])
    assert "device wait varied most (250 ms to 3.25 s)" in str(fake_shell.user_ns["kept"])


def test_repeat_keeps_the_line_of_an_error_and_stops_there(fake_shell):
    with pytest.raises(ZeroDivisionError) as caught:
        fake_shell.run("%%tpu_run --repeat 5\n\n1/0")
    assert traceback.extract_tb(caught.value.__traceback__)[-1].lineno == 3
    assert fake_shell.fake.events.count("finish") == 0


@pytest.mark.parametrize(
    "source",
    [
        "%%tpu_run {twice}\n1",
        "%%prun\n%%tpu_run --repeat 2\n1",
        "%tpu_run on --repeat 2",
    ],
)
def test_repeat_where_it_would_not_be_done_is_refused(fake_shell, source):
    fake_shell.user_ns["twice"] = "--repeat 2"
    with pytest.raises(UsageError, match="--repeat works in a %%tpu_run line"):
        fake_shell.run(source)
    assert fake_shell.fake.events == []


# --- other magics -------------------------------------------------------------------------


def test_time_inside_a_cell_waits_for_the_device(fake_shell, capsys):
    fake_shell.user_ns["events"] = fake_shell.fake.events
    fake_shell.run("%%tpu_run -q\n%time events.append('work')\nevents.append('after')")
    assert fake_shell.fake.events == [
        "connect", "enter", "work", "finish", "after", "finish", "leave",
    ]  # fmt: skip
    assert "Wall time" in capsys.readouterr().out


def test_a_late_error_under_prun_fails_the_cell(fake_shell):
    # %%prun does not let AST transformers see its body: there is no `end` in it.
    fake_shell.fake.at_finish = _raise(RuntimeError("late"))
    result = fake_shell.run_cell("%%prun -q\n%%tpu_run\nx = 1")
    assert isinstance(result.error_in_exec, RuntimeError)
    assert fake_shell.fake.events[-1] == "leave"


def test_the_wait_under_prun_can_be_interrupted(fake_shell):
    fake_shell.fake.at_finish = lambda: signal.raise_signal(signal.SIGINT)
    result = fake_shell.run_cell("%%prun -q\n%%tpu_run\nx = 1")
    assert isinstance(result.error_in_exec, KeyboardInterrupt)
    assert fake_shell.fake.events == ["connect", "enter", "finish", "leave"]


def test_what_leaving_raises_is_the_cells_error_and_the_next_one_works(fake_shell):
    fake_shell.fake.at_leave = _raise(RuntimeError("cannot undo"))
    result = fake_shell.run_cell("%%tpu_run\n1")
    assert str(result.error_in_exec) == "cannot undo"
    fake_shell.fake.at_leave = lambda: None
    assert fake_shell.run("%%tpu_run\n2") == 2


def test_the_time_of_a_cell_that_fails_after_an_inner_time_is_whole(fake_shell):
    now = [0.0]
    fake_shell.tpu_cell.clock = lambda: now[0]
    fake_shell.user_ns["now"] = now
    fake_shell.run_cell("%%tpu_run -o kept\n%time now[0] += 1\nnow[0] += 4\n1/0")
    assert fake_shell.user_ns["kept"].wall_s == 5.0


def test_a_nested_cell_is_part_of_the_outer_one(fake_shell, shown):
    fake_shell.run("%%tpu_run\nget_ipython().run_cell('%%tpu_run\\ninner = 1')\nouter = 2")
    assert fake_shell.fake.events.count("enter") == 1
    assert fake_shell.fake.events[-1] == "leave"
    assert len(shown) == 1
    assert (fake_shell.user_ns["inner"], fake_shell.user_ns["outer"]) == (1, 2)


def test_a_plain_cell_inside_does_not_leave_the_outer_one(fake_shell):
    fake_shell.user_ns["events"] = fake_shell.fake.events
    fake_shell.run(
        "%%tpu_run\nget_ipython().run_cell('1/0')\nget_ipython().run_cell('')\n"
        "get_ipython().run_cell('1', silent=True)\nevents.append('on')"
    )
    assert fake_shell.fake.events[-3:] == ["on", "finish", "leave"]


def test_run_cell_magic_gives_the_value_and_leaves(fake_shell):
    found = fake_shell.run("get_ipython().run_cell_magic('tpu_run', '-q', 'a = 2\\na * 21')")
    assert found == 42
    assert fake_shell.fake.events == ["connect", "enter", "finish", "leave"]
    assert fake_shell.run_cell_magic("tpu_run", "-q", "b = 5") is None
    assert fake_shell.user_ns["b"] == 5
    assert fake_shell.fake.events[-1] == "leave"


def test_run_cell_magic_of_a_block_under_another_interactivity(fake_shell, monkeypatch):
    monkeypatch.setattr(fake_shell, "ast_node_interactivity", "last")
    fake_shell.run_cell_magic("tpu_run", "-q", "for i in (1, 2):\n    made = i")
    assert fake_shell.user_ns["made"] == 2
    assert fake_shell.fake.events == ["connect", "enter", "finish", "leave"]


def test_help_through_a_name_is_shown_instead_of_the_cell(fake_shell):
    fake_shell.user_ns["how"] = "--help"
    with pytest.raises(UsageError, match="--precision"):
        fake_shell.run("%%tpu_run {how}\nran = 1")
    assert "ran" not in fake_shell.user_ns


def test_run_cell_magic_outside_any_cell_shows_the_line_of_an_error(fake_shell):
    with pytest.raises(ZeroDivisionError) as caught:
        fake_shell.run_cell_magic("tpu_run", "-q", "x = 1\n1/0")
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.lineno, last.line) == (3, "1/0")
    assert fake_shell.fake.events[-1] == "leave"


# --- threads and processes ----------------------------------------------------------------


def test_a_second_cell_in_another_thread_is_refused_and_the_first_goes_on(fake_shell):
    found = []

    def second():
        try:
            fake_shell.tpu_cell.begin("")()
        except UsageError as error:
            found.append(str(error))
        found.append(fake_shell.tpu_cell.end(7)())
        fake_shell.tpu_cell.begin("", automatic=True)()  # refuses nothing: nobody asked

    fake_shell.user_ns.update(threading=threading, second=second)
    fake_shell.run("%%tpu_run\nt = threading.Thread(target=second)\nt.start()\nt.join()")
    assert found == [cell.OTHER_THREAD, 7]
    assert fake_shell.fake.events == ["connect", "enter", "finish", "leave"]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_does_not_touch_the_device(fake_shell):
    reading, writing = os.pipe()
    fake_shell.user_ns.update(os=os, events=fake_shell.fake.events)
    engine = fake_shell.tpu_cell

    def child():
        try:
            engine.begin("")()
        except UsageError as error:
            os.write(writing, str(error).encode())
        engine.end()()
        engine._leave(None)
        os.write(writing, b"|" + ",".join(fake_shell.fake.events).encode())
        os._exit(0)

    fake_shell.user_ns["child"] = child
    fake_shell.run("%%tpu_run -q\npid = os.fork()\nif pid == 0:\n    child()\nos.waitpid(pid, 0)")
    os.close(writing)
    with os.fdopen(reading) as pipe:
        refusal, events = pipe.read().split("|")
    assert refusal == cell.FORKED
    assert events == "connect,enter"
    assert fake_shell.fake.events[-1] == "leave"


# --- help after errors, runtimes started by others ----------------------------------------


def test_help_for_an_error_comes_after_it_in_one_line(fake_shell, capsys):
    fake_shell.run("%%tpu_run -q\n1")
    fake_shell.fake.hint = "net is on the device"
    fake_shell.run_cell("1/0")
    assert capsys.readouterr().out.splitlines()[-1] == "net is on the device"
    fake_shell.run_cell("%%tpu_run -q\n1/0")
    assert capsys.readouterr().out.splitlines()[-1] == "net is on the device"
    fake_shell.run("1")
    fake_shell.run_cell("raise KeyboardInterrupt")
    fake_shell.run_cell("%%tpu_run --wrong\n1")
    assert "net is on the device" not in capsys.readouterr().out


def test_no_help_without_a_device_and_none_that_fails(fake_shell, capsys):
    fake_shell.fake.hint = "never"
    fake_shell.run_cell("1/0")
    assert "never" not in capsys.readouterr().out
    fake_shell.run("%%tpu_run -q\n1")
    fake_shell.fake.explain = _raise(ValueError("a fault of ours"))
    result = fake_shell.run_cell("1/0")
    assert isinstance(result.error_in_exec, ZeroDivisionError)


def test_the_cell_that_started_a_runtime_before_us_is_known(fake_shell):
    told = []
    fake_shell.fake.note_started = told.append
    fake_shell.run("1")
    fake_shell.user_ns["fake"] = fake_shell.fake
    fake_shell.run("fake.up = True")
    cell_number = fake_shell.execution_count - 1
    fake_shell.run("2")
    assert told == [cell_number]


def test_a_runtime_that_we_started_is_nobody_elses(fake_shell):
    told = []
    fake_shell.fake.note_started = told.append
    fake_shell.run("%%tpu_run -q\n1")
    assert told == []


def test_a_replaced_package_stops_cells_until_a_restart(fake_shell):
    class Watch:
        def problem(self):
            return "torch was replaced on disk: restart the kernel"

    fake_shell.tpu_cell._stale = Watch()
    with pytest.raises(UsageError, match="restart the kernel"):
        fake_shell.run("%%tpu_run\n1")
    assert fake_shell.fake.events == []


# --- %tpu_run on and off ------------------------------------------------------------------


def test_on_runs_every_later_cell_and_off_ends_it(fake_shell, shown):
    fake_shell.run("%tpu_run on --precision high")
    assert fake_shell.run("torch.Thing and 5") == 5
    assert fake_shell.fake.options.precision == "high"
    assert len(shown) == 1
    fake_shell.run("%tpu_run off")
    fake_shell.run("torch.Thing")
    assert fake_shell.fake.events.count("enter") == 1


def test_on_keeps_lines_source_and_future_imports(fake_shell):
    import inspect

    fake_shell.run("%tpu_run on")
    fake_shell.run("from __future__ import annotations\ndef f(x: nowhere): return torch\nf(1)")
    assert fake_shell.user_ns["f"].__annotations__ == {"x": "nowhere"}
    assert "enter" in fake_shell.fake.events
    assert inspect.getsource(fake_shell.user_ns["f"]).startswith("def f(x: nowhere)")
    with pytest.raises(ZeroDivisionError) as caught:
        fake_shell.run("torch\n\n1/0")
    assert traceback.extract_tb(caught.value.__traceback__)[-1].lineno == 3


def test_on_shows_no_report_where_nothing_reached_the_device(fake_shell, shown):
    fake_shell.fake.reached = False
    fake_shell.run("%tpu_run on")
    fake_shell.run("torch.Thing")
    assert fake_shell.fake.events.count("enter") == 1
    assert shown == []


NOTEBOOK = """\
import os, sys
from collections import Counter
---
# settings
batch_size = 64
lr = 1e-3
names = ["a", 'b']
---
%matplotlib_is_not_here = 1
---
!true
---
def helper(x, scale=2.0):
    return x * scale
---
print(os.getcwd(), batch_size)
---
helper(3)
---
class Point:
    x = 1
    def norm(self): return abs(self.x)
---
Point().norm()
"""


def test_on_does_not_connect_for_cells_that_need_no_device(fake_shell):
    fake_shell.run("%tpu_run on")
    for source in NOTEBOOK.split("---\n"):
        if not source.startswith("%matplotlib_is"):
            fake_shell.run(source)
    assert fake_shell.fake.events == []
    fake_shell.run("class Net:\n    kind = torch.Thing\n    def train(self): return 1")
    assert fake_shell.fake.events == []
    fake_shell.run("Net().train()")
    assert fake_shell.fake.events == ["connect", "enter", "finish", "leave"]


def test_on_with_time_above_waits_inside_the_timed_code(fake_shell):
    fake_shell.user_ns["events"] = fake_shell.fake.events
    fake_shell.run("%tpu_run on")
    fake_shell.run("%%time\ntorch.Thing\nevents.append('work')")
    assert fake_shell.fake.events == ["connect", "enter", "work", "finish", "leave"]


def test_an_explicit_cell_wins_while_on(fake_shell):
    fake_shell.run("%tpu_run on --precision high")
    fake_shell.run("%%tpu_run --precision highest\ntorch.Thing")
    assert fake_shell.fake.options.precision == "highest"
    assert fake_shell.fake.events.count("enter") == 1


# --- loading and unloading ----------------------------------------------------------------


def test_unloading_inside_a_cell_leaves_it(fake_shell):
    assert fake_shell.run("%%tpu_run -q\n%unload_ext tpu_magic\n5") == 5
    assert fake_shell.fake.events[-1] == "leave"
    with pytest.raises(UsageError, match="not found"):
        fake_shell.run("%%tpu_run\n1")
    fake_shell.run("%load_ext tpu_magic")
    assert fake_shell.run("%%tpu_run -q\n6") == 6


def test_unloading_leaves_nothing(fake_shell):
    fake_shell.run("%unload_ext tpu_magic")
    with untouched(fake_shell):
        fake_shell.run_line_magic("load_ext", "tpu_magic")
        fake_shell.run_line_magic("unload_ext", "tpu_magic")
    assert not hasattr(fake_shell, "tpu_cell")
    assert "tpu_run" not in fake_shell.magics_manager.magics["cell"]
    assert "%tpu_run" not in fake_shell.magics_manager.magics["line"]
    fake_shell.run_line_magic("load_ext", "tpu_magic")


def test_reloading_inside_a_cell_keeps_its_value(fake_shell):
    assert fake_shell.run("%%tpu_run -q\n%reload_ext tpu_magic\n5") == 5
    assert fake_shell.run("%%tpu_run -q\n6") == 6


def test_a_cell_begun_outside_of_any_is_left_when_the_next_begins(fake_shell):
    fake_shell.tpu_cell.begin("-q")()
    fake_shell.run("1")
    assert fake_shell.fake.events == ["connect", "enter", "finish", "leave"]


def test_no_framework_is_imported_by_the_engine(fake_shell):
    assert not any(name.startswith("torch.") for name in fake_shell.user_ns)
    assert sys.modules["torch"] is fake_shell.user_ns["torch"]
