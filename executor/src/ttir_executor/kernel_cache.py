"""A cache that keeps compiled code between processes, where the caller has one.

The executor asks the cache in use before it compiles. It keeps none by itself: what may be trusted is the caller's to
say.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class KernelCache(Protocol):
    """Byte strings by key; what ``get`` returns is what was ``put``, or None."""

    def get(self, *key: str) -> bytes | None:
        """The entry of a key; None if there is none."""

    def put(self, content: bytes, *key: str) -> None:
        """Store an entry."""


_active: list[KernelCache] = []


def active() -> KernelCache | None:
    """The cache in use; None where there is none."""
    return _active[-1] if _active else None


@contextmanager
def keeping(cache: KernelCache) -> Iterator[None]:
    """Use ``cache`` while the block runs."""
    _active.append(cache)
    try:
        yield
    finally:
        _active.pop()
