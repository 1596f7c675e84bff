"""Which ATen operators the device runs. Host code is hostile: an operator that is not listed here is refused by name.

Operators without a leading underscore are public, safe tensor functions and allowed, except those that touch files,
rebind storages or make non-strided tensors. Operators with an underscore are internal and allowed one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from drkernel.sim.wire.commands import UnsupportedOp


def names(text: str) -> frozenset[str]:
    """Operator names separated by white space."""
    return frozenset(text.split())


ALLOWED_INTERNAL = names(
    """
    _softmax _log_softmax _softmax_backward_data _log_softmax_backward_data _to_copy _unsafe_view
    _local_scalar_dense _native_batch_norm_legit _native_batch_norm_legit_functional
    _native_batch_norm_legit_no_training _scaled_dot_product_flash_attention_for_cpu
    _scaled_dot_product_flash_attention_for_cpu_backward _scaled_dot_product_attention_math _fused_rms_norm
    _fused_rms_norm_backward _adaptive_avg_pool2d _adaptive_avg_pool3d _adaptive_avg_pool2d_backward _cdist_forward
    _euclidean_dist _embedding_bag _embedding_bag_forward_only _foreach_add _foreach_mul _weight_norm_interface
    _weight_norm_interface_backward _trilinear _prelu_kernel _reshape_alias _index_put_impl_ _upsample_bilinear2d_aa
    _upsample_bicubic2d_aa _conj _linalg_svd _linalg_det _linalg_slogdet _linalg_eigh _thnn_fused_lstm_cell
    _addmm_activation _stack _cat _fft_r2c _fft_c2r _fft_c2c _pdist_forward _safe_softmax _ctc_loss _dirichlet_grad
    _standard_gamma _sample_dirichlet _convolution _grouped_mm _unique _unique2
    _amp_foreach_non_finite_check_and_unscale_ _amp_update_scale_
    """
)
DENIED = names(
    """
    from_file set_ set resize_ resize resize_as_ sparse_coo_tensor sparse_compressed_tensor sparse_csr_tensor
    quantize_per_tensor quantize_per_channel rename_ share_memory_ pin_memory record_stream save load
    """
)
METADATA_OPERATORS = names(
    """
    t_ transpose_ swapaxes_ swapdims_ squeeze_ unsqueeze_ as_strided_ detach_ sym_size sym_stride sym_numel
    sym_storage_offset sym_is_contiguous is_same_size is_set_to is_pinned size stride numel storage_offset dim
    is_complex is_floating_point is_signed is_conj is_neg is_contiguous is_leaf is_inference output_nr can_cast
    result_type promote_types requires_grad_ retain_grad retains_grad get_device is_distributed dense_dim is_coalesced
    sym_constrain_range sym_constrain_range_for_size is_vulkan_available
    """
)
"""Operators that look at, or change, a tensor's form and never its elements."""
FREE_OPERATORS = names(
    """
    empty new_empty empty_like empty_strided new_empty_strided empty_permuted detach alias view _unsafe_view reshape
    _reshape_alias expand permute t transpose select slice squeeze unsqueeze as_strided unbind split
    split_with_sizes chunk diagonal unfold lift_fresh sym_size sym_stride is_same_size
    """
)
"""Operators that move no data on a GPU where they make views. (A ``reshape`` that copies shows up as ``clone``.) The
device does not go by this list but looks whether the results share storage with what was given."""

FACTORIES = names("empty zeros ones full rand randn randint normal empty_strided empty_permuted")
"""Operators whose first argument is the size of what they make."""


ALLOCATORS = names("empty new_empty empty_like empty_strided new_empty_strided empty_permuted")
"""Operators whose result holds nothing yet."""


@dataclass(frozen=True)
class OperatorRule:
    """How the device runs one overload."""

    call: Any
    """the overload"""
    base: str
    label: str
    """its name in the census: ``"aten.add"`` """
    allocates: bool
    makes_from_size: bool
    free: bool
    """it makes a view or memory by its nature, and reads no element"""
    only_metadata: bool
    """it looks at or changes the form of a tensor alone"""
    draws: bool
    """it uses random numbers"""
    takes_generator: bool
    written: frozenset[int | str]
    """arguments that it writes to: positions, and names of keyword arguments"""


@lru_cache(maxsize=4096)
def rule_of(name: str) -> OperatorRule:
    """The rule of ``"add.Tensor"``; raises :class:`UnsupportedOp` that names what is not offered."""
    base, _, overload = name.partition(".")
    if base in DENIED or (base.startswith("_") and not base.startswith("__") and base not in ALLOWED_INTERNAL):
        raise UnsupportedOp(f"operator aten::{base} is not offered on the simulated device")
    if "sparse" in base or "quantize" in base or "mkldnn" in base or "cudnn" in base:
        raise UnsupportedOp(f"operator aten::{base} is not offered on the simulated device")
    try:
        call = getattr(getattr(torch.ops.aten, base), overload or "default")
    except (AttributeError, RuntimeError) as error:
        raise UnsupportedOp(f"there is no operator aten::{name}") from error
    schema = call._schema
    aliases = [value.alias_info for value in schema.returns]
    return OperatorRule(
        call=call,
        base=base,
        label=f"aten.{base}",
        allocates=base in ALLOCATORS,
        makes_from_size=base in FACTORIES,
        free=base in FREE_OPERATORS or (bool(aliases) and all(a is not None and not a.is_write for a in aliases)),
        only_metadata=base in METADATA_OPERATORS,
        draws=torch.Tag.nondeterministic_seeded in call.tags,
        takes_generator=any(argument.name == "generator" for argument in schema.arguments),
        written=frozenset(
            argument.name if argument.kwarg_only else index
            for index, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ),
    )
