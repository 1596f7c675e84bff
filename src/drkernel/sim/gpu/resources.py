"""Resources of kernels on the simulated GPU, and the refusal of launches that the GPU would refuse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from drkernel.sim.cost.launch_time import blocks_per_sm
from drkernel.sim.gpu.pricing import pressure_of
from drkernel.sim.spec import GPUSpec
from drkernel.sim.target.compile import KernelResources, TargetCompileError, compile_for_target
from drkernel.sim.target.shared_memory import OverShared, PassesFailed, exact_shared, shared_bytes
from drkernel.sim.wire.commands import LaunchCommand, LaunchRefused
from ttir_executor.compiled import CompiledKernel

MAX_GRID_X, MAX_GRID_YZ = 2**31 - 1, 65535
"""largest grids that CUDA launches"""

Depth = Literal["ttir", "full"]
"""how far kernels are compiled: Triton's own IR, or machine code of the target (registers, shared memory)"""


def check_words(checks: str, depth: str) -> None:
    """Raise ``ValueError`` for an invalid value of ``checks`` or ``depth``."""
    if checks not in ("auto", "full", "off"):
        raise ValueError(f"checks must be 'auto', 'full' or 'off', not {checks!r}")
    if depth not in get_args(Depth):
        raise ValueError(f"depth must be 'ttir' or 'full', not {depth!r}")


@dataclass(frozen=True)
class Target:
    """The GPU that kernels are compiled for, and how far they are compiled."""

    spec: GPUSpec
    depth: Depth

    def programs(self, grid: tuple[int, int, int]) -> int:
        """Return the programs of a grid: 0 when a size is 0, as in Triton's launchers. Raises beyond the GPU's
        limits."""
        x, y, z = grid
        if x * y * z <= 0:
            return 0
        if min(grid) < 1 or x > MAX_GRID_X or (self.spec.vendor == "nvidia" and max(y, z) > MAX_GRID_YZ):
            limits = f"at most {MAX_GRID_X} x {MAX_GRID_YZ} x {MAX_GRID_YZ}"
            raise RuntimeError(f"Triton Error [CUDA]: invalid argument (grid {grid}; {limits})")
        return x * y * z

    def figures(self, ttir: str, num_warps: int, num_stages: int) -> tuple[int, int, int]:
        """Registers and spilled words a thread, and bytes of shared memory a program, on the target.

        At depth "ttir" registers are estimated; shared memory is exact at either.
        """
        if self.depth == "full":
            found = self._compile(ttir, num_warps, num_stages)
            return found.registers or 0, found.spills or 0, found.shared_bytes
        pressure = pressure_of(ttir, num_warps * self.spec.warp_size)
        try:
            shared = exact_shared(ttir, self.spec, num_warps, num_stages)
        except PassesFailed as error:
            raise LaunchRefused(f"RuntimeError: {error}") from error
        return pressure.registers, pressure.spilled_bytes // 4, shared

    def _compile(self, ttir: str, num_warps: int, num_stages: int) -> KernelResources:
        try:
            return compile_for_target(ttir, self.spec, num_warps=num_warps, num_stages=num_stages)
        except TargetCompileError as error:
            raise LaunchRefused(f"{error.kind}: {error}") from error

    def resources(self, kernel: CompiledKernel, command: LaunchCommand) -> KernelResources | None:
        """Return the resources of a launch, as far as known at this depth; refuse launches that the GPU would
        refuse."""
        if self.depth == "full":
            return self._compile(command.ttir, command.num_warps, command.num_stages)
        warps, stages = command.num_warps, command.num_stages
        try:
            found = shared_bytes(kernel.function, command.ttir, self.spec, warps, stages)
        except OverShared as error:
            raise LaunchRefused(f"OutOfResources: {error}") from error
        except PassesFailed as error:
            raise LaunchRefused(f"RuntimeError: {self.spec.full_name} cannot run {command.name}: {error}") from error
        if found is None:
            return None
        return KernelResources(None, None, found, warps, stages, blocks_per_sm(self.spec, warps, found))
