"""The order in which a launch's programs run, and the ordering that they have synchronised on.

On a GPU programs run in any order. Here they run one after another, by default by number. :func:`draw_order` draws
another order, in which programs that synchronise also take turns (``interleave.py``). An honest kernel is not affected.
From the log of synchronising accesses, :class:`Ordered` determines whether two accesses were ordered by a release and
an acquire, directly or through other programs.
"""

from __future__ import annotations

import bisect
import math
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ttir_executor.lower.runtime import ACQUIRE, RELEASE


@dataclass(frozen=True)
class Order:
    """Place k of the order is program ``(k * factor + shift) mod programs``."""

    factor: int = 1
    shift: int = 0
    turns: int | str | None = field(default=None, compare=False)
    """seed of the draws by which programs take turns where they synchronise; None: each runs to its end"""
    patient: bool = False
    """every program is under way, and the next one goes on wherever one synchronises: for those that wait for later
    ones"""


IN_ORDER = Order()
REVERSED_SHARE = 1 / 3
"""of drawn orders, how many are the numbers backwards, which turns every pair around"""
MAX_ORDERED = 1 << 31
"""programs of the largest launch whose order changes: products must fit 64 bits"""


def draw_order(seed: int | str, programs: int) -> Order:
    """Draw an order of ``programs`` programs, the same for the same seed."""
    if not 1 < programs < MAX_ORDERED:
        return IN_ORDER
    rng = random.Random(seed)
    if rng.random() < REVERSED_SHARE:
        return Order(programs - 1, programs - 1, seed)
    while True:
        factor = rng.randrange(1, programs)
        if math.gcd(factor, programs) == 1:
            break
    return Order(factor, rng.randrange(1, programs), seed)


RUN_LENGTH = 64
"""neighbours that a sample takes together"""
Run = tuple[int, int]
"""places [first, last) of an order"""


def sampled_runs(programs: int, size: int, seed: int | str) -> list[Run]:
    """Draw about ``size`` of ``programs`` places: runs of neighbours, at places that cannot be predicted without the
    seed.

    Neighbours expose races at the edges of tiles; distant runs expose programs that meet in one place.
    """
    blocks = -(-programs // RUN_LENGTH)
    chosen = random.Random(seed).sample(range(blocks), min(blocks, max(1, size // RUN_LENGTH)))
    return [(k * RUN_LENGTH, min(programs, (k + 1) * RUN_LENGTH)) for k in sorted(chosen)]


def others(runs: list[Run], programs: int) -> list[Run]:
    """The places between ``runs``, which are sorted and do not overlap."""
    starts, stops = [0, *(stop for _, stop in runs)], [*(start for start, _ in runs), programs]
    return [(start, stop) for start, stop in zip(starts, stops, strict=True) if start < stop]


def split_runs(runs: list[Run], size: int) -> tuple[list[Run], list[Run]]:
    """``runs`` cut in two after ``size`` places."""
    head: list[Run] = []
    tail: list[Run] = []
    for start, stop in runs:
        cut = min(stop, start + size)
        size -= cut - start
        head += [(start, cut)] if start < cut else []
        tail += [(cut, stop)] if cut < stop else []
    return head, tail


class Ordered:
    """The order that programs have synchronised on, from rows of (address, segment it ends, its program's first,
    flags).

    A release makes what its program did before known to any program that later acquires at the same address; updates by
    others in between do not break that. A program passes on what it has acquired with its next release. Rows are in the
    order of execution; a program's segments are numbered consecutively.
    """

    def __init__(self, syncs: np.ndarray):
        self._releases: dict[int, list[tuple[int, int, int]]] = defaultdict(list)  # address -> (row, segment, first)
        self._acquires: dict[int, list[tuple[int, int, int]]] = defaultdict(list)  # first -> (row, segment, address)
        firsts = set()
        for row, (address, segment, first, flags) in enumerate(syncs.tolist()):
            firsts.add(first)
            if flags & ACQUIRE:
                self._acquires[first].append((row, segment, address))
            if flags & RELEASE:
                self._releases[address].append((row, segment, first))
        self._firsts = sorted(firsts)
        self._known: dict[tuple[int, int], tuple[dict[int, int], Iterator[int]]] = {}

    def before(self, earlier: int, segment: int, first: int) -> bool:
        """Return whether another program's ``earlier`` is over before ``segment`` of the program that began at
        ``first``."""
        place = bisect.bisect_right(self._firsts, earlier) - 1
        if place < 0:
            return False
        program = self._firsts[place]
        key = (first, segment)
        if key not in self._known:
            released: dict[int, int] = {}
            self._known[key] = (released, self._search(released, first, segment))
        released, search = self._known[key]
        while released.get(program, -1) < earlier:
            if next(search, None) is None:
                return False
        return True

    def _search(self, released: dict[int, int], first: int, segment: int) -> Iterator[int]:
        """Fill ``released`` (program -> its last segment known to be over), the latest first; yields after each one."""
        seen: dict[int, int] = {}  # address -> how many of its releases have been looked at
        open_ends = [(first, segment)]
        while open_ends:
            program, end = open_ends.pop()
            for row, at, address in self._acquires.get(program, ()):
                if at >= end:
                    break
                history = self._releases.get(address, [])
                met = bisect.bisect_left(history, (row, 0, 0))
                start = seen.get(address, 0)
                seen[address] = max(start, met)
                for place in range(met - 1, start - 1, -1):
                    _, released_segment, other = history[place]
                    if other != program and released.get(other, -1) < released_segment:
                        released[other] = released_segment
                        open_ends.append((other, released_segment + 1))
                        yield other
