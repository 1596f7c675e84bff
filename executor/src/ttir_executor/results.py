"""The results of a launch: findings of the sanitizers, exact counts, sums over its marks, printed lines."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from ttir_executor.lower.block_cost import BlockCost
from ttir_executor.lower.function import Site
from ttir_executor.ttir.ir import Type, elem_bytes


class StepLimit(RuntimeError):
    """A launch looped longer than its budget: endless, or a lock that is never released."""


@dataclass(frozen=True)
class Checks:
    """The sanitizers that run; bounds and alignment are always checked."""

    uninitialized: bool = False
    race: bool = False
    max_findings: int = 20
    sample: int | None = None
    """number of programs that they examine, None for all; launches whose programs may synchronise are always examined
    whole"""
    seed: int | str = 0
    """seed of the sample"""
    fill: int = 0
    """64 bits, of which a masked load without ``other`` gives its inactive lanes the first"""


@dataclass(frozen=True)
class SimFinding:
    """A kernel's action that is an error on a GPU, or works only by luck."""

    kind: str
    """``out_of_bounds``, ``misaligned``, ``use_after_free``, ``uninitialized``, ``race``, ``assert``,
    ``division_by_zero``, ``false_hint``, ``undefined_value``"""
    message: str
    kernel: str
    file: str | None
    line: int | None
    program: tuple[int, int, int] | None
    arg: str | None
    offset_bytes: int | None
    count: int
    severity: Literal["error", "warning"]


@dataclass(frozen=True)
class LaunchStats:
    """Exact counts over a whole launch."""

    programs: int
    load_sectors: float
    """32-byte sectors that warps asked for, reads"""
    store_sectors: float
    flops: dict[str, float]
    """operations by unit: fp32, fp64, fp16, bf16, int, sfu, tensor_*, fp32_dot"""
    atomics: int
    max_same_address_atomics: int
    footprint: tuple[tuple[int, float, float], ...]
    """(allocation base, unique bytes read, unique bytes written), in whole sectors"""
    executed: tuple[tuple[int, float], ...] = ()
    """(basic block of the function, in the order of ``plan.blocks_of``; how often programs entered it)"""
    own_passes: float = 1.0
    """requests of a program for each byte that it reads: sectors requested over distinct ones, of the first program
    that reads"""
    classes: tuple[tuple[float, tuple[tuple[int, float], ...]], ...] = ()
    """programs of like work, the longest first: (how many, ``executed`` of them together); none where all are alike"""
    parts: tuple[tuple[int, tuple[float, float], tuple[float, float]], ...] = field(default=(), compare=False)
    """(allocation base, first byte read and end of the last, the same of bytes written), 0 and 0 for none"""
    sites: tuple[tuple[int, int, float, float], ...] = field(default=(), compare=False)
    """each access of the text: (``Op.number``, base of the allocation that its argument points to or -1, bytes that it
    asks for beyond those that the text says, lanes beyond them)"""


@dataclass(frozen=True)
class LaunchResult:
    """The result of one launch."""

    findings: tuple[SimFinding, ...]
    stats: LaunchStats
    seconds: float
    """host wall time of running"""
    prints: tuple[str, ...]
    written: tuple[int, ...]
    """bases of the allocations that were written"""


@dataclass(frozen=True)
class Param:
    """One parameter of a kernel."""

    name: str
    type: Type

    @cached_property
    def is_pointer(self) -> bool:
        """Whether it is an address."""
        return self.type.elem == "ptr"

    @cached_property
    def is_float(self) -> bool:
        """Whether it is a floating number."""
        return self.type.is_float

    @cached_property
    def element_bytes(self) -> int | None:
        """Bytes of the elements that it is the address of; None for a number."""
        return None if self.type.pointee is None else elem_bytes(self.type.pointee)


# ---- sums over the marks of a launch: passes over a program's own data, updates of one address, what accesses ask


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


def work_of(blocks: Sequence[BlockCost], executed: Sequence[int]) -> BlockCost:
    """The work of blocks that were executed so often, as their text says it."""
    total = BlockCost()
    for cost, times in zip(blocks, executed, strict=False):
        total.load_bytes += cost.load_bytes * times
        total.store_bytes += cost.store_bytes * times
        for unit, amount in cost.flops.items():
            total.flops[unit] += amount * times
        for block, each in cost.entered.items():
            total.entered[block] += each * times
    return total


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
        entered = work_of(blocks, counts).entered
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
