"""Shape checks for gradients (and resampling), whose kernels trust that shapes fit.

The inputs of a backward operator must be what its forward operator would have given. PyTorch's autograd only ever calls
these operators with consistent shapes, but host code can call the device's directly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from drkernel.sim.gpu.operator_lists import names

Check = Callable[[Sequence[Any], dict[str, Any]], None]
MAX_SCALE = 1e9
"""by which an image may be enlarged"""


def need(condition: bool, message: str) -> None:
    """Raise ``RuntimeError`` with ``message`` unless ``condition`` holds."""
    if not condition:
        raise RuntimeError(message)


def same_shape(*tensors: Any) -> None:
    """Require that all given tensors have one shape."""
    given = [tensor.shape for tensor in tensors if tensor is not None]
    need(all(shape == given[0] for shape in given), "operands must have one shape")


def _batched(x: Any, dims: int) -> None:
    """``dims`` dimensions behind channels, and samples perhaps; none of them empty but the samples."""
    need(x.dim() in (dims + 1, dims + 2), f"the input must have {dims + 1} or {dims + 2} dimensions")
    need(all(size > 0 for size in x.shape[-dims - 1 :]), "the input must not be empty")


def _alike_but(grad: Any, x: Any, dims: int) -> None:
    """Require that gradient and input agree in all but the last ``dims`` dimensions."""
    _batched(x, dims)
    need(grad.dim() == x.dim() and grad.shape[:-dims] == x.shape[:-dims], "the gradient does not fit the input")
    need(all(size > 0 for size in grad.shape[-dims:]), "the gradient must not be empty")
    need(grad.dtype == x.dtype, "operands must have one dtype")


def _padding(dims: int, reflects: bool) -> Check:
    """``(grad, self, padding)``"""

    def check(args: Sequence[Any], options: dict[str, Any]) -> None:
        grad, x, padding = args
        _alike_but(grad, x, dims)
        need(len(padding) == 2 * dims, "there must be a padding for each side")
        for place in range(dims):
            left, right = padding[2 * place : 2 * place + 2]
            size = x.shape[-1 - place]
            need(not reflects or max(left, right) < size, "padding must be less than the size")
            need(min(left, right) > -size and grad.shape[-1 - place] == size + left + right, "padding does not fit")

    return check


def _pooling(forward: Any, dims: int, parameters: int) -> Check:
    """``(grad, self, ...)``: the gradient has the shape of ``forward(self, ...)`` with so many parameters."""

    def check(args: Sequence[Any], options: dict[str, Any]) -> None:
        grad, x = args[:2]
        _alike_but(grad, x, dims)
        given = forward(torch.empty(x.shape, device="meta"), *args[2 : 2 + parameters])
        shape = given[0].shape if isinstance(given, tuple) else given.shape
        need(grad.shape == shape, "the gradient has not the shape of what pooling gives")
        if args[-1] is not None and isinstance(args[-1], torch.Tensor):
            same_shape(grad, args[-1])

    return check


def _adaptive(dims: int) -> Check:
    """``(grad, self[, indices])``"""

    def check(args: Sequence[Any], options: dict[str, Any]) -> None:
        _alike_but(args[0], args[1], dims)
        same_shape(args[0], *args[2:])

    return check


def _fractional(dims: int) -> Check:
    """``(grad, self, kernel_size, output_size, indices)``"""

    def check(args: Sequence[Any], options: dict[str, Any]) -> None:
        grad, x, _, size, indices = args
        _alike_but(grad, x, dims)
        need(list(grad.shape[-dims:]) == list(size), "the gradient does not fit the output's size")
        same_shape(grad, indices)

    return check


def _upsampling(dims: int) -> Check:
    """``(grad, output_size, input_size, ...)``"""

    def check(args: Sequence[Any], options: dict[str, Any]) -> None:
        grad, size, given = args[:3]
        need(len(size) == dims and len(given) == dims + 2 and min([*size, *given]) > 0, "sizes do not fit")
        need(list(grad.shape) == [*given[:2], *size], "the gradient does not fit the sizes")
        scales_fit(given[2:], size, args[3:])

    return check


def scales_fit(given: Sequence[int], size: Sequence[int], options: Sequence[Any]) -> None:
    """Require that scales, if given, map the given sizes to the output's: the kernels compute addresses from them."""
    scales = [value for value in options if not isinstance(value, bool)]
    need(len(size) == len(given) == len(scales), "there must be a size and a scale, or none, for each dimension")
    for length, wanted, scale in zip(given, size, scales, strict=True):
        fits = scale is None or (0 < scale < MAX_SCALE and int(length * scale) == wanted)
        need(fits, "a scale does not fit the sizes")


def _resampling(args: Sequence[Any], options: dict[str, Any]) -> None:
    """``(self, output_size, ...)``"""
    need(isinstance(args[1], list), "the output's size must be given")
    scales_fit(args[0].shape[2:], args[1], args[2:])


def _grid(args: Sequence[Any], options: dict[str, Any]) -> None:
    """``(grad, input, grid, ...)``"""
    grad, x, grid = args[:3]
    need(grad.dim() == x.dim() == grid.dim() >= 4 and grid.shape[-1] == x.dim() - 2, "the grid does not fit")
    need(x.shape[0] == grid.shape[0], "the grid does not fit")
    need(list(grad.shape) == [*x.shape[:2], *grid.shape[1:-1]], "the gradient does not fit the grid")
    need(grad.dtype == x.dtype == grid.dtype, "operands must have one dtype")
    need(0 not in x.shape[1:], "the input must not be empty")
    need(args[3] in (0, 1, 2) and args[4] in (0, 1, 2), "no such mode")


def _first_two(args: Sequence[Any], options: dict[str, Any]) -> None:
    """``(grad, output, ...)``"""
    same_shape(*args[:2])


def _rows(args: Sequence[Any], options: dict[str, Any]) -> None:
    """``(grad, indices, ...)``: a row of the gradient for each index."""
    grad, indices = args[:2]
    need(grad.dim() >= 1 and grad.shape[:-1] == indices.shape, "there must be a row of the gradient for each index")


def _labels(args: Sequence[Any], options: dict[str, Any]) -> None:
    """``(grad, self, target, reduction, is_target)``"""
    same_shape(args[1], args[2], args[4])
    _of_samples(args[0], args[1])


def _margins(args: Sequence[Any], options: dict[str, Any]) -> None:
    """``(grad, self, target, p, margin, weight, reduction)``"""
    grad, x, target, weight = args[0], args[1], args[2], args[5]
    samples, classes = _of_samples(grad, x)
    need(target.numel() == samples and target.dim() <= 1, "there must be a target for each sample")
    need(weight is None or (weight.dim() == 1 and weight.numel() == classes), "there must be a weight for each class")


def _of_samples(grad: Any, x: Any) -> tuple[int, int]:
    """Samples and classes of ``x``; the gradient is of the mean or sum, or has an entry for each sample."""
    need(x.dim() <= 2 and x.numel() > 0, "the input must have a class, and two dimensions at most")
    samples, classes = (1, x.numel()) if x.dim() < 2 else x.shape
    need(grad.numel() == 1 or (grad.dim() == 1 and grad.numel() == samples), "the gradient does not fit the input")
    need(grad.dtype == x.dtype, "operands must have one dtype")
    return samples, classes


def _elementwise(args: Sequence[Any], options: dict[str, Any]) -> None:
    """Autograd neither broadcasts nor casts here, and oneDNN's kernels, which some of these call, do not look."""
    given = [value for value in args if isinstance(value, torch.Tensor)]
    same_shape(*given)
    need(all(value.dtype == given[0].dtype for value in given), "operands must have one dtype")


def _points(args: Sequence[Any], options: dict[str, Any]) -> None:
    """``(self, p)``: distances between the rows of a matrix."""
    need(args[0].dim() == 2, "distances are between the rows of a matrix")


_aten = torch.ops.aten
GRADIENTS: dict[str, Check] = {
    **dict.fromkeys(names("_upsample_bilinear2d_aa _upsample_bicubic2d_aa"), _resampling),
    **dict.fromkeys(
        names(
            """
            upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d
            upsample_bicubic2d upsample_trilinear3d
            """
        ),
        _resampling,
    ),
    **{f"reflection_pad{n}d_backward": _padding(n, True) for n in (1, 2, 3)},
    **{f"replication_pad{n}d_backward": _padding(n, False) for n in (1, 2, 3)},
    "avg_pool2d_backward": _pooling(_aten.avg_pool2d.default, 2, 6),
    "avg_pool3d_backward": _pooling(_aten.avg_pool3d.default, 3, 6),
    "max_pool2d_with_indices_backward": _pooling(_aten.max_pool2d_with_indices.default, 2, 5),
    "max_pool3d_with_indices_backward": _pooling(_aten.max_pool3d_with_indices.default, 3, 5),
    "_adaptive_avg_pool2d_backward": _adaptive(2),
    "adaptive_avg_pool3d_backward": _adaptive(3),
    "adaptive_max_pool2d_backward": _adaptive(2),
    "adaptive_max_pool3d_backward": _adaptive(3),
    "fractional_max_pool2d_backward": _fractional(2),
    "fractional_max_pool3d_backward": _fractional(3),
    **dict.fromkeys(names("upsample_nearest1d_backward upsample_linear1d_backward"), _upsampling(1)),
    **dict.fromkeys(
        names("upsample_nearest2d_backward upsample_bilinear2d_backward upsample_bicubic2d_backward"), _upsampling(2)
    ),
    **dict.fromkeys(names("upsample_nearest3d_backward upsample_trilinear3d_backward"), _upsampling(3)),
    "grid_sampler_2d_backward": _grid,
    "grid_sampler_3d_backward": _grid,
    "_softmax_backward_data": _first_two,
    "_log_softmax_backward_data": _first_two,
    "embedding_dense_backward": _rows,
    "multilabel_margin_loss_backward": _labels,
    "multi_margin_loss_backward": _margins,
    "_pdist_forward": _points,
    **{
        f"{name}_backward": _elementwise
        for name in names(
            """
            elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logit mish sigmoid silu softplus softshrink
            tanh threshold
            """
        )
    },
}
"""Backward operator -> what its kernel takes on trust."""
