"""Syntax trees of the two packages' own files: several tests read all of them."""

import ast
from functools import cache
from pathlib import Path

from places import EXECUTOR, SOURCES


@cache
def source_files() -> tuple[Path, ...]:
    """Every file of drkernel and of its executor."""
    return tuple(sorted([*SOURCES.rglob("*.py"), *EXECUTOR.rglob("*.py")]))


def module_of(path: Path) -> str:
    """The name by which a file is imported."""
    root = next(root for root in (SOURCES, EXECUTOR) if root in path.parents)
    return ".".join(path.relative_to(root.parent).with_suffix("").parts)


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Every import of a file, inside functions too."""
    return tuple(node for node in ast.walk(tree(path)) if isinstance(node, ast.Import | ast.ImportFrom))
