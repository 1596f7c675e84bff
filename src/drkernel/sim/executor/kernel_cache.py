"""Keeps compiled kernels on disk between runs: the front end's output, and native code.

``drkernel sim`` and the tests switch it on, for kernels of the user's own; a judge never does (``docs/executor.md``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drkernel.base.files import DiskCache, cache_folder, open_cache

_active: list[DiskCache] = []


def active() -> DiskCache | None:
    """The cache in use; None where there is none."""
    return _active[-1] if _active else None


@contextmanager
def kernels_on_disk(folder: Path | None = None) -> Iterator[None]:
    """Keep compiled kernels in ``folder`` while the block runs, if it exists or can be made, for this user alone."""
    cache = open_cache(folder or cache_folder("kernels"))
    if cache is None:
        yield
        return
    _active.append(cache)
    try:
        yield
    finally:
        _active.pop()
