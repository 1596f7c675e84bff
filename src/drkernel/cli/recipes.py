"""``drkernel recipes``: list the recipes that come with drkernel, or print one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from drkernel.config import ConfigError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

HELP = """List the recipes that come with drkernel, or print one.

A name can be given to 'drkernel train' in place of a path. To change more than a few keys, print a recipe to a file
and edit it.

Exit codes: 0 done, 2 there is no such recipe.

Examples:

  drkernel recipes

  drkernel recipes quickstart > mine.yaml
"""


@app.command(help=HELP)
def recipes(name: Annotated[str | None, typer.Argument(help="a recipe to print")] = None) -> None:
    """List, or print one."""
    from drkernel.cli import shipped

    try:
        if name is not None:
            path = shipped.find_recipe(Path(name))
            text = path.read_text(encoding="utf-8")  # a copy elsewhere has to find what it extends
            print(text.replace("\nextends: ", f"\nextends: {path.parent.resolve()}/"), end="")
            return
        found = shipped.recipes()
    except ConfigError as error:
        print(f"drkernel recipes: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    width = max(map(len, found))
    for each, path in found.items():
        print(f"{each:<{width}}  {shipped.purpose(path)}")
