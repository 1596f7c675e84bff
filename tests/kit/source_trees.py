"""Syntax trees of the package's own files: several tests read all of them."""

import ast
from functools import cache
from pathlib import Path

from places import SOURCES


@cache
def source_files() -> tuple[Path, ...]:
    """Every file of the package."""
    return tuple(sorted(SOURCES.rglob("*.py")))


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Every import of a file, inside functions too."""
    return tuple(node for node in ast.walk(tree(path)) if isinstance(node, ast.Import | ast.ImportFrom))
