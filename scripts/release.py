"""Builds sdists and wheels of both packages, and checks them in a clean environment outside of the checkout.

    python scripts/release.py                     # build into dist/, check; nothing is uploaded
    python scripts/release.py --extras serve      # check with fewer extras (faster)

The version must be the same in pyproject.toml, ``drkernel.__version__`` and the first entry of CHANGELOG.md, and the
wheel that an sdist builds must hold the same files as the wheel. The clean environment installs the wheels as a user
would, with the versions of constraints.txt, and runs commands in an empty folder: an example is graded, a script is
simulated, a recipe that comes with the package is found, a service starts and grades.

Exit codes: 0 the files in dist/ may be uploaded, 1 something is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TORCH = os.environ.get("TORCH", "torch==2.13.0")
"""installed first and by itself, as in the Makefile"""


class Wrong(Exception):
    """A check failed; the message says which."""


def version() -> str:
    """Return the version that all three places agree on. Raises :class:`Wrong` when they do not."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    package = re.search(r'__version__ = "(.*)"', (ROOT / "src" / "drkernel" / "__init__.py").read_text())
    entry = re.search(r"^## \[?(\d[^\]\s]*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    said = {"pyproject.toml": project, "__init__.py": package and package[1], "CHANGELOG.md": entry and entry[1]}
    if len(set(said.values())) > 1:
        raise Wrong(f"the versions differ: {said}")
    return project


def run(*words: object, cwd: Path, ok: tuple[int, ...] = (0,)) -> str:
    """Run a command; return its standard output. Raises :class:`Wrong` for another exit code."""
    command = [str(word) for word in words]
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment)
    mark = "ok " if done.returncode in ok else "BAD"
    print(f"  {mark} {Path(command[0]).name} {' '.join(command[1:])[:110]}", flush=True)
    if done.returncode not in ok:
        raise Wrong(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
    return done.stdout


def build(python: Path, folder: Path, out: Path) -> tuple[Path, Path]:
    """Build both files of the package in ``folder``; return (sdist, wheel)."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    stem = f"{project['name'].replace('-', '_')}-{project['version']}"
    run(python, "-m", "build", "--outdir", out, folder, cwd=ROOT)  # the wheel is built from the sdist
    sdist, wheel = out / f"{stem}.tar.gz", next(out.glob(f"{stem}-*.whl"))
    with tempfile.TemporaryDirectory() as place:
        run(python, "-m", "build", "--wheel", "--outdir", place, folder, cwd=ROOT)
        direct = next(Path(place).glob("*.whl"))
        if names(direct) != names(wheel):
            raise Wrong(f"sdist and checkout build other wheels: {sorted(names(direct) ^ names(wheel))[:10]}")
    return sdist, wheel


def names(wheel: Path) -> set[str]:
    """Return the files of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def check(executor: Path, wheel: Path, place: Path, extras: str) -> None:
    """Install both wheels in an environment of its own and use them in an empty folder."""
    venv.create(place / "venv", with_pip=True)
    bin_, here = place / "venv" / "bin", place / "empty"
    here.mkdir()
    pip = (bin_ / "python", "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt")
    run(*pip, TORCH, cwd=here)
    run(*pip, executor.resolve(), f"drkernel[{extras}] @ {wheel.resolve().as_uri()}", cwd=here)
    drkernel = bin_ / "drkernel"
    if run(drkernel, "--version", cwd=here).strip() != version():
        raise Wrong("the installed command reports another version")
    run(drkernel, "examples", ".", cwd=here)
    graded = ("examples/softmax/reference.py", "examples/softmax/candidate.py")
    verdict = json.loads(run(drkernel, "eval", *graded, "--json", cwd=here))
    if verdict["status"] != "correct" or verdict["timing"]["kind"] != "modelled":
        raise Wrong(f"the example was graded as {verdict['status']}")
    run(drkernel, "eval", graded[0], "examples/softmax/cheat.py", cwd=here, ok=(3,))
    run(drkernel, "sim", "examples/sim/out_of_bounds.py", cwd=here, ok=(3,))
    if "quickstart" not in run(drkernel, "recipes", cwd=here):
        raise Wrong("the package carries no recipes")
    offered = set(extras.split(","))
    if "train" in offered:
        run(drkernel, "train", "quickstart", "--dry-run", cwd=here)
    if "serve" in offered:
        serve(drkernel, graded, here)


def serve(drkernel: Path, graded: tuple[str, str], here: Path) -> None:
    """Start a service on a free port and have it grade."""
    service = subprocess.Popen(
        [drkernel, "serve", "--port", "0", "--slots", "1"], cwd=here, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip
    try:
        assert service.stdout is not None
        url = service.stdout.readline().split()[-1]
        for _ in range(60):
            try:
                urllib.request.urlopen(f"{url}/health", timeout=5).read()
                break
            except OSError:
                time.sleep(0.5)
        run(drkernel, "eval", *graded, "--pool", url, cwd=here)
    finally:
        service.terminate()
        service.wait(60)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extras", default="train,serve,solve,data,mcp", help="extras that the clean environment gets")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where sdists and wheels go")
    options = parser.parse_args()
    try:
        print(f"drkernel {version()}")
        with tempfile.TemporaryDirectory(prefix="drkernel-release-") as name:
            place = Path(name)
            venv.create(place / "build", with_pip=True)
            python = place / "build" / "bin" / "python"
            run(python, "-m", "pip", "install", "-q", "build", cwd=place)
            executor, ours = build(python, ROOT / "executor", options.out), build(python, ROOT, options.out)
            check(executor[1], ours[1], place, options.extras)
    except Wrong as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print("checked:", *executor, *ours, sep="\n  ")
    print(f"to publish: tag v{version()}, then upload the files with twine, the executor's first")
    return 0


if __name__ == "__main__":
    sys.exit(main())
