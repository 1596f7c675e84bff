"""Modelled time of one Triton launch, from the executor's exact counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drkernel.sim.cost.estimate import CostEstimate, roofline_cost
from drkernel.sim.cost.timeline import L2State
from drkernel.sim.spec import GPUSpec

if TYPE_CHECKING:
    from drkernel.sim.executor import LaunchStats

COMPUTE_EFFICIENCY = 0.75
"""share of a unit's peak that a tuned kernel sustains (issue slots, bank conflicts, pipeline fill)"""


def blocks_per_sm(spec: GPUSpec, num_warps: int, shared_bytes: int = 0, registers: int = 0) -> int:
    """Resident blocks of one SM: the tightest of threads, blocks, shared memory and registers."""
    threads = num_warps * spec.warp_size
    limits = [spec.max_blocks_per_sm, spec.max_threads_per_sm // threads]
    if shared_bytes:
        limits.append(spec.smem_per_sm // shared_bytes)
    if registers:
        limits.append(spec.regs_per_sm // (registers * threads))
    return max(1, min(limits))


def launch_cost(stats: LaunchStats, num_warps: int, spec: GPUSpec, l2: L2State) -> CostEstimate:
    """Device seconds of one launch, without the host's launch overhead."""
    dram = 0.0
    for storage, read, written in stats.footprint:
        dram += l2.touch(storage, read, written)
    l2_bytes = 32.0 * (stats.load_sectors + stats.store_sectors)
    serial = stats.max_same_address_atomics * spec.atomic_same_address
    return roofline_cost(
        spec,
        dram,
        max(l2_bytes, dram),
        stats.flops,
        blocks=stats.programs,
        warps_per_block=num_warps,
        blocks_per_sm=blocks_per_sm(spec, num_warps),
        efficiency=COMPUTE_EFFICIENCY,
        extra_seconds=serial,
    )
