"""The options of the magics: shared groups, one parser, and the splitter for lines of code."""

from __future__ import annotations

import argparse
import difflib
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from IPython.core.error import UsageError

T = TypeVar("T")

FRAMEWORKS = ("auto", "torch", "keras", "tf", "jax")
PRECISIONS = ("default", "high", "highest", "bf16")


@dataclass(frozen=True)
class RunOptions:
    """The options of `%%tpu_run`, parsed."""

    framework: str = "auto"
    devices: str = "all"
    precision: str = "default"
    require_tpu: bool = False
    seed: int | None = None
    keep: tuple[str, ...] = ()
    repeat: int = 1
    profile: str | None = None
    quiet: bool = False
    output: str | None = None


@dataclass(frozen=True)
class OutputOptions:
    """Where a result goes."""

    quiet: bool = False
    output: str | None = None


class Help(Exception):  # noqa: N818 - a request, not an error
    """`--help` was asked for; the text is the argument."""


class Parser(argparse.ArgumentParser):
    """An argument parser that never exits: a mistake is one line that names the cure."""

    def __init__(self, magic: str, description: str, *groups: Callable[[Parser], None]) -> None:
        super().__init__(
            prog=magic,
            description=description,
            add_help=False,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.add_argument("--help", action="store_true", help="show this help and do nothing")
        for group in groups:
            group(self)

    def error(self, message: str) -> NoReturn:
        """Raise the message as a `UsageError`."""
        raise UsageError(f"{self.prog}: {message}; see {self.prog} --help")

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """Return the parsed words.

        Raises
        ------
        UsageError
            For an unknown option or a bad value, with the choices and the nearest match.
        Help
            When `--help` is among them.
        """
        try:
            parsed, unknown = self.parse_known_args(words)
        except argparse.ArgumentError as error:
            self.error(str(error))
        if unknown:
            self.error(self._unknown(unknown[0]))
        if parsed.help:
            raise Help(self.format_help())
        del parsed.help
        return parsed

    def parse_as(self, kind: Callable[..., T], words: Sequence[str]) -> T:
        """Return the parsed words as an options object."""
        return kind(**vars(self.parse(words)))

    def option_takes_value(self, option: str) -> bool | None:
        """Say whether an option is followed by a value; None when there is no such option."""
        action = self._option_string_actions.get(option)
        return None if action is None else action.nargs != 0

    def option_names(self) -> list[str]:
        """Return every option as it is written."""
        return list(self._option_string_actions)

    def _unknown(self, word: str) -> str:
        known = self.option_names()
        name = word.split("=", 1)[0]
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f", did you mean {near[0]}?" if near else f" (options: {' '.join(sorted(known))})"
        what = "option" if word.startswith("-") else "argument"
        return f"unknown {what} {word!r}{hint}"


def one_of(*choices: str) -> Callable[[str], str]:
    """Return an option type that takes one of the choices, and names the nearest otherwise."""

    def convert(text: str) -> str:
        if text in choices:
            return text
        near = difflib.get_close_matches(text, choices, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(choices)}{hint}")

    return convert


def whole_number(smallest: int = 1) -> Callable[[str], int]:
    """Return an option type that takes an integer of at least `smallest`."""

    def convert(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if number < smallest:
            raise argparse.ArgumentTypeError(f"{number} is below {smallest}")
        return number

    return convert


def positive_number(text: str) -> float:
    """Convert an option's value to a number above zero."""
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above zero")
    return number


def names(text: str) -> tuple[str, ...]:
    """Convert `a,b` to a tuple of variable names."""
    found = tuple(word.strip() for word in text.split(",") if word.strip())
    for word in found:
        variable(word)
    return found


def variable(text: str) -> str:
    """Convert an option's value to a variable name."""
    if not text.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is not a variable name")
    return text


def _framework(text: str) -> str:
    """Convert an option's value to a framework's name; one that is not driven yet is explained."""
    from tpu_magic.frameworks import NOT_YET

    wanted = re.sub("[^a-z]", "", text.lower())
    for name, (reason, cure) in NOT_YET.items():
        if wanted == re.sub("[^a-z]", "", name):
            raise argparse.ArgumentTypeError(f"{reason}: {cure}")
    return one_of(*FRAMEWORKS)(text)


def framework_options(parser: Parser) -> None:
    """Add the choice of the framework."""
    parser.add_argument(
        "--framework",
        type=_framework,
        default="auto",
        metavar="NAME",
        help=f"{', '.join(FRAMEWORKS)} (default: auto, by what the notebook uses)",
    )


def tpu_options(parser: Parser) -> None:
    """Add the refusal to go on without a TPU."""
    parser.add_argument(
        "--require-tpu", action="store_true", help="refuse to run on anything but a TPU"
    )


def run_options(parser: Parser) -> None:
    """Add what decides how a cell runs on the device."""
    parser.add_argument(
        "--devices",
        type=one_of("all", "1"),
        default="all",
        metavar="all|1",
        help="all devices of this machine (default), or one",
    )
    parser.add_argument(
        "--precision",
        type=one_of(*PRECISIONS),
        default="default",
        metavar="NAME",
        help=f"{', '.join(PRECISIONS)}: of float32 matrix products; bf16 is autocast",
    )
    parser.add_argument(
        "--seed", type=int, default=None, metavar="N", help="seed host and device before the cell"
    )
    parser.add_argument(
        "--keep", type=names, default=(), metavar="NAME,…", help="leave these where they are"
    )
    parser.add_argument(
        "--repeat", type=whole_number(), default=1, metavar="N", help="run the cell N times"
    )
    parser.add_argument(
        "--profile",
        nargs="?",
        const="",
        default=None,
        metavar="DIR",
        help="write a profile of the cell",
    )


def output_options(parser: Parser) -> None:
    """Add what decides where the result goes."""
    parser.add_argument("--quiet", "-q", action="store_true", help="show no report")
    parser.add_argument(
        "-o",
        "--output",
        type=variable,
        default=None,
        metavar="NAME",
        help="keep the report under this name",
    )


def split_words(line: str) -> list[str]:
    """Split a line of options as a shell would: quotes grouped, a trailing `# comment` dropped.

    Raises
    ------
    UsageError
        When a quote is not closed.
    """
    try:
        return shlex.split(line, comments=True)
    except ValueError as error:
        raise UsageError(f"cannot read {line.strip()!r}: {error}") from None


def split_code(line: str, parser: Parser) -> tuple[list[str], str]:
    """Peel leading options off a line that holds code; the code is kept byte for byte.

    IPython 7.34's own parser collapses spaces inside strings, and argparse takes options
    that stand after the code: neither may touch a line of code.

    Returns
    -------
    words, code
        The options as words for `Parser.parse`, and the rest of the line. Peeling stops at
        the first word that is no option of the parser's, or after `--`.
    """
    words: list[str] = []
    rest = line.lstrip()
    while match := re.match(r"""-{1,2}[A-Za-z](?:[^\s'"]|'[^']*'|"[^"]*")*|--(?=\s|$)""", rest):
        word = match.group()
        after = rest[match.end() :]
        if word == "--":
            rest = after.lstrip()
            break
        name, equals, _ = word.partition("=")
        takes_value = parser.option_takes_value(name)
        if takes_value is None and not name.startswith("--"):
            takes_value = _glued_value(word, parser)
            equals = "=" if takes_value is not None else equals
        if takes_value is None:
            if word.startswith("--"):
                parser.parse([word])
            break
        words += split_words(word)
        rest = after.lstrip()
        if takes_value and not equals:
            value = re.match(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""", rest)
            if value is None:
                parser.error(f"{name} needs a value")
            words += split_words(value.group())
            rest = rest[value.end() :].lstrip()
    return words, rest


def _glued_value(word: str, parser: Parser) -> bool | None:
    """Recognise `-n10` (an option and its value) and `-qo` (two flags), as `%timeit` does."""
    first = parser.option_takes_value(word[:2])
    if first:
        return True
    flags = [f"-{letter}" for letter in word[1:]]
    return True if all(parser.option_takes_value(flag) is False for flag in flags) else None
