"""Checks the shapes, sizes and options of a call before a CPU kernel of PyTorch runs it.

PyTorch's public functions check their arguments in Python or in the composite part of an operator. The kernels below,
which the device calls directly, trust some properties: that a gradient has the shape of its input, that statistics have
an entry for each channel, that a stride is not 0. Error messages here mention shapes and options only, never contents.
Values of index tensors are checked in ``index_checks.py``.

The inputs of a backward operator must be what its forward operator would have given: autograd's are, those of host code
that calls the operator itself need not be.
"""

import math
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from drkernel.sim.gpu.operator_rules import FACTORIES, ON_FLOATS, names

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
            need(not reflects or max(abs(left), abs(right)) < size, "padding must be less than the size")
            need(grad.shape[-1 - place] == size + left + right, "padding does not fit")

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


def _gradient_grid(args: Sequence[Any], options: dict[str, Any]) -> None:
    """``(grad, input, grid, ...)``"""
    grad, x, grid = args[:3]
    need(grad.dim() == x.dim() == grid.dim() >= 4 and grid.shape[-1] == x.dim() - 2, "the grid does not fit")
    need(x.shape[0] == grid.shape[0], "the grid does not fit")
    need(list(grad.shape) == [*x.shape[:2], *grid.shape[1:-1]], "the gradient does not fit the grid")
    need(grad.dtype == x.dtype == grid.dtype, "operands must have one dtype")
    need(0 not in x.shape[1:], "the input must not be empty")
    need(args[3] in (0, 1, 2) and args[4] in (0, 1, 2), "no such mode")


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


def _pairs(args: Sequence[Any], options: dict[str, Any]) -> None:
    """``(grad, self, p, distances)``"""
    grad, x, _, distances = args
    _points(args[1:], options)
    need(list(grad.shape) == [len(x) * (len(x) - 1) // 2], "the gradient has a number for each pair of rows")
    same_shape(grad, distances)


def _distances(args: Sequence[Any], options: dict[str, Any]) -> None:
    """``(grad, x1, x2, p, distances)``, distances (..., rows of x1, rows of x2)."""
    grad, x, y, _, distances = args
    need(min(x.dim(), y.dim()) >= 2 and x.shape[-1] == y.shape[-1], "distances are between rows of one length")
    shape = (*torch.broadcast_shapes(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-2])
    need(grad.shape == shape and distances.shape == shape, "the gradient has a number for each pair of rows")


def _alignments(args: Sequence[Any], options: dict[str, Any]) -> None:
    """``(grad, log_probs, targets, input lengths, target lengths, losses, alphas, blank, zero_infinity)``"""
    grad, probabilities, _, _, lengths, losses, alphas = args[:7]
    need(probabilities.dim() == 3, "log_probs has steps, samples and classes")
    steps, batch, _ = probabilities.shape
    need(grad.shape == losses.shape == (batch,), "the gradient has a number for each sample")
    longest = max(torch.as_tensor(lengths).tolist(), default=0)
    need(alphas.shape == (batch, steps, 2 * longest + 1), "there is an alpha for each sample, step and label")


def _segments_backward(args: Sequence[Any], options: dict[str, Any]) -> None:
    """``(grad, output, data, reduce, *, lengths, axis)``: segments along ``axis`` of ``data``."""
    grad, output, data = args[:3]
    _segments(list(args), options)
    lengths, axis = options["lengths"], options.get("axis", 0)
    need(lengths is not None and axis == lengths.dim() - 1 < data.dim(), "there must be lengths, up to their axis")
    need(lengths.shape[:-1] == data.shape[:axis], "the lengths do not fit the data")
    need(grad.shape == output.shape == (*lengths.shape, *data.shape[axis + 1 :]), "the gradient does not fit")


_aten = torch.ops.aten
_RESAMPLINGS = names(
    """
    upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d upsample_bicubic2d
    upsample_trilinear3d _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
    _upsample_bilinear2d_aa _upsample_bicubic2d_aa
    """
)
GRADIENTS: dict[str, Check] = {
    **dict.fromkeys(_RESAMPLINGS, _resampling),
    **{f"reflection_pad{n}d_backward": _padding(n, True) for n in (1, 2, 3)},
    **{f"replication_pad{n}d_backward": _padding(n, False) for n in (1, 2, 3)},
    "avg_pool2d_backward": _pooling(_aten.avg_pool2d.default, 2, 6),
    "avg_pool3d_backward": _pooling(_aten.avg_pool3d.default, 3, 6),
    "max_pool2d_with_indices_backward": _pooling(_aten.max_pool2d_with_indices.default, 2, 5),
    "max_pool3d_with_indices_backward": _pooling(_aten.max_pool3d_with_indices.default, 3, 5),
    "_adaptive_avg_pool2d_backward": _adaptive(2),
    **dict.fromkeys(names("adaptive_avg_pool3d_backward _adaptive_avg_pool3d_backward"), _adaptive(3)),
    "adaptive_max_pool2d_backward": _adaptive(2),
    "adaptive_max_pool3d_backward": _adaptive(3),
    **{f"fractional_max_pool{n}d_backward": _fractional(n) for n in (2, 3)},
    **{f"{name}_backward": _upsampling(int(re.sub(r"\D", "", name))) for name in _RESAMPLINGS},
    **dict.fromkeys(names("grid_sampler_2d_backward grid_sampler_3d_backward"), _gradient_grid),
    **{f"{name}_backward_data": lambda args, _: same_shape(*args[:2]) for name in ("_softmax", "_log_softmax")},
    "embedding_dense_backward": _rows,
    "multilabel_margin_loss_backward": _labels,
    "multi_margin_loss_backward": _margins,
    "_pdist_forward": _points,
    "_pdist_backward": _pairs,
    "_cdist_backward": _distances,
    "_ctc_loss_backward": _alignments,
    "_segment_reduce_backward": _segments_backward,
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


MAX_SIZE = 1 << 40
"""largest number that may stand for a size, an offset or a stride"""
MAX_WINDOW = 1 << 24
"""largest kernel, stride, padding or dilation"""
ANY_NUMBER = names("low high from to seed ignore_index padding_idx end start n shifts")
"""integer parameters that are values, or that PyTorch clamps"""
POSITIVE = names(
    """
    stride dilation kernel_size groups group step split_size upscale_factor downscale_factor num_groups chunks
    num_layers
    """
)
"""parameters that must be at least 1 (strides of memory are another matter: ``as_strided``)"""
WINDOWS = POSITIVE | names("padding output_padding")
SIZES = names("size output_size input_size input_sizes self_size sizes repeats normalized_shape num_weights")
_TYPES: dict[str, type] = {"dtype": torch.dtype, "memory_format": torch.memory_format, "layout": torch.layout}
_TYPES["physical_layout"] = list
MEMORY_STRIDES = names(
    "as_strided as_strided_ as_strided_copy as_strided_scatter _reshape_alias empty_strided new_empty_strided"
)


def check_arguments(
    base: str, parameters: Sequence[tuple[str, Any]], args: list[Any], options: dict[str, Any], values: Collection[str]
) -> None:
    """Raise for a call that its kernel cannot safely run, or for integers where CUDA has no kernel. ``values``:
    parameters that are operands, for which a number may stand."""
    for name, value in (*((name, value) for (name, _), value in zip(parameters, args, strict=True)), *options.items()):
        kind = _TYPES.get(name) or _TYPES.get(name.rpartition("_")[2])
        if kind is not None and value is not None and not isinstance(value, kind):
            raise TypeError(f"{name} must be a {kind.__name__}")  # a number would be taken for one, whatever it is
        if isinstance(value, (int, list)) and name not in values:
            _check_numbers(base, name, value)
    public = base.removesuffix("_")
    if (special := _SPECIAL.get(public)) is not None:
        special(args, options)
    if (kernel := ON_FLOATS.get(public)) is not None:
        given = [x for x in args[:3] if isinstance(x, torch.Tensor)]
        for dtype in {x.dtype for x in given if all(x.numel() for x in given)}:
            if not (dtype.is_floating_point or dtype.is_complex):
                name = torch.empty(0, dtype=dtype).type().removeprefix("torch.").removesuffix("Tensor")
                raise NotImplementedError(f"\"{kernel}\" not implemented for '{name}'")


def _check_numbers(base: str, name: str, value: Any) -> None:
    """One integer parameter, or a list of them."""
    numbers = value if isinstance(value, list) else [value]
    if not numbers or isinstance(numbers[0], bool) or not all(isinstance(number, int) for number in numbers):
        return
    steps_of_ranges = ("arange", "range")  # that of a slice is positive
    if name in ANY_NUMBER or (name == "step" and base in steps_of_ranges):
        return
    least, most = min(numbers), max(numbers)
    if name in WINDOWS and base not in MEMORY_STRIDES:
        if (name in POSITIVE and least < 1) or max(-least, most) > MAX_WINDOW:
            raise RuntimeError(f"{name} must be at least {int(name in POSITIVE)} and at most {MAX_WINDOW}")
    elif max(-least, most) > MAX_SIZE or (
        name in SIZES and math.prod(max(1, abs(number)) for number in numbers) > MAX_SIZE
    ):
        error = torch.OutOfMemoryError if base in FACTORIES else RuntimeError
        raise error(f"CUDA out of memory. {name} is beyond {MAX_SIZE}, or makes more elements")


def _vectors(count: int, *tensors: Any) -> None:
    """Optional tensors with ``count`` elements in one dimension each."""
    for tensor in tensors:
        if tensor is not None:
            need(tensor.dim() == 1 and tensor.numel() == count, f"a parameter must be a vector of {count} elements")


def _counts(count: int, *tensors: Any) -> None:
    """Optional tensors with ``count`` elements, however arranged."""
    for tensor in tensors:
        if tensor is not None:
            need(tensor.numel() == count, f"an operand must have {count} elements")


# ---- views


def _inside(tensor: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int) -> None:
    """A view of these sizes lies in the tensor's storage."""
    need(len(size) == len(stride), "size and stride must have one length")
    need(min([0, *size, *stride, offset]) >= 0, "sizes, strides and offset must not be negative")
    if 0 in size:
        return
    last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    room = tensor.untyped_storage().nbytes()
    need((last + 1) * tensor.element_size() <= room, "the view would reach beyond its storage")


def _as_strided(args: list[Any], options: dict[str, Any]) -> None:
    offset = args[3] if len(args) > 3 and args[3] is not None else args[0].storage_offset()
    _inside(args[0], args[1], args[2], offset)


def _as_strided_scatter(args: list[Any], options: dict[str, Any]) -> None:
    # works on a copy, whose storage begins with the tensor's first element and may be smaller
    offset = args[4] if args[4] is not None else args[0].storage_offset()
    _inside(args[0], args[2], args[3], offset)
    last = offset + sum((n - 1) * step for n, step in zip(args[2], args[3], strict=True)) if 0 not in args[2] else 0
    need(last < max(1, args[0].numel()), "the view would reach beyond its storage")
    need(list(args[1].shape) == list(args[2]), "the source must have the view's shape")


def _unfold_backward(args: list[Any], options: dict[str, Any]) -> None:
    grad, sizes, dim, size, step = args
    windows = len(sizes)
    sizes = sizes or [1]  # a number is unfolded as a vector of one
    need(-len(sizes) <= dim < len(sizes) and size >= 1 and step >= 1, "malformed unfold")
    dim %= len(sizes)
    length = sizes[dim]
    need(0 < size <= length, "the window must fit the dimension")
    wanted = [*sizes, size]
    wanted[dim] = (length - size) // step + 1
    need(list(grad.shape) == (wanted if windows else [1]), "the gradient has not the shape of what unfold gives")


# ---- normalisation


def _batch_norm(args: list[Any], options: dict[str, Any]) -> None:
    """``(input, weight, bias[, running_mean, running_var][, training], momentum, eps)``."""
    x, weight, bias, *rest = args
    need(x.dim() >= 2, "batch normalisation takes at least two dimensions")
    mean, var = rest[:2] if len(rest) > 3 else (None, None)
    training = rest[-3] if isinstance(rest[-3], bool) else False
    _vectors(int(x.shape[1]), weight, bias, mean, var)
    need((mean is None) == (var is None), "there must be both running statistics or none")
    need(training or mean is not None, "without training there must be running statistics")


def _batch_norm_backward(args: list[Any], options: dict[str, Any]) -> None:
    grad, x, weight, mean, var, saved_mean, saved_invstd, train = args[:8]
    same_shape(grad, x)
    need(x.dim() >= 2, "batch normalisation takes at least two dimensions")
    saved = (saved_mean, saved_invstd) if train else ()  # empty, and not read, in inference
    _vectors(int(x.shape[1]), weight, mean, var, *saved)
    needed = saved or (mean, var)
    need(None not in needed, "the statistics are missing")


def _group_norm(args: list[Any], options: dict[str, Any]) -> None:
    x, weight, bias, samples, channels, area, groups = args[:7]
    _groups(x, samples, channels, area, groups)
    _vectors(channels, weight, bias)


def _group_norm_backward(args: list[Any], options: dict[str, Any]) -> None:
    grad, x, mean, rstd, weight, samples, channels, area, groups = args[:9]
    same_shape(grad, x)
    _groups(x, samples, channels, area, groups)
    _counts(samples * groups, mean, rstd)
    _vectors(channels, weight)


def _groups(x: torch.Tensor, samples: int, channels: int, area: int, groups: int) -> None:
    need(min(samples, channels, area) >= 0 and groups >= 1, "sizes must not be negative")
    need(x.numel() == samples * channels * area and channels % groups == 0, "sizes do not fit the input")
    need(x.dim() >= 2 and x.shape[0] == samples and x.shape[1] == channels, "sizes do not fit the input")


def _layer_norm_backward(args: list[Any], options: dict[str, Any]) -> None:
    grad, x, shape, mean, rstd, weight, bias = args[:7]
    same_shape(grad, x)
    need(bool(shape) and list(x.shape[x.dim() - len(shape) :]) == list(shape), "the shape does not fit the input")
    rows = math.prod(x.shape[: x.dim() - len(shape)])
    _counts(rows, mean, rstd)
    _counts(math.prod(shape), weight, bias)


def _weight_norm(args: list[Any], options: dict[str, Any]) -> None:
    v, g, dim = args
    need(v.dim() >= 1 and dim in (0, v.dim() - 1), "dim must be the first or the last")
    need(v.dtype == g.dtype, "operands must have one dtype")
    need([n for n in g.shape if n != 1] == [n for n in [v.shape[dim]] if n != 1], "g must have one norm for each row")
    need(g.dim() in (1, v.dim()), "g must have one norm for each row")
    need(g.dim() == 1 or g.shape[dim] == v.shape[dim], "g must have one norm for each row")


def _weight_norm_backward(args: list[Any], options: dict[str, Any]) -> None:
    grad, v, g, norms, dim = args
    _weight_norm([v, g, dim], options)
    same_shape(grad, v)
    same_shape(g, norms)
    need(grad.dtype == v.dtype, "operands must have one dtype")


# ---- attention, recurrent layers, Fourier transforms


def _attention(args: list[Any], options: dict[str, Any]) -> None:
    _attention_shapes(*args[:3])
    mask = options.get("attn_mask")
    if mask is not None:
        query, key = args[0], args[1]
        wanted = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
        fits = mask.dim() in (2, 4) and all(a in (1, b) for a, b in zip(mask.shape[::-1], wanted[::-1], strict=False))
        need(fits, "the mask does not fit")


def _attention_shapes(query: Any, key: Any, value: Any) -> None:
    need(query.dim() == key.dim() == value.dim() == 4, "attention takes four dimensions")
    same_shape(key, value)
    some = 0 not in (*query.shape, *key.shape)  # a CPU kernel divides by these
    groups = some and query.shape[0] == key.shape[0] and query.shape[1] % key.shape[1] == 0
    need(groups and query.shape[3] == key.shape[3], "query and key do not fit")
    need(query.dtype == key.dtype == value.dtype, "operands must have one dtype")


def _attention_backward(args: list[Any], options: dict[str, Any]) -> None:
    grad, query, key, value, out, logsumexp = args[:6]
    _attention([query, key, value], options)
    same_shape(grad, out, query)
    need(logsumexp.dim() == 3 and logsumexp.numel() == math.prod(query.shape[:3]), "logsumexp does not fit")
    need(grad.dtype == out.dtype == query.dtype, "operands must have one dtype")


def _recurrent(kind: str) -> Callable[[list[Any], dict], None]:
    gates = {"lstm": 4, "gru": 3}.get(kind, 1)

    def check(args: list[Any], options: dict[str, Any]) -> None:
        x, state, weights, biases, layers, _, _, both_ways, batch_first = args
        ways = 2 if both_ways else 1
        states = list(state) if isinstance(state, (list, tuple)) else [state]
        need(len(states) == (2 if kind == "lstm" else 1), "a state is missing")
        need(x.dim() == 3 and all(part.dim() == 3 for part in states), "a recurrent layer takes three dimensions")
        hidden, each = int(states[0].shape[2]), 4 if biases else 2
        same_shape(*states)
        need(tuple(states[0].shape[:2]) == (layers * ways, x.shape[0 if batch_first else 1]), "the state does not fit")
        need(len(weights) == layers * ways * each, "there must be weights for every layer")
        for number, weight in enumerate(weights):
            layer, place = number // (each * ways), number % each
            wide = (int(x.shape[2]) if layer == 0 else ways * hidden) if place == 0 else hidden
            wanted = (gates * hidden, wide) if place < 2 else (gates * hidden,)
            need(tuple(weight.shape) == wanted and weight.dtype == x.dtype, "a weight does not fit")
        need(all(part.dtype == x.dtype for part in states), "operands must have one dtype")

    return check


def _fourier(kind: str) -> Callable[[list[Any], dict], None]:
    def check(args: list[Any], options: dict[str, Any]) -> None:
        x, dims, normalization, last = args
        need(bool(dims or kind == "_fft_c2c") and len(set(dims)) == len(dims), "dims must differ")
        need(all(0 <= dim < x.dim() for dim in dims), "a dim is out of range")  # counted from the front, here
        need(normalization in (0, 1, 2), "no such normalization")
        need(x.dtype not in (torch.float16, torch.bfloat16), "no transform of that dtype")
        need(all(x.shape[dim] > 0 for dim in dims), "a transform needs elements")
        need(x.is_floating_point() if kind == "_fft_r2c" else x.is_complex(), "the input must be real, or complex")
        whole = kind != "_fft_c2r" or (last >= 1 and x.shape[dims[-1]] == last // 2 + 1)
        need(whole, "last_dim_size does not fit the input")

    return check


# ---- the rest


def _bags(args: list[Any], options: dict[str, Any]) -> None:
    weight, indices, offsets, _, mode, sparse, scale = args[:7]
    need(weight.dim() == 2 and indices.dim() == 1 and offsets.dim() == 1, "embedding_bag takes vectors of indices")
    need(mode in (0, 1, 2) and not sparse, "no such mode")
    need(offsets.numel() >= 1, "there must be an offset")
    if scale is not None:
        need(scale.shape == indices.shape and scale.dtype == weight.dtype, "per_sample_weights do not fit")


def _bags_backward(args: list[Any], options: dict[str, Any]) -> None:
    """``(grad, indices, offsets, bag of each index, sizes of bags, greatest, rows, _, mode, sparse, scale)``"""
    grad, indices, offsets, bags, sizes, greatest, rows, _, mode, sparse, scale = args[:11]
    _bags([grad, indices, offsets, None, mode, sparse, scale], options)
    need(sizes.shape == grad.shape[:1] and rows >= 0, "the gradient has a row for each bag")
    need(mode == 2 or bags.numel() in (0, indices.numel()), "each index is in one bag")
    need(mode != 2 or greatest.shape == grad.shape, "each number of a bag comes from one row")


def _bag_scales_backward(args: list[Any], options: dict[str, Any]) -> None:
    """``(grad, weight, indices, offsets, bag of each index, mode)``"""
    grad, weight, indices, offsets, bags, mode = args[:6]
    _bags([weight, indices, offsets, None, mode, False, None], options)
    need(grad.dim() == 2 and grad.shape[1] == weight.shape[1], "the gradient has a row for each bag")
    need(bags.numel() in (0, indices.numel()), "each index is in one bag")


def _segments(args: list[Any], options: dict[str, Any]) -> None:
    need(options.get("offsets") is None and options.get("indices") is None, "segment_reduce takes lengths alone")


def _fused_step(args: list[Any], options: dict[str, Any]) -> None:
    """``(parameters, gradients, states...[, steps])``: those of a parameter have its form; the last may be unused."""
    parameters, *states = args
    counted = len(args) != 3  # of the others, SGD counts no steps
    numbers = [*(states.pop() if counted else ()), *(options.get(name) for name in ("lr", "grad_scale", "found_inf"))]
    if not options.get({6: "amsgrad", 3: "momentum"}.get(len(args), ""), len(args) == 4):
        states.pop()
    need(all(len(each) == len(parameters) for each in states), "there must be a state for each parameter")
    need(not counted or len(args[-1]) == len(parameters), "there must be a step for each parameter")
    for parameter, *others in zip(parameters, *states, strict=True):
        need(_aten.is_non_overlapping_and_dense(parameter), "parameters must be dense")
        same_shape(parameter, *others)
        forms = {(other.dtype, other.stride()) for other in (parameter, *others)}
        need(len(forms) == 1, "the states of a parameter must have its dtype and strides")
    given = [number for number in numbers if isinstance(number, torch.Tensor)]
    need(all(x.numel() == 1 and x.dtype == torch.float32 for x in given), "steps and scales are numbers of fp32")


def _grid(args: list[Any], options: dict[str, Any]) -> None:
    """``(input, grid, interpolation_mode, padding_mode, align_corners)``"""
    modes = [value for value in args if isinstance(value, int) and not isinstance(value, bool)]
    need(all(mode in (0, 1, 2) for mode in modes), "no such mode")


def _factors(args: list[Any], options: dict[str, Any]) -> None:
    factors, pivots = args[0], args[1]
    need(factors.dim() >= 2 and pivots.dtype == torch.int32, "pivots must be int32")
    count = min(factors.shape[-2:])
    need(list(pivots.shape) == [*factors.shape[:-2], count], "pivots do not fit the factors")


_SPECIAL: dict[str, Callable[[list[Any], dict[str, Any]], None]] = {
    **GRADIENTS,
    **dict.fromkeys(names("as_strided as_strided_copy _reshape_alias"), _as_strided),
    "as_strided_scatter": _as_strided_scatter,
    "unfold_backward": _unfold_backward,
    **dict.fromkeys(
        names("native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional"), _batch_norm
    ),
    "_native_batch_norm_legit_no_training": _batch_norm,
    "native_batch_norm_backward": _batch_norm_backward,
    "native_group_norm": _group_norm,
    "native_group_norm_backward": _group_norm_backward,
    "native_layer_norm_backward": _layer_norm_backward,
    "_weight_norm_interface": _weight_norm,
    "_weight_norm_interface_backward": _weight_norm_backward,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    **{kind: _recurrent(kind) for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
    **{kind: _fourier(kind) for kind in ("_fft_r2c", "_fft_c2c", "_fft_c2r")},
    **dict.fromkeys(names("_embedding_bag _embedding_bag_forward_only"), _bags),
    "_embedding_bag_backward": _bags_backward,
    "_embedding_bag_per_sample_weights_backward": _bag_scales_backward,
    "segment_reduce": _segments,
    **dict.fromkeys(names("_fused_adagrad _fused_adam _fused_adamw _fused_sgd"), _fused_step),
    "rrelu_with_noise": lambda args, options: same_shape(args[0], args[1], options.get("out")),
    "log_sigmoid_backward": lambda args, options: same_shape(*args),
    **dict.fromkeys(names("grid_sampler_2d grid_sampler_3d"), _grid),
    **dict.fromkeys(names("linalg_lu_solve lu_unpack"), _factors),
}
"""Operator -> what its kernel takes on trust."""
