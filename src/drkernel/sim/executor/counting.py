"""Sums over the marks of a launch: passes over a program's own data, updates of one address."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

_CHUNK = 1 << 20
"""cells of a sector map that are looked at together"""


def passes_of(asked: float, maps: Iterable[np.ndarray]) -> float:
    """How often each byte was asked for on average: ``asked`` bytes over those of the sectors marked in ``maps``."""
    distinct = 0
    for marks in maps if asked else ():
        for start in range(0, len(marks), _CHUNK):
            distinct += int(np.count_nonzero(marks[start : start + _CHUNK]))
            if 32 * distinct >= asked:
                return 1.0
    return asked / (32.0 * distinct) if distinct else 1.0


def most_updates(counters: np.ndarray, written_bytes: float) -> int:
    """Updates of the most contended address; a counter stands for several addresses where many are updated."""
    return round(int(counters.max()) / max(1.0, math.ceil(written_bytes / 4.0 / len(counters))))
