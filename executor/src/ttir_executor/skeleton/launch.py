"""Runs a kernel's skeleton: the whole grid, or groups of its programs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ttir_executor.allocations import MemoryMap
from ttir_executor.launch import KernelRun, LaunchLimits, marks_of
from ttir_executor.lower.function import Site
from ttir_executor.lower.runtime import SECTOR_BYTES, Ctx, EntryWord
from ttir_executor.results import (
    Checks,
    ProgramClass,
    SimFinding,
    SiteRow,
    asked_by_site,
    classes_of,
    most_updates,
    passes_of,
    work_of,
)
from ttir_executor.skeleton.slim import Skeleton

MAX_GROUPS = 255
"""groups of one launch: their numbers are bytes in the sector maps"""


@dataclass(frozen=True)
class Group:
    """The counts of a group of programs."""

    programs: int
    load_bytes: float
    """asked for, in whole sectors"""
    run_bytes: float
    """the same if all of it were runs of memory, which the text of the kernel says"""
    store_bytes: float
    flops: dict[str, float]
    atomics: float
    blocks: int
    """basic blocks executed"""
    entered: dict[int, float]
    """how often programs entered each block of the function (``plan.blocks_of``)"""

    @property
    def work(self) -> float:
        """The cost of running it here, in units of examining one sector; the same on every machine."""
        return (self.load_bytes + self.store_bytes) / SECTOR_BYTES + 8.0 * self.blocks + 64.0 * self.programs


@dataclass(frozen=True)
class Touched:
    """How many sectors of one allocation the groups touched, in one direction."""

    last: tuple[int, ...]
    """by group: sectors that it touched and no later group did"""
    ends: tuple[float, float]
    """the first byte of touched sectors, and the end of the last; 0 and 0 when there is none"""

    @property
    def total(self) -> int:
        """Sectors that any group touched."""
        return sum(self.last)


class SkeletonLaunch(KernelRun):
    """One launch of a skeleton. Memory is not touched, but for what steers and has contents.

    Either :meth:`run` the whole grid, or call :meth:`run_group` as often as need be and read what they touched.
    """

    def __init__(
        self, skeleton: Skeleton, grid: tuple[int, int, int], args: Sequence[int | float], memory: MemoryMap,
        limits: LaunchLimits, *, weights: Sequence[float] = (), loads: bool = True, after: SkeletonLaunch | None = None,
    ):  # fmt: skip
        """With ``after``, a launch of which groups of programs have run, :meth:`run` goes on in that one's sector maps:
        all that those programs touched is touched again, and the maps are in memory already."""
        self._after = after
        lowered, code = (skeleton.lowered, skeleton.code) if loads else skeleton.stores
        kernel = skeleton.kernel
        super().__init__(
            kernel.name, kernel.params, lowered, code, grid, args, memory, Checks(), limits, weights=weights
        )
        self._made: list = []
        self._groups: list[Group] = []
        if after is not None:
            self.own_passes = after.own_passes  # of the first program, alone in the maps then

    def _sector_maps(self) -> list[tuple[np.ndarray, np.ndarray]]:
        return super()._sector_maps() if self._after is None else self._after.maps

    def _entries(self) -> None:
        super()._entries()
        for row, allocation in zip(self.entries, self.allocations, strict=False):
            row[EntryWord.DATA] = allocation.contents

    def _worker(self, syncs=None):  # type: ignore[no-untyped-def]
        worker = super()._worker(syncs)
        worker.ctx[Ctx.MARK] = 1
        self._made.append(worker)
        return worker

    def without_data(self) -> Site | None:
        """A place that steers and found memory without contents; None when there was none."""
        places = [int(worker.ctx[Ctx.NO_DATA]) for worker in self._made]
        return next((self.lowered.sites[place - 1] for place in places if place), None)

    # ---- groups of programs

    def run_group(self, programs: Iterable[int]) -> Group:
        """Run some programs as the next group.

        Raises:
            StepLimit: one of them looped beyond its budget.
        """
        if not self._made:
            self._prepare()
            self._worker()
        if len(self._groups) >= MAX_GROUPS:
            raise ValueError(f"more than {MAX_GROUPS} groups")
        worker = self._made[0]
        ctx, listed = worker.ctx, list(programs)
        ctx[Ctx.MARK] = len(self._groups) + 1
        before = ctx[[Ctx.LOAD_BYTES, Ctx.STORE_BYTES]].tolist(), worker.blocks.copy(), self._updates()
        started = time.perf_counter()
        address, call = ctx.ctypes.data, self.code.now().call
        for program in listed:
            call(address, program, program + 1)
            if self.own_passes is None:
                self.own_passes = passes_of(self._work([worker]).load_bytes, (read for read, _ in self.maps))
            if ctx[Ctx.STATUS]:
                break
        self.code.spend(time.perf_counter() - started)
        self._raise_if_stopped(int(ctx[Ctx.STATUS]))
        self._groups.append(self._tally(len(listed), worker, *before))
        return self._groups[-1]

    def _tally(  # type: ignore[no-untyped-def]
        self, programs: int, worker, corrections: list[int], blocks: np.ndarray, updates: int
    ) -> Group:
        executed = (worker.blocks - blocks).tolist()
        work = work_of(self.lowered.blocks, executed)
        loads = float(work.load_bytes + worker.ctx[Ctx.LOAD_BYTES] - corrections[0])
        stores = float(work.store_bytes + worker.ctx[Ctx.STORE_BYTES] - corrections[1])
        counts = {unit: float(number) for unit, number in work.flops.items()}
        entered = {block: float(number) for block, number in work.entered.items() if number}
        runs, atomics = float(work.load_bytes), float(self._updates() - updates)
        return Group(programs, loads, runs, stores, counts, atomics, sum(executed), entered)

    def expect(self, seconds: float) -> None:
        """Announce ``seconds`` of work: it may justify better code."""
        self.code.for_work(seconds)

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups that have run so far."""
        return tuple(self._groups)

    def touched(self) -> list[tuple[int, Touched, Touched]]:
        """(allocation, read, written) of everything that the groups touched."""
        found = []
        for allocation, (read, write) in zip(self.allocations, self.maps, strict=True):
            pair = self._of_map(read), self._of_map(write)
            if pair[0].total or pair[1].total:
                found.append((allocation.base, *pair))
        return found

    def _of_map(self, sectors: np.ndarray) -> Touched:
        """Marks by group."""
        counts, ends = marks_of(sectors)
        return Touched(tuple(counts[1 : len(self._groups) + 1].tolist()), ends)

    def asked_of(self, programs: int) -> tuple[SiteRow, ...]:
        """The traffic of each access in a grid of ``programs``, scaled from groups that ran (``LaunchStats.sites``)."""
        rows = asked_by_site(self.lowered.sites, [worker.sites for worker in self._made], self._bases)
        scale = programs / sum(group.programs for group in self._groups)
        return tuple((number, base, nbytes * scale, lanes * scale) for number, base, nbytes, lanes in rows)

    def classes_of(self, programs: int) -> tuple[ProgramClass, ...]:
        """Programs by how much they do in a grid of ``programs``, by what the groups did (``LaunchStats.classes``)."""
        scale = programs / sum(group.programs for group in self._groups)
        found = classes_of(self.lowered.blocks, [worker.classes for worker in self._made])
        return tuple((n * scale, tuple((block, count * scale) for block, count in entered)) for n, entered in found)

    def contention(self) -> int:
        """Updates of the most contended address so far."""
        if not self.atomics.any():
            return 0
        return most_updates(self.atomics, 32.0 * sum(int(np.count_nonzero(write)) for _, write in self.maps))

    def findings(self) -> tuple[SimFinding, ...]:
        """Errors on a GPU that the groups made."""
        return self.recorded.findings(self._made)
