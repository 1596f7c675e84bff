"""Element-wise operators and copies: one kernel, one pass, as TensorIterator runs them."""

import math
from dataclasses import replace

from drkernel.sim.cost.records import Grid, KernelWork, MetaCall, TensorMeta, read, scratch, write

# Instructions per element beyond the loads and stores, and special-function results per element.
HEAVY: dict[str, tuple[float, float]] = {
    "exp": (4, 1), "exp2": (2, 1), "expm1": (14, 1), "log": (10, 1), "log1p": (14, 1), "log2": (6, 1), "log10": (8, 1),
    "sigmoid": (10, 2), "log_sigmoid_forward": (20, 2), "tanh": (18, 2), "gelu": (24, 1), "silu": (11, 2),
    "mish": (36, 4), "softplus": (24, 2), "elu": (16, 1), "celu": (16, 1), "erf": (22, 1), "erfc": (30, 1),
    "sin": (22, 0), "cos": (22, 0), "tan": (30, 1), "asin": (20, 1), "acos": (20, 1), "atan": (20, 1),
    "atan2": (30, 1), "asinh": (30, 2), "acosh": (30, 2), "atanh": (24, 2), "sinh": (18, 1), "cosh": (18, 1),
    "pow": (30, 2), "float_power": (30, 2), "sqrt": (6, 1), "rsqrt": (3, 1), "reciprocal": (6, 1), "div": (9, 1),
    "floor_divide": (14, 1), "xlogy": (14, 1), "special_xlog1py": (18, 1), "special_entr": (14, 1), "lgamma": (60, 2),
    "digamma": (125, 4), "erfinv": (40, 2), "fmod": (20, 1), "remainder": (24, 1), "logaddexp": (26, 2),
    "logaddexp2": (22, 2), "gelu_backward": (40, 2), "silu_backward": (20, 2), "mish_backward": (44, 4),
    "sigmoid_backward": (4, 0), "tanh_backward": (4, 0), "logit": (14, 1), "logit_backward": (12, 1),
    "fake_quantize_per_tensor_affine_cachemask": (8, 0), "fake_quantize_per_channel_affine_cachemask": (8, 0),
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": (8, 0),
    "hypot": (12, 1), "sinc": (28, 1), "i0": (70, 4), "special_i0e": (40, 2), "special_i1": (44, 2),
    "special_i1e": (44, 2), "special_erfcx": (50, 2), "special_ndtri": (50, 2), "special_log_ndtr": (50, 2),
    "elu_backward": (12, 1), "softplus_backward": (14, 1), "log_sigmoid_backward": (14, 1), "glu": (12, 2),
    "glu_backward": (16, 2), "glu_jvp": (16, 2), "glu_backward_jvp": (24, 2), "hardswish": (6, 0),
    "addcdiv": (10, 1), "polar": (44, 0), "angle": (30, 1), "nextafter": (8, 0), "frexp": (8, 0), "ldexp": (8, 1),
    "gcd": (400, 0), "lcm": (420, 0), "bitwise_left_shift": (3, 0), "rrelu_with_noise": (30, 0),
    "binary_cross_entropy_backward": (16, 1), "soft_margin_loss_backward": (16, 2), "_thnn_fused_lstm_cell": (70, 10),
}  # fmt: skip

LIGHT = frozenset(
    str.split(
        """
        __ilshift__ __irshift__ __lshift__ __rshift__ abs add addcmul bitwise_and bitwise_not bitwise_or
        bitwise_right_shift bitwise_xor ceil clamp clamp_max clamp_min clone _to_copy copy conj_physical
        _conj_physical copysign deg2rad eq floor fmax fmin frac ge gt hardshrink hardsigmoid hardtanh heaviside
        isinf isnan isneginf isposinf le leaky_relu lerp logical_and logical_not logical_or logical_xor lt
        masked_fill max maximum min minimum mul nan_to_num ne neg rad2deg relu round rsub sgn sign signbit
        softshrink sub threshold threshold_backward trunc where _prelu_kernel _prelu_kernel_backward
        hardtanh_backward hardshrink_backward hardsigmoid_backward hardswish_backward leaky_relu_backward
        softshrink_backward rrelu_with_noise_backward native_dropout_backward mse_loss_backward
        smooth_l1_loss_backward huber_loss_backward addr complex linalg_cross tril triu alias_copy
        as_strided_copy detach_copy expand_copy permute_copy select_copy slice_copy squeeze_copy t_copy
        transpose_copy unfold_copy unsqueeze_copy view_copy view_as_complex_copy view_as_real_copy diagonal_copy
        narrow_copy lift lift_fresh_copy _neg_view_copy repeat channel_shuffle pixel_shuffle pixel_unshuffle
        """
    )
)
"""One or two instructions an element; copies too."""
NAMES = LIGHT | HEAVY.keys()
COMPLEX_MUL = frozenset(("mul", "addcmul", "addcdiv", "div", "reciprocal", "rsub", "pow", "sqrt", "exp", "log"))
INTEGER_DIVISION = frozenset(("div", "floor_divide", "remainder", "fmod"))
DIVISION_INSTRUCTIONS = {"int64": 70.0, "uint64": 70.0}
"""Instructions of an integer division: GPUs have none in hardware; 64 bits take a call."""
SHORT_DIVISION = 22.0
INTEGER_POWER = 40.0


def arithmetic(base: str, elements: float, dtype: str) -> dict[str, float]:
    """Return the operations of an element-wise operator. Half types compute in fp32; float64 special functions in
    software.

    A complex element is two real ones, and a complex product four products and two sums.
    """
    instructions, special = HEAVY.get(base, (2.0, 0.0))
    if dtype.startswith("complex"):
        factor = 4.0 if base in COMPLEX_MUL or special else 2.0
        unit = "fp64" if dtype == "complex128" else "fp32"
        return {unit: elements * factor * (instructions + 4 * special)}
    if dtype == "float64":
        return {"fp64": elements * (instructions + 12 * special)}
    if not dtype.startswith(("float", "bfloat")):
        return {"int": elements * _integer_instructions(base, dtype)}
    flops = {"fp32": elements * instructions}
    if special:
        flops["sfu"] = elements * special
    return flops


def _integer_instructions(base: str, dtype: str) -> float:
    if base in INTEGER_DIVISION:
        return DIVISION_INSTRUCTIONS.get(dtype, SHORT_DIVISION)
    if base in ("gcd", "lcm"):
        return HEAVY[base][0]
    return INTEGER_POWER if base == "pow" else 2.0


BROADCAST_EFFICIENCY = 0.81
"""Share of a plain copy's bandwidth where operands differ in layout or dtype or broadcast: offsets are computed per
element by integer division and loads are not vectorised. (A zero-dimensional device tensor is such an operand.)"""
NARROW_EFFICIENCY = 0.75
"""The same once more where the elements have two bytes or less: one by one they fill half a request (64 bytes a warp).
Liger-Kernel's published rows of the eager ``silu(gate) * up`` over halves of one bf16 tensor, H100."""
TRANSPOSE_EFFICIENCY = 0.45
"""The same where reads and writes disagree on the contiguous dimension, so that part of every sector is re-fetched."""
CAT_INSTRUCTIONS = 220.0
"""Instructions per element of a concatenation that cannot copy 16 bytes at a time (index arithmetic per element)."""
BLOCK_ELEMENTS = 512
"""128 threads of four elements, PyTorch's unrolled launch."""


def layout_efficiency(tensors: tuple[TensorMeta, ...]) -> float:
    """Share of a plain copy's bandwidth that the tensors' layouts allow when one kernel walks them together."""
    full = [meta for meta in tensors if meta.elements]
    if not full:
        return 1.0
    reference = max(full, key=lambda meta: meta.elements)
    whole = [meta for meta in full if 2 * meta.nbytes > reference.nbytes]  # smaller, broadcast ones come from cache
    if any(_contiguous_axis(meta) != _contiguous_axis(reference) for meta in whole):
        return TRANSPOSE_EFFICIENCY
    if all(meta.same_layout(reference) and meta.is_dense and meta.dtype == reference.dtype for meta in full):
        return 1.0
    return BROADCAST_EFFICIENCY * (NARROW_EFFICIENCY if all(meta.itemsize <= 2 for meta in whole) else 1.0)


def _contiguous_axis(meta: TensorMeta) -> int | None:
    """Which dimension, counted from the end, has stride 1; None where nothing is contiguous or only broadcast."""
    for back, (size, stride) in enumerate(zip(reversed(meta.shape), reversed(meta.stride), strict=True)):
        if size > 1 and stride == 1:
            return back
    return None


SIMPLE_POWERS = (2, 3, 0.5, -0.5, -1, -2)
"""Exponents for which PyTorch multiplies or takes a root instead of calling ``pow``."""


def pointwise(call: MetaCall) -> list[KernelWork]:
    """One kernel over the output's elements."""
    sources = call.inputs[1:] if call.base in ("copy", "fill", "zero") else call.inputs
    seen = list(dict.fromkeys(sources))  # x * x loads x once
    outputs = call.outputs or call.inputs[:1]
    elements = max(float(meta.elements) for meta in outputs)
    efficiency = layout_efficiency((*seen, *outputs))
    accesses = [read(meta) for meta in seen] + [write(meta) for meta in outputs]
    simple = call.base == "pow" and call.given.get("exponent") in SIMPLE_POWERS
    flops = arithmetic("mul" if simple else call.base, elements, outputs[0].dtype)
    if efficiency < 1.0:
        flops["int"] = flops.get("int", 0.0) + elements * 8.0
    return [streaming(call.base, accesses, elements, flops, efficiency)]


def multi_tensor(call: MetaCall) -> list[KernelWork]:
    """``_foreach_*``: one kernel over all the tensors of the lists."""
    outputs = call.outputs or call.inputs
    elements = float(sum(meta.elements for meta in outputs))
    accesses = [read(meta) for meta in call.inputs] + [write(meta) for meta in outputs]
    return [streaming(call.base, accesses, elements, arithmetic(call.base, elements, outputs[0].dtype))]


def streaming(
    name: str, accesses: list, elements: float, flops: dict[str, float], efficiency: float = 1.0
) -> KernelWork:
    """A kernel that streams through memory with a few elements a thread."""
    moved = sum(access.l2_bytes for access in accesses)
    grid = Grid(128, 16, max(4.0, min(64.0, 4.0 * moved / max(elements, 1.0))))
    blocks = max(1.0, elements / BLOCK_ELEMENTS)
    return KernelWork(name, tuple(accesses), flops, blocks, grid, memory_efficiency=efficiency)


def dropout(call: MetaCall) -> list[KernelWork]:
    """The fused kernel: reads, draws, scales, writes the result and a boolean mask."""
    source, out = call.first, call.out
    elements = float(source.elements)
    accesses = [read(source), write(out), scratch(elements, write=True)]
    return [streaming(call.base, accesses, elements, {"int": 30.0 * elements})]


def reordering(call: MetaCall) -> list[KernelWork]:
    """``flip``, ``roll``, padding by reflection: a copy with computed offsets, of which each result is one."""
    sources = [read(meta) for meta in call.inputs]
    work = []
    for out in call.outputs:
        elements = float(out.elements)
        part = [replace(source, nbytes=min(source.nbytes, out.nbytes), requested=None) for source in sources]
        work.append(streaming(call.base, [*part, write(out)], elements, {"int": 12 * elements}, 0.85))
    return work


def fill_then_copy(call: MetaCall) -> list[KernelWork]:
    """A padded copy or a gradient of a slice: the result is filled, then the source copied into a part of it."""
    source, out = call.inputs[0], call.out
    elements = float(source.elements)
    part = min(source.nbytes, out.nbytes)
    copied = [replace(read(source), nbytes=part, requested=None), write(out, part)]
    return [
        *fill(replace(call, base="fill", inputs=())),
        streaming(call.base, copied, elements, {"int": 12 * elements}, BROADCAST_EFFICIENCY),
    ]


def copied(target: TensorMeta, out: TensorMeta) -> list[KernelWork]:
    """The copy of an operator's whole target, which none in place makes."""
    whole = [streaming("copy", [read(target), write(out)], float(out.elements), {})]
    return whole if out.storage != target.storage else []


def copy_then_write(call: MetaCall) -> list[KernelWork]:
    """``slice_scatter`` and kin: a copy of the whole, then the part is written over."""
    target, source, out = call.inputs[0], call.inputs[-1], call.out
    part = [read(source), write(out, min(source.nbytes, out.nbytes))]
    return [*copied(target, out), streaming(call.base, part, float(source.elements), {"int": 8.0 * source.elements})]


LOGSPACE_INSTRUCTIONS = 110.0
"""A power of the base for each element, in one precision more (TritonBench's published rows of it)."""
RANDOM = ("rand", "normal", "uniform", "bernoulli", "exponential", "geometric", "cauchy", "dropout")


def fill(call: MetaCall) -> list[KernelWork]:
    """Writes only: zeros, full, arange, random numbers. ``bernoulli`` and ``normal`` of tensors read those, too."""
    random = any(word in call.base for word in RANDOM)
    outputs = call.outputs or call.inputs[:1]
    elements = max(float(meta.elements) for meta in outputs)
    written = {meta.storage for meta in outputs}
    reads = [meta for meta in call.inputs if meta.storage not in written and "like" not in call.base]
    if call.base.startswith("new_") or call.base in ("full", "zeros", "ones", "empty"):
        reads = []
    flops = {"int": elements * (30.0 if random else LOGSPACE_INSTRUCTIONS if call.base == "logspace" else 1.0)}
    return [streaming(call.base, [*map(read, reads), *map(write, outputs)], elements, flops)]


def window(call: MetaCall) -> list[KernelWork]:
    """``hann_window`` and kin: a range, a factor, a cosine, a factor and a sum."""
    return fill(replace(call, inputs=())) * 5


def concatenate(call: MetaCall) -> list[KernelWork]:
    """``cat`` and ``stack``: one batched copy kernel per 128 inputs."""
    elements = float(call.out.elements)
    accesses = [read(meta) for meta in call.inputs] + [write(call.out)]
    instructions = elements * (CAT_INSTRUCTIONS if _misaligned(call) else 6.0)
    work = streaming(call.base, accesses, elements, {"fp32": instructions}, 0.9)
    return [work, *[KernelWork(call.base, (), blocks=1.0)] * (-(-len(call.inputs) // 128) - 1)]


def _misaligned(call: MetaCall) -> bool:
    """Whether any input's run along the output is not whole 16-byte groups, so that elements are copied one by one."""
    axis = call.axis(call.out, default=0)
    return any(math.prod(meta.shape[axis:]) * meta.itemsize % 16 != 0 for meta in call.inputs)
