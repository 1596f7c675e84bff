"""``torch.autocast("cuda")`` on the simulated device.

PyTorch's own kernels for autocast only take CUDA tensors. Device tensors carry the (otherwise unused) autocast key of a
private backend; kernels registered there for the block cast operands by CUDA's rules, above autograd, and go on. The
lists are those of PyTorch's documentation, "CUDA Ops that can autocast to float16 / to float32 / to the widest type".
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_map

from drkernel.sim.operator_rules import names
from drkernel.sim.tensor import AUTOCAST, DeviceTensor

LOW = names(
    """
    conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input conv_transpose3d.input convolution prelu addmm
    addmv addr matmul einsum mm mv linear addbmm baddbmm bmm chain_matmul linalg_multi_dot linalg_vecdot
    scaled_dot_product_attention lstm.input gru.input rnn_tanh.input rnn_relu.input lstm_cell gru_cell rnn_tanh_cell
    rnn_relu_cell
    """
)
"""run in autocast's dtype"""
FLOAT32 = names(
    """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar
    pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm group_norm frobenius_norm.dim nuclear_norm
    nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss
    kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss
    triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp
    prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm sum
    sum.dim_IntList norm.Scalar norm.ScalarOpt_dim
    """
)
"""run in float32"""
KEY = "AutocastPrivateUse1"
WIDEST = names(
    """
    addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add cat stack
    """
)
"""run in the widest dtype among the operands"""


class _Casts:
    """Casts of operands, with float32 leaves cast once a region, as PyTorch caches them."""

    def __init__(self) -> None:
        self._cache: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def clear(self) -> None:
        """The outermost region has ended."""
        self._cache.clear()

    def to(self, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """``value`` in ``dtype``."""
        if value.dtype == dtype:
            return value
        keep = (
            value.is_leaf and value.requires_grad and value.dtype == torch.float32 and torch.is_autocast_cache_enabled()
        )
        if keep and id(value) in self._cache and self._cache[id(value)][1].dtype == dtype:
            return self._cache[id(value)][1]
        cast = value.to(dtype)
        if keep and torch.is_grad_enabled():
            self._cache[id(value)] = (value, cast)
        return cast


def _eligible(value: Any) -> bool:
    return isinstance(value, DeviceTensor) and value.is_floating_point() and value.dtype != torch.float64


def _kernel(overload: Any, choose: Callable[[list[torch.Tensor]], torch.dtype], casts: _Casts) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(AUTOCAST):
            tensors: list[torch.Tensor] = []
            tree_map(lambda value: tensors.append(value) if _eligible(value) else None, (args, kwargs))
            if not tensors:
                return overload(*args, **kwargs)
            dtype = choose(tensors)
            cast = lambda value: casts.to(value, dtype) if _eligible(value) else value  # noqa: E731
            return overload(*tree_map(cast, args), **tree_map(cast, kwargs))

    return kernel


def _widest(tensors: list[torch.Tensor]) -> torch.dtype:
    return functools.reduce(torch.promote_types, (value.dtype for value in tensors))


def _refuse(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(
        "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
        "Use binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss."
    )


@functools.cache
def _registered() -> tuple[_Casts, tuple[torch.library.Library, ...]]:
    """The kernels, registered once and for good: it rebuilds PyTorch's dispatch tables, which costs a forked process
    more than all else it does to become a host. Without device tensors nothing ever reaches them."""
    library, others = torch.library.Library("aten", "IMPL"), torch.library.Library("_", "IMPL")
    others.fallback(torch.library.fallthrough_kernel, KEY)
    casts = _Casts()
    rules = (
        (LOW, lambda tensors: torch.get_autocast_dtype("cuda")),
        (FLOAT32, lambda tensors: torch.float32),
        (WIDEST, _widest),
    )
    for listed, choose in rules:
        for name in listed:
            base, _, overload = name.partition(".")
            operator = getattr(getattr(torch.ops.aten, base), overload or "default")
            library.impl(name, _kernel(operator, choose, casts), KEY)
    library.impl("binary_cross_entropy", _refuse, KEY)
    return casts, (library, others)


@contextmanager
def autocast_on() -> Iterator[None]:
    """Let ``torch.autocast("cuda")`` work on device tensors for the block."""
    casts, _ = _registered()
    enable, clear = torch.set_autocast_enabled, torch.clear_autocast_cache

    def set_autocast_enabled(*args: Any) -> None:
        enable(*args)
        if args[0] == "cuda" or len(args) == 1:
            enable("privateuseone", args[-1])

    def clear_autocast_cache() -> None:
        clear()
        casts.clear()

    try:
        torch.set_autocast_enabled = set_autocast_enabled  # type: ignore[assignment]
        torch.clear_autocast_cache = clear_autocast_cache  # type: ignore[assignment]
        yield
    finally:
        torch.set_autocast_enabled = enable
        torch.clear_autocast_cache = clear
        enable("privateuseone", False)
        casts.clear()
