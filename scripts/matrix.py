"""Runs the fast tests over Python and Triton versions, as far as this machine has them.

    python scripts/matrix.py                          # every cell
    python scripts/matrix.py --python 3.11 -- tests/sim/executor/test_ttir_parser.py    # one row, some tests

Interpreters are looked for on PATH, under pyenv and through uv. Each cell gets an environment of its own under
``.matrix/``, kept between runs. A cell is *missing*, with the reason, where there is no such interpreter, where the
versions cannot be installed, or where pip would bring gigabytes of CUDA libraries to a machine without a GPU (then a
CPU build of torch must be made available to pip first, or --any-torch given).

Exit codes: 0 every cell that could run passed (missing ones are listed), 1 a cell failed, 2 no cell could run.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
TRITONS = ("3.6", "3.7")
TORCH = os.environ.get("TORCH", "torch==2.13.0")
EXTRAS = "train,serve,solve,data,mcp,test"


class Missing(Exception):
    """The cell cannot run here; the message says why."""


@dataclass(frozen=True)
class Cell:
    """One combination of versions."""

    python: str
    triton: str

    @property
    def place(self) -> Path:
        """Its environment."""
        return ROOT / ".matrix" / f"py{self.python}-triton{self.triton}"


def interpreter(version: str) -> str:
    """Return an interpreter of this version that starts. Raises :class:`Missing`."""
    under_pyenv = glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/python3"))
    places = [shutil.which(f"python{version}"), *under_pyenv]
    if shutil.which("uv"):
        places.append(output("uv", "python", "find", version) or None)
    for path in filter(None, places):
        if output(path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])") == version:
            return path
    raise Missing(f"no interpreter of Python {version}")


def output(*words: str) -> str:
    """Return what a command prints, or an empty string when it fails."""
    return subprocess.run(words, capture_output=True, text=True).stdout.strip()


def environment(cell: Cell, any_torch: bool) -> Path:
    """Make the cell's environment, or take the one that is there; return its Python. Raises :class:`Missing`."""
    python, done = cell.place / "bin" / "python", cell.place / ".done"
    if done.exists():
        return python
    subprocess.run([interpreter(cell.python), "-m", "venv", "--clear", cell.place], check=True)
    wanted = [TORCH, f"triton=={cell.triton}.*"]
    if not any_torch and not glob.glob("/dev/nvidia[0-9]*"):
        listed = pip(python, "--dry-run", "--report", "-", *wanted)
        packages = [item["metadata"]["name"] for item in json.loads(listed)["install"]]
        if cuda := [name for name in packages if name.startswith(("nvidia", "cuda"))]:
            raise Missing(f"pip offers Python {cell.python} only a CUDA build of {TORCH} ({len(cuda)} CUDA packages)")
    pip(python, *wanted)
    constraints = cell.place / "constraints.txt"
    kept = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("triton==")]
    constraints.write_text("\n".join(kept))
    pip(
        python,
        "-c",
        str(constraints),
        "-e",
        str(ROOT / "executor"),
        "-e",
        f"{ROOT}[{EXTRAS}]",
        f"triton=={cell.triton}.*",
    )
    done.touch()
    return python


def pip(python: Path, *words: str) -> str:
    """Install; return what pip prints. Raises :class:`Missing` with its first error when it cannot."""
    done = subprocess.run([python, "-m", "pip", "install", "-q", *words], capture_output=True, text=True)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
        raise Missing("pip: " + (errors or ["ERROR: failed"])[0][7:200])
    return done.stdout


def run(cell: Cell, tests: list[str], any_torch: bool) -> str:
    """Run one cell; return 'passed', 'FAILED ...' or 'missing: ...'."""
    try:
        python = environment(cell, any_torch)
    except Missing as reason:
        return f"missing: {reason}"
    done = subprocess.run([python, "-m", "pytest", *(tests or ["tests"])], cwd=ROOT, capture_output=True, text=True)
    last = (done.stdout.strip().splitlines() or ["no output"])[-1]
    (cell.place / "tests.log").write_text(done.stdout + done.stderr)
    return f"passed: {last}" if done.returncode == 0 else f"FAILED: {last} (see {cell.place / 'tests.log'})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", choices=PYTHONS, help="only this version (may be repeated)")
    parser.add_argument("--triton", action="append", choices=TRITONS, help="only this version (may be repeated)")
    parser.add_argument("--any-torch", action="store_true", help="take whatever build of torch pip offers")
    parser.add_argument("tests", nargs="*", help="what pytest is given; default: all fast tests")
    options = parser.parse_args()
    outcomes = []
    for python in options.python or PYTHONS:
        for triton in options.triton or TRITONS:
            outcomes.append(run(Cell(python, triton), options.tests, options.any_torch))
            print(f"Python {python}  Triton {triton}  {outcomes[-1]}", flush=True)
    if any(outcome.startswith("FAILED") for outcome in outcomes):
        return 1
    return 0 if any(outcome.startswith("passed") for outcome in outcomes) else 2


if __name__ == "__main__":
    sys.exit(main())
