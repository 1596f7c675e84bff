"""Modelled time of one ATen operator: which family of kernels PyTorch runs for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from drkernel.sim.cost import indexing, pointwise, products, reduction
from drkernel.sim.cost.call import Call
from drkernel.sim.cost.convolution import convolution
from drkernel.sim.cost.l2 import L2State
from drkernel.sim.cost.records import CostEstimate, TensorMeta, combine
from drkernel.sim.cost.recurrent import recurrent
from drkernel.sim.cost.roofline import KernelWork, kernel_cost
from drkernel.sim.spec import GPUSpec

__all__ = ["TensorMeta", "operator_cost"]

Family = Callable[[Call], list[KernelWork]]


def _names(text: str, family: Family) -> dict[str, Family]:
    return dict.fromkeys(text.split(), family)


FAMILIES: dict[str, Family] = {
    **_names("mm addmm bmm baddbmm mv addmv dot vdot linear addr _addmm_activation addbmm", products.product),
    **_names("convolution _convolution convolution_overrideable cudnn_convolution", convolution),
    **_names(
        """_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention
        _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention
        _scaled_dot_product_fused_attention_overrideable""",
        products.attention,
    ),
    **_names(
        """sum nansum mean amax amin max min prod any all norm linalg_vector_norm argmax argmin var std var_mean
        std_mean median nanmedian count_nonzero aminmax""",
        reduction.reduce,
    ),
    **_names("_softmax _log_softmax _safe_softmax softmax log_softmax", reduction.softmax),
    **_names("logsumexp", reduction.logsumexp),
    **_names("native_dropout", pointwise.dropout),
    **_names("native_layer_norm", reduction.layer_norm),
    **_names("_fused_rms_norm", reduction.rms_norm),
    **_names(
        """native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional cudnn_batch_norm
        _native_batch_norm_legit_no_training _batch_norm_with_update""",
        reduction.batch_norm,
    ),
    **_names("native_group_norm", reduction.group_norm),
    **_names("cumsum cumprod cummax cummin logcumsumexp", reduction.scan),
    **_names(
        """max_pool1d max_pool2d max_pool3d max_pool2d_with_indices max_pool3d_with_indices avg_pool1d avg_pool2d
        avg_pool3d adaptive_avg_pool1d _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d
        adaptive_max_pool3d""",
        indexing.pooling,
    ),
    **_names("embedding index_select gather index take take_along_dim masked_select", indexing.gather),
    **_names(
        """scatter scatter_add scatter_reduce index_put _index_put_impl index_add index_copy index_fill masked_scatter
        select_scatter slice_scatter""",
        indexing.scatter,
    ),
    **_names("sort argsort", indexing.sort),
    **_names("topk kthvalue", indexing.topk),
    **_names(
        """upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_bilinear2d upsample_linear1d
        upsample_trilinear3d upsample_bicubic2d grid_sampler_2d grid_sampler_3d""",
        indexing.resample,
    ),
    **_names("mse_loss smooth_l1_loss huber_loss l1_loss binary_cross_entropy kl_div soft_margin_loss", indexing.loss),
    **_names("nll_loss_forward nll_loss2d_forward", indexing.nll),
    **_names("flip roll", pointwise.reordering),
    **_names("lstm gru rnn_tanh rnn_relu", recurrent),
    **_names("cat stack _cat _stack concat", pointwise.concatenate),
    **_names(
        """zeros ones full arange linspace eye zeros_like ones_like full_like rand randn rand_like randn_like randint
        randperm normal uniform bernoulli exponential fill zero new_zeros new_ones new_full scalar_tensor random
        tril_indices triu_indices""",
        pointwise.fill,
    ),
}
"""Every other operator is taken as element-wise: one kernel that reads its inputs and writes its outputs."""


def base_name(name: str) -> str:
    """``"aten.add_.Tensor"`` -> ``"add"``."""
    base = name.removeprefix("aten::").removeprefix("aten.").partition(".")[0]
    return base if base.startswith("__") else base.rstrip("_")


def family_of(name: str, inputs: Sequence[TensorMeta]) -> Family:
    """Which kind of kernels an operator runs."""
    base = base_name(name)
    if base in ("max", "min") and (name.endswith(".other") or len(inputs) > 1):
        return pointwise.pointwise
    return FAMILIES.get(base, pointwise.pointwise)


def make_call(name: str, inputs: Sequence[TensorMeta], outputs: Sequence[TensorMeta], args: Any, spec: GPUSpec) -> Call:
    """An operator as the families read it."""
    arguments = args if isinstance(args, (list, tuple)) else ()
    return Call(base_name(name), name.rpartition(".")[2], tuple(inputs), tuple(outputs), arguments, spec)


def operator_work(
    name: str, inputs: Sequence[TensorMeta], outputs: Sequence[TensorMeta], args: Any, spec: GPUSpec
) -> list[KernelWork]:
    """The kernels that ``name`` (e.g. ``"mm.default"``) launches on these shapes, in order."""
    call = make_call(name, inputs, outputs, args, spec)
    if not any(meta.elements for meta in (*call.inputs, *call.outputs)):
        return []
    return family_of(name, inputs)(call)


HOST_FACTOR = dict.fromkeys(
    (
        "convolution",
        "native_batch_norm",
        "_native_batch_norm_legit",
        "cudnn_batch_norm",
        "_scaled_dot_product_flash_attention_for_cpu",
    ),
    2.5,
)
"""Host time over that of a plain operator: cuDNN's descriptors and plan look-up, several outputs to allocate."""


def operator_cost(
    name: str, inputs: Sequence[TensorMeta], outputs: Sequence[TensorMeta], args: Any, spec: GPUSpec, l2: L2State
) -> CostEstimate:
    """Modelled device time of one ATen operator; moves ``l2`` (the cache that all kernels share) on."""
    cost = combine(kernel_cost(work, spec, l2) for work in operator_work(name, inputs, outputs, args, spec))
    factor = HOST_FACTOR.get(name.partition(".")[0])
    return cost if factor is None else cost.with_host(factor * spec.launch_overhead)
