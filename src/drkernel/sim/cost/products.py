"""Operators that are matrix products (``mm``, ``addmm``, ``bmm``, ``mv``, ``dot``) and fused attention."""

from __future__ import annotations

import math

from drkernel.sim.cost.call import Call, read, write
from drkernel.sim.cost.gemm import Product, gemm_unit, gemm_work
from drkernel.sim.cost.records import TensorMeta
from drkernel.sim.cost.roofline import Access, KernelWork

SKINNY = 8
"""Products whose output has a side this short are streamed by matrix-vector kernels, bound by memory."""
ATTENTION_SHARE = {"tensor_fp16": 0.62, "tensor_bf16": 0.62, "tensor_tf32": 0.14}
"""Share of the sustained rate that fused attention reaches: the softmax between its two products is not overlapped, and
fp32 attention does three TF32 products for one, to keep fp32's accuracy."""
WIDE_HEAD, WIDE_HEAD_SHARE = 256, 0.17
"""Heads wider than the fused kernels keep on chip spill their accumulators to memory at every step."""


def product(call: Call) -> list[KernelWork]:
    """``mm``/``addmm``/``bmm``/``baddbmm``/``mv``/``dot``/``linear`` by shapes."""
    a, b, extra = operands(call)
    m, n, k, batch = dimensions(call, a, b)
    others = (*[read(meta) for meta in extra], write(call.outputs[0]))
    if min(m, n) <= SKINNY:
        return [_matrix_vector(call.base, a, b, others, m, n, k, batch)]
    unit = gemm_unit(a.dtype)
    work = gemm_work(call.base, Product(m, n, k, batch, a.itemsize, unit), read(a), read(b), others, call.spec)
    return [work]


def operands(call: Call) -> tuple[TensorMeta, TensorMeta, tuple[TensorMeta, ...]]:
    """The two factors and what is added."""
    if call.base in ("addmm", "baddbmm", "addbmm", "addmv", "addr", "_addmm_activation"):
        return call.inputs[1], call.inputs[2], call.inputs[:1]
    return call.inputs[0], call.inputs[1], call.inputs[2:]


def dimensions(call: Call, a: TensorMeta, b: TensorMeta) -> tuple[int, int, int, int]:
    """(m, n, k, batch) of a product."""
    if call.base in ("dot", "vdot"):
        return 1, 1, a.elements, 1
    if call.base == "addr":
        return a.elements, b.elements, 1, 1
    k = a.shape[-1]
    if len(b.shape) == 1:
        return math.prod(a.shape[:-1]), 1, k, 1
    if call.base == "linear":
        return math.prod(a.shape[:-1]), b.shape[0], k, 1
    if len(a.shape) > 2:
        return a.shape[-2], b.shape[-1], k, math.prod(a.shape[:-2])
    return a.shape[0], b.shape[-1], k, 1


def _matrix_vector(
    name: str, a: TensorMeta, b: TensorMeta, others: tuple[Access, ...], m: int, n: int, k: int, batch: int
) -> KernelWork:
    """Every operand streams once; rows are split over blocks along k when there are few."""
    rows = max(m, n) * batch
    blocks = max(rows / 4.0, rows * k / 8192.0)
    return KernelWork(
        name,
        (read(a), read(b), *others),
        flops={"fp32": 1.5 * m * n * k * batch},
        blocks=max(1.0, blocks),
        threads=128,
        blocks_per_sm=8,
        bytes_in_flight=32.0,
        memory_efficiency=0.95,
    )


def attention(call: Call) -> list[KernelWork]:
    """Fused scaled dot-product attention: one kernel, scores never leave the chip."""
    query, key, value = call.inputs[:3]
    heads = math.prod(query.shape[:-2])
    rows, columns = query.shape[-2], key.shape[-2]
    depth, width = query.shape[-1], value.shape[-1]
    causal = any(argument is True for argument in call.args)
    density = 0.5 if causal and rows == columns else 1.0
    flops = 2.0 * heads * rows * columns * (depth + width) * density
    unit = gemm_unit(query.dtype, tf32=True)
    tile = 128 if depth <= 128 else 64
    blocks = heads * math.ceil(rows / tile)
    share = ATTENTION_SHARE.get(unit, 0.5) if depth <= WIDE_HEAD else WIDE_HEAD_SHARE
    return [
        KernelWork(
            call.base,
            (*[read(meta) for meta in call.inputs], write(call.outputs[0])),
            flops={unit: flops, "sfu": heads * rows * columns * density},
            blocks=blocks,
            threads=256,
            blocks_per_sm=2,
            bytes_in_flight=64.0,
            compute_efficiency=share,
        )
    ]
