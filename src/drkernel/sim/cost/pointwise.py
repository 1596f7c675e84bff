"""Element-wise operators and copies: one kernel, one pass, as TensorIterator runs them."""

from __future__ import annotations

import math

from drkernel.sim.cost.call import Call, read, scratch, write
from drkernel.sim.cost.records import TensorMeta
from drkernel.sim.cost.roofline import KernelWork

BROADCAST_EFFICIENCY = 0.81
"""Share of a plain copy's bandwidth where operands differ in layout or dtype or broadcast: offsets are computed per
element by integer division and loads are not vectorised. (A zero-dimensional device tensor is such an operand.)"""
TRANSPOSE_EFFICIENCY = 0.45
"""The same where reads and writes disagree on the contiguous dimension, so that part of every sector is re-fetched."""
CAT_INSTRUCTIONS = 220.0
"""Instructions per element of a concatenation that cannot copy 16 bytes at a time (index arithmetic per element)."""
BLOCK_ELEMENTS = 512
"""128 threads of four elements, PyTorch's unrolled launch."""

# Instructions per element beyond the loads and stores, and special-function results per element.
_HEAVY: dict[str, tuple[float, float]] = {
    "exp": (4, 1), "exp2": (2, 1), "expm1": (14, 1), "log": (10, 1), "log1p": (14, 1), "log2": (6, 1), "log10": (8, 1),
    "sigmoid": (10, 2), "log_sigmoid_forward": (20, 2), "tanh": (18, 2), "gelu": (24, 1), "silu": (11, 2),
    "mish": (36, 4), "softplus": (24, 2), "elu": (16, 1), "erf": (22, 1), "erfc": (30, 1), "sin": (22, 0),
    "cos": (22, 0), "tan": (30, 1), "asin": (20, 1), "acos": (20, 1), "atan": (20, 1), "atan2": (30, 1),
    "sinh": (18, 1), "cosh": (18, 1), "pow": (6, 0), "sqrt": (6, 1), "rsqrt": (3, 1), "reciprocal": (6, 1),
    "div": (9, 1), "xlogy": (14, 1), "lgamma": (60, 2), "digamma": (60, 2), "erfinv": (40, 2), "fmod": (20, 1),
    "remainder": (24, 1), "logaddexp": (26, 2), "gelu_backward": (40, 2), "silu_backward": (20, 2),
    "sigmoid_backward": (4, 0), "tanh_backward": (4, 0), "logit": (14, 1), "hypot": (12, 1),
}  # fmt: skip


def arithmetic(base: str, elements: float, dtype: str) -> dict[str, float]:
    """Operations of an element-wise operator. Half types compute in fp32; float64 special functions in software."""
    instructions, special = _HEAVY.get(base, (2.0, 0.0))
    if dtype == "float64":
        return {"fp64": elements * (instructions + 12 * special)}
    if not dtype.startswith(("float", "bfloat", "complex")):
        return {"int": elements * 2.0}
    flops = {"fp32": elements * instructions}
    if special:
        flops["sfu"] = elements * special
    return flops


def layout_efficiency(tensors: tuple[TensorMeta, ...]) -> float:
    """Share of a plain copy's bandwidth that the tensors' layouts allow when one kernel walks them together."""
    full = [meta for meta in tensors if meta.elements]
    if not full:
        return 1.0
    reference = max(full, key=lambda meta: meta.elements)
    whole = [meta for meta in full if 2 * meta.nbytes > reference.nbytes]  # smaller, broadcast ones come from cache
    if any(_contiguous_axis(meta) != _contiguous_axis(reference) for meta in whole):
        return TRANSPOSE_EFFICIENCY
    same = all(meta.same_layout(reference) and meta.is_dense and meta.dtype == reference.dtype for meta in full)
    return 1.0 if same else BROADCAST_EFFICIENCY


def _contiguous_axis(meta: TensorMeta) -> int | None:
    """Which dimension, counted from the end, has stride 1; None where nothing is contiguous or only broadcast."""
    for back, (size, stride) in enumerate(zip(reversed(meta.shape), reversed(meta.stride), strict=True)):
        if size > 1 and stride == 1:
            return back
    return None


def pointwise(call: Call) -> list[KernelWork]:
    """One kernel over the output's elements."""
    sources = call.inputs[1:] if call.base in ("copy", "fill", "zero") else call.inputs
    seen = list(dict.fromkeys(sources))  # x * x loads x once
    outputs = call.outputs or call.inputs[:1]
    elements = max(float(meta.elements) for meta in outputs)
    efficiency = layout_efficiency((*seen, *outputs))
    accesses = [read(meta) for meta in seen] + [write(meta) for meta in outputs]
    flops = arithmetic(call.base, elements, outputs[0].dtype)
    if efficiency < 1.0:
        flops["int"] = flops.get("int", 0.0) + elements * 8.0
    return [streaming(call.base, accesses, elements, flops, efficiency)]


def streaming(
    name: str, accesses: list, elements: float, flops: dict[str, float], efficiency: float = 1.0
) -> KernelWork:
    """A kernel that streams through memory with a few elements a thread."""
    moved = sum(access.l2_bytes for access in accesses)
    return KernelWork(
        name,
        tuple(accesses),
        flops=flops,
        blocks=max(1.0, elements / BLOCK_ELEMENTS),
        threads=128,
        blocks_per_sm=16,
        bytes_in_flight=max(4.0, min(64.0, 4.0 * moved / max(elements, 1.0))),
        memory_efficiency=efficiency,
    )


def dropout(call: Call) -> list[KernelWork]:
    """The fused kernel: reads, draws, scales, writes the result and a boolean mask."""
    source, out = call.first, call.out
    elements = float(source.elements)
    accesses = [read(source), write(out), scratch(elements, write=True)]
    return [streaming(call.base, accesses, elements, {"int": 30.0 * elements})]


def reordering(call: Call) -> list[KernelWork]:
    """``flip`` and ``roll``: a copy with computed offsets."""
    elements = float(call.out.elements)
    return [streaming(call.base, [read(call.first), write(call.out)], elements, {"int": 12 * elements}, 0.85)]


def fill(call: Call) -> list[KernelWork]:
    """Writes only: zeros, full, arange, random numbers."""
    random = any(word in call.base for word in ("rand", "normal", "uniform", "bernoulli", "exponential", "dropout"))
    elements = max(float(meta.elements) for meta in call.outputs)
    flops = {"int": elements * (30.0 if random else 1.0)}
    return [streaming(call.base, [write(meta) for meta in call.outputs], elements, flops)]


def concatenate(call: Call) -> list[KernelWork]:
    """``cat`` and ``stack``: one batched copy kernel per 128 inputs."""
    elements = float(call.out.elements)
    accesses = [read(meta) for meta in call.inputs] + [write(call.out)]
    kernels = -(-len(call.inputs) // 128)
    instructions = elements * (CAT_INSTRUCTIONS if _misaligned(call) else 6.0)
    work = streaming(call.base, accesses, elements, {"fp32": instructions}, 0.9)
    return [work] if kernels == 1 else [work, *[_empty(call.base) for _ in range(kernels - 1)]]


def _misaligned(call: Call) -> bool:
    """Whether any input's run along the output is not whole 16-byte groups, so that elements are copied one by one."""
    axis = int(call.number(1, 0)) % max(1, len(call.out.shape))
    return any(math.prod(meta.shape[axis:]) * meta.itemsize % 16 != 0 for meta in call.inputs)


def _empty(name: str) -> KernelWork:
    return KernelWork(name, (), blocks=1.0)
