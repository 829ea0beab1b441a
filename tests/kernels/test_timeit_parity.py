"""What `%timeit`'s documentation promises, asked of it and of `%tpu_timeit` in one kernel."""

import re

import pytest

from tests.support.kernels import ANSI

BOTH = ("timeit", "tpu_timeit")


@pytest.fixture
def plain_kernel(_one_kernel):
    """Return a real kernel, one for the module, with nothing in its namespace."""
    _one_kernel.run("%reset -f\ncalls, set_ups, seen = [], [], []").check()
    return _one_kernel


def _counted(kernel, names: str) -> str:
    """Return how many entries lists have, and empty them."""
    lists = f"({names},)"
    counted = kernel.run(f"[len(each) for each in {lists}]").check().value
    kernel.run(f"for each in {lists}: each.clear()").check()
    return counted


@pytest.mark.parametrize("magic", BOTH)
class TestBoth:
    """Each holds for the one as for the other; where it does not, the difference is named."""

    def test_n_loops_in_r_runs(self, plain_kernel, magic):
        plain_kernel.run(f"%{magic} -n 7 -r 3 calls.append(1)").check()
        # Ours makes one call more: the first one, which would compile, is told apart.
        assert _counted(plain_kernel, "calls") == {"timeit": "[21]", "tpu_timeit": "[22]"}[magic]

    def test_values_stand_beside_their_option(self, plain_kernel, magic):
        plain_kernel.run(f"%{magic} -q -n7 -r3 calls.append(1)").check()
        assert _counted(plain_kernel, "calls") in ("[21]", "[22]")

    def test_the_first_line_of_a_cell_is_set_up_and_runs_once_a_run(self, plain_kernel, magic):
        cell = f"%%{magic} -q -n 5 -r 3 set_ups.append(1); bound = 4\ncalls.append(bound)\n"
        plain_kernel.run(cell).check()
        assert plain_kernel.run("set(calls)").value == "{4}"
        expected = {"timeit": "[15, 3]", "tpu_timeit": "[16, 4]"}[magic]
        assert _counted(plain_kernel, "calls, set_ups") == expected

    def test_several_statements_on_a_line(self, plain_kernel, magic):
        plain_kernel.run(f"%{magic} -q -n 1 -r 1 calls.append(1); set_ups.append(1)").check()
        assert _counted(plain_kernel, "calls, set_ups") in ("[1, 1]", "[2, 2]")

    def test_quiet_prints_nothing(self, plain_kernel, magic):
        reply = plain_kernel.run(f"%{magic} -q -n 1 -r 1 pass").check()
        assert (reply.stdout, reply.displays, reply.value) == ("", [], "")

    def test_something_is_printed_without_it(self, plain_kernel, magic):
        reply = plain_kernel.run(f"%{magic} -n 1000 -r 3 pass").check()
        shown = reply.stdout + "".join(each["text/plain"] for each in reply.displays)
        assert re.search(r"\d (ns|[µμu]s)\b", shown), shown

    def test_o_returns_a_result_with_timeits_attributes(self, plain_kernel, magic):
        plain_kernel.run(f"got = %{magic} -o -q -n 100 -r 4 sum(range(50))").check()
        asked = (
            "got.loops, got.repeat, len(got.timings), len(got.all_runs), "
            "got.best == min(got.timings), got.worst == max(got.timings), "
            "got.best <= got.average <= got.worst, got.stdev >= 0"
        )
        value = plain_kernel.run(asked).check().value
        assert value == "(100, 4, 4, 4, True, True, True, True)"

    def test_timings_are_a_calls_and_all_runs_are_a_runs(self, plain_kernel, magic):
        plain_kernel.run(f"got = %{magic} -o -q -n 10 -r 2 sum(range(500))").check()
        asked = "[round(run / call) for run, call in zip(got.all_runs, got.timings)]"
        assert plain_kernel.run(asked).check().value == "[10, 10]"

    def test_t_measures_time_that_passes_and_c_the_processors(self, plain_kernel, magic):
        plain_kernel.run("import time").check()
        plain_kernel.run(f"wall = %{magic} -o -q -t -n 1 -r 2 time.sleep(0.05)").check()
        plain_kernel.run(f"used = %{magic} -o -q -c -n 1 -r 2 time.sleep(0.05)").check()
        assert plain_kernel.run("wall.best > 0.049, used.best < 0.04").value == "(True, True)"

    def test_p_sets_the_digits(self, plain_kernel, magic):
        shown = plain_kernel.run(f"%{magic} -p 6 -n 1 -r 3 sum(range(20_000))").check()
        text = shown.stdout + "".join(each["text/plain"] for each in shown.displays)
        figures = re.findall(r"(\d+(?:\.\d+)?) (?:ns|[µμu]s|ms)\b", text)
        # A zero at the end is not shown; by default there are three digits.
        assert 3 < max(len(figure.replace(".", "")) for figure in figures) <= 6, text

    def test_names_of_the_code_stay_inside(self, plain_kernel, magic):
        plain_kernel.run(f"%%{magic} -q -n 1 -r 1 inner = 1\nother = inner + 1\n").check()
        value = plain_kernel.run("[name for name in ('inner', 'other') if name in globals()]").value
        assert value == "[]"

    def test_braces_and_dollars_are_left_alone(self, plain_kernel, magic):
        plain_kernel.run("value = 3").check()
        plain_kernel.run(f"%{magic} -q -n 1 -r 1 seen.append('{{value}} $value')").check()
        assert plain_kernel.run("set(seen)").value == "{'{value} $value'}"

    def test_ipythons_own_syntax_works(self, plain_kernel, magic):
        # IPython 7.34 cannot read `found = !command` on Python 3.13; magics it can.
        cell = f"%%{magic} -q -n 1 -r 1\nfound = %pwd\nseen.append(found)\n"
        assert plain_kernel.run(cell).check().stderr == ""
        assert plain_kernel.run("import os; set(seen) == {os.getcwd()}").value == "True"

    def test_an_error_shows_the_persons_line(self, plain_kernel, magic):
        reply = plain_kernel.run(f"%%{magic} -n 1 -r 1\nzero = 0\n1 / zero\n")
        trace = ANSI.sub("", reply.traceback)
        assert (reply.ename, reply.errors_shown) == ("ZeroDivisionError", 1)
        assert "division by zero" in reply.evalue
        # `%timeit` names a line of its own template; ours, the line of the cell.
        if magic == "tpu_timeit":
            assert re.search(r"-> 3 1 / zero", trace), trace
            assert not re.search(r"tpu_magic/(timing|magics|tracebacks)|_tpu_run", trace), trace
            assert len(set(re.findall(r"Cell In\[(\d+)\]", trace))) <= 1, trace

    def test_the_garbage_collector_is_as_it_was(self, plain_kernel, magic):
        plain_kernel.run("import gc; gc.enable()").check()
        plain_kernel.run(f"%{magic} -q -n 1 -r 1 seen.append(gc.isenabled())").check()
        assert plain_kernel.run("any(seen), gc.isenabled()").value == "(False, True)"


def test_v_keeps_the_result_under_a_name(plain_kernel):
    # `%timeit` has it since IPython 8.29.
    reply = plain_kernel.run("%tpu_timeit -v kept -n 10 -r 2 pass").check()
    assert plain_kernel.run("kept.loops, kept.repeat").check().value == "(10, 2)"
    assert reply.value == ""
