"""The rules by which the device runs ATen operators, and the normal form of a call. Host code is hostile.

:func:`rule_of` refuses, by name, operators that are not on the lists of ``operator_lists.py``.
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

from drkernel.sim.gpu.emulated import EMULATED
from drkernel.sim.gpu.operator_lists import (
    ALLOCATORS,
    BY_FORM,
    FACTORIES,
    INTERNAL,
    LIBRARY_CALLS,
    METADATA_OPERATORS,
    PUBLIC,
    SIZED_BY_DATA,
    names,
)
from drkernel.sim.gpu.shapes import mapped, tensors_in
from drkernel.sim.wire.commands import UnsupportedOp

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


def as_on_cuda(base: str, overload: Any) -> Any:
    """The overload, or what computes its halves in fp32."""
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


_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
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
        options = {name: value for name, value in left.items() if value is not None}
        for name in options:
            known = name in self.options or (name == "generator" and self.draws)
            if not known or name in ("device", "pin_memory"):
                raise UnsupportedOp(f"{self.label} takes no argument {name!r} on the simulated device")
        return full, options


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
        composite = torch._C._dispatch_has_kernel_for_dispatch_key(call.name(), _COMPOSITE)
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
