"""The options of `%%tpu_check`."""

from __future__ import annotations

from dataclasses import dataclass

from tpu_magic import options

# Enough for a large model's verdict on two cores; a full compile can take longer.
LIMIT_S = 600.0


@dataclass(frozen=True)
class CheckOptions:
    """The options, parsed."""

    framework: str = "auto"
    target: str = "v5e-1"
    estimate: bool = False
    fit_batch: str | None = None
    precision: str = "default"
    time_limit: float = LIMIT_S
    quiet: bool = False
    output: str | None = None


def check_options(parser: options.Parser) -> None:
    """Add what is asked of the compiler."""
    parser.add_argument(
        "--target",
        default=CheckOptions.target,
        metavar="NAME",
        help="v5e-1 (default), v5e-8, v6e-1, v5p-8 …, several with commas, or all",
    )
    parser.add_argument(
        "--estimate",
        action="store_true",
        help="optimise in full (slow) and show the compiler's own estimate of the time",
    )
    parser.add_argument(
        "--fit-batch",
        type=options.variable,
        default=None,
        metavar="NAME",
        help="find the largest batch size that fits; NAME is the variable that holds it",
    )
    parser.add_argument(
        "--precision",
        type=options.one_of(*options.PRECISIONS),
        default="default",
        metavar="NAME",
        help=f"{', '.join(options.PRECISIONS)}: of float32 matrix products; bf16 is autocast",
    )
    parser.add_argument(
        "--time-limit",
        type=options.positive_number,
        default=LIMIT_S,
        metavar="S",
        help=f"seconds for recording and for compiling, each (default {LIMIT_S:g})",
    )


PARSER = options.Parser(
    "%%tpu_check",
    "Ask the real TPU compiler, with no TPU: does this cell compile, does it fit, what is the\n"
    "least time of a step. Nothing of the cell is run, nothing of yours is changed.",
    options.framework_options,
    check_options,
    options.output_options,
)
