"""The kernels that PyTorch's CUDA build runs for each operator: a family for every operator with a price.

An operator is in exactly one of three classes, and ``test_cost_prices.py`` covers all that the device allows:

- *priced*: it has a family here, which models the work that it really does;
- *unpriced*: :data:`UNPRICED` says why there is no model of it. It may run, but a call with it earns no speedup;
- *free*: it makes a view or memory. That is decided not by name, but by whether its results share storage.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch

from drkernel.sim.cost import indexing, pointwise, products, reduction, transforms, windows
from drkernel.sim.cost.pointwise import streaming
from drkernel.sim.cost.records import CostEstimate, KernelWork, MetaCall, TensorMeta, Unpriced, combine, read, write
from drkernel.sim.cost.roofline import L2State, kernel_cost
from drkernel.sim.spec import GPUSpec


@lru_cache(maxsize=4096)
def signature(name: str) -> Sequence[Any]:
    """Return the parameters of ``"add.Tensor"`` in order; none for an operator that torch does not have."""
    base, _, overload = name.removeprefix("aten::").removeprefix("aten.").partition(".")
    call = getattr(getattr(torch.ops.aten, base, None), overload or "default", None)
    return () if call is None else call._schema.arguments


def in_order(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return all arguments in the schema's order, defaults filled in (None if there is neither value nor default).

    Keywords that the schema does not have come last.
    """
    if not kwargs:
        return list(args)
    parameters = signature(name)
    values = list(args)
    values += [kwargs.get(parameter.name, parameter.default_value) for parameter in parameters[len(args) :]]
    known = {parameter.name for parameter in parameters}
    return values + [value for key, value in kwargs.items() if key not in known]


def read_only(name: str, values: Sequence[Any]) -> list[Any]:
    """Return those of the ordered arguments whose contents the operator may read: not ``out=`` and similar."""
    parameters = signature(name)
    return [value for k, value in enumerate(values) if k >= len(parameters) or not parameters[k].is_out]


def by_name(name: str, values: Sequence[Any]) -> dict[str, Any]:
    """Return ordered arguments as a mapping, with the schema's defaults for omitted ones."""
    parameters = signature(name)
    given = {parameter.name: value for parameter, value in zip(parameters, values, strict=False)}
    for parameter in parameters[len(values) :]:
        given[parameter.name] = parameter.default_value
    return given


Family = Callable[[MetaCall], list[KernelWork]]


def _names(text: str, value: Any) -> dict[str, Any]:
    return dict.fromkeys(text.split(), value)


FAMILIES: dict[str, Family] = {
    **dict.fromkeys(pointwise.NAMES, pointwise.pointwise),
    **_names(
        "_amp_foreach_non_finite_check_and_unscale _fused_adagrad _fused_adam _fused_adamw _fused_sgd",
        pointwise.multi_tensor,
    ),
    **_names(
        """flip roll rot90 reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d
        replication_pad3d split_copy split_with_sizes_copy unbind_copy unsafe_split
        unsafe_split_with_sizes""",
        pointwise.reordering,
    ),
    **_names("constant_pad_nd slice_backward select_backward diagonal_backward diag_embed", pointwise.fill_then_copy),
    **_names("slice_scatter select_scatter diagonal_scatter as_strided_scatter", pointwise.copy_then_write),
    **_names("cat stack _cat _stack concat", pointwise.concatenate),
    **_names("native_dropout", pointwise.dropout),
    **_names(
        """zeros ones full arange range linspace logspace eye zeros_like ones_like full_like rand randn rand_like
        randn_like randint randint_like randperm normal uniform bernoulli exponential geometric cauchy log_normal fill
        zero new_zeros new_ones new_full scalar_tensor random tril_indices triu_indices fft_fftfreq fft_rfftfreq
        _new_zeros_with_same_feature_meta""",
        pointwise.fill,
    ),
    **_names("hann_window hamming_window bartlett_window blackman_window", pointwise.window),
    **_names("mm addmm bmm baddbmm mv addmv dot vdot linear _addmm_activation addbmm", products.product),
    **_names("_grouped_mm _scaled_mm _int_mm", products.grouped),
    **_names("conv_tbc", products.conv_tbc),
    **_names("_cdist_forward _pdist_forward", products.pairwise),
    **_names("_euclidean_dist", products.euclidean),
    **_names(
        """_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention
        _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention
        _scaled_dot_product_fused_attention_overrideable""",
        products.attention,
    ),
    **_names("_scaled_dot_product_flash_attention_for_cpu_backward", products.attention_backward),
    **_names("convolution _convolution convolution_overrideable cudnn_convolution", windows.convolution),
    **_names("convolution_backward", windows.convolution_backward),
    **_names("lstm gru rnn_tanh rnn_relu", products.recurrent),
    **_names(
        """sum nansum mean amax amin max min prod any all _is_all_true _is_any_true norm native_norm
        linalg_vector_norm linalg__powsum argmax argmin var std var_mean std_mean count_nonzero aminmax""",
        reduction.reduce,
    ),
    **_names("equal _linalg_check_errors", reduction.equal),
    **_names("_softmax _log_softmax _safe_softmax softmax log_softmax", reduction.softmax),
    **_names("_softmax_backward_data _log_softmax_backward_data", reduction.softmax_backward),
    **_names("logsumexp", reduction.logsumexp),
    **_names("native_layer_norm _fused_rms_norm", reduction.row_norm),
    **_names("native_layer_norm_backward _fused_rms_norm_backward", reduction.norm_backward),
    **_names(
        """native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional cudnn_batch_norm
        _native_batch_norm_legit_no_training _batch_norm_with_update""",
        reduction.batch_norm,
    ),
    **_names("native_group_norm", reduction.group_norm),
    **_names("native_batch_norm_backward native_group_norm_backward", reduction.channel_norm_backward),
    **_names("_weight_norm_interface _weight_norm_interface_backward", reduction.weight_norm),
    **_names("cumsum cumprod cummax cummin logcumsumexp", reduction.scan),
    **_names("mse_loss smooth_l1_loss huber_loss binary_cross_entropy", reduction.loss),
    **_names("binary_cross_entropy_with_logits", reduction.bce_with_logits),
    **_names("soft_margin_loss", reduction.soft_margin),
    **_names("multi_margin_loss multilabel_margin_loss_forward", reduction.margin_loss),
    **_names("dist", reduction.distance),
    **_names("trace", reduction.trace),
    **_names("nll_loss_forward nll_loss2d_forward", reduction.nll),
    **_names("nll_loss_backward nll_loss2d_backward", reduction.nll_backward),
    **_names("_ctc_loss", reduction.ctc),
    **_names(
        """max_pool1d max_pool2d max_pool3d max_pool2d_with_indices max_pool3d_with_indices avg_pool1d avg_pool2d
        avg_pool3d adaptive_avg_pool1d _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool2d
        adaptive_avg_pool3d adaptive_max_pool2d
        adaptive_max_pool3d""",
        windows.pooling,
    ),
    **_names(
        """max_pool2d_with_indices_backward max_pool3d_with_indices_backward avg_pool2d_backward avg_pool3d_backward
        _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward
        adaptive_avg_pool3d_backward adaptive_max_pool2d_backward
        adaptive_max_pool3d_backward""",
        windows.pooling_backward,
    ),
    **_names("max_unpool2d max_unpool3d", windows.unpool),
    **_names("im2col col2im", windows.columns),
    **_names(
        """reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward replication_pad1d_backward
        replication_pad2d_backward replication_pad3d_backward""",
        windows.pad_backward,
    ),
    **_names(
        """upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_bilinear2d upsample_linear1d
        upsample_trilinear3d upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa grid_sampler_2d
        grid_sampler_3d _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d""",
        windows.resample,
    ),
    **_names(
        """upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward
        upsample_bilinear2d_backward upsample_linear1d_backward upsample_trilinear3d_backward
        upsample_bicubic2d_backward grid_sampler_2d_backward grid_sampler_3d_backward _upsample_bilinear2d_aa_backward
        _upsample_bicubic2d_aa_backward _upsample_nearest_exact1d_backward _upsample_nearest_exact2d_backward
        _upsample_nearest_exact3d_backward""",
        windows.resample_backward,
    ),
    **_names("embedding index_select gather index take take_along_dim", indexing.gather),
    **_names("masked_select", indexing.masked_select),
    **_names("nonzero", indexing.nonzero),
    **_names("_embedding_bag _embedding_bag_forward_only", indexing.embedding_bag),
    **_names("embedding_dense_backward", indexing.embedding_backward),
    **_names(
        """scatter scatter_add scatter_reduce index_put _index_put_impl index_add index_copy index_fill
        index_reduce""",
        indexing.scatter,
    ),
    **_names("put", indexing.put),
    **_names("masked_scatter", indexing.masked_scatter),
    **_names("histc bincount", indexing.counts),
    **_names("searchsorted bucketize", indexing.search),
    **_names("sort argsort", indexing.sort),
    **_names("topk", indexing.topk),
    **_names("kthvalue", indexing.kthvalue),
    **_names("median nanmedian", indexing.median),
    **_names("mode", indexing.mode),
    **_names("_unique _unique2 unique_consecutive", indexing.unique),
    **_names("_fft_c2c _fft_r2c _fft_c2r", transforms.fourier),
    **dict.fromkeys((*transforms.DIRECT, *transforms.SOLVES), transforms.factorisation),
    **_names("lu_unpack", transforms.lu_unpack),
}

UNPRICED: dict[str, str] = {
    **_names(
        """_linalg_svd _linalg_eigh linalg_eig linalg_eigvals linalg_matrix_exp linalg_pinv linalg_lstsq
        binomial poisson multinomial _standard_gamma _sample_dirichlet _dirichlet_grad igamma igammac
        special_zeta polygamma mvlgamma unique_dim unique_dim_consecutive kaiser_window isin""",
        "how much it does depends on the values",
    ),
    **_names(
        """special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1
        special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v
        special_chebyshev_polynomial_w special_hermite_polynomial_h special_hermite_polynomial_he
        special_laguerre_polynomial_l special_legendre_polynomial_p special_modified_bessel_i0
        special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1
        special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1
        special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u
        special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w
        special_spherical_bessel_j0""",
        "its arithmetic is not counted",
    ),
    **_names(
        """_trilinear affine_grid_generator block_diag embedding_renorm renorm repeat_interleave ormqr
        segment_reduce _ctc_loss_backward _cdist_backward _pdist_backward _embedding_bag_backward
        _segment_reduce_backward _embedding_bag_per_sample_weights_backward _amp_update_scale normal_functional
        rrelu_with_noise_functional nonzero_static fractional_max_pool2d fractional_max_pool2d_backward
        fractional_max_pool3d fractional_max_pool3d_backward slow_conv_dilated2d slow_conv_dilated3d
        slow_conv_transpose2d slow_conv_transpose3d masked_scatter_backward unfold_backward multi_margin_loss_backward
        multilabel_margin_loss_backward resize resize_as""",
        "the kernels that it runs are not described",
    ),
}
"""Operator -> why it has no price. One that is in neither table has none either; the test names it."""

SYNCHRONISING = _names(
    "nonzero masked_select _unique _unique2 unique_consecutive unique_dim unique_dim_consecutive bincount equal",
    "the host waits for the size or value of the result",
)


def base_name(name: str) -> str:
    """``"aten.add_.Tensor"`` -> ``"add"``."""
    base = name.removeprefix("aten::").removeprefix("aten.").partition(".")[0]
    return base if base.startswith("__") else base.rstrip("_")


def family_of(name: str, inputs: Sequence[TensorMeta]) -> Family:
    """Return the family of an operator; :func:`unpriced` if there is no model."""
    base = base_name(name)
    if base in ("max", "min") and (name.endswith(".other") or len(inputs) > 1):
        return pointwise.pointwise
    if base == "where" and len(inputs) == 1:
        return indexing.nonzero
    return FAMILIES.get(base, pointwise.multi_tensor if base.startswith("_foreach_") else unpriced)


_ALONG_AXES = (
    reduction.scan, indexing.sort, indexing.topk, indexing.kthvalue, indexing.median, indexing.mode, indexing.unique,
)  # fmt: skip
_ALONG_WINDOWS = (transforms.__name__, windows.__name__)
"""modules all of whose families are such, too"""


def depends_on_axes(name: str, inputs: Sequence[TensorMeta]) -> bool:
    """Whether an operator's work for an element depends on the length of an axis: sorts, scans, transforms, windows."""
    family = family_of(name, inputs)
    return family in (*_ALONG_AXES, unpriced) or family.__module__ in _ALONG_WINDOWS


def unpriced(call: MetaCall) -> list[KernelWork]:
    """Raise :class:`Unpriced` with the reason."""
    raise Unpriced(UNPRICED.get(call.base, "there is no model of its kernels"))


def synchronises(name: str, inputs: Sequence[TensorMeta]) -> bool:
    """Return whether the host waits for an operator on these inputs before it continues."""
    base = base_name(name)
    masked = base in ("index", "index_put", "_index_put_impl") and any(meta.dtype == "bool" for meta in inputs[1:])
    masked = masked and not (base != "index" and indexing.fills_by_mask(inputs))
    return base in SYNCHRONISING or masked or (base == "where" and len(inputs) == 1)


def operator_work(
    name: str,
    inputs: Sequence[TensorMeta],
    outputs: Sequence[TensorMeta],
    args: Any,
    spec: GPUSpec,
    *,
    conv_tf32: bool = True,
) -> list[KernelWork]:
    """Return the kernels that ``name`` (e.g. ``"mm.default"``) launches on these shapes, in order.

    Raises :class:`Unpriced` if there is no model of them.
    """
    given = by_name(name, args if isinstance(args, (list, tuple)) else ())
    overload = name.rpartition(".")[2]
    call = MetaCall(base_name(name), overload, tuple(inputs), tuple(outputs), spec, given, conv_tf32)
    if not any(meta.elements for meta in (*call.inputs, *call.outputs)):
        return []
    return family_of(name, inputs)(call)


def floor_work(name: str, inputs: Sequence[TensorMeta], outputs: Sequence[TensorMeta]) -> list[KernelWork]:
    """Return one pass over results that are not views: a lower bound on the cost of an operator without a price."""
    made = list(outputs) or list(inputs)
    if not made:
        return []
    elements = max(float(meta.elements) for meta in made)
    return [streaming(base_name(name), [*map(read, inputs), *map(write, outputs)], elements, {})]


_PLANNED = """convolution native_batch_norm _native_batch_norm_legit cudnn_batch_norm
    _scaled_dot_product_flash_attention_for_cpu"""
HOST_FACTOR = dict.fromkeys(_PLANNED.split(), 2.5)
"""Host time of all kernels over that of a plain operator: cuDNN's descriptors and plan look-up, several outputs to
allocate."""


def operator_cost(
    name: str,
    inputs: Sequence[TensorMeta],
    outputs: Sequence[TensorMeta],
    args: Any,
    spec: GPUSpec,
    l2: L2State,
    *,
    conv_tf32: bool = True,
) -> CostEstimate:
    """Return the modelled device time of one ATen operator, and update ``l2`` (the cache shared by all kernels).

    ``args`` are its arguments in the order of its schema. For an operator without a price, ``unpriced`` holds the
    reason and the time is that of one pass over its tensors, which is only a lower bound.
    """
    reason = ""
    try:
        work = operator_work(name, inputs, outputs, args, spec, conv_tf32=conv_tf32)
    except Unpriced as missing:
        work, reason = floor_work(name, inputs, outputs), str(missing)
    cost = combine(kernel_cost(item, spec, l2) for item in work)
    factor = HOST_FACTOR.get(name.partition(".")[0])
    if factor is None and cost.kernels > 1:
        factor = 1.0 + products.RAW_LAUNCH_SHARE * (cost.kernels - 1)
    if factor is not None:
        cost = replace(cost, host_seconds=factor * spec.launch_overhead)
    return cost.without_price(reason) if reason else cost
