"""ATen operators on exact values: one table for the reference and for what a candidate ran on the device.

A function takes what the operator takes, tensors as :class:`Exact` (floats) or numpy arrays (whole numbers, booleans),
and returns the same. Operators that only move elements need no function: the real operator moves their numbers
(:data:`MOVES`). What is neither here nor taken apart by PyTorch's decompositions leaves its results unknown.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from drkernel.sim.gpu.operator_rules import names
from ttir_executor.exact.field import UNCLEAN, Field, reduced
from ttir_executor.exact.functions import FUNCTIONS
from ttir_executor.exact.values import Exact, concatenate, where

Operator = Callable[..., Any]
OPERATORS: dict[str, Operator] = {}
"""base name -> function"""

MOVES = names(
    """
    flip roll repeat repeat_interleave tril triu constant_pad_nd cat stack gather index_select index embedding take
    scatter slice_scatter select_scatter diagonal_scatter as_strided_scatter unfold im2col pixel_shuffle
    pixel_unshuffle upsample_nearest1d upsample_nearest2d upsample_nearest3d reflection_pad1d reflection_pad2d
    reflection_pad3d replication_pad1d replication_pad2d replication_pad3d masked_select clone diag_embed block_diag
    channel_shuffle rot90 index_copy select_backward slice_backward diagonal_backward _unsafe_index copy contiguous
    masked_scatter index_put _index_put_impl_ max_unpool2d max_unpool3d narrow_copy lift_fresh alias _reshape_alias
    view _unsafe_view reshape expand permute t transpose select slice squeeze unsqueeze as_strided unbind split
    split_with_sizes chunk diagonal detach numpy_T movedim
    """
)
"""operators that move elements, and write zeros beside them"""
SHARED = names(
    """
    exp exp2 expm1 log log2 log1p sqrt rsqrt tanh sinh cosh floor ceil trunc erf erfc sin cos tan asin acos atan lgamma
    """
)
"""functions that kernels have under the same names"""


def operator(*labels: str) -> Callable[[Operator], Operator]:
    """Enter a function under the names of the operators that it is."""

    def enter(function: Operator) -> Operator:
        OPERATORS.update(dict.fromkeys(labels, function))
        return function

    return enter


def number(field: Field, value: Any) -> Exact:
    """An argument as a value: a Python number is a constant, whole numbers are themselves."""
    if isinstance(value, Exact):
        return value
    if isinstance(value, np.ndarray):
        return Exact.whole(field, value)
    return Exact.constant(field, float(value))


def field_of(*values: Any) -> Field:
    """The field of the first exact value."""
    return next(value.field for value in values if isinstance(value, Exact))


def _axes(x: Any, dim: Any) -> tuple[int, ...]:
    if dim is None or dim == []:
        return tuple(range(len(x.shape)))
    return tuple(one % max(1, len(x.shape)) for one in ([dim] if isinstance(dim, int) else dim))


# ---- elementwise


@operator("add")
def _add(x: Any, y: Any, alpha: Any = 1) -> Any:
    field = field_of(x, y)
    right = number(field, y)
    return number(field, x) + (right if alpha == 1 else right * number(field, alpha))


@operator("sub")
def _sub(x: Any, y: Any, alpha: Any = 1) -> Any:
    return _add(x, -number(field_of(x, y), y), alpha)


@operator("mul")
def _mul(x: Any, y: Any) -> Any:
    field = field_of(x, y)
    return number(field, x) * number(field, y)


@operator("div", "true_divide")
def _div(x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    field = field_of(x, y)
    found = number(field, x) / number(field, y)
    if rounding_mode is None:
        return found
    return Exact.whole(field, (np.floor if rounding_mode == "floor" else np.trunc)(found.f))


@operator("pow")
def _pow(x: Any, y: Any) -> Any:
    field = field_of(x, y)
    if not isinstance(x, Exact) and not isinstance(x, np.ndarray):
        base = Exact.constant(field, float(x))
        return (number(field, y) * (1.0 if x == math.e else base.log())).exp()
    return number(field, x).power(number(field, y))


OPERATORS.update(
    neg=lambda x: -x,
    rsub=lambda x, y, alpha=1: _sub(y, x, alpha),
    floor_divide=lambda x, y: _div(x, y, "floor"),
    remainder=lambda x, y: _sub(x, _mul(_div(x, y, "floor"), y)),
    fmod=lambda x, y: _sub(x, _mul(_div(x, y, "trunc"), y)),
    masked_fill=lambda x, mask, value: _where(mask, value, x),
    reciprocal=Exact.reciprocal,
    abs=Exact.abs,
    square=lambda x: x * x,
    sigmoid=Exact.sigmoid,
    relu=lambda x: _clamp(x, 0),
    silu=lambda x: x * x.sigmoid(),
    round=lambda x, decimals=0: FUNCTIONS["rint"](x) if decimals == 0 else Exact.unknown(x.field, x.full().f * np.nan),
    **{name: FUNCTIONS[name] for name in SHARED},
    sign=lambda x: Exact.whole(x.field, np.sign(x.f)),
    maximum=lambda x, y: number(field_of(x, y), x).maximum(number(field_of(x, y), y)),
    minimum=lambda x, y: number(field_of(x, y), x).minimum(number(field_of(x, y), y)),
    clamp_min=lambda x, low: _clamp(x, low),
    clamp_max=lambda x, high: _clamp(x, None, high),
    softmax=lambda x, dim, half=False: _softmax(x, dim),
    logsumexp=lambda x, dim, keepdim=False: _logsumexp(x, dim, keepdim),
    isnan=lambda x: np.isnan(x.full().f),
    isinf=lambda x: np.isinf(x.full().f),
)


def _opaque(name: str, real: Operator) -> Operator:
    return lambda x: x.opaque(name, real(torch.from_numpy(x.full().f.copy())).numpy())


for _name, _function in {
    "erfinv": torch.erfinv, "digamma": torch.digamma, "asinh": torch.asinh, "acosh": torch.acosh,
    "atanh": torch.atanh, "i0": torch.i0, "log10": torch.log10,
}.items():  # fmt: skip
    OPERATORS[_name] = _opaque(_name, _function)


@operator("clamp")
def _clamp(x: Exact, low: Any = None, high: Any = None) -> Exact:
    if low is not None:
        x = x.maximum(number(x.field, low))
    return x if high is None else x.minimum(number(x.field, high))


@operator("gelu")
def _gelu(x: Exact, approximate: str = "none") -> Exact:
    if approximate == "tanh":
        return 0.5 * x * (1.0 + (math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))).tanh())
    return 0.5 * x * (1.0 + OPERATORS["erf"](x * math.sqrt(0.5)))


@operator("where")
def _where(condition: np.ndarray, x: Any, y: Any) -> Any:
    if not isinstance(x, Exact) and not isinstance(y, Exact):
        return np.where(condition, x, y)
    field = field_of(x, y)
    return where(np.asarray(condition, bool), number(field, x), number(field, y))


def _comparison(compare: Operator) -> Operator:
    return lambda x, y: compare(_floats(x), _floats(y))


for _name, _compare in {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}.items():  # fmt: skip
    OPERATORS[_name] = _comparison(_compare)


def _floats(x: Any) -> Any:
    return x.full().f if isinstance(x, Exact) else x


# ---- reductions


@operator("mean")
def _mean(x: Exact, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Exact:
    axes = _axes(x, dim)
    return x.sum(axes, keepdim) / float(math.prod(x.shape[axis] for axis in axes))


@operator("var_mean")
def _var_mean(x: Exact, dim: Any = None, correction: Any = 1, keepdim: bool = False) -> tuple[Exact, Exact]:
    axes = _axes(x, dim)
    correction = 1 if correction is None else int(correction)
    count = math.prod(x.shape[axis] for axis in axes)
    mean = x.sum(axes, True) / float(count)
    off = x - mean
    variance = (off * off).sum(axes, keepdim) / float(max(count - correction, 0) or math.nan)
    return variance, mean if keepdim else mean.map(lambda part: part.squeeze(axes))


@operator("prod")
def _prod(x: Exact, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Exact:
    if dim is None:
        return x.map(lambda part: part.reshape(-1)).prod(0)
    return x.prod(_axes(x, dim)[0], keepdim)


@operator("cumprod")
def _cumprod(x: Exact, dim: int, dtype: Any = None) -> Exact:
    axis = _axes(x, dim)[0]
    rows = [_taken(x, [n], axis) for n in range(x.shape[axis])]
    for n in range(1, len(rows)):
        rows[n] = rows[n - 1] * rows[n]
    return concatenate(rows, axis)


def _extreme(x: Any, dim: Any, keepdim: bool, largest: bool) -> Any:
    axes = _axes(x, dim)
    for axis in sorted(axes, reverse=True):
        x = x.extreme(axis, largest, keepdim)
    return x


def _place(x: Exact, dim: int | None, keepdim: bool, largest: bool) -> np.ndarray:
    f = x.full().f
    choose = np.argmax if largest else np.argmin
    if dim is None:
        return np.asarray(choose(f)).reshape((1,) * f.ndim if keepdim else ())
    found = choose(f, _axes(x, dim)[0])
    return np.expand_dims(found, _axes(x, dim)[0]) if keepdim else found


OPERATORS.update(
    sum=lambda x, dim=None, keepdim=False, dtype=None: x.sum(_axes(x, dim), keepdim),
    cumsum=lambda x, dim, dtype=None: x.cumsum(_axes(x, dim)[0]),
    var=lambda x, dim=None, correction=1, keepdim=False: _var_mean(x, dim, correction, keepdim)[0],
    std=lambda x, dim=None, correction=1, keepdim=False: _var_mean(x, dim, correction, keepdim)[0].sqrt(),
    amax=lambda x, dim=None, keepdim=False: _extreme(x, dim, keepdim, True),
    amin=lambda x, dim=None, keepdim=False: _extreme(x, dim, keepdim, False),
    max=lambda x, dim=None, keepdim=False: _extreme_or_two(x, dim, keepdim, True),
    min=lambda x, dim=None, keepdim=False: _extreme_or_two(x, dim, keepdim, False),
    argmax=lambda x, dim=None, keepdim=False: _place(x, dim, keepdim, True),
    argmin=lambda x, dim=None, keepdim=False: _place(x, dim, keepdim, False),
)


def _extreme_or_two(x: Exact, dim: Any, keepdim: bool, largest: bool) -> Any:
    if isinstance(dim, Exact | np.ndarray):  # max.other
        return OPERATORS["maximum" if largest else "minimum"](x, dim)
    found = _extreme(x, dim, keepdim, largest)
    return found if dim is None else (found, _place(x, dim, keepdim, largest))


def _softmax(x: Exact, dim: int) -> Exact:
    axis = _axes(x, dim)
    e = (x - _extreme(x, axis, True, True)).exp()
    return e / e.sum(axis, True)


def _logsumexp(x: Exact, dim: Any, keepdim: bool = False) -> Exact:
    axis = _axes(x, dim)
    top = _extreme(x, axis, True, True)
    found = (x - top).exp().sum(axis, True).log() + top
    return found if keepdim else found.map(lambda part: part.squeeze(axis))


OPERATORS["_softmax"] = OPERATORS["_safe_softmax"] = lambda x, dim, half=False, dtype=None: _softmax(x, dim)


@operator("_log_softmax", "log_softmax")
def _log_softmax(x: Exact, dim: int, half: Any = False) -> Exact:
    return x - _logsumexp(x, dim, True)


@operator("sort")
def _sort(x: Exact, dim: int = -1, descending: bool = False, stable: bool | None = None) -> tuple[Exact, np.ndarray]:
    axis = _axes(x, dim)[0]
    f = x.full().f
    order = np.argsort(-f if descending else f, axis, kind="stable")
    found = x.map(lambda part: np.take_along_axis(part, order, axis))
    tied = (found.f == np.roll(found.f, 1, axis)) | (found.f == np.roll(found.f, -1, axis))
    lost = found.lost | np.where(tied & (not stable), UNCLEAN, 0)  # which of them comes first is open
    return Exact(x.field, found.f, found.a, found.b, lost.astype(np.uint8)), order


@operator("topk")
def _topk(x: Exact, k: int, dim: int = -1, largest: bool = True, ordered: bool = True) -> tuple[Exact, np.ndarray]:
    axis = _axes(x, dim)[0]
    found, order = _sort(x, dim, largest)
    return found.map(lambda part: np.take(part, range(k), axis)), np.take(order, range(k), axis)


# ---- norms


@operator("native_layer_norm")
def _layer_norm(x: Exact, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> tuple[Exact, Exact, Exact]:
    axes = tuple(range(len(x.shape) - len(shape), len(x.shape)))
    variance, mean = _var_mean(x, axes, 0, True)
    scale = (variance + eps).rsqrt()
    return _affine((x - mean) * scale, weight, bias), mean, scale


@operator("native_batch_norm", "_native_batch_norm_legit")
def _batch_norm(
    x: Exact, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: float, eps: float
) -> tuple[Any, ...]:
    """Its results, and the running statistics after it."""
    axes, running = (0, *range(2, len(x.shape))), [mean, variance]
    if training:
        variance, mean = _var_mean(x, axes, 0, False)
        among = x.full().f.size // x.shape[1]
        fresh = (mean, variance * float(among) / max(1.0, among - 1.0))
        running = [o if o is None else o * (1.0 - momentum) + n * momentum for o, n in zip(running, fresh, strict=True)]
    scale = (variance + eps).rsqrt()
    found = (x - _by_channel(mean, len(x.shape))) * _by_channel(scale, len(x.shape))
    return _affine(found, *(_by_channel(one, len(x.shape)) for one in (weight, bias))), mean, scale, *running


@operator("_native_batch_norm_legit_no_training")
def _batch_norm_in_eval(
    x: Exact, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float
) -> tuple[Any, ...]:
    return _batch_norm(x, weight, bias, mean, variance, False, momentum, eps)


def _affine(x: Exact, weight: Any, bias: Any) -> Exact:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _by_channel(x: Any, dimensions: int) -> Any:
    """A value a channel, to be broadcast over (batch, channels, ...)."""
    return None if x is None else x.map(lambda part: part.reshape(-1, *[1] * (dimensions - 2)))


# ---- products


@operator("mm", "bmm", "matmul", "mv", "dot", "vdot")
def _mm(x: Exact, y: Exact) -> Exact:
    left = x if len(x.shape) > 1 else x.map(lambda part: part[None])
    right = y if len(y.shape) > 1 else y.map(lambda part: part[:, None])
    found = left.matmul(right)
    if len(y.shape) == 1:
        found = found.map(lambda part: part[..., 0])
    return found if len(x.shape) > 1 else found.map(lambda part: part[0])


@operator("addmm", "baddbmm", "addmv")
def _addmm(x: Exact, y: Exact, z: Exact, beta: Any = 1, alpha: Any = 1) -> Exact:
    return _add(_mul(_mm(y, z), alpha) if alpha != 1 else _mm(y, z), x if beta == 1 else _mul(x, beta))


OPERATORS["linear"] = lambda x, weight, bias=None: _affine(_mm(x, weight.map(np.transpose)), None, bias)


@operator("convolution", "_convolution")
def _convolution(
    x: Exact, weight: Exact, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, rest: Any,
    groups: int, *other: Any,
) -> Exact:  # fmt: skip
    n = len(x.shape) - 2
    stride, padding, dilation, extra = (
        [*one] * (n if len(one) == 1 else 1) for one in (stride, padding, dilation, rest)
    )
    if transposed:
        x, weight = _spread(x, stride), _turned(weight, groups)
        kernel = weight.shape[2:]
        reach = [dilation[d] * (kernel[d] - 1) - padding[d] for d in range(n)]
        pads = [(reach[d], reach[d] + extra[d]) for d in range(n)]
        stride = [1] * n
    else:
        pads = [(padding[d], padding[d]) for d in range(n)]
    padded = _padded(x, pads)
    kernel = weight.shape[2:]

    def windows(part: np.ndarray) -> np.ndarray:
        reach = [dilation[d] * (kernel[d] - 1) + 1 for d in range(n)]
        view = np.lib.stride_tricks.sliding_window_view(part, reach, axis=tuple(range(2, 2 + n)))
        view = view[
            :, :, *(slice(None, None, step) for step in (*stride, *dilation))
        ]  # batch, channels, positions..., kernel...
        batch, channels, places = view.shape[0], view.shape[1], view.shape[2 : 2 + n]
        order = (0, *range(2, 2 + n), 1, *range(2 + n, 2 + 2 * n))
        rows = view.transpose(order).reshape(batch, math.prod(places), groups, channels // groups * math.prod(kernel))
        return rows.swapaxes(1, 2)

    found = padded.map(windows)
    places = [(padded.shape[2 + d] - dilation[d] * (kernel[d] - 1) - 1) // stride[d] + 1 for d in range(n)]
    out = weight.shape[0] // groups
    factors = weight.map(lambda part: part.reshape(groups, out, -1).swapaxes(1, 2))
    product = found.matmul(factors)  # batch, groups, positions, outputs of a group
    shape = (x.shape[0], weight.shape[0], *places)
    result = product.map(lambda part: part.swapaxes(2, 3).reshape(shape))
    return result if bias is None else result + _by_channel(bias, n + 2)


def _padded(x: Exact, pads: Sequence[tuple[int, int]]) -> Exact:
    """Zeros around the last axes; negative numbers cut."""
    edges = ((0, 0), (0, 0), *((max(0, low), max(0, high)) for low, high in pads))
    cut = (slice(None), slice(None), *(slice(max(0, -low), -max(0, -high) or None) for low, high in pads))
    return x.map(lambda part: np.pad(part, edges)[cut])


def _spread(x: Exact, stride: Sequence[int]) -> Exact:
    """Zeros between the elements of the last axes."""

    def spread(part: np.ndarray) -> np.ndarray:
        sizes = [(size - 1) * step + 1 for size, step in zip(part.shape[2:], stride, strict=True)]
        wide = np.zeros((*part.shape[:2], *sizes), part.dtype)
        wide[(slice(None), slice(None), *(slice(None, None, step) for step in stride))] = part
        return wide

    return x.map(spread)


def _turned(weight: Exact, groups: int) -> Exact:
    """The weights of a transposed convolution as those of a convolution."""

    def turned(part: np.ndarray) -> np.ndarray:
        inputs, outputs, *kernel = part.shape
        part = part.reshape(groups, inputs // groups, outputs, *kernel).swapaxes(1, 2)
        return np.flip(part.reshape(groups * outputs, inputs // groups, *kernel), tuple(range(2, 2 + len(kernel))))

    return weight.map(turned)


# ---- windows


def _windows(
    x: Exact, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> tuple[Exact, Exact, np.ndarray]:
    """Windows over the last axes (elements of one in the last axis), whether they are inside, and their places."""
    n = len(kernel) if len(kernel) > 1 else len(x.shape) - 2 if len(x.shape) > 3 else 1
    kernel, stride, padding, dilation = (
        [*one] * (n if len(one) == 1 else 1) for one in (kernel, stride or kernel, padding, dilation)
    )
    shape = x.shape[-n:]
    reach = [dilation[d] * (kernel[d] - 1) + 1 for d in range(n)]
    counts = []
    for d in range(n):
        span = shape[d] + 2 * padding[d] - reach[d]
        count = (span + stride[d] - 1 if ceil else span) // stride[d] + 1
        counts.append(count - (ceil and (count - 1) * stride[d] >= shape[d] + padding[d]))
    steps = [
        np.arange(counts[d])[:, None] * stride[d] + np.arange(kernel[d]) * dilation[d] - padding[d] for d in range(n)
    ]
    place: Any = 0
    inside: Any = True
    for d in range(n):
        axis = steps[d].reshape(*[1] * d, counts[d], *[1] * (n - d - 1), *[1] * d, kernel[d], *[1] * (n - d - 1))
        inside = inside & (axis >= 0) & (axis < shape[d])
        place = place * shape[d] + np.clip(axis, 0, shape[d] - 1)
    flat = (*counts, math.prod(kernel))
    place, inside = place.reshape(flat), np.broadcast_to(inside, place.shape).reshape(flat)
    lead = x.shape[:-n]
    found = x.map(lambda part: part.reshape(*lead, -1)[..., place])
    return found, Exact.whole(x.field, inside.astype(np.int64)), place


def _max_pool(
    x: Exact, kernel: Any, stride: Any = (), padding: Any = (0,), dilation: Any = (1,), ceil: bool = False
) -> Any:
    found, inside, place = _windows(x, kernel, stride, padding, dilation, ceil)
    f = np.where(inside.f != 0, found.full().f, -np.inf)
    best = np.argmax(f, -1)[..., None]
    values = found.map(lambda part: np.take_along_axis(part, best, -1)[..., 0])
    return values, np.take_along_axis(np.broadcast_to(place, f.shape), best, -1)[..., 0]


def _avg_pool(
    x: Exact, kernel: Any, stride: Any = (), padding: Any = (0,), ceil: bool = False, padded: bool = True,
    divisor: Any = None,
) -> Exact:  # fmt: skip
    found, inside, _ = _windows(x, kernel, stride, padding, (1,), ceil)
    if divisor is None and (ceil or not padded):
        return (found * inside).sum(-1) / inside.sum(-1)
    return (found * inside).sum(-1) / float(divisor or inside.shape[-1])


def _taken(x: Exact, places: Sequence[int], axis: int) -> Exact:
    return x.map(lambda part: np.take(part, places, axis))


def _adaptive_avg_pool(x: Exact, sizes: Sequence[int]) -> Exact:
    for d, size in enumerate(reversed(sizes)):
        axis, length = len(x.shape) - 1 - d, x.shape[len(x.shape) - 1 - d]
        edges = [(i * length // size, -((i + 1) * length // -size)) for i in range(size)]
        x = concatenate([_taken(x, range(a, b), axis).sum(axis, True) / float(b - a) for a, b in edges], axis)
    return x


for _n in (1, 2, 3):
    OPERATORS[f"max_pool{_n}d_with_indices"] = _max_pool
    OPERATORS[f"avg_pool{_n}d"] = _avg_pool
    OPERATORS[f"adaptive_avg_pool{_n}d"] = OPERATORS[f"_adaptive_avg_pool{_n}d"] = _adaptive_avg_pool


# ---- sums into places


def _added_at(x: Exact, place: tuple[np.ndarray, ...], values: Exact) -> Exact:
    """``x`` with values added at places, those of one place all of them."""
    field, full = x.field, x.full()
    shape = np.broadcast_shapes(*(np.shape(one) for one in place))
    given = Exact(field, *(np.broadcast_to(part, shape) for part in values.full().parts))
    parts = [part.copy() for part in full.parts]
    for part, more in zip(parts[:3], given.parts[:3], strict=True):
        np.add.at(part, place, more)
    np.bitwise_or.at(parts[3], place, given.lost)
    return Exact(field, parts[0], reduced(parts[1], field.p), reduced(parts[2], field.q), parts[3])


def _along(x: Exact, axis: int, index: np.ndarray) -> tuple[np.ndarray, ...]:
    grid: list[Any] = list(np.indices(index.shape, sparse=True))
    grid[axis] = index
    return tuple(np.broadcast_arrays(*grid))


@operator("scatter_add")
def _scatter_add(x: Exact, dim: int, index: np.ndarray, values: Exact) -> Exact:
    axis = _axes(x, dim)[0]
    cut = tuple(slice(size) for size in index.shape)
    return _added_at(x, _along(x, axis, index), values.map(lambda part: part[cut]))


@operator("index_add")
def _index_add(x: Exact, dim: int, index: np.ndarray, values: Exact, alpha: Any = 1) -> Exact:
    axis = _axes(x, dim)[0]
    shape = [1] * len(x.shape)
    shape[axis] = -1
    places = np.broadcast_to(index.reshape(shape), values.shape)
    return _added_at(x, _along(x, axis, places), values if alpha == 1 else _mul(values, alpha))


@operator("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_attention_math")
def _attention(
    q: Exact, k: Exact, v: Exact, dropout: float = 0.0, causal: bool = False, attn_mask: Any = None, scale: Any = None,
    **options: Any,
) -> tuple[Exact, Exact]:  # fmt: skip
    if len(q.shape) > 3 and q.shape[-3] != k.shape[-3]:  # heads that share keys
        k, v = (x.map(lambda part: np.repeat(part, q.shape[-3] // part.shape[-3], axis=-3)) for x in (k, v))
    scores = q.matmul(k.map(lambda part: part.swapaxes(-1, -2))) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        rows, columns = scores.shape[-2:]
        scores = _where(np.tri(rows, columns, dtype=bool), scores, -math.inf)
    if attn_mask is not None:
        scores = scores + attn_mask if isinstance(attn_mask, Exact) else _where(attn_mask, scores, -math.inf)
    return _softmax(scores, -1).matmul(v), _logsumexp(scores, -1)
