"""The project's commands: `python3 tools/dev.py demo | test | lint | bench`.

Needs Python 3.10-3.13 and the package index, nothing else. The environment is made on first
use in a cache folder outside the clone, keyed by the files that decide what is in it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ROOT / "tools"

# name of an environment: its pinned packages, and the Python it wants (None: the one at hand)
ENVIRONMENTS = {
    "dev": (TOOLS / "requirements-dev.txt", None),
    # Colab's IPython and ipykernel, on Colab's Python: real kernels are tested there too.
    "colab": (TOOLS / "requirements-colab.txt", "3.13"),
}


def cache_folder() -> Path:
    """Return where environments are kept."""
    base = os.environ.get("TPU_MAGIC_ENVIRONMENTS") or Path.home() / ".cache" / "tpu_magic"
    return Path(base)


def python_of(name: str, interpreter: str) -> Path:
    """Return an environment's interpreter, making the environment when it is not there."""
    pins, _ = ENVIRONMENTS[name]
    version = subprocess.run(
        [interpreter, "-c", "import sys; print(sys.version)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    key = hashlib.sha256(pins.read_bytes() + version.encode()).hexdigest()[:12]
    folder = cache_folder() / f"{name}-{key}"
    python = folder / "bin" / "python"
    if (folder / "complete").exists():
        return python
    print(f"making the {name} environment in {folder} (once; several GB)", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    # Linked from the installer's cache: two environments share the files they have in common.
    subprocess.run([interpreter, "-m", "venv", folder], check=True)
    subprocess.run([uv(), "pip", "install", "--quiet", "--python", python, "-r", pins], check=True)
    (folder / "complete").touch()
    return python


def uv() -> Path:
    """Return the installer, in an environment of its own."""
    folder = cache_folder() / "uv"
    program = folder / "bin" / "uv"
    if not program.exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([folder / "bin" / "pip", "install", "--quiet", "uv==0.13.9"], check=True)
    return program


def find_python(version: str) -> str | None:
    """Return an interpreter of a version that is installed here, or None."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}*/bin/python"))]
    for candidate in filter(None, candidates):
        # A shim may stand on the path for a version that it cannot run.
        if subprocess.run([candidate, "-c", ""], capture_output=True).returncode == 0:
            return str(candidate)
    return None


def run(python: Path, *arguments: str, **environment: str) -> int:
    """Run Python in the clone, with the clone's package importable also in child kernels."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    full = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment}
    return subprocess.run([python, *arguments], cwd=ROOT, env=full).returncode


def demo(python: Path, arguments: list[str]) -> int:
    return run(python, "tools/demo.py", *arguments)


def test(python: Path, arguments: list[str]) -> int:
    # Tests that install for real link from uv's cache, as these environments did.
    path = os.pathsep.join([str(uv().parent), os.environ.get("PATH", os.defpath)])
    environment = {"TPU_MAGIC_REAL_INSTALLS": "1", "PATH": path}
    version = ENVIRONMENTS["colab"][1]
    other = find_python(version)
    if other is None:
        print(f"no Python {version} on this machine: kernels are tested in one environment only")
    else:
        environment["TPU_MAGIC_COLAB_PYTHON"] = str(python_of("colab", other))
    if arguments:
        return run(python, "-m", "pytest", *arguments, **environment)
    coverage = ("--cov", "--cov-config=pyproject.toml", "--cov-report=")
    failed = run(python, "-m", "pytest", *coverage, **environment)
    return failed or run(python, "-m", "coverage", "report")


def lint(python: Path, arguments: list[str]) -> int:
    commands = (
        ("-m", "ruff", "check", *arguments, "."),
        ("-m", "ruff", "format", "--check", "."),
        ("-m", "mypy"),
    )
    return max(run(python, *command) for command in commands)


def bench(python: Path, arguments: list[str]) -> int:
    return run(python, "-m", "benchmarks", *arguments)


COMMANDS = {"demo": demo, "test": test, "lint": lint, "bench": bench}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="passed on to the command")
    given = parser.parse_args()
    if not (3, 10) <= sys.version_info[:2] <= (3, 13):
        parser.error("Python 3.10-3.13 is needed (torch_xla has no wheels for others)")
    return COMMANDS[given.command](python_of("dev", sys.executable), given.arguments)


if __name__ == "__main__":
    sys.exit(main())
