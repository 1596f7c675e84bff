"""No operator is modelled faster than the card: bytes over bandwidth, operations over peak, at random sizes.

The limits are worked out here from the tensors alone and from PyTorch's own count of operations, not by the model.
"""

import math
import random

import pytest
import torch
from torch.utils.flop_counter import flop_registry

from drkernel.sim.cost.operators import FAMILIES, base_name, operator_cost
from drkernel.sim.cost.pointwise import NAMES
from drkernel.sim.cost.products import gemm_unit
from drkernel.sim.cost.records import TensorMeta
from drkernel.sim.cost.roofline import L2State
from drkernel.sim.spec import GPUSpec, get_spec, known_gpus
from operator_battery import META, ON_HOST, TRIES, Draw
from sweeps import shares
from tracing import TracedCall, trace

GPUS = tuple(known_gpus())
NOT_READ = {
    "embedding": (0,), "index_select": (0,), "gather": (0,), "index": (0,), "take": (0,), "masked_select": (0,),
    "_embedding_bag": (0,), "trace": (0,), "nll_loss_forward": (0,), "nll_loss2d_forward": (0,), "_ctc_loss": (0,),
    "nll_loss_backward": (0, 1, 3), "masked_scatter": (2,), "scatter": (2,), "take_along_dim": (0,),
    "select_scatter": (0,), "cholesky_solve": (1,), "linalg_solve_triangular": (0,), "linalg_lu_solve": (1,),
    "index_copy": (0,), "max_pool2d_with_indices_backward": (1,), "avg_pool2d_backward": (1,),
    "avg_pool3d_backward": (1,),
    "_adaptive_avg_pool2d_backward": (1,), "adaptive_avg_pool3d_backward": (1,), "reflection_pad2d_backward": (1,),
    "_adaptive_avg_pool3d_backward": (1,), "zeros_like": (0,), "ones_like": (0,), "full_like": (0,), "rand_like": (0,),
    "randn_like": (0,), "new_ones": (0,), "new_full": (0,), "uniform": (0,), "new_zeros": (0,),
    "fill": (0,), "zero": (0,), "normal": (0,), "copy": (0,),
    "as_strided_scatter": (0,), "grid_sampler_2d": (0,), "max_pool1d": (0,), "max_pool2d_with_indices": (0,),
    "max_pool3d_with_indices": (0,), "max_pool2d": (0,), "avg_pool2d": (0,), "avg_pool3d": (0,), "avg_pool1d": (0,),
    "convolution": (0,), "upsample_nearest2d": (0,), "slice_scatter": (0,), "native_layer_norm_backward": (6,),
    "native_batch_norm_backward": (3, 4, 5, 6), "native_batch_norm": (3, 4),
}  # fmt: skip
"""Operator -> inputs, in the schema's order, of which it need not read every element (windows may leave some out)."""
WRITTEN_IN_PART = ("index_put", "scatter", "scatter_add", "index_add", "index_copy", "index_fill", "masked_scatter")


def least_traffic(call: TracedCall) -> tuple[float, float]:
    """Bytes that a call must read and must write: the distinct elements of each input and each result, once."""
    base = base_name(call.name)
    given = {meta.storage for meta in call.inputs}
    reads = {meta.storage: meta for k, meta in enumerate(call.inputs) if k not in NOT_READ.get(base, ())}
    writes = {m.storage: m for m in call.outputs if not (m.storage in given and base in WRITTEN_IN_PART)}
    if any(meta.storage in given for meta in call.outputs) and base in WRITTEN_IN_PART:
        reads.pop(call.inputs[0].storage, None)
    return tuple(float(sum(m.nbytes for m in some.values())) for some in (reads, writes))  # type: ignore[return-value]


def least_operations(call: TracedCall) -> tuple[str, float] | None:
    """The unit and count of PyTorch's own counter, for operators that it knows."""
    base = base_name(call.name)
    count = flop_registry.get(getattr(torch.ops.aten, base, None))
    if count is None or base not in ("mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward"):
        return None
    first = call.inputs[0]
    shapes = [meta.shape for meta in call.inputs]
    if base == "convolution_backward":
        flops = count(*shapes, *call.args[3:], out_val=tuple(map(_form, call.outputs)))
    elif base == "convolution":
        flops = count(*shapes[:2], None, *call.args[3:], out_val=_form(call.outputs[0]))
    else:
        flops = count(*shapes, out_val=_form(call.outputs[0]))
    unit = gemm_unit(first.dtype, tf32="convolution" in base)
    return unit, float(flops) * (4 if first.dtype.startswith("complex") else 1)


def _form(meta: TensorMeta) -> torch.Tensor:
    return torch.empty(meta.shape, device=META)


def check(call: TracedCall, spec: GPUSpec) -> str | None:
    """What is wrong with the modelled time of a call, cold caches and all, in words."""
    cost = operator_cost(call.name, call.inputs, call.outputs, call.args, spec, L2State(spec))
    if cost.unpriced:
        return f"{call.name} has no price: {cost.unpriced}"
    if not math.isfinite(cost.seconds) or not 0 <= cost.roofline <= 1:
        return f"{call.name} takes {cost.seconds} s, {cost.roofline} of its roofline"
    reads, writes = least_traffic(call)
    limits = {"reads and writes": (reads + writes) / spec.hbm_bandwidth, "kernels": spec.kernel_min}
    operations = least_operations(call)
    if operations is not None:
        limits["operations"] = operations[1] / spec.peak[operations[0]]
    for what, limit in limits.items():
        if cost.seconds < limit * (1 - 1e-9):
            shapes = [(meta.shape, meta.dtype) for meta in (*call.inputs, *call.outputs)]
            return f"{call.name} {shapes} takes {cost.seconds:.3g} s on {spec.name}; its {what} alone take {limit:.3g}"
    return None


def calls_of(name: str, seed: int) -> list[TracedCall]:
    host = name in ON_HOST
    draw = Draw(random.Random(f"{name} {seed}"), torch.device("cpu") if host else META, 128 if host else 2048)
    return [call for call in trace(lambda: TRIES[name](draw)) if not call.free]


@pytest.mark.parametrize("seeds", shares(range(12), "no_operator_is_faster", parts=6))
@pytest.mark.parametrize("name", TRIES)
def test_no_operator_is_faster_than_the_card(name: str, seeds: list[int]) -> None:
    wrong = {
        found
        for seed in {seed % 3 if name in ON_HOST else seed for seed in seeds}
        for call in calls_of(name, seed)
        for gpu in GPUS
        if any(meta.elements for meta in call.outputs)
        if (found := check(call, get_spec(gpu))) is not None
    }
    assert not wrong, "\n".join(sorted(wrong)[:5])


@pytest.mark.parametrize("name", sorted(NAMES))
def test_no_element_wise_operator_is_faster_than_the_card(name: str) -> None:
    rng = random.Random(name)
    for _ in range(8):
        shape = tuple(rng.randint(1, 600) for _ in range(rng.randint(1, 3)))
        strides = tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
        dtype = rng.choice(("float32", "float16", "bfloat16", "float64", "int64", "complex64"))
        tensors = [TensorMeta(shape, strides, dtype, storage) for storage in range(1, rng.randint(3, 5))]
        call = TracedCall(f"{name}.default", tuple(tensors[:-1]), tuple(tensors[-1:]), (), False)
        assert (found := check(call, get_spec(rng.choice(GPUS)))) is None, found


ALIASES = """__and__ __iand__ __ior__ __ixor__ __or__ __xor__ _is_all_true _is_any_true relu6 contiguous
isfinite argsort concat _cat _stack linear softmax log_softmax where float_power silu_backward"""
"""names of composite operators that share another's kernels"""
OF_CUDA = """cudnn_convolution cudnn_batch_norm convolution_overrideable _convolution
_scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention
_scaled_dot_product_fused_attention_overrideable"""
"""names that only a CUDA build dispatches to"""


UNTRIED = """_addmm_activation _amp_foreach_non_finite_check_and_unscale _batch_norm_with_update _embedding_bag
_fused_adagrad _fused_adam _fused_adamw _fused_sgd _upsample_bicubic2d_aa_backward _upsample_bilinear2d_aa_backward
_new_zeros_with_same_feature_meta
_upsample_nearest_exact1d _upsample_nearest_exact1d_backward _upsample_nearest_exact2d _upsample_nearest_exact3d
_upsample_nearest_exact2d_backward _upsample_nearest_exact3d_backward
_index_put_impl _native_batch_norm_legit _native_batch_norm_legit_functional _native_batch_norm_legit_no_training
_scaled_dot_product_flash_attention_for_cpu_backward _unique _upsample_bicubic2d_aa adaptive_avg_pool1d
adaptive_avg_pool2d adaptive_avg_pool3d adaptive_avg_pool3d_backward avg_pool1d bartlett_window blackman_window cauchy
cholesky cholesky_inverse fft_fftfreq fft_rfftfreq geometric hamming_window linalg__powsum
linalg_householder_product linalg_lu log_normal logspace lu_unpack max_pool1d max_pool2d max_pool3d max_unpool3d
native_norm nll_loss2d_backward norm ones put randint_like range scalar_tensor split_with_sizes_copy take_along_dim
triangular_solve triu_indices unsafe_split unsafe_split_with_sizes"""
"""near copies of operators that are tried"""


def test_a_new_family_must_be_tried() -> None:
    tried = {base_name(call.name) for name in TRIES for seed in range(2) for call in calls_of(name, seed)} | NAMES
    left = FAMILIES.keys() - tried - set(f"{ALIASES} {OF_CUDA} {UNTRIED}".split())
    assert not left, f"priced and tried by no random call: {sorted(left)}"
