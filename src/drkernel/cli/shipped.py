"""The recipes and examples that come with drkernel: in the installed package, or at the root of a checkout."""

from __future__ import annotations

from pathlib import Path

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
