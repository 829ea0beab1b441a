"""The parent's side of a torch without torch_xla: its operations, done again where one is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError

from tpu_magic.check import children
from tpu_magic.check.capture import ENVIRON
from tpu_magic.check.child import Seen
from tpu_magic.check.environment import CompilerPlace
from tpu_magic.check.places import Person

PROGRAM = Path(__file__).with_name("child_replay.py")


def replay(
    seen: Seen,
    place: CompilerPlace,
    folder: Path,
    person: Person,
    *,
    devices: int,
    precision: str,
    limit_s: float,
) -> None:
    """Make the programs of what was written down in a folder; note what has no kernel.

    Raises
    ------
    UsageError
        When the child did not come to an end.
    """
    if not seen.programs:
        return
    command = [str(place.python), str(PROGRAM), str(folder / "aten.json"), precision]
    environ = {**os.environ, **ENVIRON, "CPU_NUM_DEVICES": str(devices)}
    # The notebook's own packages are not those of the compiler's environment.
    environ.pop("PYTHONPATH", None)

    def message(said: dict[str, Any]) -> None:
        name = said["name"].removesuffix(".default").replace(".", "::", 1)
        place = person.innermost((file, line) for file, line in said["frames"])
        text = f"{name} has no TPU kernel and runs on the host"
        seen.note(f"{text} ({place})" if place else text)

    ended = children.run(command, environ, limit_s, message)
    if not ended.ok:
        what = "%%tpu_check: making programs of the cell's operations"
        raise UsageError(ended.sentence(what, limit_s))
    seen.programs = [program for program in seen.programs if Path(program.path).exists()]
