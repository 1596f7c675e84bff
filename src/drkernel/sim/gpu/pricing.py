"""The modelled time of a launch, from its command, its counts, and its resources on the target."""

from __future__ import annotations

from functools import lru_cache

from drkernel.sim.cost.caches import L2State
from drkernel.sim.cost.kernel_profile import KernelProfile, profile_of
from drkernel.sim.cost.launch_time import block_cycles, launch_cost
from drkernel.sim.cost.pressure import Pressure, register_pressure
from drkernel.sim.cost.records import CostEstimate
from drkernel.sim.spec import GPUSpec
from drkernel.sim.target.compile import KernelResources
from ttir_executor.compiled import LaunchStats, compile_ttir


@lru_cache(maxsize=1024)
def pressure_of(ttir: str, threads: int) -> Pressure:
    """:func:`register_pressure` of a kernel's text."""
    return register_pressure(compile_ttir(ttir).function, threads)


@lru_cache(maxsize=1024)
def profile_of_text(ttir: str) -> KernelProfile:
    """:func:`profile_of` a kernel's text."""
    return profile_of(compile_ttir(ttir).function)


def weights_of(ttir: str, num_warps: int, num_stages: int, spec: GPUSpec) -> tuple[float, ...]:
    """What entering each block of a kernel costs a program, in clocks."""
    return block_cycles(profile_of_text(ttir), num_warps, num_stages, spec)


def price_launch(
    ttir: str,
    num_warps: int,
    num_stages: int,
    stats: LaunchStats,
    resources: KernelResources | None,
    spec: GPUSpec,
    l2: L2State,
) -> CostEstimate:
    """The modelled time of one launch; moves ``l2`` on.

    Registers and local memory are the compiler's where it was asked.
    """
    registers, frame_bytes = pressure_of(ttir, num_warps * spec.warp_size).registers, None
    if resources is not None and resources.registers is not None:
        registers, frame_bytes = resources.registers, 4 * (resources.spills or 0)
    return launch_cost(
        stats,
        profile_of_text(ttir),
        num_warps,
        spec,
        l2,
        num_stages=num_stages,
        shared_bytes=resources.shared_bytes if resources else 0,
        registers=registers,
        frame_bytes=frame_bytes,
    )
