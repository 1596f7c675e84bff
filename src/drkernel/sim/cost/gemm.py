"""Matrix products as a vendor library runs them: tile choice, wave quantisation, split-K, traffic through L2."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from drkernel.sim.cost.call import Unpriced
from drkernel.sim.cost.l2 import EFFECTIVE_L2_SHARE
from drkernel.sim.cost.roofline import Access, Grid, KernelWork, unit_rate
from drkernel.sim.spec import GPUSpec

# (rows, columns, share of the unit's sustained rate that the main loop reaches). The order of magnitude is what public
# GEMM profiles show: large tiles amortise operand traffic, small ones do not. Kept the same for every GPU and dtype.
TILES = {
    "vector": (
        (128, 128, 0.88), (256, 64, 0.84), (128, 64, 0.80), (64, 64, 0.70), (128, 32, 0.62), (64, 32, 0.55),
        (32, 32, 0.42), (128, 16, 0.38), (128, 8, 0.22),
    ),
    "tensor": (
        (256, 128, 0.95), (128, 128, 0.92), (128, 64, 0.68), (64, 64, 0.45), (128, 32, 0.36), (64, 32, 0.28),
        (64, 16, 0.16),
    ),
    # cuDNN's TF32 and half kernels for NCHW tensors are those of the previous generation, with smaller tiles; rows are
    # pixels and never swap places with columns.
    "convolution": (
        (128, 128, 0.85), (256, 64, 0.85), (128, 64, 0.70), (64, 64, 0.50), (128, 32, 0.45), (64, 32, 0.35),
    ),
}  # fmt: skip
PROLOGUE_BYTES = {"vector": 96, "tensor": 256, "convolution": 256}
"""Operand bytes per row that filling and draining the pipeline costs, as if the inner dimension were longer."""
CLUSTER_TRAFFIC = 2 / 3
"""From compute capability 9.0 on, two blocks of a cluster load one operand once and share it (multicast)."""
_SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
_RASTER_GROUP = 8
"""Tile rows that a swizzled tile order keeps in flight before it moves on, so that the other operand is re-read."""
_UNITS = {
    "float16": "tensor_fp16", "bfloat16": "tensor_bf16", "float64": "tensor_fp64", "int8": "tensor_int8",
    "uint8": "tensor_int8", "float8_e4m3fn": "tensor_fp8", "float8_e5m2": "tensor_fp8",
    "float8_e4m3fnuz": "tensor_fp8", "float8_e5m2fnuz": "tensor_fp8", "complex64": "fp32", "complex128": "tensor_fp64",
}  # fmt: skip


@dataclass(frozen=True)
class Product:
    """``batch`` products (m x k) @ (k x n) on one unit; ``tiles`` names the family of kernels."""

    m: int
    n: int
    k: int
    batch: int
    itemsize: int
    unit: str
    tiles: str = ""

    @property
    def family(self) -> str:
        """The tile list to choose from."""
        return self.tiles or ("tensor" if self.unit.startswith("tensor_") else "vector")

    @property
    def flops(self) -> float:
        """Two for each multiply-add."""
        return 2.0 * self.m * self.n * self.k * self.batch

    @property
    def output_bytes(self) -> float:
        """Bytes of the result."""
        return float(self.m) * self.n * self.batch * self.itemsize


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
    """The unit that multiplies this dtype: fp32 stays on the vector units unless TF32 is allowed.

    Raises :class:`Unpriced` for a dtype that the libraries do not multiply.
    """
    if dtype == "float32":
        return "tensor_tf32" if tf32 else "fp32"
    if dtype not in _UNITS:
        raise Unpriced(f"products of {dtype}")
    return _UNITS[dtype]


def multiplications(dtype: str) -> int:
    """Real products in a product of this dtype."""
    return 4 if dtype.startswith("complex") else 1


@lru_cache(maxsize=4096)
def plan_gemm(product: Product, spec: GPUSpec) -> GemmPlan:
    """The fastest tiling of a product by the model's own account.

    Libraries choose by heuristics that come close to this; the choice never makes a product slower than a worse tile.
    """
    if product.unit.startswith("tensor_"):
        rate = unit_rate(product.unit, spec)
    else:
        rate = spec.peak[product.unit] * spec.clock_hz / spec.boost_clock_hz
    best: GemmPlan | None = None
    for rows, columns, efficiency in TILES[product.family]:
        shapes = {(rows, columns), (columns, rows)} if product.family in ("vector", "tensor") else {(rows, columns)}
        for tile in shapes:
            for split in _SPLITS:
                plan = _tiling(product, tile, split, rate / spec.sm_count * efficiency, spec)
                if plan is None:
                    break
                if best is None or plan.seconds < best.seconds:
                    best = plan
    assert best is not None
    return best


def _tiling(product: Product, tile: tuple[int, int], split: int, rate: float, spec: GPUSpec) -> GemmPlan | None:
    """One tiling with ``rate`` FLOP/s an SM; None when splitting so far makes no sense."""
    m, n, k, tile_m, tile_n = product.m, product.n, product.k, *tile
    prologue = PROLOGUE_BYTES[product.family] / product.itemsize
    grid = math.ceil(m / tile_m) * math.ceil(n / tile_n) * product.batch
    if split > 1 and (k / split < 4 * prologue or grid * split > 4 * spec.sm_count):
        return None
    waves = math.ceil(grid * split / spec.sm_count)
    inner = math.ceil(k / split) + prologue
    compute = waves * 2.0 * tile_m * tile_n * inner / rate
    operands: float = (m * k * math.ceil(n / tile_n) + n * k * math.ceil(m / tile_m)) * product.itemsize * product.batch
    if product.family == "tensor" and isinstance(spec.arch, int) and spec.arch >= 90:
        operands *= CLUSTER_TRAFFIC
    partial = 8.0 * m * n * product.batch * split if split > 1 else 0.0
    l2_bytes = operands + product.output_bytes + partial
    seconds = max(compute, l2_bytes / spec.l2_bandwidth) + (spec.kernel_min if split > 1 else 0.0)
    return GemmPlan(tile_m, tile_n, split, seconds, grid * split, l2_bytes)


def operand_passes(
    a_bytes: float, b_bytes: float, m: int, n: int, plan: GemmPlan, spec: GPUSpec
) -> tuple[float, float]:
    """Return how often each operand streams from device memory under a grouped tile order (1 when they fit in L2)."""
    capacity = spec.l2_bytes * EFFECTIVE_L2_SHARE
    if min(a_bytes, b_bytes) <= capacity:  # the smaller operand stays while the larger streams once
        return 1.0, 1.0
    b_again = math.ceil(m / (plan.tile_m * _RASTER_GROUP))
    a_again = math.ceil(n / (plan.tile_n * _RASTER_GROUP))
    return (1.0, float(b_again)) if b_bytes * b_again <= a_bytes * a_again else (float(a_again), 1.0)


def gemm_work(
    name: str, product: Product, a: Access, b: Access, others: tuple[Access, ...], spec: GPUSpec
) -> KernelWork:
    """The kernel of a product. ``a`` and ``b`` are the operands' footprints, ``others`` the output and a bias."""
    plan = plan_gemm(product, spec)
    a_pass, b_pass = operand_passes(
        a.nbytes / product.batch, b.nbytes / product.batch, product.m, product.n, plan, spec
    )
    share = 0.5 * (plan.l2_bytes - product.output_bytes)
    accesses = (
        Access(a.storage, a.nbytes, passes=a_pass, requested=share),
        Access(b.storage, b.nbytes, passes=b_pass, requested=share),
        *others,
    )
    return KernelWork(
        name,
        accesses,
        {product.unit: product.flops},
        plan.blocks,
        Grid(256, 2, 96.0),
        compute_seconds=plan.seconds,
        reuse_window=float("inf") if max(a_pass, b_pass) > 1 else 1.0,
        fixed_kernels=2 if plan.split > 1 else 1,
    )
