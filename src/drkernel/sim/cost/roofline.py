"""The time of one device kernel, whoever wrote it: the formula behind operators and Triton launches.

A kernel takes a fixed start-up plus the longest of what its resources need: device memory, L2, the memory path of its
busiest SM (too few blocks cannot draw the full bandwidth: Little's law), and each arithmetic unit.

What reads find in caches: L2, one state shared by launches and operators, so that cached chains cost the same; of a
launch's reads, what comes from L1.
"""

import math
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import replace

from drkernel.sim.cost.kernel_profile import BlockProfile, KernelProfile
from drkernel.sim.cost.records import SECTOR_BYTES, Access, CostEstimate, KernelWork, TensorMeta, write
from drkernel.sim.spec import GPUSpec
from drkernel.verdict import Bound
from ttir_executor.results import LaunchStats

EFFECTIVE_L2_SHARE = 0.6
"""Share of the nominal capacity that one kernel's stream can expect to keep: lines are duplicated between the two
partitions of A100 and H100 and replacement is not exact LRU (Lam 2023: latency on H100 rises well before 50 MB)."""
LEFT_DIRTY = EFFECTIVE_L2_SHARE * 40 * 2**20
"""Most bytes of a flush that wait to be written when a call begins: an A100's, no more on others (KernelBenchX)."""


class L2State:
    """Least-recently-used residency by parts of storages, in bytes.

    The bytes of a part that has gaps lie somewhere in it, spread evenly. Two such parts share as few of them as can be,
    so that pieces of one storage, read in turns, do not count as one another.

    The state starts empty, as after a flush. Writes are cached for later reads but cost device-memory bandwidth at
    once: a benchmark's flush leaves the cache full of dirty lines, so every line written evicts one, and on H100
    kernels of any size take (read + written) / bandwidth plus a constant (Liger-Kernel's published rows). What is read
    pushes the flush's lines out as well (:func:`_pushed_out`).
    """

    def __init__(self, spec: GPUSpec) -> None:
        self.capacity = spec.l2_bytes * EFFECTIVE_L2_SHARE
        self._held: OrderedDict[int, dict[tuple[float, float], float]] = OrderedDict()
        """bytes held by first byte and end in a storage, of what each access left, the oldest first"""
        self._accesses: dict[int, list[int]] = {}
        """keys of ``_held`` by storage, some of which are gone from there"""
        self._count = 0
        self._writeback = self._used = 0.0
        self._dirty = self._most_dirty = min(self.capacity, LEFT_DIRTY)
        self._read = self._written = 0.0

    def read(self, storage: int, nbytes: float, part: tuple[float, float] | None = None) -> float:
        """Read ``nbytes`` of a storage (of its ``part``); returns the bytes that must come from device memory."""
        resident = min(self._insert(storage, nbytes, part), nbytes)
        # A stream longer than the cache evicts its own head before it is read again.
        hits = resident if nbytes <= self.capacity else resident * self.capacity / nbytes
        self._read += nbytes - hits
        return nbytes - hits

    def write(self, storage: int, nbytes: float, part: tuple[float, float] | None = None) -> None:
        """Write ``nbytes`` of a storage (of its ``part``); the same amount goes to device memory."""
        self._writeback += nbytes
        self._written += nbytes
        self._insert(storage, nbytes, part)

    def _insert(self, storage: int, nbytes: float, part: tuple[float, float] | None) -> float:
        """Make a part the latest; returns how many of its bytes were resident."""
        if nbytes <= 0:
            return 0.0
        first, end = part or (0.0, nbytes)
        end = max(end, first + nbytes)
        resident, latest = 0.0, min(nbytes, self.capacity)
        earlier = [access for access in self._accesses.get(storage, ()) if access in self._held]
        for access in earlier:
            pieces = self._held[access]
            for start, stop in [(start, stop) for start, stop in pieces if start < end and stop > first]:
                low, high, density = max(first, start), min(end, stop), pieces[start, stop] / (stop - start)
                shared = max(0.0, (high - low) * (nbytes / (end - first) + density - 1.0))
                resident += shared
                if (start, stop) == (first, end):
                    latest += pieces.pop((start, stop)) - shared
                elif shared:
                    del pieces[start, stop]
                    for begin, behind, lost in ((start, low, 0.0), (low, high, shared), (high, stop, 0.0)):
                        if (left := (behind - begin) * density - lost) >= 1:
                            pieces[begin, behind] = left
            if not pieces:
                del self._held[access]
        self._count += 1
        self._held[self._count] = {(first, end): latest}
        self._accesses[storage] = [*earlier, self._count]
        self._used += min(nbytes, self.capacity) - resident
        self._make_room()
        return resident

    def _make_room(self) -> None:
        """Let the oldest parts go."""
        while self._used > self.capacity:
            access, pieces = next(iter(self._held.items()))
            piece, held = pieces.popitem()
            out = min(held, self._used - self.capacity)
            self._used -= out
            if held > out:
                pieces[piece] = held - out
            elif not pieces:
                del self._held[access]

    def take_writeback(self) -> float:
        """Bytes written to device memory since the last call, those of the flush among them."""
        pushed = _pushed_out(self._dirty, self._read, self._written)
        self._dirty -= pushed  # what was written took the place of as many, and is dirty itself
        if not self._read and self._written >= self.capacity:  # fills the whole cache, as a flush does
            self._dirty = self._most_dirty
        value, self._writeback, self._read, self._written = self._writeback + pushed, 0.0, 0.0, 0.0
        return value

    def forget(self, storage: int) -> None:
        """Forget a storage whose memory was freed."""
        for access in self._accesses.pop(storage, ()):
            self._used -= sum(self._held.pop(access, {}).values())


def _pushed_out(dirty: float, read: float, written: float) -> float:
    """Bytes of ``dirty`` lines that a kernel writes back beyond as many as it writes itself.

    Everything that it moves takes a line, and a share of those were dirty; what it writes leaves as many behind. On
    A100 the rest goes with the square of the reads' share (TritonBench's used rows from 30 MB on: all of the lines for
    ``mean``, 0.4 of them for ``add``, a quarter for ``abs``). More written bytes never make a kernel faster.
    """

    def beyond_own(written: float) -> float:
        moved = read + written
        return min(dirty, moved) * (read / moved) ** 2 if moved else 0.0

    fewer = min(written, max(0.0, dirty - read))  # from here on the share falls faster than written bytes rise
    return max(beyond_own(written), fewer + beyond_own(fewer) - written)


L1_SHARE = 0.25
"""Share of an SM's shared memory and L1 assumed to hold repeated reads."""
L1_WINDOW_SHARE = 0.75
"""The same for reads that are repeated by the next load or the one after it."""


def beyond(capacity: float, needed: float) -> float:
    """Share of accesses that miss a level of ``capacity`` when ``needed`` bytes are in use."""
    return 0.0 if needed <= capacity else 1.0 - capacity / needed


def shared_out(stats: LaunchStats, profile: KernelProfile, slots: int) -> LaunchStats:
    """The counts of a launch of which the programs that find one of ``slots`` have an equal number of the rounds that
    they share out, or one more: the others come too late. Not where a round may read what another wrote."""
    executed, programs = dict(stats.executed), stats.programs
    inside = {index: count for index, count in executed.items() if index in profile.shared_out}
    direct = {i: home for i in inside if (home := profile.blocks[i].around) not in profile.shared_out}
    rounds = max([inside[index] - executed.get(home, 0.0) for index, home in direct.items()], default=0.0)
    storage = {number: base for number, base, _, _ in stats.sites}
    loaded = {storage.get(load.number, -1) for index in inside for load in profile.blocks[index].loads}
    written = {-1, *(base for base, _, written in stats.footprint if written)}
    if rounds < 1.0 or loaded & written:
        return stats
    takers = min(programs, slots)
    whole, more = divmod(rounds, takers)
    last = {index: max(0.0, count - rounds) * (index in direct) for index, count in inside.items()}  # finds no number
    classes = []
    for some, share in ((more, whole + 1.0), (takers - more, whole), (programs - takers, 0.0)):
        own = {index: (count - last[index]) * share / rounds for index, count in inside.items()}
        rest = {index: last.get(index, count) / programs for index, count in executed.items()}
        entered = [(index, some * (own.get(index, 0.0) + rest[index])) for index in executed]
        classes += [(float(some), tuple(each for each in entered if each[1]))] if some else []
    return replace(stats, classes=tuple(classes), own_passes=1.0)  # what others' rounds read again is no program's own


def past_l1(
    stats: LaunchStats, profile: KernelProfile, asked_of: Mapping[int, float], resident: float, on_sm: float,
    spec: GPUSpec,
) -> tuple[float, float]:  # fmt: skip
    """Return (bytes of loads that reach L2, those of them that a program re-reads after all it read before).

    ``asked_of``: what loads ask of each storage (:func:`by_storage`).

    What a program re-reads comes from L1 as far as its SM's L1 holds what was read in between: everything that the
    ``resident`` programs read (``on_sm``, their share of all work), or two loads of theirs where one block loads from
    the same array again and again. Small storages that every program re-reads (weights of a norm) stay in L1, too.
    """
    asked = stats.load_sectors * SECTOR_BYTES
    first = asked / max(1.0, stats.own_passes)
    held = L1_SHARE * spec.smem_per_sm
    near = min(asked - first, _near(stats, profile, first))
    far = min(asked - first - near, asked_again(stats, asked_of, held)) * beyond(held, first * on_sm)
    widest = max([profile.blocks[index].widest for index, _ in stats.executed], default=0)
    pair = min(first * on_sm, 2.0 * SECTOR_BYTES * resident * widest)
    again = far + near * beyond(L1_WINDOW_SHARE * spec.smem_per_sm, pair)
    shared, per_sm = _shared(stats, asked_of, held, spec)
    return first - shared + min(shared, per_sm) + again, far


def asked_again(stats: LaunchStats, asked_of: Mapping[int, float], held: float) -> float:
    """Bytes that loads ask for beyond the distinct ones of storages larger than ``held``: what all programs read, and
    is smaller, stays in a cache that holds so much. ``asked_of``: by storage."""
    small = {base for base, read, _ in stats.footprint if read <= held}
    large = sum(nbytes for base, nbytes in asked_of.items() if base not in small)
    return max(0.0, large - sum(read for base, read, _ in stats.footprint if base not in small))


def by_storage(stats: LaunchStats, profile: KernelProfile) -> dict[int, float]:
    """Bytes that loads ask of each storage; -1: of one that is not known."""
    asked: defaultdict[int, float] = defaultdict(float)
    storage = {number: base for number, base, _, _ in stats.sites}
    for number, nbytes in _asked(stats, profile).items():
        asked[storage.get(number, -1)] += nbytes
    return asked


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


def operand_share(stats: LaunchStats, profile: KernelProfile) -> float:
    """Share of all loaded bytes that loops load ahead for products; other programs ask for them at the same time."""
    asked = _asked(stats, profile)
    ahead = {load.number for block in profile.blocks if block.dots and block.pipelined for load in block.loads}
    return sum(asked[number] for number in ahead & asked.keys()) / (sum(asked.values()) or 1.0)


def _runs(block: BlockProfile, executed: dict[int, float], programs: int) -> float:
    """How often a program begins the loop that a block is in; at least once."""
    return max(1.0, executed.get(block.around, 0.0) / max(1, programs)) if block.around >= 0 else 1.0


def _shared(stats: LaunchStats, asked_of: Mapping[int, float], held: float, spec: GPUSpec) -> tuple[float, float]:
    """(bytes of small storages that programs read again after others, those that an SM's first program brings).

    Each storage by what loads ask of it.
    """
    asked = {base: nbytes / max(1.0, stats.own_passes) for base, nbytes in asked_of.items()}
    shared = per_sm = 0.0
    for base, read, _ in stats.footprint:
        distinct = math.ceil(read / SECTOR_BYTES) * SECTOR_BYTES
        if read <= held and base != -1:
            again = min(max(0.0, asked.get(base, 0.0) - distinct), distinct * max(0.0, stats.programs - 1.0))
            shared += again
            per_sm += min(again, distinct * max(0.0, min(float(stats.programs), float(spec.sm_count)) - 1.0))
    return shared, per_sm


def asked_shares(stats: LaunchStats, profile: KernelProfile) -> dict[int, float]:
    """What each load asks for over what its text says: masks leave a share, other lines make it more."""
    asked = _asked(stats, profile)
    return {
        load.number: asked[load.number] / (count * load.nbytes)
        for index, count in stats.executed
        for load in profile.blocks[index].loads
        if count * load.nbytes
    }


def stored_elements(stats: LaunchStats, profile: KernelProfile) -> float:
    """Bytes of all elements that stores write, those that are written again included."""
    lanes_beyond = {number: min(0.0, lanes) for number, _, _, lanes in stats.sites}
    return sum(
        max(0.0, count * nbytes + lanes_beyond.get(number, 0.0) * size)
        for index, count in stats.executed
        for number, nbytes, size in profile.blocks[index].stores
    )


def atomic_seconds(stats: LaunchStats, profile: KernelProfile, spec: GPUSpec) -> float:
    """Return the seconds of atomic updates: those of one address are serialised, spread ones share the units of all L2
    slices.

    A slice moves 64 bytes per clock and its unit retires one update every two clocks; from sm_90 on an update can be a
    vector of neighbours (``red.global.v4.f32``).
    """
    if not stats.atomics:
        return 0.0
    vectors = isinstance(spec.arch, int) and spec.arch >= 90
    widths = [profile.blocks[index].vector_atomics for index, _ in stats.executed] if vectors else []
    together = min([width for width in widths if width], default=1.0)
    spread = stats.atomics / together * 2.0 * 64.0 / spec.l2_bandwidth
    return max(spread, stats.max_same_address_atomics * spec.atomic_same_address)


MMA_SYNC_SHARE = 0.63
"""Share of the tensor rate that the previous generation's instructions (``mma.sync``) reach from Hopper on (Luo et al.
2024: 62.9% on average); the full rate takes ``wgmma``, which four warps issue together for 64 rows or more."""
VECTOR_ISSUE_SHARE = 0.5
"""Share of the fp32 peak that element-wise code can issue: the peak counts a fused multiply-add as two."""
ISSUE_LANES = 128.0
"""Lane instructions that the four schedulers of an SM issue in a clock, where numbers and indices mix."""
MIXED_LANES = 80.0
"""The same of Triton's code where the SM has half as many lanes for fp32, as an A100 has (TritonBench's used rows)."""
SM_BANDWIDTH_SHARE = 0.7
"""Share of an SM's L2 port (bytes per clock) that one SM alone reaches."""


def kernel_cost(work: KernelWork, spec: GPUSpec, l2: L2State) -> CostEstimate:
    """Return the modelled time of one kernel, and update ``l2``."""
    dram = _dram_bytes(work, l2)
    moved = sum(access.l2_bytes for access in work.accesses)
    blocks = max(work.blocks, 1.0)
    parts = {
        "dram": dram / (spec.dram_bandwidth * work.memory_efficiency),
        "l2": moved / spec.l2_bandwidth,
        "sm_memory": _sm_memory_seconds(work, moved, dram, blocks, spec),
        "compute": _compute_seconds(work, blocks, spec),
        "atomics": work.atomic_seconds,
    }
    memory = max(parts["dram"], parts["l2"], parts["sm_memory"])
    compute = max(parts["compute"], parts["atomics"])
    busy = max(memory, compute) + (1.0 - work.overlap) * min(memory, compute)
    fixed = spec.kernel_min * work.fixed_kernels + work.serial_seconds
    if moved:
        fixed += spec.dram_latency
    parts["fixed"] = fixed
    seconds = busy + fixed
    bound: Bound = "latency" if fixed > busy else ("memory" if memory >= compute else "compute")
    arithmetic = (count / peak_of(unit, spec) for unit, count in work.flops.items())
    ideal = max((sum(access.nbytes for access in work.accesses) / spec.hbm_bandwidth, *arithmetic))
    return CostEstimate(
        seconds=seconds, dram_bytes=dram, l2_bytes=moved, flops=dict(work.flops), bound=bound,
        roofline=ideal / seconds if seconds else 0.0, parts=parts, kernels=work.fixed_kernels,
    )  # fmt: skip


def _dram_bytes(work: KernelWork, l2: L2State) -> float:
    """Bytes between L2 and device memory: first reads that miss, later passes that miss, write-backs."""
    footprint = sum(access.nbytes for access in work.accesses if not access.write)
    missing = beyond(l2.capacity, work.reuse_window or footprint)
    dram = 0.0
    for access in sorted(work.accesses, key=lambda access: access.write):
        if access.write:
            l2.write(access.storage, access.nbytes, access.part)
        else:
            dram += l2.read(access.storage, access.nbytes, access.part)
        dram += max(access.passes - 1.0, 0.0) * access.nbytes * missing
    return dram + l2.take_writeback()


def _sm_memory_seconds(work: KernelWork, moved: float, dram: float, blocks: float, spec: GPUSpec) -> float:
    """Time of the busiest SM's memory path, when few blocks or little in flight cannot use the whole device."""
    per_sm_blocks = math.ceil(blocks / spec.sm_count)
    resident = min(per_sm_blocks, work.grid.resident)
    latency = spec.l2_latency + (spec.dram_latency - spec.l2_latency) * (min(1.0, dram / moved) if moved else 0.0)
    in_flight = resident * work.grid.threads * work.grid.ahead
    port = spec.sm_bytes_per_clock * spec.clock_hz * SM_BANDWIDTH_SHARE
    rate = min(port, in_flight / latency)
    busiest = moved / blocks * min(per_sm_blocks, blocks)
    return busiest / rate


def _compute_seconds(work: KernelWork, blocks: float, spec: GPUSpec) -> float:
    """Time of the slowest arithmetic unit on the busiest SM."""
    if work.compute_seconds is not None:
        return work.compute_seconds
    if not work.flops:
        return 0.0
    per_sm_blocks = math.ceil(blocks / spec.sm_count)
    share = per_sm_blocks / blocks  # of all work that the busiest SM does
    warps = min(per_sm_blocks, work.grid.resident) * work.grid.threads / spec.warp_size
    seconds = 0.0
    vector = 0.0
    for unit, count in work.flops.items():
        rate = unit_rate(unit, spec) / spec.sm_count
        busy = count * share / rate
        if unit.startswith("tensor_"):
            seconds = max(seconds, busy / min(1.0, warps / 4.0))
        elif unit == "sfu":
            seconds = max(seconds, busy / min(1.0, warps * work.ilp / 16.0))
        else:
            vector += busy / min(1.0, warps * work.ilp / 16.0)  # all vector units share the issue slots
    return max(seconds, vector) / work.compute_efficiency


def unit_rate(unit: str, spec: GPUSpec) -> float:
    """Sustained operations per second of a unit over the whole device. Raises ``ValueError`` for an unknown unit."""
    scale = spec.clock_hz / spec.boost_clock_hz
    if unit in ("fp32_dot", "fp64_dot"):
        sustained = spec.fp32_dot_share if unit == "fp32_dot" else 1.0
        return spec.peak[unit.removesuffix("_dot")] * scale * sustained
    if unit == "issue":
        return ISSUE_LANES * spec.clock_hz * spec.sm_count
    if unit in ("imad", "add"):  # beside the rest of whole-number arithmetic, as fast; on either
        return spec.peak["int"] * scale * (2.0 if unit == "add" else 1.0)
    if unit not in spec.peak:
        raise ValueError(f"spec {spec.name!r} has no peak for unit {unit!r}; it has {', '.join(sorted(spec.peak))}")
    if unit.startswith("tensor_"):
        return spec.peak[unit] * spec.tensor_share
    return spec.peak[unit] * scale * (1.0 if unit in ("int", "sfu") else VECTOR_ISSUE_SHARE)


def vector_seconds(lanes: Counter[str], spec: GPUSpec, mixed: bool = False) -> float:
    """Seconds of one SM for so many lane instructions: its slowest unit, or the issue slots that all of them share.

    ``mixed``: many warps without products, so that indices fill slots that numbers leave.
    """
    slots = spec.peak["fp32"] / 2.0 * spec.clock_hz / spec.boost_clock_hz / spec.sm_count
    units = [count / (unit_rate(unit, spec) / spec.sm_count) for unit, count in lanes.items()]
    if mixed and slots < MIXED_LANES * spec.clock_hz:
        units.append((lanes["fp32"] + lanes["imad"]) / slots)  # both on the narrower pipe
        slots = MIXED_LANES * spec.clock_hz
    packed = {"fp16": unit_rate("fp16", spec), "bf16": unit_rate("bf16", spec)}
    issued = sum(
        count * min(1.0, slots * spec.sm_count / packed[unit]) if unit in packed else count
        for unit, count in lanes.items()
    )
    return max([issued / slots, *units])


def peak_of(unit: str, spec: GPUSpec) -> float:
    """Operations per second by the data sheet; a card without a unit of four bits widens them."""
    other = {"fp32_dot": "fp32", "issue": "fp32", "tensor_fp4": "tensor_fp8"}.get(unit, unit)
    return spec.peak.get(unit, spec.peak[other])


def mma_sync_share(spec: GPUSpec) -> float:
    """Share of the tensor rate that kernels on ``mma.sync`` reach: all of it before Hopper."""
    return MMA_SYNC_SHARE if isinstance(spec.arch, int) and spec.arch >= 90 else 1.0


RESERVED_SHARED_BYTES = 1024
"""Shared memory that CUDA keeps for itself in every block (CUDA C++ Programming Guide, compute capability 8.0 on)."""


def residence(spec: GPUSpec, num_warps: int, shared_bytes: int = 0, registers: int = 0) -> dict[str, int]:
    """Return how many programs each resource of one SM has room for; ``registers`` are those of a thread."""
    threads = num_warps * spec.warp_size
    limits = {"threads": spec.max_threads_per_sm // threads, "blocks": spec.max_blocks_per_sm}
    if shared_bytes:
        reserved = RESERVED_SHARED_BYTES if spec.vendor == "nvidia" else 0
        limits["shared memory"] = spec.smem_per_sm // (shared_bytes + reserved)
    if registers:
        granule = -(-registers // 8) * 8  # registers are handed out in eights
        limits["registers"] = spec.regs_per_sm // (granule * threads)
    return limits


def blocks_per_sm(spec: GPUSpec, num_warps: int, shared_bytes: int = 0, registers: int = 0) -> int:
    """Return the resident programs of one SM: the tightest limit of threads, blocks, shared memory and registers."""
    return max(1, min(residence(spec, num_warps, shared_bytes, registers).values()))


UPDATE_BYTES = 2 * 64.0
"""L2 bandwidth that one scattered update takes, as ``launch_time.py`` has it: what an atomic unit reads and
writes. PyTorch's kernels issue their updates one element at a time."""


def scattered_updates(target: TensorMeta, updates: float, spec: GPUSpec) -> tuple[Access, float]:
    """Return the access of ``updates`` atomic additions spread over ``target``, and the seconds that the atomic units
    take.

    Which addresses are hit depends on values, which a price must not know, so they are assumed to be evenly spread.
    """
    touched = min(float(target.nbytes), updates * target.itemsize)
    access = replace(write(target, touched), requested=updates * target.itemsize)
    busiest = updates / max(1.0, float(target.elements)) * spec.atomic_same_address
    return access, max(busiest, updates * UPDATE_BYTES / spec.l2_bandwidth)
