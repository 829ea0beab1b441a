"""The JupyterLab part: `python3 tools/lab.py build | lint | test | browser | lab | check`.

Needs Node 20 or newer; `browser` needs Chromium too (Debian: `apt-get install chromium`). The
Python side (JupyterLab, Notebook, the builder with its own yarn, playwright) comes into an
environment of its own, as those of tools/dev.py do.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import dev

SOURCE = dev.ROOT / "labextension"
BUILT = dev.ROOT / "tpu_magic" / "labextension"
dev.ENVIRONMENTS["lab"] = (dev.TOOLS / "requirements-lab.txt", None)


def yarn(python: Path, *arguments: str) -> int:
    """Run the builder's yarn in the sources of the extension."""
    path = os.pathsep.join([str(python.parent), os.environ.get("PATH", "")])
    command = [python.parent / "jlpm", *arguments]
    return subprocess.run(command, cwd=SOURCE, env={**os.environ, "PATH": path}).returncode


def installed(python: Path) -> int:
    """Install the packages of yarn.lock, exactly those."""
    return yarn(python, "install", "--immutable")


def build(python: Path, _: list[str]) -> int:
    """Build the extension from nothing, so that no stale file is shipped."""
    shutil.rmtree(BUILT, ignore_errors=True)
    return installed(python) or yarn(python, "build:prod")


def lint(python: Path, _: list[str]) -> int:
    return installed(python) or yarn(python, "lint")


def test(python: Path, arguments: list[str]) -> int:
    return installed(python) or yarn(python, "test", *arguments)


def browser(python: Path, arguments: list[str]) -> int:
    """Drive a built extension; what is missing fails instead of skipping."""
    tests = arguments or ["tests/lab/test_package.py", "tests/browser"]
    return dev.run(python, "-m", "pytest", *tests, TPU_MAGIC_BROWSER="required")


def lab(python: Path, arguments: list[str]) -> int:
    """Start JupyterLab with what was built, from the clone."""
    extensions = dev.cache_folder() / "jupyter" / "labextensions"
    extensions.mkdir(parents=True, exist_ok=True)
    link = extensions / "tpu-magic-lab"
    link.unlink(missing_ok=True)
    link.symlink_to(BUILT)
    return dev.run(python, "-m", "jupyterlab", *arguments, JUPYTER_PATH=str(extensions.parent))


def check(python: Path, _: list[str]) -> int:
    """Run all of it, as a change must pass it."""
    steps = (build, lint, test, browser)
    return next((failed for step in steps if (failed := step(python, []))), 0)


COMMANDS = {each.__name__: each for each in (build, lint, test, browser, lab, check)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="passed on to the command")
    given = parser.parse_args()
    return COMMANDS[given.command](dev.python_of("lab", sys.executable), given.arguments)


if __name__ == "__main__":
    sys.exit(main())
