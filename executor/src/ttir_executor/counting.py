"""Sums over the marks of a launch: passes over a program's own data, updates of one address, what accesses ask."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from ttir_executor.lower.block_cost import BlockCost
from ttir_executor.lower.function import Site

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


ProgramClass = tuple[float, tuple[tuple[int, float], ...]]
"""see ``LaunchStats.classes``"""


def classes_of(blocks: Sequence[BlockCost], tables: Sequence[np.ndarray]) -> tuple[ProgramClass, ...]:
    """Programs of like work, and how often they entered each block of the function together; none where all are alike.

    ``tables`` are the workers', ``[classes, 1 + counters]``; the longest programs come first.
    """
    total = np.sum(tables, axis=0)
    used = np.flatnonzero(total[:, 0])[::-1]
    if len(used) < 2:
        return ()
    found = []
    for programs, *counts in total[used].tolist():
        entered: Counter[int] = Counter()
        for cost, count in zip(blocks, counts, strict=True):
            for block, times in cost.entered.items():
                entered[block] += times * count
        found.append((float(programs), tuple((block, float(n)) for block, n in sorted(entered.items()) if n)))
    return tuple(found)


SiteRow = tuple[int, int, float, float]
"""see ``LaunchStats.sites``"""


def asked_by_site(sites: Sequence[Site], tables: Sequence[np.ndarray], bases: dict[str, int]) -> tuple[SiteRow, ...]:
    """The traffic of each access that its text does not tell, from the workers' tables (``[sites, 2]``).

    ``bases`` are those of the allocations that pointer arguments point to. One operation may have several sites.
    """
    total = np.sum(tables, axis=0).tolist()
    rows: dict[int, SiteRow] = {}
    for site, (nbytes, lanes) in zip(sites, total, strict=False):
        if site.argument is None and not (nbytes or lanes):
            continue
        _, base, before, idle = rows.get(site.number, (0, bases.get(site.argument or "", -1), 0.0, 0.0))
        rows[site.number] = (site.number, base, before + nbytes, idle + lanes)
    return tuple(rows[number] for number in sorted(rows))
