"""Operators that are matrix products (``mm``, ``addmm``, ``bmm``, ``mv``, ``dot``) and the library's
choice among its tiles; fused attention, distances, recurrent layers."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from drkernel.sim.cost.pointwise import streaming
from drkernel.sim.cost.records import Access, Grid, KernelWork, MetaCall, TensorMeta, Unpriced, read, scratch, write
from drkernel.sim.cost.roofline import EFFECTIVE_L2_SHARE, mma_sync_share, unit_rate
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
    rate = unit_rate(product.unit if product.unit.startswith("tensor_") else f"{product.unit}_dot", spec)
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
        Access(a.storage, a.nbytes, passes=a_pass, requested=share, part=a.part),
        Access(b.storage, b.nbytes, passes=b_pass, requested=share, part=b.part),
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


# ---- products and attention


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
    out = (call.outputs or (a,))[0]
    copies: list[KernelWork] = []
    if extra and call.base != "linear" and (len(extra[0].shape) > 1 or "mm" not in call.base):
        # the library adds to what its output holds; a bias of one row alone is an epilogue
        copies = [_spread(extra[0], out)] if extra[0].storage != out.storage else []
        extra = (out,)
    others = (*[read(meta) for meta in extra], write(out))
    factor = multiplications(a.dtype)
    unit = gemm_unit(a.dtype)
    if min(m, n) <= SKINNY:
        vector = "fp64" if a.dtype in ("float64", "complex128") else "fp32"
        return [*copies, _matrix_vector(call.base, a, b, others, m, n, k * factor, batch, vector)]
    shape = Product(m, n, k * factor, batch, a.itemsize // factor, unit)
    return [*copies, gemm_work(call.base, shape, read(a), read(b), others, call.spec)]


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
    return a.shape[-2], b.shape[-1], k, math.prod(a.shape[:-2])


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
    """``_grouped_mm``, its sizes taken as equal; ``_scaled_mm``, ``_int_mm``: scales and bias in the epilogue."""
    a, b = call.inputs[:2]
    out = call.outputs[0]
    unit = gemm_unit(a.dtype)
    if "grouped" not in call.base:
        shape = Product(a.shape[0], b.shape[-1], a.shape[-1], 1, a.itemsize, unit)
    elif len(a.shape) == 3 and len(b.shape) == 3:
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


def conv_tbc(call: MetaCall) -> list[KernelWork]:
    """A copy of the bias over the output, then a product for each tap, added to it."""
    x, weight, bias = call.inputs[:3]
    out = call.outputs[0]
    taps, inner, columns = weight.shape
    rows = out.elements // max(1, columns)
    shape = Product(rows, columns, inner, 1, x.itemsize, gemm_unit(x.dtype))
    per_tap = weight.nbytes / max(1, taps)
    added = gemm_work(call.base, shape, read(x), read(weight, nbytes=per_tap), (read(out), write(out)), call.spec)
    return [_spread(bias, out), *[added] * taps]


def _spread(source: TensorMeta, out: TensorMeta) -> KernelWork:
    return streaming("copy", [read(source), write(out)], float(out.elements), {"int": 8.0 * out.elements})


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
"""A launch from C++ against an eager operator from Python: each kernel of an operator but the first, and each step of a
recurrence, whose chain the host that feeds it bounds."""


def recurrent(call: MetaCall) -> list[KernelWork]:
    """``aten::lstm.input`` and kin."""
    x, out = call.inputs[0], call.outputs[0]
    layers, directions = int(call.number("num_layers", 1)), 1 + call.flag("bidirectional")
    steps, batch = (x.shape[1], x.shape[0]) if call.flag("batch_first") else (x.shape[0], x.shape[1])
    features, width = x.shape[-1], out.shape[-1] // directions
    columns, item = GATES[call.base] * width, x.itemsize
    work: list[KernelWork] = []
    for layer in range(layers):
        depth, source = (features, read(x)) if layer == 0 else (width * directions, read(out))
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
    moved = (Access(-4, steps * batch * columns * item),)
    return KernelWork("steps", moved, {"fp32": 0.0}, float(spec.sm_count), serial_seconds=steps * (per_step + chain))
