"""What both cost models return, and the roofline arithmetic that both share."""

from __future__ import annotations

from dataclasses import dataclass, field

from drkernel.sim.spec import GPUSpec
from drkernel.verdict import Bound

MEMORY_LATENCY = 6.0e-7
"""seconds from a warp's load to its data, HBM, unloaded (Luo et al. 2024: about 480 ns on H100, more under load)"""
BYTES_IN_FLIGHT_PER_WARP = 1024
"""two outstanding 16-byte loads a lane"""


@dataclass(frozen=True)
class CostEstimate:
    """Modelled device time of one kernel or operator."""

    seconds: float
    dram_bytes: float
    l2_bytes: float
    flops: dict[str, float]
    bound: Bound
    roofline: float
    """fraction of the roofline reached: the ideal time over ``seconds``"""
    parts: dict[str, float] = field(default_factory=dict)

    @property
    def total_flops(self) -> float:
        """All floating-point operations, units added up."""
        return sum(value for unit, value in self.flops.items() if unit != "int")


def roofline_cost(
    spec: GPUSpec,
    dram_bytes: float,
    l2_bytes: float,
    flops: dict[str, float],
    *,
    blocks: float,
    warps_per_block: float,
    blocks_per_sm: int,
    efficiency: float = 1.0,
    extra_seconds: float = 0.0,
) -> CostEstimate:
    """Time of a kernel of ``blocks`` equal blocks: the slowest of memory, cache and each unit, plus a fixed part.

    Parallelism limits all three: few blocks leave SMs idle (``sm_share``), few warps cannot cover memory latency
    (Little's law), and the last wave of blocks runs partly empty (``tail``).
    """
    slots = spec.sm_count * blocks_per_sm
    sm_share = min(1.0, blocks / spec.sm_count)
    waves = blocks / slots
    tail = (-(-waves // 1) / waves) if waves > 1 else 1.0
    warps = min(blocks, slots) * warps_per_block
    in_flight = warps * BYTES_IN_FLIGHT_PER_WARP / MEMORY_LATENCY
    dram_rate = min(spec.hbm_bandwidth * spec.hbm_efficiency, in_flight)
    l2_rate = min(spec.l2_bandwidth, in_flight * 2)
    compute = max((count / spec.peak[unit] for unit, count in flops.items()), default=0.0)
    parts = {
        "dram": dram_bytes / dram_rate,
        "l2": l2_bytes / l2_rate,
        "compute": compute * tail / (sm_share * efficiency),
        "fixed": spec.kernel_min + extra_seconds,
    }
    busy = max(parts["dram"], parts["l2"], parts["compute"])
    seconds = parts["fixed"] + busy
    ideal = max(dram_bytes / spec.hbm_bandwidth, compute)
    bound: Bound = "latency"
    if busy > parts["fixed"]:
        bound = "compute" if parts["compute"] == busy else "memory"
    return CostEstimate(seconds, dram_bytes, l2_bytes, dict(flops), bound, min(1.0, ideal / seconds), parts)
