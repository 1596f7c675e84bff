"""Matrix products as a vendor library runs them: tile choice, wave quantisation, split-K, traffic through L2."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from drkernel.sim.cost.kernel import SUSTAINED_TENSOR_SHARE, Access, KernelWork
from drkernel.sim.cost.l2 import EFFECTIVE_L2_SHARE
from drkernel.sim.spec import GPUSpec

# (rows, columns, share of the unit's sustained rate that the main loop reaches). The order of magnitude is what public
# GEMM profiles show: large tiles amortise operand traffic, small ones do not. Kept the same for every GPU and dtype.
_VECTOR_TILES = (
    (128, 128, 0.88), (256, 64, 0.84), (128, 64, 0.80), (64, 64, 0.70), (128, 32, 0.62), (64, 32, 0.55),
    (32, 32, 0.42), (128, 16, 0.38), (128, 8, 0.22),
)  # fmt: skip
_TENSOR_TILES = (
    (256, 128, 0.95), (128, 128, 0.85), (128, 64, 0.62), (64, 64, 0.45), (128, 32, 0.36), (64, 32, 0.28),
    (64, 16, 0.16),
)  # fmt: skip
_SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
_PROLOGUE_BYTES = 256
"""Operand bytes per row that filling and draining the pipeline costs, as if the inner dimension were longer."""
_RASTER_GROUP = 8
"""Tile rows that a swizzled tile order keeps in flight before it moves on, so that the other operand is re-read."""


@dataclass(frozen=True)
class GemmPlan:
    """The tiling the library would pick."""

    tile_m: int
    tile_n: int
    split: int
    seconds: float
    blocks: int
    l2_bytes: float


def gemm_unit(dtype: str, *, tf32: bool = False) -> str:
    """The unit that multiplies this dtype: fp32 stays on the vector units unless TF32 is allowed."""
    units = {
        "float16": "tensor_fp16", "bfloat16": "tensor_bf16", "float64": "tensor_fp64", "int8": "tensor_int8",
        "uint8": "tensor_int8", "float8_e4m3fn": "tensor_fp8", "float8_e5m2": "tensor_fp8",
        "float8_e4m3fnuz": "tensor_fp8", "float8_e5m2fnuz": "tensor_fp8",
    }  # fmt: skip
    if dtype == "float32":
        return "tensor_tf32" if tf32 else "fp32"
    return units.get(dtype, "fp32")


@lru_cache(maxsize=4096)
def plan_gemm(m: int, n: int, k: int, batch: int, itemsize: int, unit: str, spec: GPUSpec) -> GemmPlan:
    """The fastest tiling of ``batch`` products (m x k) @ (k x n) by the model's own account.

    Libraries choose by heuristics that come close to this; the choice never makes a product slower than a worse tile.
    """
    tiles = _TENSOR_TILES if unit.startswith("tensor_") else _VECTOR_TILES
    if unit.startswith("tensor_"):
        rate = spec.peak[unit] * SUSTAINED_TENSOR_SHARE
    else:
        rate = spec.peak[unit] * spec.clock_hz / spec.boost_clock_hz
    rate_sm = rate / spec.sm_count
    prologue = _PROLOGUE_BYTES / itemsize
    best: GemmPlan | None = None
    for rows, columns, efficiency in tiles:
        for tile_m, tile_n in {(rows, columns), (columns, rows)}:
            grid = math.ceil(m / tile_m) * math.ceil(n / tile_n) * batch
            operand = (m * k * math.ceil(n / tile_n) + n * k * math.ceil(m / tile_m)) * itemsize * batch
            for split in _SPLITS:
                if split > 1 and (k / split < 4 * prologue or grid * split > 4 * spec.sm_count):
                    break
                waves = math.ceil(grid * split / spec.sm_count)
                inner = math.ceil(k / split) + prologue
                seconds = waves * 2.0 * tile_m * tile_n * inner / (rate_sm * efficiency)
                partial = 8.0 * m * n * batch * split if split > 1 else 0.0
                l2_bytes = operand + m * n * batch * itemsize + partial
                total = max(seconds, l2_bytes / spec.l2_bandwidth) + (spec.kernel_min if split > 1 else 0.0)
                if best is None or total < best.seconds:
                    best = GemmPlan(tile_m, tile_n, split, total, grid * split, l2_bytes)
    assert best is not None
    return best


def operand_passes(
    a_bytes: float, b_bytes: float, m: int, n: int, plan: GemmPlan, spec: GPUSpec
) -> tuple[float, float]:
    """How often each operand streams from device memory under a grouped tile order (1 when they fit in L2)."""
    capacity = spec.l2_bytes * EFFECTIVE_L2_SHARE
    if min(a_bytes, b_bytes) <= capacity:  # the smaller operand stays while the larger streams once
        return 1.0, 1.0
    b_again = math.ceil(m / (plan.tile_m * _RASTER_GROUP))
    a_again = math.ceil(n / (plan.tile_n * _RASTER_GROUP))
    return (1.0, float(b_again)) if b_bytes * b_again <= a_bytes * a_again else (float(a_again), 1.0)


def gemm_work(
    name: str,
    m: int,
    n: int,
    k: int,
    batch: int,
    itemsize: int,
    unit: str,
    a: Access,
    b: Access,
    others: tuple[Access, ...],
    spec: GPUSpec,
) -> KernelWork:
    """One (batched) product. ``a`` and ``b`` are the operands' footprints, ``others`` the output and a bias."""
    plan = plan_gemm(m, n, k, batch, itemsize, unit, spec)
    a_pass, b_pass = operand_passes(a.nbytes / batch, b.nbytes / batch, m, n, plan, spec)
    share = 0.5 * (plan.l2_bytes - m * n * batch * itemsize)
    accesses = (
        Access(a.storage, a.nbytes, passes=a_pass, requested=share),
        Access(b.storage, b.nbytes, passes=b_pass, requested=share),
        *others,
    )
    flops = {unit: 2.0 * m * n * k * batch}
    return KernelWork(
        name,
        accesses,
        flops=flops,
        blocks=plan.blocks,
        threads=256,
        blocks_per_sm=2,
        bytes_in_flight=96.0,
        compute_seconds=plan.seconds,
        reuse_window=float("inf") if max(a_pass, b_pass) > 1 else 1.0,
        fixed_kernels=2 if plan.split > 1 else 1,
    )
