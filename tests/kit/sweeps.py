"""Long sweeps over tasks, operators, seeds or cards: every seventh in the fast tests, all of them in the slow ones.

Which of the seven a test takes goes by its name, so that over many tests all of them are looked at.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any
from zlib import crc32

import pytest

EVERY = 7


def sweep(items: Iterable[Any], of: str, *, every: int = EVERY, always: Collection[Any] = ()) -> list[Any]:
    """Parameters of which every ``every``-th, and those in ``always``, are in the fast tests. ``of``: the test."""
    place = crc32(of.encode()) % every
    return [
        pytest.param(item, marks=() if k % every == place or item in always else pytest.mark.slow)
        for k, item in enumerate(items)
    ]


def shares(items: Iterable[Any], of: str, *, parts: int = EVERY) -> list[Any]:
    """The same for tests that go through their items by themselves: lists of them, of which one is in the fast
    tests."""
    every: Sequence[Any] = list(items)
    fast = crc32(of.encode()) % parts
    return [
        pytest.param(every[k::parts], id=f"{k + 1} of {parts}", marks=() if k == fast else pytest.mark.slow)
        for k in range(parts)
    ]
