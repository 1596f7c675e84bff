"""Operators that are matrix products (``mm``, ``addmm``, ``bmm``, ``mv``, ``dot``), fused attention, distances."""

from __future__ import annotations

import math
from dataclasses import replace

from drkernel.sim.cost.call import MetaCall, Unpriced, read, scratch, write
from drkernel.sim.cost.gemm import Product, gemm_unit, gemm_work, multiplications
from drkernel.sim.cost.pointwise import streaming
from drkernel.sim.cost.records import TensorMeta
from drkernel.sim.cost.roofline import Access, Grid, KernelWork, mma_sync_share

SKINNY = 8
"""Products whose output has a side this short are streamed by matrix-vector kernels, bound by memory."""
ATTENTION_SHARE = {"tensor_fp16": 0.75, "tensor_bf16": 0.75, "tensor_tf32": 0.22}
"""Share of the rate of ``mma.sync`` that PyTorch's fused attention reaches: the softmax between its two products is not
overlapped (FlashAttention-3's paper: FlashAttention-2 at 370 TFLOP/s on H100 where 499 can be had), and fp32 attention
does three TF32 products for one, to keep fp32's accuracy."""
WIDE_HEAD, WIDE_HEAD_SHARE = 256, 0.27
"""Heads wider than the fused kernels keep on chip spill their accumulators to memory at every step."""
BACKWARD_PRODUCTS = 2.5
"""Five products where the forward pass has two: scores again, and the gradients of values, scores, queries, keys."""
BACKWARD_SHARE = 0.75
"""Share of the forward pass's rate that the backward pass reaches, for want of registers."""


def product(call: MetaCall) -> list[KernelWork]:
    """``mm``/``addmm``/``bmm``/``baddbmm``/``mv``/``dot``/``linear`` by shapes."""
    a, b, extra = operands(call)
    m, n, k, batch = dimensions(call, a, b)
    outputs = call.outputs or (a,)
    others = (*[read(meta) for meta in extra], write(outputs[0]))
    factor = multiplications(a.dtype)
    unit = gemm_unit(a.dtype)
    if min(m, n) <= SKINNY:
        vector = "fp64" if a.dtype in ("float64", "complex128") else "fp32"
        return [_matrix_vector(call.base, a, b, others, m, n, k * factor, batch, vector)]
    shape = Product(m, n, k * factor, batch, a.itemsize // factor, unit)
    return [gemm_work(call.base, shape, read(a), read(b), others, call.spec)]


def operands(call: MetaCall) -> tuple[TensorMeta, TensorMeta, tuple[TensorMeta, ...]]:
    """The two factors and what is added."""
    if call.base in ("addmm", "baddbmm", "addbmm", "addmv", "_addmm_activation"):
        return call.inputs[1], call.inputs[2], call.inputs[:1]
    return call.inputs[0], call.inputs[1], call.inputs[2:]


def dimensions(call: MetaCall, a: TensorMeta, b: TensorMeta) -> tuple[int, int, int, int]:
    """(m, n, k, batch) of a product."""
    if call.base in ("dot", "vdot"):
        return 1, 1, a.elements, 1
    k = a.shape[-1] if a.shape else 1
    if len(b.shape) == 1:
        return math.prod(a.shape[:-1]), 1, k, 1
    if call.base == "linear":
        return math.prod(a.shape[:-1]), b.shape[0], k, 1
    if call.base == "addbmm":  # all products of the batch into one output
        return a.shape[-2], b.shape[-1], k * a.shape[0], 1
    if len(a.shape) > 2:
        return a.shape[-2], b.shape[-1], k, math.prod(a.shape[:-2])
    return a.shape[0], b.shape[-1], k, 1


def _matrix_vector(
    name: str, a: TensorMeta, b: TensorMeta, others: tuple[Access, ...], m: int, n: int, k: int, batch: int, unit: str
) -> KernelWork:
    """Every operand streams once; rows are split over blocks along k when there are few."""
    rows = max(m, n) * batch
    blocks = max(rows / 4.0, rows * k / 8192.0)
    return KernelWork(
        name,
        (read(a), read(b), *others),
        {unit: 1.5 * m * n * k * batch},
        max(1.0, blocks),
        Grid(128, 8, 32.0),
        memory_efficiency=0.95,
    )


def grouped(call: MetaCall) -> list[KernelWork]:
    """``_grouped_mm``: one kernel over products of equal width, whose sizes lie in a tensor (taken as equal)."""
    a, b = call.inputs[:2]
    out = call.outputs[0]
    unit = gemm_unit(a.dtype)
    if len(a.shape) == 3 and len(b.shape) == 3:
        shape = Product(a.shape[1], b.shape[2], a.shape[2], a.shape[0], a.itemsize, unit)
    elif len(a.shape) == 2 and len(b.shape) == 3:  # rows of a are split
        shape = Product(math.ceil(a.shape[0] / b.shape[0]), b.shape[2], a.shape[1], b.shape[0], a.itemsize, unit)
    elif len(a.shape) == 3:  # columns of b are split
        shape = Product(a.shape[1], math.ceil(b.shape[1] / a.shape[0]), a.shape[2], a.shape[0], a.itemsize, unit)
    else:  # the inner dimension is split
        groups = out.shape[0]
        shape = Product(a.shape[0], b.shape[1], math.ceil(a.shape[1] / groups), groups, a.itemsize, unit)
    others = (*[read(meta) for meta in call.inputs[2:]], write(out))
    return [gemm_work(call.base, shape, read(a), read(b), others, call.spec)]


def scaled(call: MetaCall) -> list[KernelWork]:
    """``_scaled_mm`` (fp8) and ``_int_mm`` (int8): a product whose scales and bias are its epilogue."""
    a, b = call.inputs[:2]
    out = call.outputs[0]
    shape = Product(a.shape[0], b.shape[-1], a.shape[-1], 1, a.itemsize, gemm_unit(a.dtype))
    others = (*[read(meta) for meta in call.inputs[2:]], write(out))
    return [gemm_work(call.base, shape, read(a), read(b), others, call.spec)]


def conv_tbc(call: MetaCall) -> list[KernelWork]:
    """A copy of the bias over the output, then a product for each tap, added to it."""
    x, weight, bias = call.inputs[:3]
    out = call.outputs[0]
    taps, inner, columns = weight.shape
    rows = out.elements // max(1, columns)
    shape = Product(rows, columns, inner, 1, x.itemsize, gemm_unit(x.dtype))
    per_tap = weight.nbytes / max(1, taps)
    added = gemm_work(call.base, shape, read(x), Access(weight.storage, per_tap), (read(out), write(out)), call.spec)
    spread = streaming("copy", [read(bias), write(out)], float(out.elements), {"int": 8.0 * out.elements})
    return [spread, *[added] * taps]


def attention(call: MetaCall) -> list[KernelWork]:
    """Fused scaled dot-product attention: one kernel, scores never leave the chip."""
    work = _attention(call, *call.inputs[:3])
    return [replace(work, accesses=(*map(read, call.inputs), *map(write, call.outputs)))]


def attention_backward(call: MetaCall) -> list[KernelWork]:
    """The fused gradient: the row sums of ``out * grad``, then one kernel with five products."""
    gradient, query, key, value, out = call.inputs[:5]
    rows = scratch(4.0 * query.elements / max(1, query.shape[-1]), write=True)
    sums = streaming("row_sums", [read(gradient), read(out), rows], float(out.elements), {"fp32": 3.0 * out.elements})
    work = _attention(call, query, key, value)
    flops = {unit: count * BACKWARD_PRODUCTS for unit, count in work.flops.items()}
    accesses = (*map(read, call.inputs), *map(write, call.outputs))
    efficiency = work.compute_efficiency * BACKWARD_SHARE
    return [sums, replace(work, flops=flops, accesses=accesses, compute_efficiency=efficiency)]


def _attention(call: MetaCall, query: TensorMeta, key: TensorMeta, value: TensorMeta) -> KernelWork:
    heads = math.prod(query.shape[:-2])
    rows, columns = query.shape[-2], key.shape[-2]
    depth, width = query.shape[-1], value.shape[-1]
    causal = call.flag("is_causal")
    density = 0.5 if causal and rows == columns else 1.0
    flops = 2.0 * heads * rows * columns * (depth + width) * density
    unit = gemm_unit(query.dtype, tf32=True)
    tile = 128 if depth <= 128 else 64
    blocks = heads * math.ceil(rows / tile)
    share = (ATTENTION_SHARE.get(unit, 0.5) if depth <= WIDE_HEAD else WIDE_HEAD_SHARE) * mma_sync_share(call.spec)
    return KernelWork(
        call.base,
        (),
        {unit: flops, "sfu": heads * rows * columns * density},
        blocks,
        Grid(256, 2, 64.0),
        compute_efficiency=share,
    )


# ---- distances


def pairwise(call: MetaCall) -> list[KernelWork]:
    """``cdist`` and ``pdist`` without products: a block a pair, which reads both rows from cache and reduces."""
    rows = call.inputs
    width = rows[0].shape[-1] if rows[0].shape else 1
    pairs = float(call.outputs[0].elements)
    power = call.number("p", 2.0)
    if rows[0].dtype not in ("float32", "float64"):
        raise Unpriced(f"distances of {rows[0].dtype}")
    unit = "fp64" if rows[0].dtype == "float64" else "fp32"
    heavy = power not in (0.0, 1.0, 2.0, math.inf)
    requested = pairs * width * rows[0].itemsize * 2.0 / len(rows)
    accesses = [replace(read(meta), requested=max(requested, float(meta.nbytes))) for meta in rows]
    work = KernelWork(
        call.base,
        (*accesses, write(call.outputs[0])),
        {unit: pairs * (width * (34.0 if heavy else 4.0) + 300.0)},
        max(1.0, pairs),
        Grid(256 if width > 128 else 64, 8 if width > 128 else 32, 8.0),
        memory_efficiency=0.9,
    )
    return [work]


def euclidean(call: MetaCall) -> list[KernelWork]:
    """``cdist`` by products: squared norms, operands with them joined on, a product, a clamp and a root."""
    a, b = call.inputs[:2]
    out = call.outputs[0]
    work: list[KernelWork] = []
    joined: list[Access] = []
    for meta in (a, b):
        rows = meta.elements / max(1, meta.shape[-1])
        norms, wider = rows * meta.itemsize, meta.nbytes + 2.0 * rows * meta.itemsize
        elements = float(meta.elements)
        squares = scratch(float(meta.nbytes), write=True)
        work.append(streaming("pow", [read(meta), squares], elements, {"fp32": 3.0 * elements}))
        summed = [scratch(float(meta.nbytes)), scratch(norms, write=True)]
        work.append(streaming("sum", summed, elements, {"fp32": 3.0 * elements}, 0.95))
        work.append(streaming("ones_like", [scratch(norms, write=True)], rows, {}))
        work.append(streaming("cat", [read(meta), scratch(wider, write=True)], elements, {"int": 8.0 * elements}, 0.9))
        joined.append(scratch(wider))
    batch = math.prod(a.shape[:-2])
    shape = Product(a.shape[-2], b.shape[-2], a.shape[-1] + 2, batch, a.itemsize, gemm_unit(a.dtype))
    if min(shape.m, shape.n) <= SKINNY:
        work.append(streaming("mm", [*joined, write(out)], float(out.elements), {"fp32": 0.75 * shape.flops}))
    else:
        work.append(gemm_work("mm", shape, joined[0], joined[1], (write(out),), call.spec))
    elements = float(out.elements)
    work.append(streaming("clamp_min", [read(out), write(out)], elements, {"fp32": 2.0 * elements}))
    return [*work, streaming("sqrt", [read(out), write(out)], elements, {"fp32": 6.0 * elements, "sfu": elements})]


# ---- recurrent networks


GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
KERNELS_PER_STEP = {"lstm": 2, "gru": 3, "rnn_tanh": 2, "rnn_relu": 2}
RAW_LAUNCH_SHARE = 0.55
"""A launch from C++ against an eager operator from Python: the chain of steps is bound by the host that feeds it."""


def recurrent(call: MetaCall) -> list[KernelWork]:
    """``aten::lstm.input`` and kin."""
    kind, x, out = call.base, call.inputs[0], call.outputs[0]
    layers, directions, batch_first = (
        int(call.number("num_layers", 1)),
        1 + call.flag("bidirectional"),
        call.flag("batch_first"),
    )
    steps, batch = (x.shape[1], x.shape[0]) if batch_first else (x.shape[0], x.shape[1])
    features, width = x.shape[-1], out.shape[-1] // directions
    gates = GATES[kind]
    item = x.itemsize
    work: list[KernelWork] = []
    for layer in range(layers):
        depth = features if layer == 0 else width * directions
        source = read(x) if layer == 0 else Access(out.storage, out.nbytes)
        columns = gates * width
        weights = Access(-3, columns * depth * item)
        intermediate = Access(-4, steps * batch * columns * item, write=True)
        shape = Product(steps * batch, columns, depth, 1, item, "fp32")
        product = gemm_work("input_product", shape, source, weights, (intermediate,), call.spec)
        work += [product] * directions
        work.append(_steps(call, steps * directions, batch, width, columns, item))
    work.append(KernelWork("store", (write(out),), blocks=64.0))
    return work


def _steps(call: MetaCall, steps: int, batch: int, width: int, columns: int, item: int) -> KernelWork:
    """The dependent chain of a layer: each step is a small product, then the gates' arithmetic."""
    spec = call.spec
    weights = float(columns * width * item)
    per_step = weights / spec.l2_bandwidth + 2.0 * batch * columns * width / spec.peak["fp32"]
    kernels = KERNELS_PER_STEP[call.base]
    chain = kernels * max(spec.kernel_min + spec.dram_latency, RAW_LAUNCH_SHARE * spec.launch_overhead)
    return KernelWork(
        "steps",
        (Access(-4, steps * batch * columns * item),),
        flops={"fp32": 0.0},
        blocks=float(spec.sm_count),
        serial_seconds=steps * (per_step + chain),
        fixed_kernels=1,
    )
