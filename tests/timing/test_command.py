"""`%tpu_timeit` from its line to its result, on plain Python and on a fake device."""

import itertools
import json
import sys
from types import ModuleType

import pytest
from IPython.core.error import UsageError

from tpu_magic import frameworks
from tpu_magic.frameworks.plain import PlainPython
from tpu_magic.options import split_code
from tpu_magic.timing import command
from tpu_magic.timing import options as timing_options
from tpu_magic.timing.command import run_timeit
from tpu_magic.timing.options import TIMEIT, TimeitOptions
from tpu_magic.timing.result import TimingResult


@pytest.fixture
def lazy(fake, monkeypatch):
    """Register a fake device as the framework whose package is loaded."""
    device = fake.device(on_tpu=False)
    monkeypatch.setattr(frameworks, "REGISTRY", {"fake": (), "plain": ()})
    adapters = {"fake": device, "plain": PlainPython()}
    monkeypatch.setattr(frameworks, "adapter", adapters.__getitem__)
    monkeypatch.setitem(sys.modules, "fake", ModuleType("fake"))
    monkeypatch.setitem(command.CLOCKS, "default", device.clock)
    return device


# Options


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("", {}),
        ("-n 5", {"n": 5}),
        ("-n5 -r3", {"n": 5, "r": 3}),
        ("-qo", {"quiet": True, "give": True}),
        ("-p 5 -t", {"p": 5, "clock": "time"}),
        ("-c", {"clock": "user"}),
        ("-v result", {"variable": "result"}),
        ("--mode latency --device cpu", {"mode": "latency", "device": "cpu"}),
        ("--time-limit=2.5 --include-transfer", {"time_limit": 2.5, "include_transfer": True}),
        (
            "--save 'a file.json' --label \"two words\"",
            {"save": "a file.json", "label": "two words"},
        ),
        ("--framework plain", {"framework": "plain"}),
    ],
)
def test_options_mean_what_timeit_means(line, changed):
    words, code = split_code(f"{line} x + 1", TIMEIT)
    assert code == "x + 1"
    assert TIMEIT.parse_as(TimeitOptions, words) == TimeitOptions(**changed)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-n 0 x", "0 is below 1"),
        ("-n -3 x", "-3 is below 1"),
        ("-n ten x", "'ten' is not a whole number"),
        ("-r 0 x", "0 is below 1"),
        ("--time-limit 0 x", "0 is not above zero"),
        ("--mode latncy x", "did you mean 'latency'"),
        ("--modee latency x", "did you mean --mode"),
        ("-v 1x x", "'1x' is not a variable name"),
        ("", "nothing to time"),
        ("-n 3", "nothing to time"),
        ("--framework plain --device tpu 1 + 1", "plain Python runs on the processor only"),
    ],
)
def test_mistakes_are_one_line_with_the_cure(shell, line, message):
    with pytest.raises(UsageError) as caught:
        run_timeit(shell, line)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_help_names_every_option_and_its_default(shell, capsys):
    assert run_timeit(shell, "--help") is None
    text = capsys.readouterr().out
    for option in ("-n", "-r", "-t", "-c", "-p", "-q", "-o", "-v", "--mode", "--time-limit"):
        assert f"{option} " in text or f"{option}," in text
    assert f"default: {timing_options.TIME_LIMIT_S:g}" in text
    assert f"default: {TimeitOptions().p}" in text


# The line of code stays byte for byte (anchors 2.5, item 7).


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("'one  two'", "one  two"),
        ("x -n", -2),
        ("x - n", -2),
        ("'$x {x}'", "$x {x}"),
        ("f'{x}'", "3"),
        ('"a # b"', "a # b"),
        ("'-n 5  -o'", "-n 5  -o"),
        ("'a\\tb'", "a\tb"),
    ],
)
def test_code_stays_byte_for_byte(shell, code, value):
    seen = []
    shell.user_ns.update(x=3, n=5, keep=seen.append)
    result = shell.run(f"%tpu_timeit -n 1 -r 1 -q -o keep({code})")
    assert result.statement == f"keep({code})"
    assert set(seen) == {value}


@pytest.mark.parametrize("line", ["-x", "-1", "-- -n", "x -n1"])
def test_code_that_looks_like_an_option_is_code(shell, line):
    shell.user_ns.update(x=3, n=5, n1=4)
    result = shell.run(f"%tpu_timeit -n1 -r1 -q -o {line}")
    assert result.statement == line.removeprefix("-- ")


# Parity with %timeit


def test_quiet_without_o_shows_and_returns_nothing(shell, capsys):
    assert shell.run("%tpu_timeit -n1 -r1 -q 1 + 1") is None
    assert capsys.readouterr().out == ""


def test_o_returns_the_result_and_shows_it(shell, capsys):
    result = shell.run("r = %tpu_timeit -n 2 -r 3 -o 1 + 1\nr")
    assert isinstance(result, TimingResult)
    assert "per call" in capsys.readouterr().out
    assert (result.loops, result.repeat, len(result.all_runs)) == (2, 3, 3)
    assert result.best <= result.median <= result.worst
    assert result.timings == [run / 2 for run in result.all_runs]
    assert result.average == pytest.approx(sum(result.timings) / 3)
    assert result.stopped_by == "runs"


def test_v_keeps_the_result_under_a_name(shell):
    assert shell.run("%tpu_timeit -n1 -r1 -q -v kept 1 + 1") is None
    assert isinstance(shell.user_ns["kept"], TimingResult)


def test_p_sets_the_digits(shell, capsys):
    result = shell.run("%tpu_timeit -n1 -r1 -q -o -p 6 sum(range(1000))")
    digits = str(result).split()[0].replace(".", "").lstrip("0")
    assert len(digits) == 6


@pytest.mark.parametrize("option", ["-t", "-c"])
def test_the_clock_can_be_chosen(shell, option):
    result = shell.run(f"%tpu_timeit {option} -n 1 -r 2 -q -o sum(range(1000))")
    assert all(run >= 0 for run in result.all_runs)


def test_processor_time_does_not_see_sleep(shell):
    line = "%tpu_timeit -c -n 1 -r 1 -q -o __import__('time').sleep(0.2)"
    assert shell.run(line).median < 0.1


def test_the_first_line_of_a_cell_is_set_up(shell):
    result = shell.run("%%tpu_timeit -n1 -r2 -q -o a = [3, 1, 2]\na.sort()\na[0]\n")
    assert result.statement == "a.sort() …"
    assert "a" not in shell.user_ns


def test_set_up_runs_before_each_run_when_loops_are_given(shell):
    shell.user_ns["log"] = []
    shell.run("%%tpu_timeit -n 2 -r 3 -q log.append('s')\nlog.append('c')\n")
    # One first call, then three runs of two.
    assert "".join(shell.user_ns["log"]) == "sc" + "scc" * 3


def test_locals_of_a_function_are_seen(shell):
    cell = (
        "def f(value):\n"
        "    return get_ipython().run_line_magic('tpu_timeit', '-n1 -r1 -q -o value + 1')\n"
        "f(41)\n"
    )
    result = shell.run(cell)
    assert result.repeat == 1
    assert "value" not in shell.user_ns


def test_the_persons_error_is_theirs(shell):
    shell.user_ns["calls"] = itertools.count(1).__next__
    cell = "%%tpu_timeit -q\nk = calls()\nif k == 7:\n    raise LookupError('seven')\n"
    with pytest.raises(LookupError, match="seven") as caught:
        shell.run(cell)
    trace = caught.value.__traceback__
    while trace.tb_next:
        trace = trace.tb_next
    assert trace.tb_lineno == 4
    assert caught.value.__notes__ == ["raised in call 7 of the timed code"]


def test_notes_are_shown_where_ipython_shows_none(shell, capsys, monkeypatch):
    for version, shown in (((7, 34), True), ((9, 0), False)):
        monkeypatch.setattr("IPython.version_info", version)
        with pytest.raises(ZeroDivisionError):
            shell.run("%tpu_timeit -q 1 / 0")
        assert ("raised in call 1 of the timed code" in capsys.readouterr().err) is shown


def test_code_that_deletes_its_input_is_told_why_it_fails(shell):
    shell.user_ns["x"] = 1
    with pytest.raises(UnboundLocalError) as caught:
        shell.run("%tpu_timeit -q del x")
    assert caught.value.__notes__ == [
        "raised in call 2 of the timed code",
        "the code deletes x: its next call cannot find it; make it anew",
    ]
    assert shell.user_ns["x"] == 1


# P37: how often the code ran


def test_it_says_how_often_the_code_ran(shell, capsys):
    shell.user_ns["steps"] = []
    result = shell.run("%tpu_timeit -o steps.append(1)")
    assert result.runs_total == len(shell.user_ns["steps"])
    assert f"{result.runs_total:,} times" in capsys.readouterr().out


# On a device


def test_a_fake_device_is_chosen_by_its_arrays(shell, lazy, fake):
    shell.user_ns.update(x=fake.array(None, "x", 8), op=lambda x: lazy.op(5e-3, trace_s=1e-3))
    result = run_timeit(shell, "-o -q -r 20 op(x)")
    assert result.framework == "fake"
    assert result.latency_s == pytest.approx(6e-3)
    assert result.throughput_s == pytest.approx(5e-3, rel=0.03)
    assert result.median == result.latency_s
    assert [s.code for s in result.suspicions] == ["not-a-tpu"]


def test_arrays_that_a_function_uses_count(shell, lazy, fake):
    scope = {"x": fake.array(None, "x", 8), "op": lambda x: lazy.op(5e-3)}
    exec("def f():\n    return op(x)", scope)
    shell.user_ns["f"] = scope["f"]
    assert run_timeit(shell, "-o -q -r 3 f()").framework == "fake"


def test_without_arrays_it_is_plain_python(shell, lazy):
    assert run_timeit(shell, "-o -q -r 1 -n 1 1 + 1").framework == "plain"


def test_host_inputs_are_moved_once_and_that_is_said(shell, lazy, fake):
    seen = []
    shell.user_ns["x"] = fake.array(None, "x", 8, on_device=False)
    shell.user_ns["op"] = lambda x: seen.append(x) or lazy.op(5e-3)
    result = run_timeit(shell, "-o -q -r 5 op(x)")
    assert result.moved == ["x"]
    assert lazy.bytes_to_device == 8
    assert all(x.there for x in seen)
    assert not shell.user_ns["x"].there
    assert "x (to the device, not timed)" in str(result.view().tables)


def test_include_transfer_times_the_move(shell, lazy, fake, monkeypatch):
    shell.user_ns["x"] = fake.array(None, "x", 8, on_device=False)
    shell.user_ns["op"] = lambda x: lazy.op(5e-3)
    move = lazy.to_device

    def slow(array):
        lazy.now += 2e-3
        return move(array)

    monkeypatch.setattr(lazy, "to_device", slow)
    result = run_timeit(shell, "-o -q -r 5 --include-transfer op(x)")
    assert result.latency_s == pytest.approx(7e-3)
    assert result.moved == []
    assert lazy.bytes_to_device == 8 * result.runs_total


def test_what_cannot_be_moved_is_named(shell, lazy, fake):
    class Model:
        weight = fake.array(None, "w", 8, on_device=False)

    arrays = lazy.arrays
    lazy.arrays = lambda value: iter([value.weight]) if isinstance(value, Model) else arrays(value)
    shell.user_ns["net"] = Model()
    with pytest.raises(UsageError, match=r"net \(Model\) is on the host"):
        run_timeit(shell, "id(net)")


def test_the_adapter_may_explain_an_error(shell, lazy, fake):
    def fails(array):
        raise OSError("device lost")

    shell.user_ns.update(x=fake.array(None, "x", 8), fails=fails)
    with pytest.raises(OSError, match="device lost") as caught:
        run_timeit(shell, "-q fails(x)")
    assert caught.value.__notes__[-1] == "the fake device is to blame"


# Results


def test_save_and_label(shell, tmp_path):
    target = tmp_path / "a file.json"
    result = run_timeit(shell, f"-o -q -n 1 -r 7 --save '{target}' --label 'my name' 1 + 1")
    saved = json.loads(target.read_text(encoding="utf-8"))
    assert saved["label"] == "my name"
    assert saved["median"] == result.median
    assert TimingResult.from_json(target.read_text(encoding="utf-8")) == result
    assert str(result.view().headline).startswith("my name: ")


def test_text_html_and_json_say_the_same(shell):
    result = run_timeit(shell, "-o -q -n 10 -r 9 sum(range(50))")
    bundle = result._repr_mimebundle_()
    shown = f"{result._time(result.median)} per call"
    assert shown in bundle["text/plain"]
    assert shown in bundle["text/html"]
    assert bundle["application/vnd.tpu-magic.timing-result+json"]["median"] == result.median


def test_environment_keeps_versions(shell):
    result = run_timeit(shell, "-o -q -n 1 -r 1 1")
    assert result.environment["python"] == ".".join(map(str, sys.version_info[:3]))
