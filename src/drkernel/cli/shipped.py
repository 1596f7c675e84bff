"""The recipes and examples that come with drkernel: in the installed package, or at the root of a checkout."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from drkernel.config import ConfigError, did_you_mean

_PACKAGE = Path(__file__).parents[1]


def folder(name: str) -> Path:
    """Return the folder ``recipes`` or ``examples``. Raises :class:`ConfigError` when this copy has neither."""
    for place in (_PACKAGE / "shipped" / name, _PACKAGE.parents[1] / name):
        if place.is_dir():
            return place
    raise ConfigError(f"this installation of drkernel carries no {name}")


def recipes() -> dict[str, Path]:
    """Return the recipes by name, such as quickstart."""
    return {path.stem: path for path in sorted(folder("recipes").glob("*.yaml"))}


def find_recipe(given: Path) -> Path:
    """Return the file of a recipe given by path, or by the name of one that comes with drkernel.

    A path that does not exist here but names such a recipe, as recipes/quickstart.yaml does outside of a checkout,
    is that recipe. Raises :class:`ConfigError` naming what is similar.
    """
    if given.is_file():
        return given
    known = recipes()
    bare = given.parent in (Path("."), Path("recipes"))
    if bare and given.stem in known and given.suffix in ("", ".yaml"):
        return known[given.stem]
    raise ConfigError(
        f"no such recipe: {given}; 'drkernel recipes' lists those that come with drkernel"
        f"{did_you_mean(given.stem, known)}"
    )


def purpose(recipe: Path) -> str:
    """Return the first line of a recipe's opening comment: what it is for."""
    return recipe.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")


# ---- ``drkernel recipes``: list the recipes that come with drkernel, or print one


recipes_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

RECIPES_HELP = """List the recipes that come with drkernel, or print one.

A name can be given to 'drkernel train' in place of a path. To change more than a few keys, print a recipe to a file
and edit it.

Exit codes: 0 done, 2 there is no such recipe.

Examples:

  drkernel recipes

  drkernel recipes quickstart > mine.yaml
"""


@recipes_app.command(help=RECIPES_HELP)
def show_recipes(name: Annotated[str | None, typer.Argument(help="a recipe to print")] = None) -> None:
    """List, or print one."""
    if name is not None:
        path = find_recipe(Path(name))
        text = path.read_text(encoding="utf-8")  # a copy elsewhere has to find what it extends
        print(text.replace("\nextends: ", f"\nextends: {path.parent.resolve()}/"), end="")
        return
    found = recipes()
    width = max(map(len, found))
    for each, path in found.items():
        print(f"{each:<{width}}  {purpose(path)}")


# ---- ``drkernel examples DIR``: copy the examples and recipes that come with drkernel


examples_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

EXAMPLES_HELP = """Copy the examples and recipes that come with drkernel into a folder.

The documentation's commands name files under examples/ and recipes/; they work as they stand in the folder that this
command fills. Files that are there already are left as they are.

Exit codes: 0 done, 2 wrong usage.

Example:

  drkernel examples . && drkernel eval examples/softmax/reference.py examples/softmax/candidate.py
"""


@examples_app.command(help=EXAMPLES_HELP)
def examples(into: Annotated[Path, typer.Argument(metavar="DIR", help="the folder; it is made if need be")]) -> None:
    """Copy what is not there yet."""
    written = sum(_copy(folder(name), into / name) for name in ("examples", "recipes"))
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
