"""The rules by which the device runs ATen operators, and the normal form of a call. Host code is hostile.

:func:`rule_of` refuses, by name, operators that are not listed here.
An operator is listed when it has a kernel of its own that is safe on any arguments: by itself, or after the checks of
``argument_checks.py`` and ``index_checks.py``. ``benchmarks/fuzz_device.py`` tries to refute this. Composite operators,
which PyTorch decomposes before they reach a GPU, are not listed: the host decomposes them, so that each part is counted
and priced. The exceptions are library calls, which a GPU runs whole.

:meth:`OperatorRule.normal` brings a call into the form that checks and prices read: every positional argument of the
schema in its place, with defaults filled in, whether it was given by position or by name.

Operators on fp16 and bf16 as PyTorch's CUDA kernels compute them: in fp32, rounded once at the end.

PyTorch's CPU kernels round at every step of some sums, products and gradients where CUDA's accumulate type is fp32, so
that a reference on them is further from the truth than a right kernel. Their products of fp16 matrices are also a
hundred times slower than those of fp32 on processors without such instructions. The operators below were found by
running every operator in both ways against fp64; ``tests/sim/device/test_half_precision.py`` repeats that.

Operators that move data, compare, or draw random numbers are not listed: they are exact, or their draws depend on the
dtype.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from drkernel.sim.gpu.emulated import EMULATED, layout_of_cudnn
from drkernel.sim.gpu.shapes import bare, is_missing, mapped, on_meta, prepare_shapes, tensors_in
from drkernel.sim.wire.commands import UnsupportedOp


def names(text: str) -> frozenset[str]:
    """Operator names separated by white space."""
    return frozenset(text.split())


PUBLIC = names(
    """
    abs acos acosh adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_avg_pool3d_backward
    adaptive_max_pool2d adaptive_max_pool2d_backward adaptive_max_pool3d adaptive_max_pool3d_backward add addbmm addcdiv
    addcmul addmm addmv addr affine_grid_generator alias alias_copy all amax amin aminmax angle any arange argmax argmin
    as_strided as_strided_copy as_strided_scatter asin asinh atan atan2 atanh avg_pool1d avg_pool2d avg_pool2d_backward
    avg_pool3d avg_pool3d_backward baddbmm bartlett_window bernoulli binary_cross_entropy binary_cross_entropy_backward
    binary_cross_entropy_with_logits bincount binomial bitwise_and bitwise_left_shift bitwise_not bitwise_or
    bitwise_right_shift bitwise_xor blackman_window block_diag bmm bucketize cat cauchy ceil celu channel_shuffle
    cholesky cholesky_inverse cholesky_solve clamp clamp_max clamp_min clone col2im complex conj_physical
    constant_pad_nd conv_tbc convolution convolution_backward copy copysign cos cosh count_nonzero cummax cummin cumprod
    cumsum deg2rad detach detach_copy diag_embed diagonal diagonal_backward diagonal_copy diagonal_scatter digamma dist
    div dot elu elu_backward embedding embedding_dense_backward embedding_renorm empty empty_like empty_permuted
    empty_strided eq equal erf erfc erfinv exp exp2 expand expand_copy expm1 exponential eye
    fake_quantize_per_channel_affine_cachemask fake_quantize_per_tensor_affine_cachemask fft_fftfreq fft_rfftfreq fill
    flip floor floor_divide fmax fmin fmod frac fractional_max_pool2d fractional_max_pool2d_backward
    fractional_max_pool3d fractional_max_pool3d_backward frexp full full_like gather gcd ge gelu gelu_backward geometric
    geqrf glu glu_backward grid_sampler_2d grid_sampler_2d_backward grid_sampler_3d grid_sampler_3d_backward gt
    hamming_window hann_window hardshrink hardshrink_backward hardsigmoid hardsigmoid_backward hardswish
    hardswish_backward hardtanh hardtanh_backward heaviside histc huber_loss huber_loss_backward hypot i0
    igamma igammac im2col index index_add index_copy index_fill index_put index_reduce index_select is_same_size
    is_set_to isin isinf isnan isneginf isposinf kaiser_window kthvalue lcm ldexp le leaky_relu leaky_relu_backward lerp
    lgamma lift_fresh linalg__powsum linalg_cholesky_ex linalg_cross linalg_eig linalg_eigvals
    linalg_householder_product linalg_inv_ex linalg_lstsq linalg_lu linalg_lu_factor_ex linalg_lu_solve
    linalg_matrix_exp linalg_pinv linalg_qr linalg_solve_triangular linalg_vector_norm linear linspace log log10 log1p
    log2 log_normal log_sigmoid_backward log_sigmoid_forward log_softmax logaddexp logaddexp2 logcumsumexp logical_and
    logical_not logical_or logical_xor logit logit_backward logspace logsumexp lt lu_unpack masked_fill masked_scatter
    masked_scatter_backward masked_select max max_pool2d_with_indices max_pool2d_with_indices_backward
    max_pool3d_with_indices max_pool3d_with_indices_backward max_unpool2d max_unpool3d maximum mean median min minimum
    mish mish_backward mm mode mse_loss mse_loss_backward mul multi_margin_loss multi_margin_loss_backward
    multilabel_margin_loss_backward multilabel_margin_loss_forward multinomial mv mvlgamma nan_to_num nanmedian nansum
    narrow_copy native_batch_norm native_batch_norm_backward native_dropout native_dropout_backward native_group_norm
    native_group_norm_backward native_layer_norm native_layer_norm_backward ne neg new_empty new_empty_strided new_full
    new_ones new_zeros nextafter nll_loss2d_backward nll_loss2d_forward nll_loss_backward nll_loss_forward nonzero
    nonzero_static norm normal normal_functional ones ones_like ormqr permute permute_copy pixel_shuffle pixel_unshuffle
    poisson polar polygamma pow prod put rad2deg rand rand_like randint randint_like randn randn_like random randperm
    range reciprocal reflection_pad1d reflection_pad1d_backward reflection_pad2d reflection_pad2d_backward
    reflection_pad3d reflection_pad3d_backward relu remainder renorm repeat repeat_interleave replication_pad1d
    replication_pad1d_backward replication_pad2d replication_pad2d_backward replication_pad3d replication_pad3d_backward
    roll rot90 round rrelu_with_noise rrelu_with_noise_backward rrelu_with_noise_functional rsqrt rsub scalar_tensor
    scatter scatter_add scatter_reduce searchsorted segment_reduce select select_backward select_copy select_scatter sgn
    sigmoid sigmoid_backward sign signbit silu silu_backward sin sinc sinh slice slice_backward slice_copy slice_scatter
    slow_conv_dilated2d slow_conv_dilated3d slow_conv_transpose2d slow_conv_transpose3d smooth_l1_loss
    smooth_l1_loss_backward soft_margin_loss soft_margin_loss_backward softmax softplus softplus_backward softshrink
    softshrink_backward sort special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1
    special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v
    special_chebyshev_polynomial_w special_entr special_erfcx special_hermite_polynomial_h special_hermite_polynomial_he
    special_i0e special_i1 special_i1e special_laguerre_polynomial_l special_legendre_polynomial_p special_log_ndtr
    special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1
    special_ndtri special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1
    special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u special_shifted_chebyshev_polynomial_v
    special_shifted_chebyshev_polynomial_w special_spherical_bessel_j0 special_xlog1py special_zeta split split_copy
    split_with_sizes split_with_sizes_copy sqrt squeeze squeeze_copy stack std std_mean sub sum t t_copy take tan tanh
    tanh_backward threshold threshold_backward topk trace transpose transpose_copy triangular_solve tril tril_indices
    triu triu_indices trunc unbind unbind_copy unfold unfold_backward unfold_copy uniform unique_consecutive unique_dim
    unique_dim_consecutive unsafe_split unsafe_split_with_sizes unsqueeze unsqueeze_copy upsample_bicubic2d
    upsample_bicubic2d_backward upsample_bilinear2d upsample_bilinear2d_backward upsample_linear1d
    upsample_linear1d_backward upsample_nearest1d upsample_nearest1d_backward upsample_nearest2d
    upsample_nearest2d_backward upsample_nearest3d upsample_nearest3d_backward upsample_trilinear3d
    upsample_trilinear3d_backward var var_mean vdot view view_as_complex view_as_real view_copy where xlogy zero zeros
    zeros_like
    """
)
"""Public operators, with and without the underscore at the end that says in-place."""

MULTI_TENSOR = names(
    """
    abs acos add addcdiv addcmul asin atan ceil clamp_max clamp_min cos cosh div erf erfc exp expm1 floor frac lerp
    lgamma log log10 log1p log2 max maximum minimum mul neg norm pow powsum reciprocal round rsqrt sigmoid sign sin sinh
    sqrt sub tan tanh trunc zero
    """
)
"""what optimisers do to lists of tensors, as ``_foreach_*``"""

INTERNAL = frozenset(f"_foreach_{name}{end}" for name in MULTI_TENSOR for end in ("", "_")) | names(
    """
    __ilshift__ __irshift__ __lshift__ __rshift__ _adaptive_avg_pool2d _adaptive_avg_pool2d_backward
    _adaptive_avg_pool3d _adaptive_avg_pool3d_backward _addmm_activation _amp_foreach_non_finite_check_and_unscale_
    _amp_update_scale_ _cdist_backward _cdist_forward _conj _conj_physical _convolution _ctc_loss _ctc_loss_backward
    _dirichlet_grad _embedding_bag _embedding_bag_backward _embedding_bag_forward_only
    _embedding_bag_per_sample_weights_backward _euclidean_dist _fake_quantize_per_tensor_affine_cachemask_tensor_qparams
    _fft_c2c _fft_c2r _fft_r2c _foreach_copy_ _has_same_storage_numel _new_zeros_with_same_feature_meta _fused_adagrad_
    _fused_adam_ _fused_adamw_ _fused_rms_norm_backward _fused_sgd_ _grouped_mm _index_put_impl_ _int_mm _is_all_true
    _is_any_true _linalg_check_errors _linalg_det _linalg_eigh _linalg_slogdet _linalg_solve_ex _linalg_svd
    _local_scalar_dense _log_softmax _log_softmax_backward_data _native_batch_norm_legit
    _native_batch_norm_legit_functional _native_batch_norm_legit_no_training _neg_view _pdist_backward _pdist_forward
    _prelu_kernel _prelu_kernel_backward _reshape_alias _safe_softmax _sample_dirichlet
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward _scaled_mm
    _segment_reduce_backward _softmax _softmax_backward_data _standard_gamma _to_copy _trilinear _unique _unique2
    _unsafe_view _upsample_bicubic2d_aa _upsample_bicubic2d_aa_backward _upsample_bilinear2d_aa
    _upsample_bilinear2d_aa_backward _upsample_nearest_exact1d _upsample_nearest_exact1d_backward
    _upsample_nearest_exact2d _upsample_nearest_exact2d_backward _upsample_nearest_exact3d
    _upsample_nearest_exact3d_backward _weight_norm_interface _weight_norm_interface_backward resize_ resize_as_
    """
)
"""Operators that begin with an underscore, allowed under exactly these names."""

LIBRARY_CALLS = names(
    """
    lstm.input gru.input rnn_tanh.input rnn_relu.input _fused_rms_norm.default silu_backward.default
    mish_backward.default
    """
)
"""Overloads that other backends take apart and a GPU runs whole: by cuDNN, or by kernels of PyTorch's CUDA build."""

ALLOCATORS = names("empty new_empty empty_like empty_strided new_empty_strided empty_permuted")
"""Operators whose result holds nothing yet."""

FREE_OPERATORS = ALLOCATORS | names(
    """
    detach alias view _unsafe_view reshape _conj _neg_view _reshape_alias expand permute t transpose select slice
    squeeze unsqueeze as_strided unbind split split_with_sizes chunk diagonal unfold lift_fresh sym_size sym_stride
    is_same_size
    """
)
"""Operators that move no data on a GPU, for tracers that see no storages. The device looks at storages instead."""

METADATA_OPERATORS = names(
    """
    t_ transpose_ squeeze_ unsqueeze_ as_strided_ detach_ is_same_size is_set_to _has_same_storage_numel
    """
)
"""Operators that look at, or change, a tensor's form and never its elements."""

FACTORIES = names(
    """
    empty zeros ones full rand randn randint normal empty_strided empty_permuted randperm
    bartlett_window blackman_window hamming_window hann_window kaiser_window fft_fftfreq fft_rfftfreq
    """
)
"""Operators whose first argument is the size of what they make."""

SIZED_BY_DATA = names(
    """
    nonzero masked_select unique_consecutive unique_dim unique_dim_consecutive bincount repeat_interleave _unique
    _unique2 index
    """
)
"""Operators whose result's shape depends on values: the host learns it, so a GPU waits for it."""

TELLS_A_FLAG = names("equal _linalg_check_errors")
"""Operators whose answer, or whose error, tells the host one bit about values."""

BY_FORM = names("rand_like randn_like randint_like zeros_like ones_like full_like new_zeros new_ones new_full")
"""make a tensor like another one, of which they do not read the values"""

ON_FLOATS = {
    **dict.fromkeys(names("mm addmm _addmm_activation addbmm linear"), "addmm_cuda"),
    **dict.fromkeys(names("bmm baddbmm"), "baddbmm_cuda"), **dict.fromkeys(names("mv addmv"), "addmv_impl_cuda"),
    "dot": "dot", "vdot": "vdot", **dict.fromkeys(names("convolution _convolution"), "slow_conv2d_cuda"),
    "max_pool2d_with_indices": "max_pool2d_with_indices_out_cuda_frame", "avg_pool2d": "avg_pool2d_out_cuda_frame",
    "max_pool3d_with_indices": "max_pool3d_with_indices_out_frame", "avg_pool3d": "avg_pool3d_out_frame",
}  # fmt: skip
"""Operators for which the CPU takes integers and CUDA does not -> the name of CUDA's kernel."""


HALVES = (torch.float16, torch.bfloat16)

IN_FLOAT32 = names(
    """
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d _adaptive_avg_pool3d_backward
    _addmm_activation _convolution _embedding_bag _embedding_bag_backward _embedding_bag_forward_only
    _embedding_bag_per_sample_weights_backward _log_softmax _log_softmax_backward_data _safe_softmax
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward
    _softmax_backward_data _trilinear _upsample_bicubic2d_aa _upsample_bicubic2d_aa_backward _upsample_bilinear2d_aa
    _upsample_bilinear2d_aa_backward _upsample_nearest_exact1d_backward _upsample_nearest_exact2d_backward
    _upsample_nearest_exact3d_backward adaptive_avg_pool3d_backward adaptive_max_pool2d_backward
    adaptive_max_pool3d_backward addbmm addmm addmv addr avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward
    baddbmm binary_cross_entropy binary_cross_entropy_backward binary_cross_entropy_with_logits bmm col2im conv_tbc
    convolution convolution_backward cumprod dot embedding_dense_backward fractional_max_pool2d_backward
    fractional_max_pool3d_backward glu_backward grid_sampler_2d grid_sampler_2d_backward grid_sampler_3d
    grid_sampler_3d_backward huber_loss huber_loss_backward index_reduce ldexp linalg_cross linear log_sigmoid_backward
    logit logit_backward logsumexp max_pool2d_with_indices_backward max_pool3d_with_indices_backward mm mse_loss
    mse_loss_backward multi_margin_loss multi_margin_loss_backward multilabel_margin_loss_backward
    multilabel_margin_loss_forward mv mvlgamma nll_loss2d_backward nll_loss2d_forward nll_loss_backward nll_loss_forward
    polygamma pow prod reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward renorm
    replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward scatter_reduce sigmoid_backward
    slow_conv_dilated2d slow_conv_dilated3d slow_conv_transpose2d slow_conv_transpose3d smooth_l1_loss
    smooth_l1_loss_backward soft_margin_loss soft_margin_loss_backward softplus_backward special_entr special_i0e
    special_xlog1py tanh_backward unfold_backward upsample_bicubic2d upsample_bicubic2d_backward upsample_bilinear2d
    upsample_bilinear2d_backward upsample_linear1d upsample_linear1d_backward upsample_nearest1d_backward
    upsample_nearest2d_backward upsample_nearest3d_backward upsample_trilinear3d upsample_trilinear3d_backward vdot
    xlogy
    """
)
"""Operators, without the underscore of their in-place forms, whose halves go by way of fp32."""

ACCUMULATES = {"index_put": 3, "_index_put_impl_": 3, "put": 3}
"""Operator -> its argument that says whether it adds up; if it does not, it only moves data."""

KEEPS_FLOAT32 = -1
NORMS: dict[str, tuple[int, ...]] = {
    "native_layer_norm": (0, KEEPS_FLOAT32, KEEPS_FLOAT32), "native_layer_norm_backward": (1, 5, 6),
    "native_group_norm": (0, 1, 1), "native_group_norm_backward": (1, 4, 4),
    "native_batch_norm": (0, KEEPS_FLOAT32, KEEPS_FLOAT32), "native_batch_norm_backward": (1, 2, 2),
    "_native_batch_norm_legit": (0, KEEPS_FLOAT32, KEEPS_FLOAT32),
    "_native_batch_norm_legit_functional": (0, KEEPS_FLOAT32, KEEPS_FLOAT32, 3, 4),
    "_native_batch_norm_legit_no_training": (0, KEEPS_FLOAT32, KEEPS_FLOAT32),
    "_scaled_dot_product_flash_attention_for_cpu": (0, KEEPS_FLOAT32),
    "_scaled_dot_product_flash_attention_for_cpu_backward": (1, 2, 3), "_weight_norm_interface_backward": (1, 2),
}  # fmt: skip
"""Operators whose operands may mix halves and fp32 -> for each result the argument whose dtype it takes.

CUDA's normalisations keep the statistics that they save for the gradient in fp32.
"""

UNSAID_WRITES = {"native_batch_norm": (3, 4)}
"""Operator -> arguments that it writes to, though its schema does not say so: the running statistics."""


class InFloat32:
    """An overload that computes halves in fp32; called as the overload itself is."""

    def __init__(self, overload: Any, base: str):
        self.overload = overload
        self.tags = overload.tags
        self._overloadname = overload._overloadname
        self.accumulate = ACCUMULATES.get(base if base in ACCUMULATES else base.removesuffix("_"))
        self.likes = NORMS.get(base)
        self.written = tuple(
            argument.name if argument.kwarg_only else index
            for index, argument in enumerate(overload._schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ) + UNSAID_WRITES.get(base, ())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The operator's result, each part rounded to the dtype that CUDA gives it."""
        half = self._half([*args, *kwargs.values()])
        if half is None or (self.accumulate is not None and not any(args[self.accumulate : self.accumulate + 1])):
            return self.overload(*args, **kwargs)
        wide = [_widened(value) for value in args]
        named = {key: _widened(value) for key, value in kwargs.items()}
        called = _numbered(args, kwargs)
        given = {key: value for key, value in called.items() if key in self.written and value is not None}
        result = self.overload(*wide, **named)
        if not given:
            return self._rounded(result, half, [*args, *kwargs.values()])
        if not self._write_back(given, _numbered(wide, named)):
            return self.overload(*args, **kwargs)  # an out= tensor of another shape, which the operator resizes
        return self._replaced(result, given, _numbered(wide, named), half, args)

    def _half(self, values: Sequence[Any]) -> torch.dtype | None:
        """The one half type among the operands; None where there is none, or where wider operands set the dtype."""
        found = {tensor.dtype for tensor in tensors_in(values) if tensor.dtype.is_floating_point}
        halves = found & set(HALVES)
        if len(halves) != 1 or (found - halves and (self.likes is None or found - halves != {torch.float32})):
            return None
        return halves.pop()

    def _rounded(self, result: Any, half: torch.dtype, args: Sequence[Any]) -> Any:
        """Results in the dtypes that the operator gives, or that it was asked for."""
        if self.likes is not None:
            wanted = [_dtype_like(args, index, half) for index in self.likes]
            return tuple(part if part is None else part.to(dtype) for part, dtype in zip(result, wanted, strict=True))
        asked = next((value for value in args if isinstance(value, torch.dtype)), half)
        return mapped(result, lambda part: part.to(asked) if part.dtype == torch.float32 else part)

    def _write_back(self, given: dict[Any, Any], wide: dict[Any, Any]) -> bool:
        """Round what the operator has written into the tensors it was given; False if a shape has changed."""
        pairs = [
            pair
            for key, value in given.items()
            for pair in zip(tensors_in([value]), tensors_in([wide[key]]), strict=True)
            if pair[0].dtype in HALVES
        ]
        if any(old.shape != new.shape for old, new in pairs):
            return False
        for old, new in pairs:
            old.copy_(new)
        return True

    def _replaced(
        self, result: Any, given: dict[Any, Any], wide: dict[Any, Any], half: torch.dtype, args: Sequence[Any]
    ) -> Any:
        """The result with the caller's own tensors where the operator returned what it has written."""
        old = [tensor for value in given.values() for tensor in tensors_in([value])]
        new = [tensor for key in given for tensor in tensors_in([wide[key]])]
        own = {id(n): o for n, o in zip(new, old, strict=True)}
        if isinstance(result, torch.Tensor):
            return own.get(id(result), result)
        if self.likes is not None:
            return self._rounded(result, half, args)
        return mapped(result, lambda part: own.get(id(part), part))


class LaidByCudnn(InFloat32):
    """A convolution, or its gradients, whose results lie in memory as cuDNN leaves them."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The operator's result, or results."""
        gradients = self.overload is torch.ops.aten.convolution_backward.default
        x, weight = args[gradients : gradients + 2]
        layout = layout_of_cudnn(x, weight)
        # oneDNN's gradient of single taps with strides, channels last, writes past its memory below eight channels
        if gradients and max(weight.shape[2:]) == 1 < max(args[4]):
            args = (*(one.clone(memory_format=torch.contiguous_format) for one in args[:3]), *args[3:])
        result = super().__call__(*args, **kwargs)
        return mapped(result, lambda part: part.contiguous(memory_format=layout) if part.dim() > 1 else part)


def as_on_cuda(base: str, overload: Any) -> Any:
    """The overload, or what computes its halves in fp32 or lays out its result as a GPU's library does."""
    if base in ("convolution", "_convolution", "convolution_backward"):
        return LaidByCudnn(overload, base)
    public = base if base in IN_FLOAT32 or base in ACCUMULATES else base.removesuffix("_")
    return InFloat32(overload, base) if public in IN_FLOAT32 or public in ACCUMULATES or base in NORMS else overload


def _numbered(args: Sequence[Any], kwargs: dict[str, Any]) -> dict[Any, Any]:
    return {**dict(enumerate(args)), **kwargs}


def _dtype_like(args: Sequence[Any], index: int, half: torch.dtype) -> torch.dtype:
    """The dtype of an argument; of the halves where that argument is missing."""
    if index == KEEPS_FLOAT32:
        return torch.float32
    value = args[index] if index < len(args) else None
    return value.dtype if isinstance(value, torch.Tensor) else half


def _widened(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype in HALVES else value
    if isinstance(value, (list, tuple)):
        return [_widened(item) for item in value]
    return torch.float32 if value in HALVES else value


_MISSING = object()


@dataclass(frozen=True)
class OperatorRule:
    """How the device runs one overload."""

    call: Any
    """the overload, or its replacement if the CPU build lacks it"""
    base: str
    label: str
    """its name in the census: ``"aten.add"`` """
    parameters: tuple[tuple[str, Any], ...]
    """positional parameters: name, and default or a marker that there is none"""
    options: frozenset[str]
    """parameters that go by name only"""
    allocates: bool
    makes_from_size: bool
    only_metadata: bool
    """whether it only reads or changes the form of a tensor"""
    by_form: bool
    """whether it makes a new tensor, of its arguments' forms alone"""
    values: frozenset[str]
    """parameters that are tensors or numbers to compute with"""
    draws: bool
    """whether it uses random numbers"""
    takes_generator: bool
    takes_device: bool
    """whether it may be given a device for its result"""
    sized_by_data: bool
    """whether its result's shape may depend on values"""
    written: frozenset[int | str]
    """arguments that it writes to: positions, and names of keyword arguments"""
    out_variant: bool
    """whether it writes its results to an argument without reading it"""

    def normal(self, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the call with every positional parameter in its place, and only keyword-only options by name.

        Raises :class:`UnsupportedOp` for arguments that do not fit the schema, or that name a device or a layout.
        """
        if len(args) > len(self.parameters):
            raise UnsupportedOp(f"{self.label} takes {len(self.parameters)} positional arguments, not {len(args)}")
        full = list(args)
        left = dict(kwargs)
        for index, (name, default) in enumerate(self.parameters):
            if index < len(args):
                if name in left:
                    raise UnsupportedOp(f"{self.label} was given its argument {name!r} twice")
                continue
            value = left.pop(name, default)
            if value is _MISSING:
                raise UnsupportedOp(f"{self.label} was not given its argument {name!r}")
            full.append(value)
        needed = ("rounding_mode", "stable")  # without a default
        options = {name: value for name, value in left.items() if value is not None or name in needed}
        for name in options:
            known = name in self.options or (name == "generator" and self.draws)
            if not known or name in ("device", "pin_memory"):
                raise UnsupportedOp(f"{self.label} takes no argument {name!r} on the simulated device")
        return full, options

    def on_meta(self, args: Any, kwargs: dict[str, Any]) -> Any:
        """Return the results on meta tensors, whatever generator and device the call names."""
        named = {key: value for key, value in kwargs.items() if key != "generator"}
        if self.takes_device:
            named["device"] = torch.device("meta")
        return on_meta(self.call, args, named)

    def refusal(self, args: Any, kwargs: dict[str, Any]) -> Exception | None:
        """What the operator says against its operands' forms, at which a GPU's host code looks before it launches."""
        prepare_shapes()
        try:
            self.on_meta(mapped(args, bare), {key: mapped(value, bare) for key, value in kwargs.items()})
        except (AssertionError, IndexError, RuntimeError, TypeError, ValueError) as error:
            said = RuntimeError(str(error)) if isinstance(error, AssertionError) else error  # as a kernel says it
            return None if is_missing(said) else said
        return None


@lru_cache(maxsize=4096)
def is_composite(func: Any) -> bool:
    """Return whether torch decomposes an operator into others before they reach a device."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key)


def by_name(argument: Any) -> bool:
    """Whether a parameter of a schema is given by name only. Generators are, here, wherever the schema has them."""
    return argument.kwarg_only or argument.name == "generator"


@lru_cache(maxsize=4096)
def rule_of(name: str) -> OperatorRule:
    """The rule of ``"add.Tensor"``; raises :class:`UnsupportedOp` that names what is not offered."""
    base, _, overload = name.partition(".")
    public = base if base in PUBLIC else base.removesuffix("_")
    if public not in PUBLIC and base not in INTERNAL and name not in LIBRARY_CALLS:
        raise UnsupportedOp(f"operator aten::{base} is not offered on the simulated device")
    try:
        call = getattr(getattr(torch.ops.aten, base), overload or "default")
        schema = call._schema
        composite = is_composite(call)
    except (AttributeError, RuntimeError) as error:
        raise UnsupportedOp(f"there is no operator aten::{name}") from error
    if composite and name not in LIBRARY_CALLS:
        raise UnsupportedOp(f"operator aten::{name} is composite: the host takes it apart, the device runs its parts")
    written = frozenset(
        argument.name if by_name(argument) else index
        for index, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ).union(UNSAID_WRITES.get(base, ()))
    return OperatorRule(
        call=EMULATED.get(name.removesuffix(".default")) or as_on_cuda(base, call),
        base=base,
        label=f"aten.{base}",
        parameters=tuple(
            (argument.name, argument.default_value if argument.has_default_value() else _MISSING)
            for argument in schema.arguments
            if not by_name(argument)
        ),
        options=frozenset(argument.name for argument in schema.arguments if by_name(argument)),
        allocates=base in ALLOCATORS and not written,
        makes_from_size=base in FACTORIES,
        only_metadata=base in METADATA_OPERATORS,
        by_form=base in BY_FORM and not written,
        values=frozenset(one.name for one in schema.arguments if any(k in str(one.type) for k in ("Tensor", "number"))),
        draws=torch.Tag.nondeterministic_seeded in call.tags,
        takes_generator=any(argument.name == "generator" for argument in schema.arguments),
        takes_device=any(argument.name == "device" for argument in schema.arguments),
        sized_by_data=base in SIZED_BY_DATA,
        written=written,
        out_variant=any(argument.is_out for argument in schema.arguments),
    )
