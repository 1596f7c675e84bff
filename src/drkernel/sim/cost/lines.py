"""A launch's modelled time by source line: each line's share of the binding limit.

A line's operations and accesses are those of the text, times the executions of its block; accesses that are not plain
runs of memory are counted one by one (``LaunchStats.sites``). Costs that no line causes (start-up, dispatch, spills)
are attributed to none.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from drkernel.sim.cost.kernel_profile import COMBINES, BlockProfile, dot_of, homes_of, lane_instructions, steps_of
from drkernel.sim.cost.launch_time import (
    DEPENDENT_CYCLES,
    PROGRAM_CYCLES,
    SHUFFLE_CYCLES,
    THREAD_BYTES_AHEAD,
    dot_rate,
)
from drkernel.sim.cost.layouts import Layouts, lanes_of, layouts_of
from drkernel.sim.cost.records import SECTOR_BYTES
from drkernel.sim.cost.roofline import unit_rate
from drkernel.sim.spec import GPUSpec
from drkernel.verdict import SourceLine
from ttir_executor.lower.access import counted_bytes
from ttir_executor.lower.block_cost import BlockCost, count_operation
from ttir_executor.lower.combine import COMBINED, count_combined
from ttir_executor.lower.dot import PRODUCTS, count_products
from ttir_executor.lower.plan import blocks_of
from ttir_executor.results import LaunchStats
from ttir_executor.ttir.ir import BasicBlock, Function, Op, elem_bytes

WARP = 32
"""lanes whose addresses form one request"""
WASTEFUL = 1.25
"""a line whose sectors exceed those needed by this factor is modelled without the waste"""
_SWITCHES = 5
"""steps of a reduction across lanes"""
Place = tuple[str, tuple[str, ...]]
"""``file:line`` and the calls that led there"""
Weights = defaultdict[Place, float]


def weights() -> Weights:
    """An empty table of weights by place."""
    return defaultdict(float)


@dataclass
class _LineAccess:
    """One load or store of the text, over the whole launch."""

    place: Place
    base: int
    store: bool
    asked: float
    used: float
    requests: float


@dataclass
class _Tally:
    """Sums over a launch, by place."""

    accesses: list[_LineAccess] = field(default_factory=list)
    operations: Weights = field(default_factory=weights)
    atomics: Weights = field(default_factory=weights)
    issue: Weights = field(default_factory=weights)
    """seconds of instructions, at the device's rates"""
    products: Weights = field(default_factory=weights)
    """seconds of ``tt.dot``, at the device's rates"""
    serial: bool = False
    """products and instructions wait for each other"""
    chains: Weights = field(default_factory=weights)
    """seconds of one program's own latency, on average"""


def source_lines(
    function: Function,
    blocks: tuple[BlockProfile, ...],
    stats: LaunchStats,
    parts: dict[str, float],
    seconds: float,
    *,
    threads: int,
    spec: GPUSpec,
    price: Callable[[LaunchStats], float],
) -> tuple[SourceLine, ...]:
    """Return the lines of a kernel, the costliest first.

    Args:
        function: the kernel.
        blocks: its profile's blocks.
        stats: counts over all programs.
        parts: what each limit alone would take, in seconds (``CostEstimate.parts``).
        seconds: of the launch.
        threads: of a program.
        spec: the device.
        price: the modelled seconds of the launch with other counts, from an empty cache.
    """
    tally = _tally(function, blocks, stats, threads, spec)
    binding = max((name for name in parts if name != "fixed"), key=lambda name: parts[name])
    asked = _weights(binding, tally, stats)
    whole = sum(asked.values())
    if binding == "chains":
        whole += PROGRAM_CYCLES / spec.clock_hz
    scale = parts[binding] / seconds / whole if whole and seconds else 0.0
    places = {a.place for a in tally.accesses} | tally.operations.keys() | tally.issue.keys() | tally.atomics.keys()
    lines = [_line(place, asked[place] * scale, tally, stats, price) for place in places if place[0]]
    return tuple(sorted(lines, key=lambda line: (-line.share, line.file, line.line)))


# ---- counting


def _tally(
    function: Function, blocks: tuple[BlockProfile, ...], stats: LaunchStats, threads: int, spec: GPUSpec
) -> _Tally:
    tally, layouts, executed = _Tally(), layouts_of(function), dict(stats.executed)
    beyond = {number: rest for number, *rest in stats.sites}
    nested = blocks_of(function)
    homes, numbers = homes_of(nested), {id(block): number for number, block in enumerate(nested)}
    for index, block in enumerate(nested):
        times = executed.get(index, 0.0)
        if not times:
            continue
        tally.serial |= blocks[index].serial
        for op in block.ops:
            place = (op.loc, op.callers)
            done = executed.get(numbers[id(homes[id(op)])], 0.0)
            for unit, numel, count, tile in lane_instructions(op, layouts):
                tally.issue[place] += done * count * lanes_of(numel, tile, threads) / unit_rate(unit, spec)
            if op.name in ("tt.load", "tt.store"):
                tally.accesses.append(_access(op, place, times, *beyond.get(op.number, (-1, 0.0, 0.0))))
            elif op.name.startswith("tt.atomic"):
                tally.atomics[place] += times * op.operands[0].type.numel
            _count(tally, op, place, times, threads, spec)
        for place, latency in _chain_of(block, blocks[index], layouts, threads, spec):
            tally.chains[place] += latency * times / max(1, stats.programs)
    return tally


def _access(op: Op, place: Place, times: float, base: float, nbytes: float, lanes: float) -> _LineAccess:
    pointer = op.operands[0].type
    size = elem_bytes(pointer.pointee or "i8")
    asked = max(0.0, times * counted_bytes(pointer) + nbytes)
    used = min(asked, max(0.0, (times * counted_bytes(pointer) / size + lanes) * size))
    if pointer.numel * size < SECTOR_BYTES:  # less than the sector that the text is taken to ask for
        used = min(used, times * pointer.numel * size)
    return _LineAccess(place, int(base), op.name == "tt.store", asked, used, times * -(-pointer.numel // WARP))


def _count(tally: _Tally, op: Op, place: Place, times: float, threads: int, spec: GPUSpec) -> None:
    cost = BlockCost()
    if op.name in PRODUCTS:
        count_products(cost, op)
        dot = dot_of(op)
        tally.products[place] += times * dot.operations / dot_rate(dot, threads, spec) / spec.sm_count
    elif op.name in COMBINED:
        count_combined(cost, op)
    else:
        count_operation(cost, op)
    floating = sum(count for unit, count in cost.flops.items() if unit != "int")
    if floating:
        tally.operations[place] += times * floating


def _chain_of(
    block: BasicBlock, profile: BlockProfile, layouts: Layouts, threads: int, spec: GPUSpec
) -> Iterator[tuple[Place, float]]:
    """The latency of one execution of a block by its operations: the loads of a level share its rounds."""
    ahead = max(1, (profile.stages or 2) - 1) if profile.pipelined else 1
    levels: list[float] = []
    for op, after in list(steps_of(block, levels)):
        place = (op.loc, op.callers)
        if op.name == "tt.load" and (level := levels[after.level - 1]):
            nbytes = op.operands[0].type.numel * elem_bytes(op.operands[0].type.pointee or "i8")
            yield place, spec.dram_latency / ahead * nbytes / min(level, threads * THREAD_BYTES_AHEAD)
        elif op.name in COMBINES:
            yield place, _SWITCHES * SHUFFLE_CYCLES / spec.clock_hz
        elif op.name != "tt.load":
            each = lane_instructions(op, layouts)
            lanes = sum(lanes_of(n, tile, threads) * c / unit_rate(u, spec) for u, n, c, tile in each)
            yield place, max(lanes * spec.sm_count, DEPENDENT_CYCLES / spec.clock_hz if lanes else 0.0)


# ---- shares


def _weights(binding: str, tally: _Tally, stats: LaunchStats) -> Weights:
    """The demand of each place on the limit that binds, in any unit."""
    moved = weights()
    if binding == "compute" and tally.serial:
        for place in tally.issue.keys() | tally.products.keys():
            moved[place] = tally.issue[place] + tally.products[place]
        return moved
    if binding == "compute":
        return max(tally.issue, tally.products, key=lambda counts: sum(counts.values()))
    if binding == "chains":
        return tally.chains
    if binding == "atomics":
        return tally.atomics
    if binding in ("dram", "l2", "sm_memory"):
        for access in tally.accesses:
            moved[access.place] += _moved(access, binding, tally, stats)
    return moved


def _moved(access: _LineAccess, binding: str, tally: _Tally, stats: LaunchStats) -> float:
    """Bytes: asked for; from device memory the distinct ones of its storage, shared with the others that access it."""
    distinct = _distinct(access, stats)
    if binding != "dram" or not distinct:
        return access.asked
    others = sum(o.asked for o in tally.accesses if (o.base, o.store) == (access.base, access.store))
    return distinct * access.asked / others if others else 0.0


def _distinct(access: _LineAccess, stats: LaunchStats) -> float:
    return sum(row[2 if access.store else 1] for row in stats.footprint if row[0] == access.base)


def _line(
    place: Place, share: float, tally: _Tally, stats: LaunchStats, price: Callable[[LaunchStats], float]
) -> SourceLine:
    file, _, line = place[0].rpartition(":")
    mine = [access for access in tally.accesses if access.place == place]
    asked, used, requests = (sum(getattr(a, name) for a in mine) for name in ("asked", "used", "requests"))
    sectors = asked / SECTOR_BYTES / requests if requests else None
    needed = min(sectors, used / SECTOR_BYTES / requests) if sectors is not None else None
    bases = {(access.base, access.store): _distinct(access, stats) for access in mine}
    coalesced = None
    if sectors is not None and needed is not None and needed and sectors > WASTEFUL * max(1.0, needed):
        loads, stores = (
            sum(max(0.0, a.asked - max(a.used, a.requests * SECTOR_BYTES)) for a in mine if a.store is store)
            for store in (False, True)
        )
        coalesced = price(
            replace(
                stats,
                load_sectors=max(0.0, stats.load_sectors - loads / SECTOR_BYTES),
                store_sectors=max(0.0, stats.store_sectors - stores / SECTOR_BYTES),
            )
        )
    return SourceLine(
        file=file, line=int(line), callers=place[1], share=share, bytes_asked=asked, bytes_used=used,
        bytes_unique=sum(bases.values()), sectors_per_request=sectors, sectors_needed=needed,
        operations=float(tally.operations[place]), atomics=float(tally.atomics[place]), coalesced_seconds=coalesced,
    )  # fmt: skip
