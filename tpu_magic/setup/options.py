"""The options of `%tpu_setup`."""

from __future__ import annotations

from dataclasses import dataclass

from tpu_magic.options import (
    Parser,
    framework_options,
    one_of,
    output_options,
    tpu_options,
    whole_number,
)


@dataclass(frozen=True)
class SetupOptions:
    """The options of `%tpu_setup`, parsed."""

    check: bool = False
    dry_run: bool = False
    yes: bool = False
    framework: str = "auto"
    version: str | None = None
    device: str = "auto"
    simulate: int | None = None
    require_tpu: bool = False
    no_connect: bool = False
    reset: bool = False
    compiler: bool = False
    quiet: bool = False
    output: str | None = None


def _options(parser: Parser) -> None:
    """Add the options of `%tpu_setup` that no other magic has."""
    framework_options(parser)
    tpu_options(parser)
    flags = {
        "--check": "look only: change nothing, import no framework",
        "--dry-run": "print the plan as commands, do nothing",
        "--yes": "install what the plan says without asking",
        "--no-connect": "leave the devices alone, for code that launches its own processes",
        "--reset": "start over: says what that takes here",
        "--compiler": "prepare the compiler of %%%%tpu_check",
    }
    for flag, text in flags.items():
        parser.add_argument(flag, action="store_true", help=text)
    parser.add_argument(
        "--version", default=None, metavar="V", help="release of the framework: 2.8, 2.9.0"
    )
    parser.add_argument(
        "--device",
        type=one_of("auto", "tpu", "gpu", "cpu"),
        default="auto",
        metavar="NAME",
        help="auto, tpu, gpu or cpu (default: auto, the best that is here)",
    )
    parser.add_argument(
        "--simulate",
        type=whole_number(),
        default=None,
        metavar="N",
        help="N virtual devices made of the processor, where there is no TPU",
    )


PARSER = Parser(
    "%tpu_setup",
    "Know the place, plan what fits, install on consent, verify, connect.",
    _options,
    output_options,
)
