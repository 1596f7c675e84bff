"""Emulates what PyTorch's CUDA build does and its CPU build does not: own operators, products of rounded operands."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

CONVOLUTION_OPERANDS = {"convolution": 2, "_convolution": 2, "convolution_backward": 3}
"""Convolution -> how many of its first arguments cuDNN multiplies."""
_DROPPED_BITS = 13


def rounded_to_tf32(value: torch.Tensor) -> torch.Tensor:
    """An fp32 tensor with the ten mantissa bits that tensor cores multiply, to nearest and ties away from zero."""
    bits = value.contiguous().view(torch.int32)
    half, kept = 1 << (_DROPPED_BITS - 1), ~((1 << _DROPPED_BITS) - 1)
    rounded = ((bits + half) & kept).view(torch.float32)
    return torch.where(value.isfinite(), rounded.view(value.shape), value)


def convolution_operands(base: str, args: list[Any]) -> list[Any]:
    """The arguments of a convolution as cuDNN takes them where TF32 is allowed; other operators' as they are."""
    count = CONVOLUTION_OPERANDS.get(base, 0)
    operands = [
        rounded_to_tf32(value) if isinstance(value, torch.Tensor) and value.dtype == torch.float32 else value
        for value in args[:count]
    ]
    return operands + args[count:]


def layout_of_cudnn(x: torch.Tensor, weight: torch.Tensor, backend: Any = None) -> torch.memory_format:
    """The layout of a convolution's result on a GPU, and on the device: channels last where an operand is."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    operands = () if last is None or torch.float64 in (x.dtype, weight.dtype) else (x, weight)
    chosen = any(torch._prims_common.suggest_memory_format(one) is last for one in operands)
    return last if chosen and last is not None else torch.contiguous_format


def int_mm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``aten::_int_mm``: int8 [m, k] times int8 [k, n] as int32 [m, n]; sums are exact in fp64."""
    if a.dtype != torch.int8 or b.dtype != torch.int8 or a.dim() != 2 or b.dim() != 2:
        raise RuntimeError("_int_mm takes two matrices of int8")
    return (a.double() @ b.double()).to(torch.int32)


def product_as(name: str, *args: Any, **scales: Any) -> torch.Tensor:
    """``aten::mm``, ``bmm``, ``addmm`` and ``baddbmm`` with a dtype for the result, their last argument: sums in fp32
    that are not rounded to halves."""
    *operands, dtype = args
    own = operands[-1].dtype
    if dtype != own and not (dtype == torch.float32 and own in (torch.float16, torch.bfloat16)):
        raise RuntimeError("out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs")
    wide = [one.to(torch.promote_types(one.dtype, torch.float32)) for one in operands]
    product: torch.Tensor = getattr(torch.ops.aten, name).default(*wide, **scales)
    return product.to(dtype)


def histc(x: torch.Tensor, bins: int = 100, least: float = 0, most: float = 0) -> torch.Tensor:
    """``aten::histc``, of integers too, whose bins CUDA finds by an integer division."""
    if x.dtype.is_floating_point:
        return torch.ops.aten.histc.default(x, bins, least, most)
    if x.dtype == torch.bool or x.is_complex() or bins <= 0:
        raise RuntimeError("histc takes integers or floating-point numbers, and at least one bin")
    values, low, high = x.reshape(-1).long(), int(least), int(most)
    if low == high and values.numel():
        low, high = int(values.min()), int(values.max())
    if low == high:
        low, high = low - 1, high + 1
    if low > high:
        raise RuntimeError("max must be larger than min")
    inside = values[(values >= low) & (values <= high)]
    places = ((inside - low) * bins // (high - low)).clamp(max=bins - 1)
    return torch.bincount(places, minlength=bins).to(x.dtype)


def vector_norm(x: torch.Tensor, *how: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """``aten::linalg_vector_norm``, in fp64: a CPU's kernel adds one after another, where CUDA's adds by trees."""
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16) or dtype not in (None, torch.float32):
        return torch.ops.aten.linalg_vector_norm.default(x, *how, dtype=dtype)
    return torch.ops.aten.linalg_vector_norm.default(x, *how, dtype=torch.float64).to(dtype or x.dtype)


_WIDE = {torch.int8: torch.int16, torch.uint8: torch.int64} | {k: k for k in (torch.int16, torch.int32, torch.int64)}
"""whole numbers -> those that CUDA makes of floats on the way to them"""


def cast(x: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    """Floats as whole numbers where they fit into none: the nearest one, NaN 0 or, of doubles and in 64 bits, the least
    one; 8 bits are the lower ones of 16, or of 64 without a sign. A CPU gives its own numbers."""
    if dtype not in _WIDE or not x.is_floating_point():
        return x
    x, its = x if x.dtype == torch.float64 else x.float(), torch.iinfo(_WIDE[dtype])
    whole = x.to(_WIDE[dtype]).masked_fill_(x >= float(its.max), its.max).masked_fill_(x <= float(its.min), its.min)
    return whole.masked_fill_(x.isnan(), its.min if its.bits == 64 or x.dtype == torch.float64 else 0)


def resize(x: torch.Tensor, size: list[int], memory_format: torch.memory_format | None = None) -> torch.Tensor:
    """``aten::resize_``; what a storage has gained is NaN, as fresh memory is."""
    storage = x.untyped_storage()
    before = storage.nbytes()
    torch.ops.aten.resize_.default(x, size, memory_format=memory_format)
    x.new_empty(0, dtype=torch.uint8).set_(storage)[before:].fill_(0xFF)  # type: ignore[call-overload]
    return x


EMULATED: dict[str, Callable[..., Any]] = {
    "_fused_rms_norm_backward": lambda *args: torch._decomp.decompositions._fused_rms_norm_backward(*args),
    "_to_copy": lambda x, dtype=None, **form: torch.ops.aten._to_copy.default(cast(x, dtype), dtype=dtype, **form),
    "copy_": lambda x, source, *wait: torch.ops.aten.copy_.default(x, cast(source, x.dtype), *wait),
    "_conj": torch.ops.aten.alias.default,  # host code's tensor has the bit
    "_neg_view": torch.ops.aten.alias.default,
    "_int_mm": int_mm,
    **{f"{name}.dtype": partial(product_as, name) for name in ("mm", "bmm", "addmm", "baddbmm")},
    "abs": lambda x: x.clone() if x.dtype == torch.bool else torch.ops.aten.abs.default(x),
    "linalg_vector_norm": vector_norm,
    "dist": lambda x, other, p=2: vector_norm(x - other, p),
    "_foreach_norm.Scalar": lambda some, p=2, dtype=None: [vector_norm(x, p, dtype=dtype) for x in some],
    "histc": histc,
    "segment_reduce": lambda *args, **terms: torch.ops.aten.segment_reduce.default(*args, **terms | {"unsafe": False}),
    "resize_": resize,
    "resize_as_": lambda x, like, memory_format=None: resize(x, like.shape, memory_format),
}
"""Operator (its default overload, where none is named) -> what computes it."""
