"""Modelled time of one ATen operator, from the shapes of its tensors alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drkernel.sim.cost.estimate import CostEstimate, roofline_cost
from drkernel.sim.cost.timeline import L2State
from drkernel.sim.spec import GPUSpec

ITEM_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "int64": 8,
    "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8, "bool": 1,
    "complex64": 8, "complex128": 16,
}  # fmt: skip
TENSOR_UNIT = {
    "float16": "tensor_fp16",
    "bfloat16": "tensor_bf16",
    "float8_e4m3fn": "tensor_fp8",
    "float8_e5m2": "tensor_fp8",
    "int8": "tensor_int8",
    "float64": "fp64",
}
GEMM_TILES = ((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (32, 64), (64, 32), (32, 32))
GEMM_EFFICIENCY = 0.80
CONV_EFFICIENCY = 0.60
SPECIAL = (
    "exp",
    "log",
    "sigmoid",
    "tanh",
    "gelu",
    "silu",
    "softmax",
    "erf",
    "sin",
    "cos",
    "pow",
    "mish",
    "softplus",
    "elu",
)
"""operators with about one special function an element"""
PASSES = {
    # reads of the input beyond the first, by operators that need a statistic before they can write
    "native_batch_norm": 1, "_native_batch_norm_legit": 1, "native_group_norm": 1, "std": 0, "var": 0,
    "sort": 6, "topk": 2, "cumsum": 1, "cumprod": 1, "nll_loss_forward": 0,
}  # fmt: skip
MATMULS = ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "linear", "_grouped_mm")


@dataclass(frozen=True)
class TensorMeta:
    """A tensor as the cost model sees it."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    storage: int

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of distinct elements (a broadcast dimension, of stride 0, counts once)."""
        distinct = math.prod(size for size, stride in zip(self.shape, self.stride, strict=True) if stride != 0)
        return distinct * ITEM_BYTES[self.dtype]


def operator_cost(
    name: str, inputs: Sequence[TensorMeta], outputs: Sequence[TensorMeta], args: Any, spec: GPUSpec, l2: L2State
) -> CostEstimate:
    """Device seconds of ``name`` (e.g. ``"mm.default"``), without the host's launch overhead."""
    base = name.partition(".")[0].rstrip("_")
    passes = 1 + PASSES.get(base, 0)
    dram = l2_bytes = 0.0
    for meta in inputs:
        dram += l2.touch(meta.storage, meta.nbytes)
        l2_bytes += meta.nbytes * passes
    for meta in outputs:
        dram += l2.touch(meta.storage, 0.0, meta.nbytes)
        l2_bytes += meta.nbytes
    if base in MATMULS:
        return _gemm(base, inputs, outputs, dram, spec)
    if base.startswith(("convolution", "_convolution", "conv_")):
        return _convolution(inputs, outputs, args, dram, spec)
    if base.startswith("_scaled_dot_product"):
        return _attention(inputs, dram, spec)
    elements = max([meta.elements for meta in (*inputs, *outputs)], default=1)
    flops = {"fp32": 2.0 * elements * passes}
    if any(word in base for word in SPECIAL):
        flops["sfu"] = float(elements)
    blocks = max(1.0, elements / 1024)  # 128 to 256 threads, a few elements each
    return roofline_cost(spec, dram, l2_bytes, flops, blocks=blocks, warps_per_block=4, blocks_per_sm=16)


def _unit(dtype: str, tf32: bool) -> str:
    """The unit that multiplies matrices of a dtype: fp32 stays on the vector units unless TF32 is allowed."""
    return TENSOR_UNIT.get(dtype, "tensor_tf32" if tf32 else "fp32")


def _gemm(
    base: str, inputs: Sequence[TensorMeta], outputs: Sequence[TensorMeta], dram: float, spec: GPUSpec
) -> CostEstimate:
    matrices = [meta for meta in inputs if len(meta.shape) >= 2] or list(inputs)
    left = matrices[-2] if len(matrices) >= 2 else matrices[0]
    depth = left.shape[-1]
    out = outputs[0]
    columns = out.shape[-1] if len(out.shape) >= 2 else 1
    rows = out.shape[-2] if len(out.shape) >= 2 else max(1, out.elements)
    batch = max(1, out.elements // max(1, rows * columns))
    return _tiled(batch, rows, columns, depth, _unit(left.dtype, tf32=False), dram, spec, GEMM_EFFICIENCY)


def _tiled(
    batch: int, rows: int, columns: int, depth: int, unit: str, dram: float, spec: GPUSpec, efficiency: float
) -> CostEstimate:
    """A product as the library would run it: the best of its tile shapes, with split-K where tiles are few."""
    best: CostEstimate | None = None
    for tile_rows, tile_columns in GEMM_TILES:
        tiles = batch * math.ceil(rows / tile_rows) * math.ceil(columns / tile_columns)
        padded = 2.0 * tiles * tile_rows * tile_columns * depth
        split = max(1, min(depth // 256, spec.sm_count // tiles)) if tiles < spec.sm_count else 1
        reuse = 0.5 + 0.5 * min(1.0, tile_rows * tile_columns / (128 * 128))  # small tiles feed the units less well
        cost = roofline_cost(
            spec, dram, dram, {unit: padded}, blocks=tiles * split, warps_per_block=8, blocks_per_sm=1,
            efficiency=efficiency * reuse, extra_seconds=spec.kernel_min if split > 1 else 0.0,
        )  # fmt: skip
        if best is None or cost.seconds < best.seconds:
            best = cost
    assert best is not None
    return best


def _convolution(
    inputs: Sequence[TensorMeta], outputs: Sequence[TensorMeta], args: Any, dram: float, spec: GPUSpec
) -> CostEstimate:
    """Implicit GEMM; fp32 runs on TF32 units, cuDNN's default in PyTorch. Depthwise runs on the vector units."""
    weight, out = inputs[1], outputs[0]
    transposed = bool(args[6]) if len(args) > 6 else False
    groups = int(args[8]) if len(args) > 8 else 1
    kernel = math.prod(weight.shape[2:])
    if transposed:
        out_channels, depth = weight.shape[1], weight.shape[0] // groups * kernel
    else:
        out_channels, depth = weight.shape[0] // groups, weight.shape[1] * kernel
    pixels = out.elements // (out_channels * groups)
    if groups > 1 and out_channels <= 4:
        flops = 2.0 * out.elements * depth
        blocks = max(1.0, out.elements / 512)
        return roofline_cost(spec, dram, dram * 2, {"fp32": flops}, blocks=blocks, warps_per_block=4, blocks_per_sm=8)
    return _tiled(groups, pixels, out_channels, depth, _unit(weight.dtype, tf32=True), dram, spec, CONV_EFFICIENCY)


def _attention(inputs: Sequence[TensorMeta], dram: float, spec: GPUSpec) -> CostEstimate:
    query, key = inputs[0], inputs[1]
    flops = 4.0 * query.elements * key.shape[-2]
    blocks = max(1.0, query.elements / query.shape[-1] / 128)
    unit = _unit(query.dtype, tf32=False)
    return roofline_cost(
        spec, dram, dram, {unit: flops, "sfu": flops / (4.0 * query.shape[-1])}, blocks=blocks, warps_per_block=8,
        blocks_per_sm=1, efficiency=0.6,
    )  # fmt: skip
