"""Bounds checks of indices: values of tensors, checked before a CPU kernel uses them as addresses.

Most kernels of PyTorch check for themselves, some do not (the gradients of pooling, of ``nll_loss``, ``embedding`` with
frequencies, LAPACK's pivots). A GPU asserts in the kernel, after which the device is unusable, and the same happens
here: :class:`DeviceAssert` does not reveal which value it was.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from drkernel.sim.gpu.operator_rules import names


class DeviceAssert(RuntimeError):
    """An operator received a value that it cannot process; as on a GPU, the device is unusable afterwards."""


Bound = tuple[Any, float, float, int | None]
"""a tensor, its least value, its greatest, and a value that it may also have"""
Arguments = Sequence[Any]
FURTHEST = 1e28
"""coordinate of a grid that is still finite in units of pixels"""


def check_indices(base: str, label: str, args: Arguments, options: dict[str, Any]) -> None:
    """Raise :class:`DeviceAssert` where an index of the call is out of bounds."""
    bounds = _BOUNDS.get(base) or _BOUNDS.get(base.removesuffix("_"))
    if bounds is None:
        return
    for index, low, high, also in bounds(args, options):
        if isinstance(index, torch.Tensor) and index.numel() and not index.is_complex():
            _require(label, index, low, high, also)


def _require(label: str, index: torch.Tensor, low: float, high: float, also: int | None) -> None:
    values = index.detach()
    if index.is_floating_point() or also is not None:
        good = (values >= low) & (values <= high)
        good = good if also is None else good | (values == also)
        inside = bool(good.all())
    elif index.dtype == torch.bool:
        inside = low <= 0 and high >= 1
    else:
        least, most = torch.aminmax(values)
        inside = low <= int(least) and int(most) <= high
    if not inside:
        raise DeviceAssert(f"CUDA error: device-side assert triggered\n{label}: an index is out of bounds")


def _size(tensor: Any, dim: Any) -> int:
    """Elements along a dimension; a scalar has one. Raises :class:`IndexError`, in PyTorch's words."""
    return int(tensor.size(dim)) if tensor.dim() else 1


def _rows(table: int, index: int, also: int | None = None) -> Callable[[Arguments, dict], Iterator[Bound]]:
    """Argument ``index`` names rows of argument ``table``."""

    def bounds(args: Arguments, options: dict[str, Any]) -> Iterator[Bound]:
        yield args[index], 0, _size(args[table], 0) - 1, None if also is None else args[also]

    return bounds


def _table(args: Arguments, options: dict[str, Any]) -> Iterator[Bound]:
    """``(grad, indices, num_weights, padding_idx, scale_grad_by_freq)``: scaling counts the padding, too."""
    indices, count, padding, scaled = args[1:5]
    yield indices, 0, count - 1, None if scaled else padding


def _along(args: Arguments, options: dict[str, Any]) -> Iterator[Bound]:
    """``(self, dim, index, ...)``"""
    yield args[2], 0, _size(args[0], args[1]) - 1, None


def _along_either_way(args: Arguments, options: dict[str, Any]) -> Iterator[Bound]:
    size = _size(args[0], args[1])
    yield args[2], -size, size - 1, None


def _flat(args: Arguments, options: dict[str, Any]) -> Iterator[Bound]:
    count = args[0].numel()
    yield args[1], -count, count - 1, None


def _lists(args: Arguments, options: dict[str, Any]) -> Iterator[Bound]:
    """``(self, indices, ...)`` with a tensor or nothing for each dimension; masks take as many as they have."""
    target, dim = args[0], 0
    for index in args[1]:
        if index is None:
            dim += 1
        elif index.dtype in (torch.bool, torch.uint8):
            dim += max(1, index.dim())
        else:
            if dim >= target.dim():
                raise IndexError("too many indices")
            size = int(target.shape[dim])
            yield index, -size, size - 1, None
            dim += 1


def _coordinates(args: Arguments, options: dict[str, Any]) -> Iterator[Bound]:
    """``(grad, input, grid, interpolation, padding, ...)``: clipped and reflected coordinates are used as they come.

    A GPU takes NaN for 0; PyTorch's CPU kernel writes to where NaN converts to.
    """
    if args[4] != 0:
        yield args[2], -FURTHEST, FURTHEST, None


def _plane(image: int, index: int, dims: int, least: int = 0) -> Callable[[Arguments, dict], Iterator[Bound]]:
    """Argument ``index`` holds places in the last ``dims`` dimensions of argument ``image`` (-1 may stand for none)."""

    def bounds(args: Arguments, options: dict[str, Any]) -> Iterator[Bound]:
        yield args[index], least, math.prod(args[image].shape[-dims:]) - 1, None

    return bounds


def _unpool(args: Arguments, options: dict[str, Any]) -> Iterator[Bound]:
    yield args[1], 0, math.prod(args[2]) - 1, None


def _fractions(args: Arguments, options: dict[str, Any]) -> Iterator[Bound]:
    if not bool(((args[3] >= 0) & (args[3] < 1)).all()):
        raise DeviceAssert("CUDA error: device-side assert triggered\nrandom samples must lie in [0, 1)")
    yield from ()


def _classes(scores: int, target: int, ignore: int | None) -> Callable[[Arguments, dict], Iterator[Bound]]:
    """Argument ``target`` names classes: dimension 1 of argument ``scores``, or its only one."""

    def bounds(args: Arguments, options: dict[str, Any]) -> Iterator[Bound]:
        shape = args[scores].shape
        count = (shape[1] if len(shape) > 1 else shape[0]) if shape else 1
        yield args[target], 0, int(count) - 1, None if ignore is None else args[ignore]

    return bounds


def _labels(scores: int, target: int) -> Callable[[Arguments, dict], Iterator[Bound]]:
    """Like :func:`_classes`, with -1 for the end of the labels."""

    def bounds(args: Arguments, options: dict[str, Any]) -> Iterator[Bound]:
        yield args[target], -1, _size(args[scores], -1) - 1, None

    return bounds


def _pivots(args: Arguments, options: dict[str, Any]) -> Iterator[Bound]:
    yield args[1], 1, _size(args[0], -2) if args[0].dim() > 1 else 0, None


def _sorter(args: Arguments, options: dict[str, Any]) -> Iterator[Bound]:
    yield options.get("sorter"), 0, _size(args[0], -1) - 1, None


def _bags(args: Arguments, options: dict[str, Any]) -> Iterator[Bound]:
    return _bagged(args[1], args[2], _size(args[0], 0))


def _bagged(indices: torch.Tensor, offsets: torch.Tensor, rows: int) -> Iterator[Bound]:
    yield indices, 0, rows - 1, None
    yield offsets, 0, indices.numel(), None
    if offsets.numel() and (int(offsets.reshape(-1)[0]) != 0 or bool((offsets.diff() < 0).any())):
        raise DeviceAssert("CUDA error: device-side assert triggered\noffsets must begin at 0 and not decrease")


def _bags_backward(args: Arguments, options: dict[str, Any]) -> Iterator[Bound]:
    """``(grad, indices, offsets, bag of each index, sizes of bags, greatest, rows, ...)``"""
    grad, indices, offsets, bags, _, greatest, rows = args[:7]
    yield from _bagged(indices, offsets, rows)
    yield bags, 0, len(grad) - 1, None
    yield offsets[len(grad) :], indices.numel(), indices.numel(), None
    yield greatest, -1, rows - 1, None


def _bag_scales_backward(args: Arguments, options: dict[str, Any]) -> Iterator[Bound]:
    grad, weight, indices, offsets, bags = args[:5]
    return _bags_backward((grad, indices, offsets, bags, None, None, len(weight)), options)


def _segments(args: Arguments, options: dict[str, Any]) -> Iterator[Bound]:
    lengths, size = options["lengths"], args[2].shape[options.get("axis", 0)]
    yield lengths, 0, size, None
    yield lengths.sum(-1), size, size, None


def _repeats(args: Arguments, options: dict[str, Any]) -> Iterator[Bound]:
    if len(args) == 1 or not isinstance(args[1], torch.Tensor):
        counts = args[0] if len(args) < 2 else None
    else:
        counts = args[1]
    if counts is not None:
        yield counts, 0, 1 << 40, None
        total = options.get("output_size")
        if total is not None and counts.numel() and int(counts.sum()) != total:
            raise DeviceAssert("CUDA error: device-side assert triggered\nrepeats do not add up to output_size")


def _ctc(args: Arguments, options: dict[str, Any]) -> Iterator[Bound]:
    probabilities, targets, inputs, lengths, blank = args[:5]
    if probabilities.dim() != 3 or targets.dim() not in (1, 2):
        raise RuntimeError("ctc_loss takes log_probs of three dimensions and targets of one or two")
    steps, batch, classes = probabilities.shape
    if not 0 <= blank < classes:
        raise RuntimeError("blank must be in label range")
    sums = []
    for counts, most in ((inputs, steps), (lengths, targets.shape[-1])):
        values = torch.as_tensor(counts)
        if values.numel() != batch or values.dim() != 1 or values.is_floating_point():
            raise RuntimeError("lengths must be a vector with one integer for each sequence")
        yield values, 0, int(most), None
        sums.append(int(values.sum()))
    if targets.dim() == 1 and sums[1] > targets.shape[0]:
        raise DeviceAssert("CUDA error: device-side assert triggered\ntarget lengths exceed the targets")
    if targets.dim() == 2 and targets.shape[0] != batch:
        raise RuntimeError("targets must have a row for each sequence")
    yield targets, 0, classes - 1, None


def _divided(args: Arguments, options: dict[str, Any]) -> Iterator[Bound]:
    """``(self, other, ...)``: the least integer has no quotient by -1, which ends a process on a CPU."""
    numerator, denominator = args[:2]
    if isinstance(numerator, torch.Tensor) and numerator.dtype in (torch.int32, torch.int64):
        if isinstance(denominator, torch.Tensor):
            by_minus_one = not denominator.is_complex() and bool((denominator == -1).any())
        else:
            by_minus_one = denominator == -1
        if by_minus_one:
            yield from _multiples([numerator], options)


def _multiples(args: Arguments, options: dict[str, Any]) -> Iterator[Bound]:
    """``lcm`` and ``gcd`` divide one by the other, and what comes of it."""
    for value in args[:2]:
        if value.dtype in (torch.int32, torch.int64):
            yield value, torch.iinfo(value.dtype).min + 1, torch.iinfo(value.dtype).max, None


def _counts(args: Arguments, options: dict[str, Any]) -> Iterator[Bound]:
    yield args[0], 0, 1 << 28, None


_BOUNDS: dict[str, Callable[[Arguments, dict[str, Any]], Iterator[Bound]]] = {
    "grid_sampler_2d_backward": _coordinates,
    **dict.fromkeys(names("embedding embedding_renorm"), _rows(0, 1)),
    "embedding_dense_backward": _table,
    **dict.fromkeys(names("_embedding_bag _embedding_bag_forward_only"), _bags),
    **dict.fromkeys(
        names("gather scatter scatter_add scatter_reduce index_select index_add index_copy index_reduce"), _along
    ),
    "index_fill": _along_either_way,
    **dict.fromkeys(names("index index_put _index_put_impl"), _lists),
    **dict.fromkeys(names("take put"), _flat),
    "max_pool2d_with_indices_backward": _plane(1, 7, 2, -1),
    "max_pool3d_with_indices_backward": _plane(1, 7, 3, -1),
    "adaptive_max_pool2d_backward": _plane(1, 2, 2),
    "adaptive_max_pool3d_backward": _plane(1, 2, 3),
    "fractional_max_pool2d_backward": _plane(1, 4, 2),
    "fractional_max_pool3d_backward": _plane(1, 4, 3),
    **dict.fromkeys(names("fractional_max_pool2d fractional_max_pool3d"), _fractions),
    **dict.fromkeys(names("max_unpool2d max_unpool3d"), _unpool),
    **dict.fromkeys(names("nll_loss_forward nll_loss2d_forward"), _classes(0, 1, 4)),
    **dict.fromkeys(names("nll_loss_backward nll_loss2d_backward"), _classes(1, 2, 5)),
    "multi_margin_loss": _classes(0, 1, None),
    "multi_margin_loss_backward": _classes(1, 2, None),
    "multilabel_margin_loss_forward": _labels(0, 1),
    "multilabel_margin_loss_backward": _labels(1, 2),
    **dict.fromkeys(names("linalg_lu_solve lu_unpack"), _pivots),
    "searchsorted": _sorter,
    "repeat_interleave": _repeats,
    "_ctc_loss": _ctc,
    "_ctc_loss_backward": lambda args, options: _ctc((*args[1:5], args[7]), options),
    "_embedding_bag_backward": _bags_backward,
    "_embedding_bag_per_sample_weights_backward": _bag_scales_backward,
    "_segment_reduce_backward": _segments,
    "bincount": _counts,
    **dict.fromkeys(names("lcm gcd"), _multiples),
    **dict.fromkeys(names("div floor_divide fmod remainder"), _divided),
}
"""Operator (without the underscore that says in-place) -> its integer tensors with their bounds."""
