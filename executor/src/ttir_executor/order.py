"""The order in which a launch's programs run, and the ordering that they have synchronised on.

On a GPU programs run in any order. Here they run one after another, by default by number. :func:`draw_order` draws
another order, in which programs that synchronise also take turns. An honest kernel is not affected.
From the log of synchronising accesses, :class:`Ordered` determines whether two accesses were ordered by a release and
an acquire, directly or through other programs.

Interleaves programs: a launch whose programs synchronise switches between them at each synchronising access.

Programs that run one after another always see the completed work of earlier ones, so an acquire at the start and a
release at the end would seem to order everything. Here several programs are in progress at a time, each in a thread of
its own. One of them runs until its next synchronising access, where a secret draw decides which continues. A program
can thus wait for a later one. Nothing runs in parallel, so counts and memory stay exact.
"""

import bisect
import ctypes
import math
import random
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ttir_executor.lower.runtime import ACQUIRE, RELEASE, Ctx, Status


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


MAX_INTERLEAVED = 4096
"""most programs of a launch that takes turns"""
UNDER_WAY = 16
"""most programs that have begun and not ended"""
PATIENT_UNDER_WAY = 1024
"""the same, where programs may wait for later ones: what a large GPU has resident"""
SEGMENTS, PATIENT_SEGMENTS = 1 << 9, 1 << 14
"""most turns of each program; one that synchronises more often is waiting for something that never comes"""
PATIENT_TURNS = 1 << 18
"""most turns of all programs together, likewise"""
SWITCHES = 2000
"""after so many switches they become rare"""
RARELY = 1 / 64
SPINS = 64
"""synchronising accesses after which another program gets a turn in any case"""
STACK = 1 << 19
"""bytes of a thread's stack: a kernel's arrays lie elsewhere"""
_YIELD = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Turns:
    """One launch's programs, taking turns. ``workers`` share their log of synchronising accesses."""

    def __init__(self, call: Any, workers: list[Any], programs: int, seed: int | str, *, patient: bool = False):
        self._call, self._workers, self._programs = call, workers, programs
        self._rng = random.Random(f"turns:{seed}")
        self._patient = patient
        self._segments = PATIENT_SEGMENTS if patient else SEGMENTS
        self._next = 0
        self._switches = self._spins = 0
        self._stopped = False
        self._alive = list(range(len(workers)))
        self._wake = [threading.Event() for _ in workers]
        self._ended = threading.Event()
        self._yields = [_YIELD(lambda _, mine=k: self._yield(mine)) for k in range(len(workers))]
        for worker, callback in zip(workers, self._yields, strict=True):
            worker.ctx[Ctx.YIELD] = ctypes.cast(callback, ctypes.c_void_p).value

    def run(self) -> None:
        """Run every program to its end, or until one is stopped; the status is in the workers' contexts."""
        threads = [threading.Thread(target=self._live, args=(k,), daemon=True) for k in range(len(self._workers))]
        before = threading.stack_size(STACK)
        try:
            for thread in threads:
                thread.start()
        finally:
            threading.stack_size(before)
        self._wake[0].set()
        for thread in threads:
            thread.join()
        for worker in self._workers:
            worker.ctx[Ctx.YIELD] = 0

    def _live(self, mine: int) -> None:
        """Run one thread: wait for a turn, then run programs that have not started."""
        self._wait(mine)
        ctx = self._workers[mine].ctx
        while self._next < self._programs and not self._stopped:
            place, self._next = self._next, self._next + 1
            ctx[Ctx.SEGMENT] = (place + 1) * self._segments - 1
            self._call(ctx.ctypes.data, place, place + 1)
            self._stopped = self._stopped or ctx[Ctx.STATUS] != Status.DONE
            if self._next < self._programs and not self._stopped and self._rng.random() < 0.5:
                self._switch(mine)
        self._alive.remove(mine)
        if self._alive:
            self._hand_over(mine, self._following(mine, self._alive))

    def _yield(self, mine: int) -> None:
        """Handle a synchronising access of the running program: perhaps another one continues."""
        ctx = self._workers[mine].ctx
        too_often = self._patient and self._switches > PATIENT_TURNS
        if self._stopped or too_often or ctx[Ctx.SEGMENT] - ctx[Ctx.FIRST_SEGMENT] >= self._segments - 2:
            self._stopped = True
            ctx[Ctx.STEPS] = 0  # the next turn of whatever loop it is in is its last
            ctx[Ctx.SEGMENT] = ctx[Ctx.FIRST_SEGMENT]
            ctx[Ctx.STATUS] = Status.STEPS
            return
        self._spins += 1
        likely = 0.5 if self._switches < SWITCHES else RARELY
        if self._patient or self._spins >= SPINS or self._rng.random() < likely:
            self._switch(mine)

    def _switch(self, mine: int) -> None:
        others = [k for k in self._alive if k != mine]
        if others:
            self._switches, self._spins = self._switches + 1, 0
            self._hand_over(mine, self._following(mine, others))
            self._wait(mine)

    def _following(self, mine: int, others: list[int]) -> int:
        """The program to continue: the next one where all must get their turn, otherwise by the draw."""
        if not self._patient:
            return self._rng.choice(others)
        return min(others, key=lambda k: (k < mine, k))

    def _hand_over(self, mine: int, other: int) -> None:
        self._workers[other].ctx[Ctx.N_SYNCS] = self._workers[mine].ctx[Ctx.N_SYNCS]
        self._wake[other].set()

    def _wait(self, mine: int) -> None:
        self._wake[mine].wait()
        self._wake[mine].clear()
