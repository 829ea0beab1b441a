"""Option lines: quotes, `=`, comments, help, mistakes with their cure, code left alone."""

from __future__ import annotations

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.error import UsageError

from tpu_magic import options


@pytest.fixture
def parser():
    return options.Parser(
        "%%magic",
        "What it does.",
        options.framework_options,
        options.run_options,
        options.tpu_options,
        options.output_options,
    )


def run_options(parser, line):
    return parser.parse_as(options.RunOptions, options.split_words(line))


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("", {}),
        ("# only a comment --quiet", {}),
        ("--framework torch", {"framework": "torch"}),
        ("--framework=torch", {"framework": "torch"}),
        ('--framework "torch"   # a comment', {"framework": "torch"}),
        ("--devices 1 --precision bf16", {"devices": "1", "precision": "bf16"}),
        ("--require-tpu -q", {"require_tpu": True, "quiet": True}),
        ("--seed -3", {"seed": -3}),
        ("--keep a,b --keep c", {"keep": ("c",)}),
        ("--keep 'a, b'", {"keep": ("a", "b")}),
        ("--repeat 3 -o kept", {"repeat": 3, "output": "kept"}),
        ("-qo kept", {"quiet": True, "output": "kept"}),
        ("--profile", {"profile": ""}),
        ("--profile '/a b'", {"profile": "/a b"}),
    ],
)
def test_lines_are_read_as_a_shell_reads_them(parser, line, changed):
    assert run_options(parser, line) == options.RunOptions(**changed)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--framework trch", "'trch' is not one of auto, torch, keras, tf, jax; did"),
        ("--framework torch_tpu", "does not drive TorchTPU"),
        ("--framework TorchTPU", "does not drive TorchTPU"),
        ("--framework zzz", "is not one of auto, torch, keras, tf, jax;"),
        ("--devices 2", "'2' is not one of all, 1"),
        ("--presicion high", "unknown option '--presicion', did you mean --precision?"),
        ("--xyzxyz", "unknown option '--xyzxyz' (options: "),
        ("--prec high", "unknown option '--prec'"),
        ("word", "unknown argument 'word'"),
        ("--repeat two", "'two' is not a whole number"),
        ("--repeat 0", "0 is below 1"),
        ("--seed 1.5", "invalid int value"),
        ("--keep a-b", "'a-b' is not a variable name"),
        ("-o 1", "'1' is not a variable name"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_its_cure(parser, line, message):
    with pytest.raises(UsageError) as caught:
        run_options(parser, line)
    text = str(caught.value)
    assert message in text
    assert text.startswith("%%magic: ")
    assert text.endswith("see %%magic --help")
    assert "\n" not in text


def test_an_open_quote_is_said(parser):
    with pytest.raises(UsageError, match="No closing quotation"):
        run_options(parser, "--framework 'torch")


def test_help_is_a_text_with_every_option(parser):
    with pytest.raises(options.Help) as caught:
        run_options(parser, "--help")
    text = str(caught.value)
    for option in ("--framework", "--precision", "--require-tpu", "--keep", "-o"):
        assert option in text


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "x", ""])
def test_a_number_must_be_above_zero(text):
    with pytest.raises(argparse.ArgumentTypeError):
        options.positive_number(text)


def test_a_number_above_zero_is_taken():
    assert options.positive_number("1e-3") == 0.001


# --- lines that hold code -----------------------------------------------------------------


@pytest.fixture
def timer():
    def group(parser):
        parser.add_argument("-n", type=int)
        parser.add_argument("-q", action="store_true")
        parser.add_argument("-o", action="store_true")
        parser.add_argument("--label")

    return options.Parser("%timer", "", group)


@pytest.mark.parametrize(
    ("line", "words", "code"),
    [
        ("f(x)", [], "f(x)"),
        ("-n 3 f(x)", ["-n", "3"], "f(x)"),
        ("-n3 f(x)", ["-n3"], "f(x)"),
        ("-qo f(x)", ["-qo"], "f(x)"),
        ("--label 'a  b' f('c  d')  # e", ["--label", "a  b"], "f('c  d')  # e"),
        ("--label=a f", ["--label=a"], "f"),
        ("-- -x", [], "-x"),
        ("-n 3 -- -n", ["-n", "3"], "-n"),
        ("-x + y", [], "-x + y"),
        ("-n 3 -x", ["-n", "3"], "-x"),
        ("f -n 3", [], "f -n 3"),
        ("  -q   f  ", ["-q"], "f  "),
    ],
)
def test_leading_options_are_peeled_off_and_code_is_left(timer, line, words, code):
    assert options.split_code(line, timer) == (words, code)


def test_an_unknown_long_option_and_a_missing_value_are_said(timer):
    with pytest.raises(UsageError, match="did you mean --label"):
        options.split_code("--labl x f", timer)
    with pytest.raises(UsageError, match="-n needs a value"):
        options.split_code("-n", timer)


@given(st.text(alphabet="ab 'x\"()[]+-*=.,#\\", max_size=40).filter(lambda s: s.strip()[:1] != "-"))
def test_code_without_options_is_kept_byte_for_byte(text):
    parser = options.Parser("%timer", "")
    assert options.split_code(text, parser) == ([], text.lstrip())
