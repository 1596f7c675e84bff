"""The modelled time of one Triton launch, from the executor's counts and the profile of the kernel's parsed blocks.

A launch takes a fixed start-up plus the longest of what its resources need (device memory, L2, each SM's port and L1,
issue slots and arithmetic units, atomics, block dispatch) and of its programs' own chains: waves of resident programs,
each as long as its rounds of memory latency, reductions and arithmetic take in sequence. Every part grows with what it
counts, so no further byte, operation, pass or spill makes a launch faster (``tests/sim/cost/test_cost_limits.py``).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from drkernel.sim.cost.kernel_profile import BlockProfile, Dot, KernelProfile, Load
from drkernel.sim.cost.layouts import VECTOR_BYTES, bank_conflicts, lanes_of, spread
from drkernel.sim.cost.pressure import register_limit, spilled_bytes
from drkernel.sim.cost.records import SECTOR_BYTES, CostEstimate
from drkernel.sim.cost.roofline import (
    SM_BANDWIDTH_SHARE,
    L2State,
    asked_again,
    asked_shares,
    atomic_seconds,
    beyond,
    blocks_per_sm,
    by_storage,
    mma_sync_share,
    operand_share,
    past_l1,
    peak_of,
    shared_out,
    stored_elements,
    unit_rate,
    vector_seconds,
)
from drkernel.sim.spec import GPUSpec
from drkernel.verdict import Bound

if TYPE_CHECKING:
    from ttir_executor.compiled import LaunchStats

Executed = Sequence[tuple[int, float]]
"""executions by block: (its index, how many)"""
TRITON_TENSOR_SHARE = {"mma": 0.95, "wgmma": 0.85}
"""Share of the sustained tensor rate that Triton's main loop reaches, before L2 and pipelining. With ``mma.sync`` it is
level with cuBLAS (A100: 230 and 229 TFLOP/s at 3072, issue 3551 of triton-lang/triton); from Hopper on the copies lack
warps of their own."""
TRITON_FP32_DOT_SHARE = 0.88
"""The same for fp32 dots on the vector units, before operands are fetched: the libraries' share (``products.py``)."""
THREAD_BYTES_AHEAD = 256.0
"""Loads that a thread can have outstanding: a quarter of the most registers it may have."""
COALESCED = 0.5
"""Share of the operands' bytes read again by other programs that Hopper's L2 gives to two SMs at once:
products in tiles of 64 x 64 take 10.4 TB/s on an H200 (its used rows; A100's have no such surplus)."""
L1_BYTES_PER_CLOCK = 128.0
"""Bytes that an SM's L1 moves in a clock (CUDA C++ Programming Guide, from capability 7.0 on)."""
BANK_BYTES = 4.0
"""Of those, what a lane's load takes, however short."""
L1_CYCLES = 40.0
"""Latency of L1 (Luo et al. 2024: 38 on A100, 41 on H100)."""
ASYNC_ROUND = 1.5
"""From the issue of a loop's asynchronous copies to the barrier behind which a product may read them, in latencies of
memory (H200, loops of lone programs with 2, 3 and 4 stages: 0.74, 0.36 and 0.27 us an iteration, beside its product's
time: a loop that only multiplies has one of the two at a time)."""
UNROLLED = 4
"""Iterations of a short loop that ptxas puts one after the other, their loads first (12.8, by its machine code)."""
AHEAD = 170.0
"""Instructions before the use of an element at which ptxas puts its load where it puts loads off: there a thread waits
for memory once in so many (12.8, sm_90: gelu, silu and swiglu of 16 to 128 elements a thread, by the order of their
machine code)."""
AT_ONCE = 3.0
"""Vectors that such a thread loads before it computes."""
NARROW = (89, 120, "gfx942")
"""Architectures whose warps multiply eight-bit floats as they are, in Triton."""
PERMUTES = 0.75
"""Instructions that put a byte in its place among four."""
WIDENED = 3.0
"""Instructions that make an element of a microscaling format bf16: its conversion, and a product with its scale."""
TURNED_CYCLES = 0.5
"""Clocks of an SM for one element that a store of one warp turns, 16 lanes to a bank."""
QUEUES = 3.0
"""Power in which the time of programs that wait and that of the busiest resource add up: where the two are near, what
is waited for stands in queues (H200, its used rows: 0.084, 0.083, 0.077, 0.078, 0.081 with 5, 4, 3, 2.5, 2)."""
FRAME_SHARE = 0.4
"""Local memory of a thread over the bytes it writes there and reads back in one pass (ptxas, see ``pressure.py``)."""
PROGRAM_CYCLES = 700.0
"""From a program's dispatch to its first instruction and from its last store to the next program's dispatch."""
DISPATCH_CYCLES = 1.09
"""From one program's dispatch to the next one's on any SM (TritonBench's used rows of launches of up to 17 million
programs of four elements, A100)."""
DEPENDENT_CYCLES = 4.0
"""Clocks from one arithmetic instruction to the next that needs its result (all of these architectures)."""
LONE_WARP_CYCLES = 2.0
"""Clocks from one instruction of a warp to its next where its program is alone: of those that come next few are
independent (TritonBench's used rows of chains of programs with sums in them, A100). Where nothing is exchanged
between lanes, instructions for several elements of a thread are, and come right behind each other."""
MMA_RESULTS, MMA_BYTES, LDMATRIX_BYTES = 16.0 * 8.0, 32.0, 512.0
"""Results of an ``mma.sync`` and bytes that it takes along the sum; what an ``ldmatrix`` brings (PTX ISA)."""
SHUFFLE_CYCLES = 25.0
"""One step of a reduction across lanes: a shuffle and the operation behind it."""
BARRIER_CYCLES = 80.0
"""Exchange between warps: a store to shared memory, a barrier, a load."""
SCHEDULERS = 4
"""Warp schedulers of an SM."""


@dataclass(frozen=True)
class LaunchShape:
    """How a launch fills the device."""

    programs: float
    warps: int
    threads: int
    resident: int
    """programs on one SM at a time"""
    most: int
    """programs on one SM if only threads counted"""
    busiest: float
    """total number of programs that the busiest SM runs"""
    executed: Executed
    """by all programs"""
    classes: Sequence[tuple[float, Executed]]
    """(how many programs, executed by all of these)"""
    spread: Spread
    """the classes by the time that a program takes alone"""
    loads: Spread
    """the classes by the bytes that a program loads, or by time where none loads"""
    sms: int

    @property
    def share(self) -> float:
        """Share of all bytes that the busiest SM moves."""
        return max(1.0 / self.sms, self.loads.share(self._on_busiest))

    @property
    def on_sm(self) -> float:
        """Share of all loaded bytes of the programs that are on one SM at a time, as far as threads count."""
        return self.loads.share(lambda programs: min(self.most, self._on_busiest(programs)))

    @property
    def under_way(self) -> float:
        """The same of all SMs."""
        return self.loads.share(lambda programs: min(programs, float(self.sms * self.most)))

    def busiest_sm(self, seconds: Callable[[Executed], float]) -> float:
        """Seconds of the busiest SM, where executions of blocks keep one SM busy for ``seconds``.

        Each resource is spread by its own work: were it a share of all work by time, a program that waits longer would
        take away from what the others compute. Programs that find a slot at once stay where they are: one of the
        longest has others beside it, however long these are.
        """
        together = seconds(self.executed) / self.sms
        each = Spread.of((count, seconds(executed) / count) for count, executed in self.classes)
        return max(together, each.longest(self._on_busiest), each.placed(self.sms, self.most))

    def queued(self, parts: Mapping[str, float]) -> float:
        """Seconds of the busiest resource for other programs than the one that waits: its own are in its chain."""
        near, all_over = min(self.busiest, self.resident), min(self.programs, float(self.sms * self.resident))
        beside = {"sm_memory": near, "compute": near, "dram": all_over, "l2": all_over, "atomics": all_over}
        return max(parts[part] * (1.0 - 1.0 / programs) for part, programs in beside.items())

    @property
    def schedulers(self) -> float:
        """Share of an SM's schedulers that have a warp of the launch."""
        return min(1.0, min(self.busiest, self.resident) * self.warps / SCHEDULERS)

    def _on_busiest(self, programs: float) -> float:
        return math.ceil(programs / self.sms - 1e-9)


@dataclass(frozen=True)
class _Traffic:
    """Bytes that a launch moves."""

    dram: float
    l2: float
    port: float
    """to and from the SMs; of which L2 gives some to two at once"""
    l1: float


def launch_cost(
    stats: LaunchStats,
    profile: KernelProfile,
    num_warps: int,
    spec: GPUSpec,
    l2: L2State,
    *,
    num_stages: int = 2,
    shared_bytes: int = 0,
    registers: int = 0,
    frame_bytes: int | None = None,
) -> CostEstimate:
    """Device seconds of one launch, without the host's launch overhead; moves ``l2`` (shared with operators) on.

    ``profile`` is what one execution of each block does, ``num_stages`` Triton's depth of software pipelining,
    ``shared_bytes`` a program's and ``registers`` a thread's where known. ``frame_bytes`` are a thread's local memory
    as the compiler has it; estimated from the blocks where None.
    """
    spilled = _spilled(stats, profile, num_warps * spec.warp_size, spec, frame_bytes)
    resident = blocks_per_sm(spec, num_warps, shared_bytes, registers)
    stats = shared_out(stats, profile, spec.sm_count * resident)
    shape = _shape(stats, profile, spec, num_warps, num_stages, resident)
    traffic = _traffic(stats, profile, shape, spilled, spec, l2)
    port = spec.sm_bytes_per_clock * SM_BANDWIDTH_SHARE
    parts = {
        "dram": traffic.dram / spec.dram_bandwidth,
        "l2": traffic.l2 / spec.l2_bandwidth,
        "sm_memory": max(traffic.port / port, traffic.l1 / L1_BYTES_PER_CLOCK) * shape.share / spec.clock_hz,
        "compute": max(_compute(profile, shape, num_stages, spec), _at_peak(stats, spec)),
        "atomics": atomic_seconds(stats, profile, spec),
        "chains": shape.spread.elapsed(spec.sm_count, resident, PROGRAM_CYCLES / spec.clock_hz),
        "dispatch": shape.programs * DISPATCH_CYCLES / spec.clock_hz,
    }
    # what streams waits once before it flows; chains have their own waits
    fill = spec.dram_latency if stats.load_sectors else 0.0
    others = fill + max(value for part, value in parts.items() if part != "chains")
    busy = max(others, (parts["chains"] ** QUEUES + (fill + shape.queued(parts)) ** QUEUES) ** (1.0 / QUEUES))
    seconds = spec.kernel_min + busy
    parts["fixed"] = spec.kernel_min
    memory = max(parts["dram"], parts["l2"], parts["sm_memory"])
    bound: Bound = "latency"
    if busy > spec.kernel_min and others > parts["chains"]:
        bound = "memory" if memory >= others - fill else "compute"
    return CostEstimate(
        seconds=seconds, dram_bytes=traffic.dram, l2_bytes=traffic.l2, flops=dict(stats.flops), bound=bound,
        roofline=_ideal(stats, spec) / seconds, parts=parts,
    )  # fmt: skip


def _shape(
    stats: LaunchStats, profile: KernelProfile, spec: GPUSpec, num_warps: int, num_stages: int, resident: int
) -> LaunchShape:
    programs = max(float(stats.programs), 1.0)
    alone = block_seconds(profile, num_warps, num_stages, spec, asked_shares(stats, profile))
    classes = stats.classes or ((programs, stats.executed),)
    spread = Spread.of((n, sum(count * alone[block] for block, count in entered) / n) for n, entered in classes)
    nbytes = [sum(block.levels) for block in profile.blocks]
    loads = Spread.of((n, sum(count * nbytes[block] for block, count in entered) / n) for n, entered in classes)
    return LaunchShape(
        programs=programs, warps=num_warps, threads=num_warps * spec.warp_size, resident=resident,
        most=blocks_per_sm(spec, num_warps), busiest=float(math.ceil(programs / spec.sm_count)),
        executed=stats.executed, classes=classes, spread=spread, loads=loads if loads.seconds else spread,
        sms=spec.sm_count,
    )  # fmt: skip


# ---- memory


def _spilled(
    stats: LaunchStats, profile: KernelProfile, threads: int, spec: GPUSpec, frame_bytes: int | None
) -> tuple[float, float]:
    """(bytes of one program's local memory, bytes that all programs write there and read back).

    With the compiler's own frame the estimate's distribution over blocks is scaled to it.
    """
    moved = _moved(profile, threads, spec)
    once = sum(moved)
    if frame_bytes is not None:
        if not frame_bytes:
            return 0.0, 0.0
        if not once:
            moved = [block.values for block in profile.pressure]
            once = sum(moved) or 1.0
        scale = frame_bytes * threads / FRAME_SHARE / once
        moved, once = [each * scale for each in moved], once * scale
    total = sum(moved[block] * count for block, count in stats.executed)
    return FRAME_SHARE * once, total


def _moved(profile: KernelProfile, threads: int, spec: GPUSpec) -> list[float]:
    """Bytes that one execution of each block writes to local memory and reads back. Sums of products that B200's own
    instructions make are in its tensor memory (machine code by ptxas, sm_100)."""
    dots = [dot for block in profile.blocks for dot in block.dots]
    apart = spec.arch == 100 and all(dot_is_wgmma(dot, threads, spec) for dot in dots)
    tile = max(block.tile for block in profile.pressure) if apart else 0.0
    blocks = (replace(each, held=max(0.0, each.held - tile), tile=each.tile * (not apart)) for each in profile.pressure)
    return [spilled_bytes(each, threads, register_limit(threads, spec.regs_per_sm)) for each in blocks]


def _traffic(
    stats: LaunchStats,
    profile: KernelProfile,
    shape: LaunchShape,
    spilled: tuple[float, float],
    spec: GPUSpec,
    l2: L2State,
) -> _Traffic:
    """Return the bytes past each level of the hierarchy; the launch's storages pass through ``l2``."""
    asked = stats.load_sectors * SECTOR_BYTES
    stored = stats.store_sectors * SECTOR_BYTES
    unique = float(sum(read for _, read, _ in stats.footprint))
    asked_of = by_storage(stats, profile)
    from_l2, own_again = past_l1(stats, profile, asked_of, min(shape.most, shape.busiest), shape.on_sm, spec)
    concurrent = min(shape.programs, float(spec.sm_count * shape.most))
    own = asked / max(1.0, stats.own_passes)  # distinct bytes of each program
    dram = min(own_again, asked_again(stats, asked_of, l2.capacity)) * beyond(l2.capacity, own * shape.under_way)
    reads = {storage: part for storage, part, _ in stats.parts}
    writes = {storage: part for storage, _, part in stats.parts}
    for storage, nbytes, _ in stats.footprint:
        if nbytes:
            dram += l2.read(storage, nbytes, reads.get(storage))
    for storage, _, written in stats.footprint:
        if written:
            l2.write(storage, written, writes.get(storage))
    dram += l2.take_writeback()
    written = float(sum(written for _, _, written in stats.footprint))
    dram += max(0.0, stored_elements(stats, profile) - written) * beyond(l2.capacity, unique + written)
    frame, local = spilled
    # L1 keeps none of it: tiles of 128 x 256 by four warps take as long with 98 KB of shared memory as with 196 (H200)
    dram += local * beyond(l2.capacity, frame * concurrent)
    atomics = stats.atomics * 8.0
    moved = max(from_l2, unique) + max(stored, written)
    repeated = operand_share(stats, profile) * max(0.0, from_l2 - unique)
    together = COALESCED * repeated if spec.arch == 90 else 0.0
    passed = moved + local + atomics
    dots = [(dot, count) for index, count in stats.executed for dot in profile.blocks[index].dots]
    operands = sum(count * _operand_bytes(dot, shape.threads, spec) for dot, count in dots)
    shares = asked_shares(stats, profile)
    lines = sum(count * _lines(profile.blocks[index], shares) for index, count in stats.executed)
    loads = [(load, count) for index, count in stats.executed for load in profile.blocks[index].loads]
    words = sum(count * load.pieces * min(1.0, shares.get(load.number, 1.0)) for load, count in loads)
    inside = asked + stored + local + operands + L1_BYTES_PER_CLOCK * lines + 2.0 * BANK_BYTES * words
    return _Traffic(dram, passed - together, passed, inside)


def _lines(block: BlockProfile, asked: Mapping[int, float]) -> float:
    """Lines that an execution asks L1 for one by one, a clock each."""
    return sum(load.lines * min(1.0, asked.get(load.number, 1.0)) for load in block.loads)


# ---- arithmetic


def _all_lanes(
    profile: KernelProfile, threads: int, num_stages: int, spec: GPUSpec, alone: bool = False
) -> list[Counter[str]]:
    """By block; first rounds of loops that load ahead begin in the block around them."""
    lanes = [block_lanes(block, threads, spec, alone) for block in profile.blocks]
    for block in profile.blocks:
        rounds = max(0, (block.stages or num_stages) - 1)
        for unit, count in block_lanes(block, threads, spec, alone, ahead=True).items():
            lanes[block.around][unit] += rounds * count  # type: ignore[assignment]
    return lanes


def block_lanes(
    block: BlockProfile, threads: int, spec: GPUSpec, alone: bool = False, ahead: bool = False
) -> Counter[str]:
    """Lane instructions by unit; of a program that is alone as many as take four schedulers as long."""
    lanes: Counter[str] = Counter()
    idle = SCHEDULERS * spec.warp_size / threads if alone else 0.0
    copies = {dot.elements: dot_copies(dot, threads, spec) for dot in block.dots}
    for unit, numel, count, tile in block.ahead if ahead else block.lanes:
        held = lanes_of(numel, tile, threads)
        apart = max(1.0, idle * max(1.0, LONE_WARP_CYCLES / (1.0 if block.reductions else held / threads)))
        lanes[unit] += held * count * copies.get(numel, 1.0) * apart  # type: ignore[assignment]
    for rows, columns, step, units in block.scans if not ahead else ():
        held, _, warps = spread(rows, columns, step, threads // spec.warp_size)
        for unit, count in units:
            lanes[unit] += max(threads, rows * columns / held) * count * warps * max(1.0, idle)  # type: ignore[assignment]
    for dot in block.dots if not ahead else ():
        lanes["issue"] += _product_lanes(dot, threads, spec) * max(1.0, idle)  # type: ignore[assignment]
    return lanes


def _product_lanes(dot: Dot, threads: int, spec: GPUSpec) -> float:
    """Lane instructions of ``mma.sync`` and ``ldmatrix``; of ``wgmma`` a few are enough."""
    if not dot.unit.startswith("tensor_") or spec.vendor != "nvidia" or dot_is_wgmma(dot, threads, spec):
        return 0.0
    item = 2.0 if _widened(dot, spec) or _unpacked(dot, threads, spec) else _item(dot)
    multiplied = dot.operations / 2.0 * dot_copies(dot, threads, spec) * item / (MMA_RESULTS * MMA_BYTES)
    return spec.warp_size * (multiplied + _operand_bytes(dot, threads, spec) / LDMATRIX_BYTES)


def _compute(profile: KernelProfile, shape: LaunchShape, num_stages: int, spec: GPUSpec) -> float:
    """Seconds of the busiest SM for its instructions and its dots, which overlap but for those of serial blocks.

    Programs that share the SM overlap little of those either, as published attention without specialised warps shows.
    """
    lanes = _all_lanes(profile, shape.threads, num_stages, spec)
    dots = [_dots_seconds(block, shape.threads, spec) for block in profile.blocks]

    def issue(executed: Executed) -> float:
        total: Counter[str] = Counter()
        for index, count in executed:
            for unit, number in lanes[index].items():
                total[unit] += number * count  # type: ignore[assignment]
        return vector_seconds(total, spec, mixed=not any(profile.blocks[index].dots for index, _ in executed))

    def tensor(executed: Executed) -> float:
        return sum(count * dots[index] for index, count in executed)

    def serial(executed: Executed) -> float:
        those = [(index, count) for index, count in executed if profile.blocks[index].serial]
        return issue(those) + tensor(those)

    # an SM with few warps issues no more than one instruction from each
    return max(map(shape.busiest_sm, (issue, tensor, serial))) / shape.schedulers


def dot_rate(dot: Dot, threads: int, spec: GPUSpec) -> float:
    """Operations a second of one SM for a dot of a program of ``threads``, with all schedulers at work.

    Vector units: with *e* elements of the result a thread, a step fetches 2 sqrt(e) operands from shared memory, four
    an instruction, for e multiply-adds.
    """
    halves = _widened(dot, spec) or _unpacked(dot, threads, spec)
    rate = unit_rate("tensor_bf16" if halves else dot.unit, spec) / spec.sm_count
    if not dot.unit.startswith("tensor_"):
        return rate * TRITON_FP32_DOT_SHARE / (1.0 + 0.5 / math.sqrt(max(1.0, dot.elements / threads)))
    rate /= dot_copies(dot, threads, spec)
    if mma_sync_share(spec) == 1.0:
        return rate * TRITON_TENSOR_SHARE["mma" if spec.vendor == "nvidia" else "wgmma"]
    if dot_is_wgmma(dot, threads, spec):  # takes its operands from shared memory as it goes
        fed = L1_BYTES_PER_CLOCK * spec.clock_hz / max(1.0, _operand_bytes(dot, threads, spec))
        return min(rate * TRITON_TENSOR_SHARE["wgmma"], dot.operations * fed)
    older = 1.0 if dot.unit == "tensor_fp64" else mma_sync_share(spec)  # fp64 has no newer instruction
    return rate * older * TRITON_TENSOR_SHARE["mma"]


def dot_copies(dot: Dot, threads: int, spec: GPUSpec) -> float:
    """How many times the warps of a program make the same element of a product, and of what is made of it.

    A warp makes 16 rows of at least 8 columns. Chained products have all warps along one side, which is that of the
    rows for ``wgmma`` and the longer one before (``warpsPerTileV2`` and ``V3`` of Triton's AccelerateMatmul).
    """
    if not dot.unit.startswith("tensor_"):
        return 1.0
    columns = dot.elements / max(1, dot.rows)
    side = dot.elements / 128.0
    if dot.chained:
        side = dot.rows / 16.0 if dot.rows >= columns or dot_is_wgmma(dot, threads, spec) else columns / 8.0
    return max(1.0, threads / spec.warp_size / max(1.0, side))


def dot_is_wgmma(dot: Dot, threads: int, spec: GPUSpec) -> bool:
    """Whether a product goes by Hopper's own instructions: these take four warps, and 64 rows."""
    newer = mma_sync_share(spec) < 1.0 and dot.unit != "tensor_fp64"
    return newer and threads % (4 * spec.warp_size) == 0 and dot.rows >= 64


def _operand_bytes(dot: Dot, threads: int, spec: GPUSpec) -> float:
    """Bytes that warps read from shared memory for one product: those beside each other read the same rows, those below
    each other the same columns.

    For ``wgmma`` four warps are as one, and stand below each other; before, each takes a part as square as may be. What
    a chained product is made of is in registers.
    """
    if not dot.unit.startswith("tensor_") or dot.rows < 2:
        return 0.0
    newer = dot_is_wgmma(dot, threads, spec)
    warps, high = (threads // spec.warp_size, 16) if not newer else (threads // spec.warp_size // 4, 64)
    columns, below = dot.elements / dot.rows, 1
    while below < min(warps, dot.rows / high) and (newer or dot.chained or 2 * below**2 * columns < warps * dot.rows):
        below *= 2
    along = dot.operations / (2.0 * dot.elements) * _item(dot)
    return along * ((0.0 if dot.chained else dot.rows * warps / below) + columns * below)


def _item(dot: Dot) -> float:
    """Bytes of an element that tensor cores multiply."""
    return int(re.sub(r"\D", "", dot.unit)) / 8.0


def _widened(dot: Dot, spec: GPUSpec) -> bool:
    """Whether operands of microscaling formats become bf16 (``DecomposeScaledBlocked``): only cards with a unit of four
    bits take their scales, and only where both are narrow."""
    return dot.scaled > 0.0 and ("tensor_fp4" not in spec.peak or dot.unit not in ("tensor_fp8", "tensor_fp4"))


def _unpacked(dot: Dot, threads: int, spec: GPUSpec) -> bool:
    """Whether a product of eight-bit floats becomes one of halves (``AccelerateMatmul``)."""
    return dot.unit == "tensor_fp8" and spec.arch not in NARROW and not dot_is_wgmma(dot, threads, spec)


def _dots_seconds(block: BlockProfile, threads: int, spec: GPUSpec) -> float:
    """Seconds of one SM for the dots of one execution of a block, with all schedulers at work."""
    return sum(dot.operations / dot_rate(dot, threads, spec) + _crossing(dot, threads, spec) for dot in block.dots)


def _crossing(dot: Dot, threads: int, spec: GPUSpec) -> float:
    """Seconds of the loads, and of the permutes of bytes, that bring operands the other way round, or widen them.

    They are instructions of the warps that wait for them. With ``mma.sync`` two rows of warps load the same operand
    (ptxas 12.8, products of 64 to 128 rows). For ``wgmma`` it is turned in shared memory: of 32 lanes that store
    rows of 128 swizzled bytes, 16 meet in a bank.
    """
    if _widened(dot, spec):
        return dot.scaled * WIDENED * spec.sm_count / unit_rate("int", spec)
    if _unpacked(dot, threads, spec):  # two at a time, by each warp what it multiplies
        return _operand_bytes(dot, threads, spec) / 2.0 * spec.sm_count / unit_rate("int", spec)
    if not dot.crossed:
        return 0.0
    if dot_is_wgmma(dot, threads, spec):
        return dot.crossed * TURNED_CYCLES / spec.clock_hz
    permutes = PERMUTES if dot.unit in ("tensor_int8", "tensor_fp8") else 0.0
    twice = mma_sync_share(spec) == 1.0 and threads >= 4 * spec.warp_size
    each = BANK_BYTES / (L1_BYTES_PER_CLOCK * spec.clock_hz) + permutes * spec.sm_count / unit_rate("int", spec)
    return dot.crossed * each * (2.0 if twice else 1.0)


# ---- chains


def block_seconds(
    profile: KernelProfile, num_warps: int, num_stages: int, spec: GPUSpec, asked: Mapping[int, float]
) -> list[float]:
    """Seconds that one execution of each block takes a program that is alone on its SM; ``asked``: share of a load's
    bytes that its masks leave."""
    threads = num_warps * spec.warp_size
    least = {number: min(1.0, share) for number, share in asked.items()}
    waits = [_waits(block, threads, spec, least, UNROLLED if block.unrolled else 1) for block in profile.blocks]
    lines = [_lines(block, asked) / spec.clock_hz for block in profile.blocks]
    late, turns = ([_late(block, threads, spec, asked, small) for block in profile.blocks] for small in (False, True))
    lanes = _all_lanes(profile, threads, num_stages, spec, alone=True)
    ahead = [vector_seconds(block_lanes(block, threads, spec, True, ahead=True), spec) for block in profile.blocks]
    each = zip(profile.blocks, zip(waits, late, turns, lines, ahead, strict=True), lanes, strict=True)
    seconds = [_block_chain(*of_block, num_warps, num_stages, spec) for of_block in each]
    spilled = _moved(profile, threads, spec)
    for number, (block, wait) in enumerate(zip(profile.blocks, waits, strict=True)):
        seconds[number] += spilled[number] / (L1_BYTES_PER_CLOCK * spec.clock_hz)
        if block.unrolled:  # each entry waits once in full
            seconds[block.around] += _waits(block, threads, spec, least) - wait
    return seconds


def _waits(block: BlockProfile, threads: int, spec: GPUSpec, asked: Mapping[int, float], together: int = 1) -> float:
    """Seconds that an execution waits for its loads, one level after the other, where so many executions load at
    once."""
    total = 0.0
    late = _put_off(block, threads, spec) if block.puts_off else 0.0
    for place, nbytes in enumerate(block.levels):
        loads = [(load, asked.get(load.number, 1.0)) for load in block.loads if load.level == place]
        crowd = nbytes + sum(load.elements * (_crowded(load, threads) * share - 1.0) for load, share in loads)
        only = loads and sum(load.elements for load, _ in loads) >= nbytes and all(load.whole for load, _ in loads)
        waiting = max(share for _, share in loads) if only else 1.0
        rounds = max(_rounds(together * crowd, threads), late if place == len(block.levels) - 1 else 0.0)
        total += waiting * rounds / together * spec.dram_latency
    if block.around < 0:  # in loops other iterations' bytes flow meanwhile
        moved = sum(load.elements * asked.get(load.number, 1.0) for load in block.loads)
        total += moved / (spec.sm_bytes_per_clock * SM_BANDWIDTH_SHARE * spec.clock_hz)
    return total


def _late(block: BlockProfile, threads: int, spec: GPUSpec, asked: Mapping[int, float], small: bool) -> float:
    """Seconds that a round of a loop that loads ahead waits for what it does not: for memory where it asks for sectors
    that the round before did not, else for L1. ``small``: for pieces too small to be copied, each in a register until
    it is stored to shared memory before the product; else for the rest."""
    total = 0.0
    late = [load for load in block.loads if (load.pieces > 0.0 if small else load.exposed and not load.pieces)]
    for level in {load.level for load in late}:
        loads = [load for load in late if load.level == level]
        new = max(min(1.0, (1.0 if small else load.nearby) * asked.get(load.number, 1.0)) for load in loads)
        latency = new * spec.dram_latency + (1.0 - new) * L1_CYCLES / spec.clock_hz
        total += _rounds(sum(BANK_BYTES * load.pieces or load.elements for load in loads), threads) * latency
    return total


def _crowded(load: Load, threads: int) -> float:
    """With 16 sums a loop has room for one vector in the 32 registers that ptxas keeps to (12.8, sm_80 and 90)."""
    return load.crowding * (2.0 if load.crowding > 1.0 and load.carried and load.elements == 64.0 * threads else 1.0)


def _put_off(block: BlockProfile, threads: int, spec: GPUSpec) -> float:
    """Rounds of latency of loads that ptxas puts off: all but the first are waited for one after the other."""
    vectors = block.levels[-1] / (VECTOR_BYTES * threads) if block.levels else 0.0
    instructions = sum(block_lanes(block, threads, spec).values()) / threads
    return 1.0 + instructions * max(0.0, 1.0 - AT_ONCE / max(AT_ONCE, vectors)) / AHEAD


def _block_chain(
    block: BlockProfile, waits: tuple[float, ...], lanes: Counter[str], num_warps: int, num_stages: int, spec: GPUSpec
) -> float:
    """Return the seconds of one execution of a block by one program: memory rounds, arithmetic, lane exchanges.

    Every round takes the latency of device memory, because hits in L2 also meet queues there. Loads ahead begin once
    the round has made their addresses, beyond pointers that it only moves on.
    """
    loads, late, turn, lines, addresses = waits
    alone = vector_seconds(lanes, spec)
    dots = _dots_seconds(block, num_warps * spec.warp_size, spec) / min(1.0, num_warps / SCHEDULERS)
    if block.pipelined and not block.serial:  # what one program multiplies is not slowed by power and other programs
        share = TRITON_TENSOR_SHARE["mma" if mma_sync_share(spec) == 1.0 else "wgmma"]
        dots *= min(1.0, share * spec.tensor_share * spec.boost_clock_hz / spec.clock_hz)
    instructions = max(alone, block.depth * DEPENDENT_CYCLES / spec.clock_hz)
    arithmetic = turn + lines + instructions if turn else max(instructions, lines)
    work = arithmetic + dots if block.serial or not block.pipelined else max(arithmetic, dots)
    exchange = SHUFFLE_CYCLES * 5
    if num_warps > 1:
        exchange += BARRIER_CYCLES + SHUFFLE_CYCLES * math.log2(num_warps)
    conflicts = sum(bank_conflicts(*each, num_warps) for each in block.across_rows)
    work += (block.reductions * exchange + conflicts) / spec.clock_hz
    stages = block.stages or num_stages
    if not block.pipelined or stages < 2:
        return loads + work
    late = max(0.0, late - dots)  # asked for before the product
    ahead = (ASYNC_ROUND * loads + addresses) / (stages - 1)
    return max(ahead, work + late) if block.serial else max(ahead + dots, work) + late


def _rounds(nbytes: float, threads: int) -> float:
    """Rounds of latency in which a program loads so many bytes."""
    return max(1.0, nbytes / (threads * THREAD_BYTES_AHEAD))


def _at_peak(stats: LaunchStats, spec: GPUSpec) -> float:
    """Seconds of the operations at data-sheet rates; no mixture of instructions is faster."""
    return max([0.0, *(count / peak_of(unit, spec) for unit, count in stats.flops.items())])


def _ideal(stats: LaunchStats, spec: GPUSpec) -> float:
    """Seconds at data-sheet rates: distinct bytes over the bandwidth, operations over their unit's peak."""
    moved = sum(read + written for _, read, written in stats.footprint)
    return max(moved / spec.hbm_bandwidth, _at_peak(stats, spec))


# ---- programs of unlike length


@dataclass(frozen=True)
class Spread:
    """Programs in classes of like length, the longest first.

    Everything here is the largest over the programs that are at least as long as those of one class, so that a launch
    is never made faster by programs that are added, or by a program that does more.
    """

    classes: tuple[tuple[float, float], ...]
    """(how many programs, seconds that one of them takes alone on its SM)"""

    @classmethod
    def of(cls, classes: Iterable[tuple[float, float]]) -> Spread:
        """Sort classes of (programs, seconds)."""
        return cls(tuple(sorted(classes, key=lambda each: -each[1])))

    @property
    def programs(self) -> float:
        """All programs."""
        return sum(count for count, _ in self.classes)

    @property
    def seconds(self) -> float:
        """Of all programs, one after the other."""
        return sum(count * seconds for count, seconds in self.classes)

    def share(self, programs: Callable[[float], float]) -> float:
        """Share of all work that is done by so many of the longest ``programs`` as a function of their number says."""
        whole = self.seconds
        if not whole:
            return min(1.0, programs(self.programs) / self.programs)
        return min(1.0, self.longest(programs) / whole)

    def longest(self, programs: Callable[[float], float]) -> float:
        """Seconds of so many of the longest ``programs`` as a function of their number says, one after the other."""
        longer, most = 0.0, 0.0
        for count, seconds in self.classes:
            longer += count
            most = max(most, programs(longer) * seconds)
        return most

    def placed(self, sms: int, most: int) -> float:
        """Seconds of the busiest SM where as many programs as find a slot of ``most`` stay where they are."""
        placed = 0.0
        for some in [Spread(self.classes[:end]) for end in range(1, len(self.classes) + 1)]:
            if (programs := some.programs) >= sms:
                mean, beside = (seconds := some.seconds) / programs, min(programs / sms, most)
                unlucky = max(some.classes[0][1] - mean, some.unlucky(round(beside), sms) - beside * mean)
                placed = max(placed, seconds / sms + min(1.0, sms * most / programs) * unlucky)
        return placed

    def unlucky(self, slots: int, sms: int) -> float:
        """Seconds of the programs of that SM which has most of the longest: each fills its slots with what comes."""
        longer, work, most, programs = 0.0, 0.0, 0.0, self.programs
        for count, seconds in self.classes:
            longer, work = longer + count, work + count * seconds
            share, so_many, none = longer / programs, slots, float(sms)  # of the SMs: with fewer than so many
            while so_many and sms - none < 1.0:
                none -= sms * math.comb(slots, so_many) * share**so_many * (1.0 - share) ** (slots - so_many)
                so_many -= sms - none < 1.0
            most = max(most, so_many * work / longer)
        return most

    def elapsed(self, sms: int, resident: int, start: float) -> float:
        """Seconds on ``sms`` that hold ``resident`` programs each, where each takes ``start`` more to begin and end.

        Programs run in rounds; one that is longer than the rest takes its time, and all of them the sum over all slots.
        """
        longer, most = 0.0, (self.seconds + self.programs * start) / (sms * resident)
        for count, seconds in self.classes:
            longer += count
            rounds = math.ceil(math.ceil(longer / sms - 1e-9) / resident)
            most = max(most, rounds * (seconds + start))
        return most
