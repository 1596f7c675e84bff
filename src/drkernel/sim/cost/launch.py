"""The modelled time of one Triton launch, from what the executor counted and what the compiler said."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from drkernel.sim.cost.l2 import L2State
from drkernel.sim.cost.records import CostEstimate
from drkernel.sim.cost.roofline import Access, KernelWork, kernel_cost
from drkernel.sim.spec import GPUSpec

if TYPE_CHECKING:
    from drkernel.sim.executor.compiled import LaunchStats

SECTOR_BYTES = 32
RESERVED_SHARED_BYTES = 1024
"""Shared memory that CUDA keeps for itself in every block (CUDA C++ Programming Guide, compute capability 8.0 on)."""
TRITON_TENSOR_SHARE = 0.85
"""Share of the sustained tensor rate that Triton's generated main loop reaches, before L2 and pipelining limits."""
TRITON_FP32_DOT_SHARE = 0.55
"""The same for fp32 dots on the vector units, where generated code lacks the libraries' register blocking."""
MAX_THREAD_BYTES = 256.0
"""Loads that a thread can have outstanding: a quarter of the most registers it may have."""
DEFAULT_IN_FLIGHT = 64.0
"""The same where a kernel's loads are not known."""
L1_SHARE = 0.25
"""Storages up to this share of an SM's shared memory and L1 are taken to stay in L1 from program to program."""
LOCAL_MEMORY = -1
"""The storage that stands for all threads' local memory."""
INTRA_PROGRAM_PASSES = 4.0
"""Re-reads up to this factor are taken as one program streaming its own data again; more means programs share data."""


def blocks_per_sm(spec: GPUSpec, num_warps: int, shared_bytes: int = 0, registers: int = 0) -> int:
    """Resident programs of one SM: the tightest of threads, blocks, shared memory and registers (per thread)."""
    threads = num_warps * spec.warp_size
    limits = [spec.max_blocks_per_sm, spec.max_threads_per_sm // threads]
    if shared_bytes:
        reserved = RESERVED_SHARED_BYTES if spec.vendor == "nvidia" else 0
        limits.append(spec.smem_per_sm // (shared_bytes + reserved))
    if registers:
        granule = -(-registers // 8) * 8  # registers are handed out in eights
        limits.append(spec.regs_per_sm // (granule * threads))
    return max(1, min(limits))


def launch_cost(
    stats: LaunchStats,
    num_warps: int,
    spec: GPUSpec,
    l2: L2State,
    *,
    num_stages: int = 2,
    shared_bytes: int = 0,
    registers: int = 0,
    spilled_bytes: int = 0,
    in_flight: float | None = None,
) -> CostEstimate:
    """Device seconds of one launch, without the host's launch overhead; moves ``l2`` (shared with operators) on.

    ``stats.footprint`` holds (storage, unique bytes read, unique bytes written); sectors are what warps asked for.
    ``registers`` and ``spilled_bytes`` are a thread's; ``in_flight`` is what one program keeps outstanding, in bytes
    (``inflight.bytes_in_flight``), where known.
    """
    requested_read = _past_l1(stats, spec)
    requested_write = stats.store_sectors * SECTOR_BYTES
    unique_read = float(sum(read for _, read, _ in stats.footprint))
    unique_write = float(sum(written for _, _, written in stats.footprint))
    programs = max(float(stats.programs), 1.0)
    resident = blocks_per_sm(spec, num_warps, shared_bytes, registers)
    passes = requested_read / unique_read if unique_read else 1.0
    own_passes = passes if 1.0 < passes <= INTRA_PROGRAM_PASSES else 1.0
    accesses: list[Access] = []
    for storage, nbytes, written in stats.footprint:
        if nbytes:
            share = nbytes / unique_read * requested_read
            accesses.append(Access(storage, nbytes, passes=own_passes, requested=max(nbytes, share)))
        if written:
            share = written / unique_write * requested_write
            accesses.append(Access(storage, written, write=True, requested=max(written, share)))
    threads = num_warps * spec.warp_size
    moved = (requested_read + requested_write) / programs
    concurrent = min(programs, float(spec.sm_count * resident))
    accesses += _spills(spilled_bytes * threads, programs, concurrent, spec, l2)
    if in_flight and stats.load_sectors:  # what L1 gives back does not wait for L2
        in_flight *= min(1.0, requested_read / (stats.load_sectors * SECTOR_BYTES))
    work = KernelWork(
        "launch",
        tuple(accesses),
        flops=_derated(stats.flops),
        blocks=programs,
        threads=threads,
        blocks_per_sm=resident,
        bytes_in_flight=max(
            SECTOR_BYTES / threads,
            min(moved / threads, MAX_THREAD_BYTES, (in_flight or DEFAULT_IN_FLIGHT * threads) / threads),
        ),
        reuse_window=max(1.0, unique_read / programs * concurrent),
        overlap=_overlap(num_stages, resident, programs, spec),
        atomic_seconds=stats.max_same_address_atomics * spec.atomic_same_address,
    )
    cost = kernel_cost(work, spec, l2)
    return CostEstimate(
        cost.seconds, cost.dram_bytes, cost.l2_bytes, dict(stats.flops), cost.bound, cost.roofline, cost.parts
    )


def _spills(program_bytes: float, programs: float, concurrent: float, spec: GPUSpec, l2: L2State) -> list[Access]:
    """Local memory: each spilled value is written once and read back once, unless L1 holds what an SM has spilled.

    The memory of a finished program is used again by the next, so only what is resident at a time takes room in L2.
    """
    held = program_bytes * concurrent
    if held <= L1_SHARE * spec.smem_per_sm * spec.sm_count:
        return []
    total = program_bytes * programs
    passes = 1.0 if held <= l2.capacity else total / held
    return [Access(LOCAL_MEMORY, held, write=True, passes=passes, requested=2.0 * total)]


def _derated(flops: dict[str, float]) -> dict[str, float]:
    """Counts scaled up by what generated code loses on each unit."""
    share = {"fp32_dot": TRITON_FP32_DOT_SHARE}
    return {
        unit: count / (TRITON_TENSOR_SHARE if unit.startswith("tensor_") else share.get(unit, 1.0))
        for unit, count in flops.items()
        if count
    }


def _past_l1(stats: LaunchStats, spec: GPUSpec) -> float:
    """Bytes of loads that reach L2: what every program reads again of small storages (weights of a norm) stays in L1.

    The executor counts sectors over all storages together; what was asked beyond one pass over everything is put down
    to the small ones first, as far as every program can have read them whole.
    """
    requested = stats.load_sectors * SECTOR_BYTES
    unique = sum(read for _, read, _ in stats.footprint)
    small = sum(
        math.ceil(read / SECTOR_BYTES) * SECTOR_BYTES
        for _, read, _ in stats.footprint
        if read <= L1_SHARE * spec.smem_per_sm
    )
    again = min(max(0.0, requested - unique), small * max(0.0, stats.programs - 1.0))
    from_l2 = small * max(0.0, min(float(stats.programs), float(spec.sm_count)) - 1.0)
    return requested - again + min(again, from_l2)


def _overlap(num_stages: int, resident: int, programs: float, spec: GPUSpec) -> float:
    """How far loads and arithmetic proceed together: by software pipelining or by other programs on the same SM."""
    co_resident = min(resident, programs / spec.sm_count)
    return min(1.0, 0.5 * max(0, num_stages - 1) + 0.5 * max(0.0, co_resident - 1.0))
