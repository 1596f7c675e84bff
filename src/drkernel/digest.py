"""Digests of the source of drkernel and its executor, for what is kept on disk and must not outlive the code that made
it.
"""

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path


def package_folder(name: str) -> Path:
    """The folder of an installed package, which is not imported for that."""
    found = find_spec(name)
    assert found is not None and found.submodule_search_locations
    return Path(found.submodule_search_locations[0])


_ROOTS = {"drkernel": Path(__file__).parent, "ttir_executor": package_folder("ttir_executor")}


@lru_cache(maxsize=4)
def source_digest(*packages: str) -> str:
    """Return a digest of every file of the named packages of ``drkernel``, of the modules beside them and of the
    executor."""
    ours, executor = _ROOTS.values()
    folders = [executor, *(ours / name for name in packages)]
    files = [*ours.glob("*.py"), *(path for folder in folders for path in folder.rglob("*") if path.is_file())]
    return _digest(path for path in files if path.suffix != ".pyc")


@cache
def module_digest(name: str) -> str:
    """Return a digest of a module of either package and of all modules of both that it imports, directly or not.

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
    """Names of what may be modules of the two packages, wherever in the file they are imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not followed"
            yield from (str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names))


def _file(module: str) -> Path | None:
    """The file of a module of the two packages; None for anything else."""
    first, *parts = module.split(".")
    if first not in _ROOTS:
        return None
    path = _ROOTS[first].joinpath(*parts)
    return next((one for one in (path.with_suffix(".py"), path / "__init__.py") if one.is_file()), None)


def _digest(files: Iterable[Path]) -> str:
    """Wherever the packages lie."""
    digest = hashlib.sha256()
    for name, path in sorted((_name(path), path) for path in files):
        content = path.read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _name(path: Path) -> str:
    return next(f"{name}/{path.relative_to(root)}" for name, root in _ROOTS.items() if path.is_relative_to(root))
