"""Digests of this package's own source, for what is kept on disk and must not outlive the code that made it."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path

_ROOT = Path(__file__).parent


@lru_cache(maxsize=4)
def source_digest(*packages: str) -> str:
    """Return a digest of every file of the named packages of ``drkernel``, and of the modules beside them."""
    files = [*_ROOT.glob("*.py"), *(path for name in packages for path in (_ROOT / name).rglob("*") if path.is_file())]
    return _digest(path for path in files if path.suffix != ".pyc")


@cache
def module_digest(name: str) -> str:
    """Return a digest of a module of this package and of all modules of it that it imports, directly or not.

    A module imported for an attribute counts whole; the ``__init__`` of a package only where it is imported itself.
    """
    found: set[Path] = set()
    waiting = [name]
    while waiting:
        path = _file(waiting.pop())
        if path is not None and path not in found:
            found.add(path)
            waiting += _imported(ast.parse(path.read_bytes()))
    return _digest(found)


def _imported(tree: ast.AST) -> Iterator[str]:
    """Names of what may be modules of this package, wherever in the file they are imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not followed"
            yield from (str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names))


def _file(module: str) -> Path | None:
    """The file of a module of this package; None for anything else."""
    first, *parts = module.split(".")
    if first != _ROOT.name:
        return None
    path = _ROOT.joinpath(*parts)
    return next((one for one in (path.with_suffix(".py"), path / "__init__.py") if one.is_file()), None)


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(files):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(_ROOT)} {len(content)}\n".encode() + content)
    return digest.hexdigest()
