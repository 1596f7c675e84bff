"""Operators that slide a window: convolutions, pooling, interpolation."""

import math
from dataclasses import dataclass, replace

from drkernel.sim.cost.pointwise import BROADCAST_EFFICIENCY, fill, streaming
from drkernel.sim.cost.products import GemmPlan, Product, gemm_unit, plan_gemm
from drkernel.sim.cost.records import Access, Grid, KernelWork, MetaCall, TensorMeta, Unpriced, read, scratch, write
from drkernel.sim.cost.reduction import reduce
from drkernel.sim.cost.roofline import mma_sync_share, scattered_updates, unit_rate

CONVERT_EFFICIENCY = 0.95
"""NCHW -> NHWC conversion, a tiled transpose through shared memory, against a plain copy."""
CONV_OVERLAP = 0.3
"""How far an implicit GEMM hides its output's stores and input's first loads behind its products: few blocks share an
SM, and all of a wave store at about the same time."""
SIMT_SHARE, SIMT_COLUMNS = 0.40, 32
"""Share of the fp32 peak that the vector-unit implicit GEMM reaches, and the width it pads output channels to."""
K_SLICE_BYTES = 64
"""A step of the main loop stays within one tap of the filter, so that fewer channels than fill it are padded."""
ALIGNED_BYTES = 16
"""Tensor-core kernels need whole 16-byte groups of channels; others run on the vector units, but on an A100 (24 TFLOP/s
of 19.5 there at three channels)."""
GENERAL_SHARE, GENERAL_COLUMNS = 0.165, 64
"""Share of the rate of ``mma.sync``, and the width that output channels are padded to, of the kernel that cuDNN 9.10 on
Hopper takes for gradients of volumes that no special one takes; zeros of a strided one are multiplied, too (published:
40.7, 41.7, 40.8, 42.6, 43.8 TFLOP/s at 16 to 64 channels and 27 to 125 taps)."""
SPECIAL_COLUMNS, SPECIAL_GROUP, SPECIAL_TAPS = 128, 32, 64
"""Special ones take so many output channels and more, or at most so many taps: at stride 1 in whole groups."""
DEPTHWISE_BASE, DEPTHWISE_TAP = 230.0, 12.0
"""Instructions per output and per tap of PyTorch's direct depthwise kernel (index divisions, bounds, a load a tap)."""


@dataclass(frozen=True)
class ConvShape:
    """A convolution as products: per group ``pixels`` x ``depth`` by ``depth`` x ``columns``."""

    groups: int
    pixels: int
    columns: int
    depth: int
    channels: int
    kernel: int
    transposed: bool = False
    unit_stride_gradient: bool = False

    @property
    def flops(self) -> float:
        """Two for each multiply-add."""
        return 2.0 * self.groups * self.pixels * self.columns * self.depth


def conv_shape(x: TensorMeta, weight: TensorMeta, out: TensorMeta, args: MetaCall) -> ConvShape:
    """The products of ``aten.convolution``.

    A transposed convolution of stride s has 1/s of the kernel's taps at each output; with dilation too, the kernels do
    not skip the taps that fall between inputs.
    """
    dims = len(weight.shape) - 2
    stride, dilation = args.numbers("stride") or [1], args.numbers("dilation") or [1]
    stride = stride * dims if len(stride) == 1 else stride
    groups = int(args.number("groups", 1))
    kernel = math.prod(weight.shape[2:])
    pixels = out.elements // max(1, out.shape[1])
    if not args.flag("transposed"):
        return ConvShape(
            groups, pixels, weight.shape[0] // groups, weight.shape[1] * kernel, x.shape[1] // groups, kernel
        )
    taps = float(kernel)
    if max(dilation) == 1:
        taps = math.prod(max(1.0, size / step) for size, step in zip(weight.shape[2:], stride, strict=True))
    depth = max(1, round(weight.shape[0] // groups * taps))
    unit_stride = max(stride) == 1 and max(dilation) == 1
    return ConvShape(groups, pixels, weight.shape[1], depth, x.shape[1] // groups, kernel, True, unit_stride)


def convolution(call: MetaCall) -> list[KernelWork]:
    """The kernels of ``aten.convolution``: conversions, the product, and a bias pass (PyTorch adds it separately)."""
    out = call.outputs[0]
    work = _without_bias(call)
    if len(call.inputs) > 2:
        elements = float(out.elements)
        flops = {"fp32": elements, "int": 8.0 * elements}
        work.append(
            streaming("bias", [read(out), read(call.inputs[2]), write(out)], elements, flops, BROADCAST_EFFICIENCY)
        )
    return work


def _without_bias(call: MetaCall) -> list[KernelWork]:
    x, weight, out = call.inputs[0], call.inputs[1], call.outputs[0]
    shape = conv_shape(x, weight, out, call)
    if shape.groups > 1 and shape.channels == 1 and not call.flag("transposed"):
        return depthwise(call, shape)
    return implicit_gemm(call, shape)


def convolution_backward(call: MetaCall) -> list[KernelWork]:
    """The gradients that are asked for: the input's is the opposite convolution, the weight's a product over pixels,
    the bias's a sum."""
    gradient, x, weight = call.inputs[:3]
    mask = call.given.get("output_mask") or [True, True, True]
    results = iter(call.outputs)
    work: list[KernelWork] = []
    transposed = call.flag("transposed")
    if mask[0]:
        given = {**call.given, "transposed": not transposed}
        opposite = replace(call, inputs=(gradient, weight), outputs=(next(results),), given=given)
        shape = conv_shape(x, weight, gradient, call)
        direct = shape.groups > 1 and shape.channels == 1 and not transposed
        work += depthwise(opposite, shape) if direct else _without_bias(opposite)
    if mask[1]:
        work += _weight_gradient(call, gradient, x, weight, next(results))
    if mask[2]:
        work += reduce(replace(call, base="sum", inputs=(gradient,), outputs=(next(results),)))
    return work


def _weight_gradient(
    call: MetaCall, gradient: TensorMeta, x: TensorMeta, weight: TensorMeta, out: TensorMeta
) -> list[KernelWork]:
    """Per group a product of depth ``pixels``, split over blocks; fp32 sums. Depthwise: a block a tap."""
    groups = int(call.number("groups", 1))
    kernel = math.prod(weight.shape[2:])
    pixels = (x if call.flag("transposed") else gradient).elements // max(
        1, weight.shape[0] if call.flag("transposed") else gradient.shape[1]
    )
    rows, columns = weight.shape[0] // groups, weight.shape[1] * kernel
    unit = gemm_unit(x.dtype, tf32=call.conv_tf32)
    accesses = (read(gradient), read(x), write(out))
    shape = ConvShape(groups, pixels, rows, columns, x.shape[1] // groups, kernel)
    aligned = shape.channels * x.itemsize % ALIGNED_BYTES == 0
    if not unit.startswith("tensor_") or not aligned or (groups > 1 and shape.channels == 1):
        return [vector_gemm(call, shape, accesses)]
    work = []
    for meta in (gradient, x):
        if kernel > 1 and not _is_channels_last(meta):
            work.append(_convert(meta, read(meta), scratch(meta.nbytes, write=True)))
    plan = plan_gemm(Product(rows, columns, pixels, groups, x.itemsize, unit, "convolution"), call.spec)
    work.append(_gemm_work("weight_gradient", accesses, unit, shape, plan, overlap=CONV_OVERLAP))
    return work


def _gemm_work(
    name: str, accesses: tuple[Access, ...], unit: str, shape: ConvShape, plan: GemmPlan, *, overlap: float
) -> KernelWork:
    return KernelWork(
        name,
        accesses,
        {unit: shape.flops},
        plan.blocks,
        Grid(256, 2, 96.0),
        compute_seconds=plan.seconds,
        overlap=overlap,
        fixed_kernels=2 if plan.split > 1 else 1,
    )


def implicit_gemm(call: MetaCall, shape: ConvShape) -> list[KernelWork]:
    """Implicit GEMM. On tensor cores (TF32 for fp32 where that is allowed) it reads NHWC and writes NCHW.

    The data gradients of strided or dilated convolutions write NHWC, which is converted back.
    """
    x, weight, out = call.inputs[0], call.inputs[1], call.outputs[0]
    unit = gemm_unit(x.dtype, tf32=call.conv_tf32)
    aligned = shape.channels * x.itemsize % ALIGNED_BYTES == 0 or (call.spec.arch == 80 and not shape.transposed)
    work: list[KernelWork] = []
    source, result, tiles, depth = read(x), write(out), "", shape.depth
    on_tensor_cores = unit.startswith("tensor_")
    if (on_tensor_cores and not aligned) or (not on_tensor_cores and shape.kernel > 1):
        return [vector_gemm(call, shape, (read(x), read(weight), write(out)))]
    whole = shape.columns % SPECIAL_GROUP == 0 or not shape.unit_stride_gradient
    special = shape.columns >= SPECIAL_COLUMNS or (whole and shape.kernel <= SPECIAL_TAPS)
    plain_volume = shape.transposed and shape.groups == 1 and len(weight.shape) == 5 and unit == "tensor_tf32"
    if plain_volume and not special and mma_sync_share(call.spec) < 1.0:
        return [_general_gradient(call, shape)]
    if on_tensor_cores and shape.kernel > 1:
        tiles = "convolution"
        depth = padded_depth(shape, x.itemsize)
        if not _is_channels_last(x):
            work.append(_convert(x, read(x), scratch(x.nbytes, write=True)))
            source = scratch(x.nbytes)
            if shape.transposed and not shape.unit_stride_gradient:
                result = scratch(out.nbytes, write=True)
    product = Product(shape.pixels, shape.columns, depth, shape.groups, x.itemsize, unit, tiles)
    plan = plan_gemm(product, call.spec)
    overlap = CONV_OVERLAP if shape.kernel > 1 else 1.0
    work.append(_gemm_work("implicit_gemm", (source, read(weight), result), unit, shape, plan, overlap=overlap))
    if result.storage != out.storage:
        work.append(_convert(out, scratch(out.nbytes), write(out)))
    return work


def _general_gradient(call: MetaCall, shape: ConvShape) -> KernelWork:
    """The gradient of a volume by the kernel that takes any: a tile's width of output channels, every tap."""
    columns = math.ceil(shape.columns / GENERAL_COLUMNS) * GENERAL_COLUMNS
    rate = unit_rate("tensor_tf32", call.spec) * mma_sync_share(call.spec) * GENERAL_SHARE
    seconds = 2.0 * shape.pixels * columns * shape.channels * shape.kernel / rate
    plan = GemmPlan(GENERAL_COLUMNS, GENERAL_COLUMNS, 1, seconds, math.ceil(shape.pixels / GENERAL_COLUMNS), 0.0)
    accesses = (*map(read, call.inputs[:2]), write(call.outputs[0]))
    return _gemm_work("general_gradient", accesses, "tensor_tf32", shape, plan, overlap=CONV_OVERLAP)


def padded_depth(shape: ConvShape, itemsize: int) -> int:
    """The inner dimension that the main loop walks, in elements."""
    slice_channels = K_SLICE_BYTES // itemsize
    if shape.channels >= slice_channels:
        return shape.depth
    return math.ceil(shape.depth * slice_channels / max(1, shape.channels))


def vector_gemm(call: MetaCall, shape: ConvShape, accesses: tuple[Access, ...]) -> KernelWork:
    """Implicit GEMM on the vector units, from and to NCHW: in full fp32, or for channels that tensor cores cannot load.

    Double precision has half their rate; the units do not do complex numbers.
    """
    x, weight = call.inputs[0], call.inputs[1]
    if x.dtype.startswith("complex"):
        raise Unpriced(f"convolutions of {x.dtype}")
    padded = shape.flops * math.ceil(shape.columns / SIMT_COLUMNS) * SIMT_COLUMNS / shape.columns
    if shape.transposed:  # these kernels multiply the zeros between the inputs of a strided gradient too
        padded *= max(1.0, weight.shape[0] // shape.groups * shape.kernel / shape.depth)
    unit = "fp64" if x.dtype == "float64" else "fp32"
    rate = call.spec.peak[unit] * call.spec.clock_hz / call.spec.boost_clock_hz * SIMT_SHARE
    blocks = max(1.0, shape.groups * shape.pixels / 128 * math.ceil(shape.columns / 64))
    waves = math.ceil(blocks / call.spec.sm_count) * call.spec.sm_count / blocks
    return KernelWork(
        "vector_gemm",
        accesses,
        {unit: shape.flops},
        blocks,
        Grid(256, 2, 64.0),
        compute_seconds=padded / rate * waves,
        overlap=CONV_OVERLAP,
    )


def depthwise(call: MetaCall, shape: ConvShape) -> list[KernelWork]:
    """PyTorch's direct kernel: a thread an output, taps from L1 and L2."""
    x, weight, out = call.inputs[0], call.inputs[1], call.outputs[0]
    instructions = out.elements * (DEPTHWISE_BASE + DEPTHWISE_TAP * shape.kernel)
    return [
        KernelWork(
            "depthwise",
            (read(x), read(weight), write(out)),
            {"issue": instructions},
            max(1.0, out.elements / 256),
            Grid(256, 8, 16.0),
            memory_efficiency=0.8,
        )
    ]


def _convert(x: TensorMeta, source: Access, result: Access) -> KernelWork:
    """A change between NCHW and NHWC."""
    return streaming("convert", [source, result], float(x.elements), {"int": 8.0 * x.elements}, CONVERT_EFFICIENCY)


def _is_channels_last(meta: TensorMeta) -> bool:
    """NHWC or NDHWC in memory."""
    return len(meta.shape) > 3 and meta.stride[1] == 1 and meta.shape[1] > 1 and meta.is_dense


# ---- pooling and resampling


DEPENDENT_CYCLES = 4.0
POOL_BASE, POOL_TAP, POOL_AVERAGE_TAP = 190.0, 26.0, 14.0
"""Instructions per output and per tap of PyTorch's pooling kernels: divisions for the output's position, then bounds,
address, comparison and index of every tap (a two-dimensional average is spared the last two)."""


def pooling(call: MetaCall) -> list[KernelWork]:
    """A thread an output; the window's taps come from L1 and L2, its index arithmetic from the integer units."""
    source, outputs = call.inputs[0], call.outputs
    taps = window_taps(call)
    elements = float(outputs[0].elements)
    per_tap = POOL_AVERAGE_TAP if "avg" in call.base and "3d" not in call.base else POOL_TAP
    flops = {"issue": elements * (POOL_BASE + taps * per_tap)}
    if call.base == "_adaptive_avg_pool2d":
        return [_adaptive_average(call, taps, flops)]
    accesses = (read(source), *[write(meta) for meta in outputs])
    return [
        KernelWork(
            call.base,
            accesses,
            flops,
            max(1.0, elements / 256),
            Grid(256, 8, min(64.0, 4.0 * taps)),
            memory_efficiency=0.85,
        )
    ]


def _adaptive_average(call: MetaCall, taps: float, flops: dict[str, float]) -> KernelWork:
    """Few blocks a channel, at least 16 a sample, whose threads take one output after another: a row of its window is
    waited for before the next, and its place is made by dependent divisions."""
    source, out, spec = call.inputs[0], call.out, call.spec
    channels = source.shape[-3] if len(source.shape) > 2 else 1
    blocks = source.elements / math.prod(source.shape[-2:]) * max(16 // channels, 1)
    each = math.ceil(out.elements / blocks / 256)
    cycles = DEPENDENT_CYCLES * (POOL_BASE + taps * POOL_AVERAGE_TAP)
    chain = each * (math.sqrt(taps) * spec.dram_latency + cycles / spec.clock_hz)
    idle = max(0.0, 1.0 - blocks / (8.0 * spec.sm_count))  # more blocks hide each other's waiting
    accesses = (read(source), write(out))
    return KernelWork(call.base, accesses, flops, max(1.0, blocks), Grid(256, 8, 16.0), serial_seconds=idle * chain)


def window_taps(call: MetaCall) -> float:
    """Inputs that each output of a pooling operator looks at."""
    if "adaptive" in call.base:
        return max(1.0, call.first.elements / max(1, call.out.elements))
    window = call.numbers("kernel_size") or [1]
    dims = 3 if "3d" in call.base else (1 if "1d" in call.base else 2)
    return float(math.prod(window * dims if len(window) == 1 else window))


def resample(call: MetaCall) -> list[KernelWork]:
    """Interpolation and grid sampling: a thread an output, a few taps each."""
    out = call.outputs[0]
    taps = resampled_taps(call)
    flops = {"fp32": out.elements * 4.0 * taps, "int": out.elements * (20.0 + 4.0 * taps)}
    accesses = [*map(read, call.inputs), write(out)]
    return [streaming(call.base, accesses, float(out.elements), flops, 0.8)]


def resampled_taps(call: MetaCall) -> float:
    """Inputs that each output of an interpolation is made of."""
    if "grid_sampler" in call.base:
        mode = int(call.number("interpolation_mode", 0))
        corners = 8.0 if "3d" in call.base else 4.0
        return (corners, 1.0, 16.0)[mode] if 0 <= mode < 3 else 16.0
    if "nearest" in call.base:
        return 1.0
    if "aa" in call.base.split("_"):  # antialiasing: as many as the sizes shrink by, in both directions
        ratio = max(1.0, call.first.elements / max(1, call.out.elements))
        return (16.0 if "bicubic" in call.base else 4.0) * ratio
    return 16.0 if "bicubic" in call.base else 8.0 if "trilinear" in call.base else 2.0 if "1d" in call.base else 4.0


# ---- gradients


def pooling_backward(call: MetaCall) -> list[KernelWork]:
    """The gradient is cleared, then each input looks at the windows that it lies in (overlapping ones by atomics)."""
    gradient, out = call.inputs[0], call.outputs[0]
    taps = backward_taps(call)
    elements = float(out.elements)
    per_tap = POOL_AVERAGE_TAP if "avg" in call.base and "3d" not in call.base else POOL_TAP
    work = KernelWork(
        call.base,
        # never the forward's input, of which only the shape is needed
        (*[read(meta) for k, meta in enumerate(call.inputs) if k != 1], write(out)),
        {"issue": gradient.elements * taps * per_tap + elements * POOL_BASE / 4},
        max(1.0, elements / 256),
        Grid(256, 8, 16.0),
        memory_efficiency=0.85,
    )
    return [*fill(replace(call, base="zero", inputs=())), work]


def backward_taps(call: MetaCall) -> float:
    """Inputs under each window of the forward operator."""
    if "adaptive" in call.base:
        return max(1.0, call.outputs[0].elements / max(1, call.inputs[0].elements))
    return 1.0 if "max" in call.base else window_taps(call)


def resample_backward(call: MetaCall) -> list[KernelWork]:
    """Every output's gradient is added to the inputs that it was made of, by atomics into a cleared tensor."""
    gradient, outputs = call.inputs[0], call.outputs
    taps = resampled_taps(replace(call, base=call.base.removesuffix("_backward")))
    updates = float(gradient.elements) * taps
    access, busiest = scattered_updates(outputs[0], updates, call.spec)
    elements = float(gradient.elements)
    flops = {"fp32": elements * 6.0 * taps, "int": elements * (20.0 + 4.0 * taps)}
    accesses = [*map(read, call.inputs), access, *map(write, outputs[1:])]
    work = streaming(call.base, accesses, elements, flops, 0.8)
    return [*fill(replace(call, base="zero", inputs=(), outputs=outputs[:1])), replace(work, atomic_seconds=busiest)]


def unpool(call: MetaCall) -> list[KernelWork]:
    """``max_unpool``: a cleared tensor, then each value to its index."""
    source, out = call.inputs[0], call.outputs[0]
    elements = float(source.elements)
    part = write(out, min(float(out.nbytes), 32.0 * elements))
    work = streaming(call.base, [*map(read, call.inputs), part], elements, {"int": 16.0 * elements}, 0.8)
    return [*fill(replace(call, base="zero", inputs=())), work]


def columns(call: MetaCall) -> list[KernelWork]:
    """``im2col`` and ``col2im``: a copy with the arithmetic of a window for every element of the larger side."""
    source, out = call.inputs[0], call.outputs[0]
    elements = float(max(source.elements, out.elements))
    flops = {"int": 30.0 * elements, "fp32": float(source.elements)}
    return [streaming(call.base, [read(source), write(out)], elements, flops, 0.8)]


def pad_backward(call: MetaCall) -> list[KernelWork]:
    """Reflection and replication: border elements are added to, so all go by atomics into a cleared tensor."""
    gradient, out = call.inputs[0], call.outputs[0]
    elements = float(gradient.elements)
    access, busiest = scattered_updates(out, elements, call.spec)
    work = streaming(call.base, [read(gradient), access], elements, {"int": 16.0 * elements}, 0.8)
    return [*fill(replace(call, base="zero", inputs=())), replace(work, atomic_seconds=busiest)]
