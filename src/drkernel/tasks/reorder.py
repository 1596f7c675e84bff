"""An honest implementation that computes everything in another order: the positive control of the comparison.

Within :class:`Reordered`, PyTorch's operators are replaced by the arithmetic that hand-written kernels use: products
and sums accumulated over blocks, softmax with a running maximum, exponentials through base two, scans in blocks with a
carry. The precision is that of the operands; sums over half precision accumulate in single precision as tensor cores
do. A tolerance that refuses this run would also refuse an honest kernel.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from torch import Tensor

from drkernel.base.modes import DispatchMode

BLOCK = 16
LOG2_E = 1.4426950408889634
aten = torch.ops.aten
_IN_ORDER: ContextVar[float | None] = ContextVar("in_order", default=None)
"""where sums begin that run term after term, as a share of their terms"""


class Reordered(DispatchMode):
    """Within the block, operators that round run in another order of operations. Thread-local.

    ``in_order`` sums term after term, which is the least accurate order that kernels use, beginning at this share of
    the terms, those before it last.
    """

    def __init__(self, in_order: float | None = None) -> None:
        super().__init__()
        self._in_order = in_order

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        replacement = _TABLE.get(func)
        floating = args and isinstance(args[0], Tensor) and args[0].is_floating_point()
        if replacement is None or not floating or args[0].numel() == 0:
            return func(*args, **kwargs)
        before = _IN_ORDER.set(self._in_order)
        try:
            return replacement(*args, **kwargs)
        finally:
            _IN_ORDER.reset(before)


def _wide(x: Tensor) -> Tensor:
    """Widen half precision to single for accumulation."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _blocks(length: int, size: int = BLOCK) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, length, size))


def _matmul(a: Tensor, b: Tensor) -> Tensor:
    """Compute ``a @ b`` (``b`` may be a vector), accumulated over blocks of the summed dimension, the last block
    first."""
    row = b.dim() - (2 if b.dim() > 1 else 1)
    first = _IN_ORDER.get()
    size = BLOCK if first is None else 1
    parts = [*_blocks(a.shape[-1], size)][::-1]
    begin = int((first or 0) * len(parts))
    products = (  # one at a time: term after term they are as many as the dimension is long
        _wide(a[..., part]) @ _wide(b.narrow(row, part.start, min(size, b.shape[row] - part.start)))
        for part in parts[begin:] + parts[:begin]
    )
    total = next(products)
    for product in products:
        total = total + product
    return total


def _mm(a: Tensor, b: Tensor) -> Tensor:
    return _matmul(a, b).to(a.dtype)


def _addmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return (alpha * _matmul(a, b) + beta * _wide(bias)).to(a.dtype)


def _summed(x: Tensor, dims: Sequence[int] | None, keepdim: bool) -> Tensor:
    """Sum over ``dims`` by BLOCK running totals, then over the totals."""
    chosen = [d % x.dim() for d in dims] if dims else list(range(x.dim()))
    kept = [d for d in range(x.dim()) if d not in chosen]
    flat = _wide(x).permute(*kept, *chosen).reshape(*[x.shape[d] for d in kept], -1)
    first = _IN_ORDER.get()
    if first is not None and flat.dtype != torch.complex64:
        terms = flat.roll(-int(first * flat.shape[-1]), -1).contiguous().numpy()
        sums = np.add.accumulate(terms, axis=-1, dtype=np.dtype(str(flat.dtype)[6:]))
        result = torch.from_numpy(sums[..., -1].copy())
    else:
        total = torch.zeros_like(flat[..., :BLOCK])
        for part in _blocks(flat.shape[-1]):
            piece = flat[..., part]
            total[..., : piece.shape[-1]] += piece
        result = total[..., 0]
        for lane in range(1, total.shape[-1]):
            result = result + total[..., lane]
    return result.reshape([1 if d in chosen else n for d, n in enumerate(x.shape)]) if keepdim else result


def _sum(x: Tensor, dims: Sequence[int] | None = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    return _summed(x, dims, keepdim).to(dtype or x.dtype)


def _mean(x: Tensor, dims: Sequence[int] | None = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    total = _summed(x, dims, keepdim)
    return (total * (1.0 / (x.numel() / max(total.numel(), 1)))).to(dtype or x.dtype)


def _count(x: Tensor, dims: Sequence[int]) -> int:
    return math.prod(x.shape[dim] for dim in dims)


def _moments(x: Tensor, dims: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return mean and biased variance, dimensions kept."""
    mean = _summed(x, dims, True) / _count(x, dims)
    return mean, _summed((_wide(x) - mean).square(), dims, True) / _count(x, dims)


def _layer_norm(x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
    mean, variance = _moments(x, list(range(x.dim() - len(shape), x.dim())))
    scale = 1.0 / torch.sqrt(variance + eps)
    y = (_wide(x) - mean) * scale
    y = y if weight is None else y * _wide(weight)
    y = y if bias is None else y + _wide(bias)
    return y.to(x.dtype), mean, scale


def _group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, c: int, hw: int, groups: int, eps: float
) -> Any:
    grouped = x.reshape(n, groups, -1)
    mean, variance = _moments(grouped, [2])
    scale = 1.0 / torch.sqrt(variance + eps)
    y = ((_wide(grouped) - mean) * scale).reshape(n, c, -1)
    y = y if weight is None else y * _wide(weight).reshape(1, c, 1)
    y = y if bias is None else y + _wide(bias).reshape(1, c, 1)
    return y.reshape(x.shape).to(x.dtype), mean.reshape(n, groups), scale.reshape(n, groups)


def _exp(x: Tensor) -> Tensor:
    return torch.exp2(_wide(x) * LOG2_E).to(x.dtype)


def _online(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return maximum and sum of exponentials along ``dim``, by blocks with a running maximum, dimensions kept."""
    wide = _wide(x)
    first = wide.narrow(dim, 0, 1)
    largest, total = torch.full_like(first, -torch.inf), torch.zeros_like(first)
    for part in _blocks(x.shape[dim]):
        piece = wide.narrow(dim, part.start, min(BLOCK, x.shape[dim] - part.start))
        now = torch.maximum(largest, piece.amax(dim, keepdim=True))
        base = torch.where(torch.isinf(now), 0.0, now)
        total = total * torch.exp2((largest - base) * LOG2_E) + torch.exp2((piece - base) * LOG2_E).sum(
            dim, keepdim=True
        )
        largest = now
    return largest, total


def _softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    largest, total = _online(x, dim)
    return (torch.exp2((_wide(x) - largest) * LOG2_E) * (1.0 / total)).to(x.dtype)


def _log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    largest, total = _online(x, dim)
    return (_wide(x) - largest - torch.log2(total) / LOG2_E).to(x.dtype)


def _logsumexp(x: Tensor, dims: Sequence[int], keepdim: bool = False) -> Tensor:
    if len(dims) != 1:
        return aten.logsumexp.default(x, dims, keepdim)
    largest, total = _online(x, dims[0])
    result = (largest + torch.log2(total) / LOG2_E).to(x.dtype)
    return result if keepdim else result.squeeze(dims[0])


def _tanh(x: Tensor) -> Tensor:
    return (2.0 / (1.0 + torch.exp2(_wide(x) * (-2 * LOG2_E))) - 1.0).to(x.dtype)


def _scan(step: Callable[[Tensor, int], Tensor], join: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """Return a scan that works in blocks with a carry."""

    def run(x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
        pieces, carry = [], None
        for part in _blocks(x.shape[dim]):
            piece = step(_wide(x).narrow(dim, part.start, min(BLOCK, x.shape[dim] - part.start)), dim)
            piece = piece if carry is None else join(carry, piece)
            carry = piece.narrow(dim, piece.shape[dim] - 1, 1)
            pieces.append(piece)
        return torch.cat(pieces, dim).to(dtype or x.dtype)

    return run


def _var_mean(
    x: Tensor, dims: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    chosen = [d % x.dim() for d in dims] if dims else list(range(x.dim()))
    mean, variance = _moments(x, chosen)
    count = x.numel() // mean.numel()
    variance = variance * (count / (count - (1 if correction is None else correction)))
    if not keepdim:
        mean, variance = (
            value.reshape([n for d, n in enumerate(x.shape) if d not in chosen]) for value in (mean, variance)
        )
    return variance.to(x.dtype), mean.to(x.dtype)


def _convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Tensor:
    """Compute a convolution as the sum over single input channels, the last first (one group only)."""
    settings = (stride, padding, dilation, transposed, output_padding, groups)
    if groups != 1:
        return aten.convolution.default(x, weight, bias, *settings)
    total: Any = 0.0
    for channel in reversed(range(x.shape[1])):
        filters = weight[channel : channel + 1] if transposed else weight[:, channel : channel + 1]
        total = total + _wide(aten.convolution.default(x[:, channel : channel + 1], filters, None, *settings))
    if bias is not None:
        total = total + _wide(bias).reshape(1, -1, *[1] * (x.dim() - 2))
    return total.to(x.dtype)


_TABLE: dict[Any, Callable[..., Any]] = {
    aten.mm.default: _mm,
    aten.bmm.default: _mm,
    aten.mv.default: _mm,
    aten.addmm.default: _addmm,
    aten.baddbmm.default: _addmm,
    aten.sum.default: _sum,
    aten.sum.dim_IntList: _sum,
    aten.mean.default: _mean,
    aten.mean.dim: _mean,
    aten.exp.default: _exp,
    aten._softmax.default: _softmax,
    aten._log_softmax.default: _log_softmax,
    aten.logsumexp.default: _logsumexp,
    aten.sigmoid.default: lambda x: (1.0 / (1.0 + torch.exp2(_wide(x) * -LOG2_E))).to(x.dtype),
    aten.tanh.default: _tanh,
    aten.silu.default: lambda x: (_wide(x) / (1.0 + torch.exp2(_wide(x) * -LOG2_E))).to(x.dtype),
    aten.cumsum.default: _scan(lambda x, dim: x.cumsum(dim), torch.add),
    aten.cumprod.default: _scan(lambda x, dim: x.cumprod(dim), torch.mul),
    aten.convolution.default: _convolution,
    aten.native_layer_norm.default: _layer_norm,
    aten.native_group_norm.default: _group_norm,
    aten.var.correction: lambda *args, **options: _var_mean(*args, **options)[0],
    aten.var_mean.correction: _var_mean,
}
