"""Comparing: turns on a device made of arithmetic, verdicts, saved results, and what is shown."""

import itertools
import random

import pytest
from IPython.core.error import UsageError

from tpu_magic.timing import contest, saved, stats, turns
from tpu_magic.timing.compare import Candidate, CompareResult, pairs_of
from tpu_magic.timing.measurement import Plan
from tpu_magic.timing.result import Runs, TimingResult
from tpu_magic.timing.runner import Runner
from tpu_magic.timing.warmup import warm_up

MS = 1e-3


# Verdicts


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.80, 0.90, "faster"),
        (1.05, 1.20, "slower"),
        (0.98, 1.02, "same"),
        (1.01, 1.02, "same"),  # sure, but too small to matter
        (0.90, 1.10, "cannot tell"),
        (0.90, 0.98, "cannot tell"),
        (1.02, 1.20, "cannot tell"),
        (0.971, 0.98, "same"),  # 1 / 1.03 = 0.9709
        (0.960, 0.970, "faster"),
    ],
)
def test_a_verdict_needs_the_whole_interval(low, high, verdict):
    ratio = stats.Ratio((low + high) / 2, stats.Interval(low, high, 0.99))
    assert ratio.verdict() == verdict
    # The same question the other way round has the mirrored answer.
    mirrored = stats.Ratio(1, stats.Interval(1 / high, 1 / low, 0.99)).verdict()
    assert mirrored == {"faster": "slower", "slower": "faster"}.get(verdict, verdict)


def test_without_an_interval_it_cannot_tell():
    assert stats.Ratio(0.5, None).verdict() == "cannot tell"


def test_paired_ratio_cancels_what_both_share():
    generator = random.Random(5)
    mood = [generator.choice([1.0, 3.0]) for _ in range(40)]
    ratio = stats.paired_ratio(mood, [1.2 * m for m in mood])
    assert ratio.value == pytest.approx(1.2)
    assert ratio.interval.low == pytest.approx(1.2)
    assert ratio.verdict() == "slower"


def test_unpaired_ratio_by_hand():
    # 5 and 5 samples: 252 arrangements, one each for counts 0 and 1: 1 - 2/252 reaches 99 %
    # and 1 - 4/252 does not. So the ends are the smallest and the largest of the 25 ratios.
    ratio = stats.unpaired_ratio([1.0, 2, 3, 4, 5], [20.0, 22, 24, 26, 28])
    assert (ratio.interval.low, ratio.interval.high) == (20 / 5, 28 / 1)
    assert ratio.interval.confidence == pytest.approx(250 / 252)
    assert ratio.verdict() == "slower"


def test_unpaired_ratio_at_95_percent_by_the_tables():
    # n = m = 5, two-sided 5 %: the tabled critical value of U is 2 (Mann and Whitney 1947),
    # so the third smallest ratio is the end.
    base, other = [1.0, 1.0, 1.0, 1.0, 1.0], [1.0, 2.0, 3.0, 4.0, 5.0]
    ratios = sorted(b / a for a in base for b in other)
    interval = stats.unpaired_ratio(base, other, 0.95).interval
    assert (interval.low, interval.high) == (ratios[2], ratios[-3])


def test_four_and_four_samples_are_too_few():
    assert stats.unpaired_ratio([1.0] * 4, [9.0] * 4).interval is None


@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 3), (5, 5), (4, 7)])
def test_rank_sum_counts_are_those_of_all_arrangements(n, m):
    counts = [0] * (n * m + 1)
    for places in itertools.combinations(range(n + m), n):
        counts[sum(places) - n * (n - 1) // 2] += 1
    assert stats._rank_sum_counts(n, m) == counts


# Turns


def contender(device, repeated, name, seconds, *, log=None):
    def call():
        if log is not None:
            log.append(name)
        return device.op(seconds() if callable(seconds) else seconds, program=name)

    runner = Runner(device, repeated(call), clock=device.clock, wall=device.time)
    plan = Plan(mode="latency")
    warm = warm_up(runner, plan)
    return turns.Contender(name, runner, warm, runner.way(warm, "latency", plan))


def test_ratios_are_exact_on_an_exact_device(fake, repeated):
    device = fake.device(dispatch_s=1 * MS)
    both = [contender(device, repeated, name, s * MS) for name, s in (("a", 9), ("b", 19))]
    rounds = turns.take_turns(both, 60, wall=device.time)
    assert rounds.stopped_by == "precision"
    assert {round(t, 9) for pair in rounds.blocks[0] for t in pair} == {10 * MS}
    assert {round(t, 9) for pair in rounds.blocks[1] for t in pair} == {20 * MS}


def test_rounds_go_forward_and_back_and_begin_at_either_end(fake, repeated):
    device, log = fake.device(), []
    each = [contender(device, repeated, name, 100 * MS, log=log) for name in "abc"]
    log.clear()
    turns.take_turns(each, 60, wall=device.time)
    assert "".join(log[:12]) == "abccba" + "cbaabc"


def test_a_steady_drift_is_nobodys(fake, repeated):
    device = fake.device()

    def drifting():
        return 50 * MS * (1 + 0.1 * device.now)

    both = [contender(device, repeated, name, drifting) for name in "ab"]
    rounds = turns.take_turns(both, 200, wall=device.time)
    times = [[sum(pair) / 2 for pair in blocks] for blocks in rounds.blocks]
    assert max(times[0]) > 1.05 * min(times[0])
    assert stats.paired_ratio(*times).verdict() == "same"


def test_the_time_limit_ends_the_turns(fake, repeated):
    device, generator = fake.device(), random.Random(1)

    def noisy():
        return generator.uniform(20, 60) * MS

    both = [contender(device, repeated, name, noisy) for name in "ab"]
    began = device.now
    rounds = turns.take_turns(both, 5, wall=device.time)
    assert rounds.stopped_by == "time-limit"
    assert device.now - began < 6


def test_rounds_with_a_compile_are_left_out(fake, repeated):
    device = fake.device(compile_s=5)
    both = [contender(device, repeated, name, 100 * MS) for name in "ab"]
    device.programs.discard("b")
    rounds = turns.take_turns(both, 60, wall=device.time)
    assert rounds.left_out == 1
    assert max(t for blocks in rounds.blocks for pair in blocks for t in pair) < 1


def test_an_interrupt_keeps_whole_rounds(fake, repeated, counting):
    device = fake.device()

    def seconds():
        if counting() == 60:
            raise KeyboardInterrupt
        return 100 * MS * (1 + counting() % 2)

    both = [contender(device, repeated, name, seconds) for name in "ab"]
    rounds = turns.take_turns(both, 600, wall=device.time)
    assert rounds.stopped_by in {"interrupt", "precision"}
    assert len(rounds.blocks[0]) == len(rounds.blocks[1]) > 0


def test_an_interrupt_before_a_whole_round_passes(fake, repeated):
    device = fake.device()
    both = [contender(device, repeated, name, 100 * MS) for name in "ab"]

    def interrupted(run, loops):
        raise KeyboardInterrupt

    both[1] = turns.Contender("b", both[1].runner, both[1].warm, turns.Way(interrupted, 1, 0.1))
    with pytest.raises(KeyboardInterrupt):
        turns.take_turns(both, 600, wall=device.time)


# False verdicts, on synthetic noise that lasts over many calls as a real machine's does


def _mood(generator):
    """Return a slow random walk between 1 and 2, as of a shared machine."""
    level = 1.0
    while True:
        level = min(2.0, max(1.0, level + generator.gauss(0, 0.05)))
        yield level * generator.lognormvariate(0, 0.02)


def _verdicts(fake, repeated, factor, count):
    found = []
    for seed in range(count):
        device, mood = fake.device(), _mood(random.Random(seed))
        both = [
            contender(device, repeated, name, lambda f=f, m=mood: 20 * MS * f * next(m))
            for name, f in (("a", 1.0), ("b", factor))
        ]
        rounds = turns.take_turns(both, 10, wall=device.time)
        times = [[sum(pair) / 2 for pair in blocks] for blocks in rounds.blocks]
        found.append(stats.paired_ratio(*times).verdict())
    return found


def test_the_same_against_itself_is_rarely_called_different(fake, repeated):
    found = _verdicts(fake, repeated, 1.0, 60)
    assert sum(verdict in {"faster", "slower"} for verdict in found) <= 3  # 5 %


def test_ten_percent_more_is_found(fake, repeated):
    found = _verdicts(fake, repeated, 1.1, 40)
    assert found.count("slower") >= 36  # 90 %


# The cell


def test_candidates_are_lines_with_or_without_a_name():
    cell = (
        "a: f(x)\n\n# a comment\n'two words': g(x)\nx[1:2]\nlambda: 3\nd = {1: 2}\nb-1.x:  'k: v'\n"
    )
    assert contest.candidates(cell) == {
        "a": "f(x)",
        "two words": "g(x)",
        "x[1:2]": "x[1:2]",
        "lambda: 3": "lambda: 3",
        "d = {1: 2}": "d = {1: 2}",
        "b-1.x": "'k: v'",
    }


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("\n# nothing\n", "two candidates or more"),
        ("a: 1\n", "two candidates or more"),
        ("a: 1\na: 2\n", "two candidates are called 'a'"),
    ],
)
def test_mistakes_in_the_cell(shell, cell, message):
    with pytest.raises(UsageError, match=message):
        shell.run_cell_magic("tpu_compare", "", cell)


def test_both_modes_are_not_offered(shell):
    with pytest.raises(UsageError, match="'both' is not one of latency, throughput"):
        shell.run_cell_magic("tpu_compare", "--mode both", "a: 1\nb: 2\n")


def test_a_cell_is_compared(shell, capsys):
    cell = "a: sum(x)\nb: sum(x[:50])\n"
    line = "-o -v kept --time-limit 6 --label sums x = list(range(20000))"
    result = shell.run_cell_magic("tpu_compare", line, cell)
    assert isinstance(result, CompareResult)
    assert result is shell.user_ns["kept"]
    assert [candidate.name for candidate in result.candidates] == ["a", "b"]
    assert result.pairs[0].verdict == "faster"
    assert result.pairs[0].ratio < 0.5
    assert result.self_ratio.base == result.self_ratio.other == "a"
    shown = capsys.readouterr().out
    assert "sums: b is faster than a" in shown
    assert "a against itself here" in shown
    assert CompareResult.from_json(result.to_json()) == result
    html = result._repr_mimebundle_()["text/html"]
    assert "currentColor" in html
    assert "<script" not in html


def test_a_candidate_that_changes_what_others_use_is_told(shell):
    shell.user_ns["log"] = []
    cell = "a: log.append(1)\nb: len(log)\n"
    result = shell.run_cell_magic("tpu_compare", "-o -q --time-limit 0.2", cell)
    assert "state-changed" in {suspicion.code for suspicion in result.suspicions}


def test_three_candidates_have_three_pairs():
    three = [Candidate(name, name, 1.0, [1.0] * 9, 9) for name in "abc"]
    pairs = pairs_of(three, stats.paired_ratio)
    assert [(pair.base, pair.other) for pair in pairs] == [("a", "b"), ("a", "c"), ("b", "c")]
    result = CompareResult(three, pairs, pairs[0], 9, 0, "precision", "latency", "TPU v5e × 1")
    assert "c ÷ b" in str(result)


# Saved results


def timing(label, median, session, device="XLA CPU"):
    seconds = [median] * 9
    return TimingResult(
        latency=Runs(seconds, 1, stats.summarize(seconds)),
        throughput=None,
        compile_time=0.0,
        precision=3,
        first_call_s=1.0,
        trace_s=None,
        compile_s=None,
        run_s=None,
        compiles=None,
        timed_compiles=None,
        runs_total=9,
        device_kind=device,
        on_tpu=False,
        simulated=False,
        num_devices=1,
        matmul_precision="default",
        stopped_by="runs",
        statement="f()",
        framework="torch",
        label=label,
        environment={"session": str(session)},
    )


def test_one_session_cannot_tell_however_many_runs_it_has(shell, tmp_path):
    files = []
    for label, median in (("a", 1.0), ("b", 9.0)):
        path = tmp_path / f"{label}.json"
        timing(label, median, 1).save(path)
        files.append(str(path))
    result = shell.run_line_magic("tpu_compare", f"-q -o {' '.join(files)}")
    assert result.pairs[0].verdict == "cannot tell"
    assert [suspicion.code for suspicion in result.suspicions] == ["few-sessions"]


def test_five_sessions_of_each_can(shell):
    names = []
    for label, median in (("a", 1.0), ("b", 1.2)):
        for session in range(5):
            names.append(f"{label}{session}")
            shell.user_ns[names[-1]] = timing(label, median + 0.001 * session, f"{label}{session}")
    result = shell.run_line_magic("tpu_compare", f"-q -o {' '.join(names)}")
    assert result.pairs[0].verdict == "slower"
    assert result.suspicions == []


def test_several_results_of_one_session_are_one_sample():
    results = [timing(label, 1.0, 1) for label in ("a", "a", "b", "b", "b")]
    result = saved.compare(results)
    assert [len(candidate.times) for candidate in result.candidates] == [1, 1]


def test_different_devices_are_told():
    result = saved.compare([timing("a", 1.0, 1), timing("b", 1.0, 2, device="CPU")])
    assert result.suspicions[0].code == "different-devices"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "results of two labels or more"),
        ("missing.json", "no saved or kept timing"),
        ("text", "text is a str, not a timing"),
        ("one one", "results of two labels or more"),
    ],
)
def test_what_is_no_result_is_said(shell, line, message):
    shell.user_ns.update(text="a string", one=timing("a", 1.0, 1))
    with pytest.raises(UsageError, match=message):
        shell.run_line_magic("tpu_compare", line)


def test_a_file_of_another_kind_is_said(shell, tmp_path):
    path = tmp_path / "other.json"
    path.write_text('{"kind": "cell-report"}', encoding="utf-8")
    with pytest.raises(UsageError, match="not a 'timing-result'"):
        shell.run_line_magic("tpu_compare", f"'{path}'")
