"""``drkernel examples DIR``: copy the examples and recipes that come with drkernel."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from drkernel.config import ConfigError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

HELP = """Copy the examples and recipes that come with drkernel into a folder.

The documentation's commands name files under examples/ and recipes/; they work as they stand in the folder that this
command fills. Files that are there already are left as they are.

Exit codes: 0 done, 2 wrong usage.

Example:

  drkernel examples . && drkernel eval examples/softmax/reference.py examples/softmax/candidate.py
"""


@app.command(help=HELP)
def examples(into: Annotated[Path, typer.Argument(metavar="DIR", help="the folder; it is made if need be")]) -> None:
    """Copy what is not there yet."""
    from drkernel.cli import shipped

    try:
        written = sum(_copy(shipped.folder(name), into / name) for name in ("examples", "recipes"))
    except (ConfigError, OSError) as error:
        print(f"drkernel examples: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    print(f"{written} files written to {into / 'examples'} and {into / 'recipes'}")


def _copy(source: Path, target: Path) -> int:
    """Copy the files under ``source`` that ``target`` lacks; return their number."""
    written = 0
    for path in sorted(source.rglob("*")):
        place = target / path.relative_to(source)
        if path.is_file() and "__pycache__" not in path.parts and not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
            written += 1
    return written
