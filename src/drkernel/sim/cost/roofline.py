"""The time of one device kernel, whoever wrote it: the formula behind operators and Triton launches.

A kernel takes a fixed start-up plus the longest of what its resources need: device memory, L2, the memory path of its
busiest SM (too few blocks cannot draw the full bandwidth: Little's law), and each arithmetic unit.
"""

import math
from dataclasses import replace

from drkernel.sim.cost.caches import L2State, beyond
from drkernel.sim.cost.records import Access, CostEstimate, KernelWork, TensorMeta, write
from drkernel.sim.spec import GPUSpec
from drkernel.verdict import Bound

MMA_SYNC_SHARE = 0.63
"""Share of the tensor rate that the previous generation's instructions (``mma.sync``) reach from Hopper on (Luo et al.
2024: 62.9% on average); the full rate takes ``wgmma``, which four warps issue together for 64 rows or more."""
VECTOR_ISSUE_SHARE = 0.5
"""Share of the fp32 peak that element-wise code can issue: the peak counts a fused multiply-add as two."""
ISSUE_LANES = 128.0
"""Lane instructions that the four schedulers of an SM issue in a clock, where numbers and indices mix."""
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
    busiest = moved / blocks * min(per_sm_blocks, blocks) * work.imbalance
    return busiest / rate


def _compute_seconds(work: KernelWork, blocks: float, spec: GPUSpec) -> float:
    """Time of the slowest arithmetic unit on the busiest SM."""
    if work.compute_seconds is not None:
        return work.compute_seconds
    if not work.flops:
        return 0.0
    per_sm_blocks = math.ceil(blocks / spec.sm_count)
    share = per_sm_blocks / blocks * work.imbalance  # of all work that the busiest SM does
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
    if unit == "fp32_dot":
        return spec.peak["fp32"] * scale
    if unit == "issue":
        return ISSUE_LANES * spec.clock_hz * spec.sm_count
    if unit in ("imad", "add"):  # beside the rest of whole-number arithmetic, as fast; on either
        return spec.peak["int"] * scale * (2.0 if unit == "add" else 1.0)
    if unit not in spec.peak:
        raise ValueError(f"spec {spec.name!r} has no peak for unit {unit!r}; it has {', '.join(sorted(spec.peak))}")
    if unit.startswith("tensor_"):
        return spec.peak[unit] * spec.tensor_share
    return spec.peak[unit] * scale * (1.0 if unit in ("int", "sfu") else VECTOR_ISSUE_SHARE)


def peak_of(unit: str, spec: GPUSpec) -> float:
    """Operations per second by the data sheet; a card without a unit of four bits widens them."""
    other = {"fp32_dot": "fp32", "issue": "fp32", "tensor_fp4": "tensor_fp8"}.get(unit, unit)
    return spec.peak.get(unit, spec.peak[other])


def mma_sync_share(spec: GPUSpec) -> float:
    """Share of the tensor rate that kernels on ``mma.sync`` reach: all of it before Hopper."""
    return MMA_SYNC_SHARE if isinstance(spec.arch, int) and spec.arch >= 90 else 1.0


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
