"""The modelled time of a launch, from its command, its counts, and its resources on the target.

Resources of kernels on the simulated GPU, the refusal of launches that the GPU would refuse, and what a kernel's text
says of its work.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

from drkernel.sim.cost.kernel_profile import KernelProfile, bytes_of, profile_of
from drkernel.sim.cost.launch_time import block_seconds, launch_cost
from drkernel.sim.cost.pressure import Pressure, register_pressure
from drkernel.sim.cost.records import CostEstimate
from drkernel.sim.cost.roofline import L2State, blocks_per_sm
from drkernel.sim.spec import GPUSpec
from drkernel.sim.target import (
    KernelResources,
    OverShared,
    PassesFailed,
    TargetCompileError,
    compile_for_target,
    exact_shared,
    shared_bytes,
)
from drkernel.sim.wire.commands import LaunchRefused
from ttir_executor.compiled import CompiledKernel, LaunchStats, compile_ttir
from ttir_executor.lower.plan import blocks_of
from ttir_executor.ttir.ir import elem_bytes


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
    alone = block_seconds(profile_of_text(ttir), num_warps, num_stages, spec, {})
    return tuple(seconds * spec.clock_hz for seconds in alone)


def price_launch(
    ttir: str,
    num_warps: int,
    num_stages: int,
    stats: LaunchStats,
    resources: KernelResources | None,
    spec: GPUSpec,
    l2: L2State,
) -> CostEstimate:
    """The modelled time of one launch, with the compiler's registers and local memory where known; moves ``l2`` on."""
    registers, frame_bytes = pressure_of(ttir, num_warps * spec.warp_size).registers, None
    if resources is not None and resources.registers is not None:
        registers, frame_bytes = resources.registers, 4 * (resources.spills or 0)
    profile = profile_of_text(ttir)
    cost = launch_cost(
        stats,
        profile,
        num_warps,
        spec,
        l2,
        num_stages=num_stages,
        shared_bytes=resources.shared_bytes if resources else 0,
        registers=registers,
        frame_bytes=frame_bytes,
    )
    return cost.without_price(profile.unpriced) if profile.unpriced else cost


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

    def resources(self, kernel: CompiledKernel, ttir: str, warps: int, stages: int) -> KernelResources | None:
        """Return the resources of a launch, as far as known at this depth; refuse launches that the GPU would
        refuse."""
        if self.depth == "full":
            return self._compile(ttir, warps, stages)
        try:
            found = shared_bytes(kernel.function, ttir, self.spec, warps, stages)
        except OverShared as error:
            raise LaunchRefused(f"OutOfResources: {error}") from error
        except PassesFailed as error:
            raise LaunchRefused(f"RuntimeError: {self.spec.full_name} cannot run {kernel.name}: {error}") from error
        if found is None:
            return None
        return KernelResources(None, None, found, warps, stages, blocks_per_sm(self.spec, warps, found))


# ---- what a kernel's text says of its work: of each basic block, and which kernels are one but for numbers


LOADED, STORED = "bytes loaded", "bytes stored"
WRITTEN = "bytes of lanes written"
"""of stores of all kinds and atomics; in :class:`BlockWork` alone"""
_WRITES = ("tt.store", "tt.descriptor_store", "tt.descriptor_reduce", "tt.atomic_rmw", "tt.atomic_cas")
PRODUCTS = "products in "
"""what a unit does for ``tl.dot``; before the unit's name, in :class:`BlockWork` alone"""


@dataclass(frozen=True)
class BlockWork:
    """The work of one execution of a basic block, from the kernel's text."""

    parent: int | None
    """the enclosing block; None for the blocks of the function itself"""
    work: Mapping[str, float]
    """bytes of all lanes of its loads and stores, masked or not, operations by unit, and of products alone"""


@lru_cache(maxsize=1024)
def blocks_in(ttir: str) -> tuple[BlockWork, ...]:
    """The blocks of a kernel's text, in the order of ``plan.blocks_of``."""
    blocks = blocks_of(compile_ttir(ttir).function)
    place = {id(block): number for number, block in enumerate(blocks)}
    found = []
    for block, profile in zip(blocks, profile_of_text(ttir).blocks, strict=True):
        work: Counter[str] = Counter()
        for unit, numel, count, _ in profile.lanes:
            work[unit] += numel * count  # type: ignore[assignment]
        for dot in profile.dots:
            for unit in (dot.unit, PRODUCTS + dot.unit):
                work[unit] += dot.operations  # type: ignore[assignment]
        for op in block.ops:
            if op.name in ("tt.load", "tt.store"):
                work[LOADED if op.name == "tt.load" else STORED] += bytes_of(op)  # type: ignore[assignment]
            if op.name in _WRITES:
                value = op.operands[1].type
                work[WRITTEN] += value.numel * elem_bytes(value.elem)
        parent = None if block.parent is None else place.get(id(block.parent.block))
        found.append(BlockWork(parent, dict(work)))
    return tuple(found)


_NAME = re.compile(r"%[\w$.#:-]+")
_OPERATOR = re.compile(r"^(?:%[\w$.#:, -]+ = )?\"?([a-z_]+\.[a-z_.]+)\"?")
_LOCATION = re.compile(r" ?loc\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
_WIDTH = re.compile(r"\bi64\b")
_ARITHMETIC = """
    constant addi subi muli divsi divui remsi remui ceildivsi floordivsi extsi extui trunci cmpi index_cast minsi maxsi
    minui maxui andi ori xori shli shrsi shrui select
"""
_WHOLE = frozenset(f"arith.{name}" for name in _ARITHMETIC.split()) | {
    "tt.addptr", "tt.splat", "tt.expand_dims", "tt.broadcast", "tt.make_range", "tt.get_program_id",
    "tt.get_num_programs", "tt.return", "tt.func", "ub.poison",
}  # fmt: skip
"""operations that only compute addresses: they come and go as Triton specialises on a size"""


@lru_cache(maxsize=1024)
def essence(ttir: str) -> str:
    """A kernel's text without Triton's specialisation on integers: constants, addresses, divisibility hints.

    What remains is its work: loads, stores, products, reductions, functions, loops and branches, each with the shapes
    and dtypes of its tiles. Two specialisations of one kernel for different sizes have the same essence, unless a size
    decides about more than numbers.
    """
    kept = []
    for line in ttir.splitlines():
        line = line.strip()
        match = _OPERATOR.match(line)
        if line.startswith("#") or (match is not None and match[1] in _WHOLE):
            continue
        kept.append(_WIDTH.sub("i32", _NAME.sub("%", _LOCATION.sub("", line))))
    return "\n".join(kept)
