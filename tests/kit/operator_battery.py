"""Calls of PyTorch's functions at random sizes, which between them run every kind of operator that has a price."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

META = torch.device("meta")


@dataclass
class Draw:
    """Random sizes and tensors of one try; ``device`` is meta where operators need no values."""

    rng: random.Random
    device: torch.device = META
    largest: int = 2048

    def size(self, low: int = 1, high: int = 0) -> int:
        """A size, small ones as likely as large ones."""
        high = min(high or self.largest, self.largest)
        return min(high, max(low, round(low * (high / low) ** self.rng.random())))

    def x(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        if self.device == META:
            return torch.empty(*shape, dtype=dtype, device=META)
        return torch.rand(*shape).to(dtype)

    def half(self, *shape: int) -> torch.Tensor:
        return self.x(*shape, dtype=self.rng.choice((torch.float16, torch.bfloat16)))

    def index(self, high: int, *shape: int) -> torch.Tensor:
        if self.device == META:
            return torch.zeros(*shape, dtype=torch.int64, device=META)
        return torch.randint(0, high, shape)

    def mask(self, *shape: int) -> torch.Tensor:
        return self.x(*shape) > 0.5


Try = Callable[[Draw], object]
aten = torch.ops.aten


def _matrix(d: Draw) -> torch.Tensor:
    return d.x(d.size(), d.size())


def _image(d: Draw, channels: int = 0) -> torch.Tensor:
    return d.x(d.size(1, 8), channels or d.size(1, 64), d.size(8, 64), d.size(8, 64))


def _volume(d: Draw) -> torch.Tensor:
    return d.x(d.size(1, 4), d.size(1, 16), d.size(8, 24), d.size(8, 24), d.size(8, 24))


def _convolution(d: Draw) -> object:
    groups = d.rng.choice((1, 1, 2, 8))
    inner, outer, kernel = groups * d.size(1, 32), groups * d.size(1, 32), d.rng.choice((1, 3, 5))
    x = _image(d, inner)
    bias = d.x(outer) if d.rng.random() < 0.5 else None
    return F.conv2d(x, d.x(outer, inner // groups, kernel, kernel), bias, stride=d.rng.choice((1, 2)), groups=groups)


def _transposed(d: Draw) -> object:
    inner, outer = d.size(1, 64), d.size(1, 64)
    return F.conv_transpose2d(_image(d, inner), d.x(inner, outer, 3, 3), stride=d.rng.choice((1, 2)))


def _convolution_gradients(d: Draw) -> object:
    groups = d.rng.choice((1, 4))
    inner, outer = groups * d.size(1, 32), groups * d.size(1, 32)
    x, weight = _image(d, inner), d.x(outer, inner // groups, 3, 3)
    out = F.conv2d(x, weight, padding=1, groups=groups)
    return aten.convolution_backward(
        torch.empty_like(out), x, weight, [outer], [1, 1], [1, 1], [1, 1], False, [0, 0], groups, [True, True, True]
    )


def _depthwise(d: Draw) -> object:
    channels = d.size(1, 256)
    return F.conv2d(_image(d, channels), d.x(channels, 1, 3, 3), groups=channels)


def _pooled(d: Draw) -> object:
    x = _image(d)
    out, places = F.max_pool2d(x, 2, return_indices=True)
    aten.max_pool2d_with_indices_backward(torch.empty_like(out), x, [2, 2], [2, 2], [0, 0], [1, 1], False, places)
    return F.max_unpool2d(out, places, 2)


def _pool_gradients(d: Draw) -> object:
    x, v = _image(d), _volume(d)
    out, deep = F.avg_pool2d(x, 2), F.avg_pool3d(v, 2)
    aten.avg_pool2d_backward(torch.empty_like(out), x, [2, 2], [2, 2], [0, 0], False, True, None)
    aten.avg_pool3d_backward(torch.empty_like(deep), v, [2] * 3, [2] * 3, [0] * 3, False, True, None)
    small, deep = F.adaptive_avg_pool2d(x, (2, 3)), F.adaptive_avg_pool3d(v, (2, 2, 2))
    aten._adaptive_avg_pool2d_backward(torch.empty_like(small), x)
    return aten._adaptive_avg_pool3d_backward(torch.empty_like(deep), v)


def _softmax_gradients(d: Draw) -> object:
    x = _matrix(d)
    y = x.softmax(-1)
    aten._log_softmax_backward_data(torch.empty_like(y), x.log_softmax(0), 0, x.dtype)
    return aten._softmax_backward_data(torch.empty_like(y), y, -1, x.dtype)


def _norm_gradients(d: Draw) -> object:
    rows, width = d.size(), d.size()
    x, w = d.x(rows, width), d.x(width)
    y, mean, rstd = aten.native_layer_norm(x, [width], w, w, 1e-5)
    return aten.native_layer_norm_backward(torch.empty_like(y), x, [width], mean, rstd, w, w, [True, True, True])


def _channel_norm_gradients(d: Draw) -> object:
    channels = 4 * d.size(1, 64)
    x, w = _image(d, channels), d.x(channels)
    n, _, height, width = x.shape
    y, mean, rstd = aten.native_group_norm(x, w, w, n, channels, height * width, 4, 1e-5)
    aten.native_group_norm_backward(torch.empty_like(y), x, mean, rstd, w, n, channels, height * width, 4, [True] * 3)
    y, mean, rstd = aten.native_batch_norm(x, w, w, d.x(channels), d.x(channels), True, 0.1, 1e-5)
    return aten.native_batch_norm_backward(torch.empty_like(y), x, w, w, w, mean, rstd, True, 1e-5, [True, True, True])


def _attention(d: Draw) -> object:
    heads, rows, depth = d.size(1, 16), d.size(), d.rng.choice((32, 64, 128))
    shape = (d.size(1, 4), heads, rows, depth)
    return F.scaled_dot_product_attention(
        *[d.half(*shape).to(torch.float16) for _ in range(3)], is_causal=d.rng.random() < 0.5
    )


def _embedding_bag(d: Draw) -> object:
    rows, count, bags = d.size(), d.size(), d.size(1, 256)
    return F.embedding_bag(d.index(rows, bags * count), d.x(rows, d.size()), d.index(1, bags), mode="sum")


def _index(d: Draw) -> object:
    rows, width, count = d.size(), d.size(), d.size()
    x, i, source = d.x(rows, width), d.index(rows, count), d.x(count, width)
    x[i], x.index_select(0, i), x.gather(0, i.unsqueeze(1).expand(count, width)), x.take(i)
    x.index_add(0, i, source)
    x.index_copy(0, i, source)
    x.index_fill(0, i, 1.0)
    x.index_reduce(0, i, source, "prod")
    x.index_put((i,), source), x.index_put((i,), source, accumulate=True)
    wide = i.unsqueeze(1).expand(count, width)
    x.scatter(0, wide, source), x.scatter(0, wide, 2.0), x.scatter_add(0, wide, source)
    return x.scatter_reduce(0, wide, source, "amax"), torch.take_along_dim(x, wide, 0)


def _embedding(d: Draw) -> object:
    rows, width, count = d.size(), d.size(), d.size(1, 65536)
    i = d.index(rows, count)
    out = F.embedding(i, d.x(rows, width))
    return aten.embedding_dense_backward(torch.empty_like(out), i, rows, -1, False)


def _data_dependent(d: Draw) -> object:
    x, mask = _matrix(d), None
    mask = d.mask(*x.shape)
    x.masked_select(mask), mask.nonzero(), x[mask], x.masked_scatter(mask, x), torch.equal(x, x)
    whole = d.index(100, x.numel())
    torch.bincount(whole), whole.unique(return_inverse=True), whole.unique_consecutive(return_counts=True)
    return x.histc(64), x.histc(64, 0, 1)


def _losses(d: Draw) -> object:
    rows, width = d.size(), d.size()
    x, y, t = d.x(rows, width), d.x(rows, width), d.index(width, rows)
    for reduction in ("mean", "none"):
        F.mse_loss(x, y, reduction=reduction), F.smooth_l1_loss(x, y, reduction=reduction)
        F.huber_loss(x, y, reduction=reduction), F.soft_margin_loss(x, y, reduction=reduction)
        F.binary_cross_entropy_with_logits(x, y, pos_weight=d.x(width), reduction=reduction)
        F.multi_margin_loss(x, t, reduction=reduction), F.nll_loss(x, t, reduction=reduction)
    lp = x.log_softmax(-1)
    total, weight = aten.nll_loss_forward(lp, t, None, 1, -100)
    return aten.nll_loss_backward(total, lp, t, None, 1, -100, weight), torch.dist(x, y), d.x(rows, rows).trace()


def _losses_on_host(d: Draw) -> object:
    rows, width = d.size(), d.size()
    x, y = d.x(rows, width), d.x(rows, width)
    F.binary_cross_entropy(x, y), F.binary_cross_entropy(x, y, reduction="none")
    image, places = d.x(rows, 4, 8, 8), d.index(4, rows, 8, 8)
    F.multilabel_margin_loss(x, d.index(width, rows, width)), F.nll_loss(image, places)
    return F.nll_loss(image, places, reduction="none")


def _ctc(d: Draw) -> object:
    steps, batch, labels = d.size(16, 256), d.size(1, 32), 32
    lp = d.x(steps, batch, labels).log_softmax(-1)
    return F.ctc_loss(lp, d.index(30, batch, 8) + 1, torch.full((batch,), steps), torch.full((batch,), 8))


def _sorts(d: Draw) -> object:
    x = _matrix(d)
    width = x.shape[-1]
    x.sort()
    x.sort(dim=0)
    x.argsort()
    x.topk(min(width, 8))
    x.kthvalue(1)
    x.median(-1)
    x.nanmedian()
    x.median()
    return d.x(d.size(1, 2**20)).sort(), d.x(d.size(1, 2**20)).topk(1), x.mode()


AXIS_WISE = (
    "sum", "mean", "amax", "amin", "max", "prod", "norm", "argmax", "var", "std", "logsumexp", "softmax", "cumsum",
    "cummax", "cumprod", "logcumsumexp", "any", "all", "nansum", "aminmax",
)  # fmt: skip


def _reductions(d: Draw) -> object:
    x = _matrix(d)
    for axis in (0, -1):
        for name in AXIS_WISE:
            getattr(x, name)(dim=axis)
        torch.var_mean(x, axis)
    return x.sum(), x.mean(), x.max(), x.min(), x.std(), x.norm(), x.argmin(), x.count_nonzero(), x.any(), x.sum((0, 1))


def _copies(d: Draw) -> object:
    x, image = _matrix(d), _image(d)
    x.flip(0), x.roll(1), x.rot90(), F.pad(x, (1, 2)), F.pad(image, (1, 1, 1, 1), "reflect"), x.tril(), x.triu()
    (
        F.pad(image, (2, 2, 2, 2), "replicate"),
        F.pixel_unshuffle(image[:, :, :8, :8], 2),
        x.repeat(2, 3),
        x.t().contiguous(),
    )
    torch.cat([x, x], 1), torch.stack([x, x]), x.diag_embed(), F.unfold(image, 3), x.clone(), x.to(torch.float16)
    aten.slice_backward(x, [x.shape[0] + 3, x.shape[1]], 0, 0, x.shape[0], 1), x.slice_scatter(x[:1], 0, 0, 1)
    aten.reflection_pad2d_backward(F.pad(image, (1, 1, 1, 1), "reflect"), image, [1, 1, 1, 1])
    torch.split_copy(x, 1 + x.shape[0] // 2), x.select_scatter(x[0], 0, 0), F.glu(image[..., :8])
    return aten._foreach_add([x, image], 1.0), aten._foreach_mul([x, image], [x, image])


def _factories(d: Draw) -> object:
    n, m = d.size(), d.size()
    x = d.x(n, m)
    torch.zeros(n, m, device=d.device), torch.arange(n, device=d.device), torch.eye(n, device=d.device), x.zero_()
    (
        torch.randn(n, m, device=d.device),
        torch.linspace(0, 1, n, device=d.device),
        torch.rand_like(x),
        torch.full_like(x, 2),
    )
    return x.fill_(1.0), x.normal_(), torch.hann_window(n, device=d.device), x.new_ones(n), torch.bernoulli(x)


def _resampled(d: Draw) -> object:
    image = _image(d)
    n = image.shape[0]
    for mode in ("nearest", "bilinear", "bicubic"):
        F.interpolate(image, scale_factor=2, mode=mode)
    F.interpolate(_volume(d), scale_factor=2, mode="trilinear")
    F.interpolate(image[0], scale_factor=2, mode="linear")
    F.interpolate(image, size=(5, 5), mode="bilinear", antialias=True)
    grown = F.interpolate(image, scale_factor=2)
    aten.upsample_nearest2d_backward(grown, list(grown.shape[2:]), list(image.shape), None, None)
    return F.grid_sample(image, d.x(n, d.size(4, 64), d.size(4, 64), 2), align_corners=False)


def _fourier(d: Draw) -> object:
    x = d.x(d.size(1, 256), d.size(4, 64), d.size(4, 512))
    torch.fft.rfft(x), torch.fft.fft2(x), torch.fft.irfft(torch.fft.rfft(x)), torch.fft.fft(x, norm="ortho", dim=1)
    return torch.fft.fftn(x)


def _factored(d: Draw) -> object:
    a = d.x(d.size(1, 64), d.size(1, 256), 0 or d.size(1, 256))
    square = a @ a.mT
    torch.linalg.cholesky_ex(square)
    torch.linalg.lu_factor_ex(square)
    torch.linalg.inv_ex(square)
    torch.linalg.solve(square, a)  # with a look at the flag of what went wrong
    torch.linalg.qr(a)
    (
        torch.linalg.det(square),
        torch.linalg.solve_triangular(square, a, upper=True),
        torch.geqrf(a),
        torch.cholesky_solve(a, square),
    )
    factors, pivots, _ = torch.linalg.lu_factor_ex(square)
    return torch.linalg.lu_solve(factors, pivots, a), torch.linalg.slogdet(square)


def _products(d: Draw) -> object:
    m, n, k, b = d.size(), d.size(), d.size(), d.size(1, 16)
    d.x(m, k) @ d.x(k, n), d.half(m, k).to(torch.float16) @ d.x(k, n, dtype=torch.float16), d.x(m, k) @ d.x(k)
    torch.addmm(d.x(n), d.x(m, k), d.x(k, n)), torch.baddbmm(d.x(b, m, n), d.x(b, m, k), d.x(b, k, n))
    torch.addbmm(d.x(m, n), d.x(b, m, k), d.x(b, k, n)), d.x(k) @ d.x(k), torch.addr(d.x(m, n), d.x(m), d.x(n))
    z = torch.complex64
    d.x(m, k, dtype=z) @ d.x(k, n, dtype=z), d.x(m, k, dtype=torch.float64) @ d.x(k, n, dtype=torch.float64)
    aten._euclidean_dist(d.x(m, k), d.x(n, k))
    return aten._cdist_forward(d.x(m, k), d.x(n, k), 1.0, None), aten._pdist_forward(d.x(1 + n, k), 2.0)


def _conv_tbc(d: Draw) -> object:
    inner, outer = d.size(1, 128), d.size(1, 128)
    return torch.conv_tbc(d.x(d.size(8, 256), d.size(1, 16), inner), d.x(3, inner, outer), d.x(outer), 1)


def _searches(d: Draw) -> object:
    edges = d.x(d.size()).sort()[0]
    return torch.searchsorted(edges, _matrix(d)), torch.bucketize(_matrix(d), edges)


def _layers(d: Draw) -> object:
    width = 4 * d.size(1, 256)
    x = d.x(d.size(), width)
    (
        F.layer_norm(x, [width]),
        F.rms_norm(x, [width], d.x(width)),
        F.dropout(x, 0.5, True),
        F.linear(x, d.x(d.size(), width)),
    )
    image = _image(d, 8)
    F.batch_norm(image, d.x(8), d.x(8), training=True), F.group_norm(image, 4), F.instance_norm(image)
    F.max_pool1d(x.unsqueeze(0), 2)
    F.max_pool3d(_volume(d), 2)
    F.adaptive_max_pool2d(image, 2)
    F.avg_pool1d(x, 2)
    return torch._weight_norm_interface(x, d.x(x.shape[0], 1), 0)


def _gradients(out: torch.Tensor) -> None:
    with torch.enable_grad():
        out.sum().backward()


def _window_gradients(d: Draw) -> None:
    with torch.enable_grad():
        shapes = ((2, 8, d.size(16, 256)), (2, 8, 24, 40), (2, 8, 8, 12, 16))
        line, image, volume = (d.x(*shape).requires_grad_() for shape in shapes)
        for mode in ("reflect", "replicate"):
            _gradients(F.pad(line, (1, 1), mode))
            _gradients(F.pad(image, (1, 1, 1, 1), mode))
            _gradients(F.pad(volume, (1, 1, 1, 1, 1, 1), mode))
        for mode in ("nearest", "bilinear", "bicubic"):
            _gradients(F.interpolate(image, scale_factor=2, mode=mode))
        for x, mode in ((line, "nearest"), (line, "linear"), (volume, "nearest"), (volume, "trilinear")):
            _gradients(F.interpolate(x, scale_factor=2, mode=mode))
        _gradients(F.grid_sample(image, d.x(2, 9, 9, 2), align_corners=False))
        _gradients(F.grid_sample(volume, d.x(2, 4, 9, 9, 3), align_corners=False))
        _gradients(F.adaptive_max_pool2d(image, 3))
        _gradients(F.adaptive_max_pool3d(volume, 2))
        _gradients(F.max_pool3d(volume, 2))
        _gradients(F.fold(F.unfold(image, 3), (24, 40), 3))
        _gradients(volume.diagonal(0, 1, 2))


def _more_gradients(d: Draw) -> None:
    with torch.enable_grad():
        rows = d.size(16, 512)
        q, k, v = (d.x(2, 4, rows, 64, dtype=torch.float16).requires_grad_() for _ in range(3))
        _gradients(F.scaled_dot_product_attention(q, k, v))
        _gradients(F.scaled_dot_product_attention(q, k, v[..., :32]))
        x = _matrix(d).requires_grad_()
        g = d.x(x.shape[0], 1).requires_grad_()
        _gradients(torch._weight_norm_interface(x, g, 0)[0])
        _gradients(x[0])
        _gradients(F.silu(x) + F.gelu(x) + F.mish(x))
    aten._fused_rms_norm_backward(x.detach(), x.detach(), [x.shape[1]], g.detach(), x[0].detach(), [True, True])


def _recurrent(d: Draw) -> None:
    width = d.size(1, 256)
    x = d.x(d.size(1, 64), d.size(1, 16), width)
    for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
        kind(width, d.size(1, 256), num_layers=2, device=META)(x)
    torch.nn.RNN(width, 8, nonlinearity="relu", device=META)(x)


def _grouped_products(d: Draw) -> None:
    groups, n, k = d.size(1, 8), 16 * d.size(1, 32), 16 * d.size(1, 32)
    a, b = d.x(groups * 64, k, dtype=torch.bfloat16), d.x(groups, n, k, dtype=torch.bfloat16)
    offsets = torch.empty(groups, dtype=torch.int32, device=META)
    aten._grouped_mm(a, b.transpose(1, 2), offsets)
    eight = d.x(64, k, dtype=torch.int8)
    aten._int_mm(eight, d.x(k, n, dtype=torch.int8))
    one = d.x(1)
    fp8 = torch.float8_e4m3fn
    aten._scaled_mm(d.x(64, k, dtype=fp8), d.x(n, k, dtype=fp8).t(), one, one, out_dtype=torch.bfloat16)


def _others(d: Draw) -> None:
    x, wide = _matrix(d), d.x(d.size(), 3)
    torch.addmv(d.x(x.shape[0]), x, d.x(x.shape[1]))
    torch.vdot(d.x(9), d.x(9))
    F.pad(wide.unsqueeze(0), (1, 1), "reflect")
    torch.std_mean(x)
    x.norm(3)
    x.cummin(0)
    for out in (x.new_zeros(3), x.new_full((3,), 1.0), torch.ones_like(x), torch.zeros_like(x), torch.randn_like(x)):
        out.uniform_()
    x.exponential_()
    x.random_()
    torch.randperm(x.shape[0], device=META)
    torch.tril_indices(5, 5, device=META)
    F.interpolate(d.x(1, 2, 9), scale_factor=2)
    F.interpolate(d.x(1, 2, 3, 4, 5), scale_factor=2)
    F.batch_norm(d.x(4, 8, 9), d.x(8), d.x(8))
    torch.unbind_copy(x)
    x.unsafe_split(1 + x.shape[0] // 2)
    aten.as_strided_scatter(x, x[:1], [1, x.shape[1]], [x.shape[1], 1])
    x.diagonal_scatter(d.x(min(x.shape)))


HELPERS = ("_matrix", "_image", "_volume", "_gradients")
TRIES: dict[str, Try] = {
    name.strip("_"): value
    for name, value in list(globals().items())
    if name.startswith("_") and getattr(value, "__module__", "") == __name__ and name not in HELPERS
}
"""What is called, by name."""
ON_HOST = ("data_dependent", "losses_on_host", "ctc", "conv_tbc", "factored", "layers_on_host")
"""Tries whose operators need values, or have no kernel for meta tensors."""
