"""What of a launch's reads comes from L1: repeated reads of a program's own, and what all programs read again."""

from __future__ import annotations

import math
from collections import defaultdict

from drkernel.sim.cost.kernel_profile import BlockProfile, KernelProfile
from drkernel.sim.spec import GPUSpec
from ttir_executor.results import LaunchStats

SECTOR_BYTES = 32
L1_SHARE = 0.25
"""Share of an SM's shared memory and L1 assumed to hold repeated reads."""
L1_WINDOW_SHARE = 0.75
"""The same for reads that are repeated by the next load or the one after it."""


def beyond(capacity: float, needed: float) -> float:
    """Share of accesses that miss a level of ``capacity`` when ``needed`` bytes are in use."""
    return 0.0 if needed <= capacity else 1.0 - capacity / needed


def past_l1(
    stats: LaunchStats, profile: KernelProfile, resident: float, on_sm: float, spec: GPUSpec
) -> tuple[float, float]:
    """Return (bytes of loads that reach L2, those of them that a program re-reads after all it read before).

    What a program re-reads comes from L1 as far as its SM's L1 holds what was read in between: everything that the
    ``resident`` programs read (``on_sm``, their share of all work), or two loads of theirs where one block loads from
    the same array again and again. Small storages that every program re-reads (weights of a norm) stay in L1, too.
    """
    asked = stats.load_sectors * SECTOR_BYTES
    first = asked / max(1.0, stats.own_passes)
    held = L1_SHARE * spec.smem_per_sm
    near = min(asked - first, _near(stats, profile, first))
    far = (asked - first - near) * beyond(held, first * on_sm)
    widest = max([profile.blocks[index].widest for index, _ in stats.executed], default=0)
    pair = min(first * on_sm, 2.0 * SECTOR_BYTES * resident * widest)
    again = far + near * beyond(L1_WINDOW_SHARE * spec.smem_per_sm, pair)
    shared, per_sm = _shared(stats, profile, held, spec)
    return first - shared + min(shared, per_sm) + again, far


def _near(stats: LaunchStats, profile: KernelProfile, first: float) -> float:
    """Bytes that loads ask for of what the load before, or the one before it, has fetched: the taps of a window.

    Of the loads of one block from one array all but the largest may be such. What a whole run of a loop asks for beyond
    the distinct bytes of all programs (``first``) is no more than what runs of it repeat; so a second run over the same
    data repeats nothing that is near, however a loop is unrolled.
    """
    executed = dict(stats.executed)
    asked_of = _asked(stats, profile)
    whole = sum(asked_of.values())
    scale = stats.load_sectors * SECTOR_BYTES / whole if whole else 0.0
    total = 0.0
    for index in executed:
        block = profile.blocks[index]
        by_array: defaultdict[int, list[float]] = defaultdict(list)
        for load in block.loads:
            by_array[load.array].append(asked_of[load.number] * scale)
        asked = sum(map(sum, by_array.values()))
        runs = _runs(block, executed, stats.programs)
        total += max(0.0, min(asked - sum(map(max, by_array.values())), asked - runs * first))
    return total


def _asked(stats: LaunchStats, profile: KernelProfile) -> dict[int, float]:
    """Bytes that each load asks for over the launch, by the number of the operation."""
    beyond_text = {number: nbytes for number, _, nbytes, _ in stats.sites}
    return {
        load.number: max(0.0, count * load.nbytes + beyond_text.get(load.number, 0.0))
        for index, count in stats.executed
        for load in profile.blocks[index].loads
    }


def _runs(block: BlockProfile, executed: dict[int, float], programs: int) -> float:
    """How often a program begins the loop that a block is in; at least once."""
    return max(1.0, executed.get(block.around, 0.0) / max(1, programs)) if block.around >= 0 else 1.0


def _shared(stats: LaunchStats, profile: KernelProfile, held: float, spec: GPUSpec) -> tuple[float, float]:
    """(bytes of small storages that programs read again after others, those that an SM's first program brings).

    Each storage by what loads ask of it.
    """
    asked: defaultdict[int, float] = defaultdict(float)
    storage = {number: base for number, base, _, _ in stats.sites}
    for number, nbytes in _asked(stats, profile).items():
        asked[storage.get(number, -1)] += nbytes / max(1.0, stats.own_passes)
    shared = per_sm = 0.0
    for base, read, _ in stats.footprint:
        distinct = math.ceil(read / SECTOR_BYTES) * SECTOR_BYTES
        if read <= held and base != -1:
            again = min(max(0.0, asked[base] - distinct), distinct * max(0.0, stats.programs - 1.0))
            shared += again
            per_sm += min(again, distinct * max(0.0, min(float(stats.programs), float(spec.sm_count)) - 1.0))
    return shared, per_sm
