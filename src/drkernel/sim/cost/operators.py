"""The modelled time of one ATen operator, from the family of kernels that PyTorch runs for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drkernel.sim.cost.arguments import by_name
from drkernel.sim.cost.call import MetaCall, Unpriced, read, write
from drkernel.sim.cost.l2 import L2State
from drkernel.sim.cost.operator_families import base_name, family_of
from drkernel.sim.cost.pointwise import streaming
from drkernel.sim.cost.records import CostEstimate, TensorMeta, combine
from drkernel.sim.cost.roofline import KernelWork, kernel_cost
from drkernel.sim.spec import GPUSpec

__all__ = ["TensorMeta", "operator_cost", "operator_work"]


def make_call(
    name: str,
    inputs: Sequence[TensorMeta],
    outputs: Sequence[TensorMeta],
    args: Any,
    spec: GPUSpec,
    *,
    conv_tf32: bool = True,
) -> MetaCall:
    """Return an operator in the form that families read; ``args`` are in the order of its schema."""
    given = by_name(name, args if isinstance(args, (list, tuple)) else ())
    return MetaCall(base_name(name), name.rpartition(".")[2], tuple(inputs), tuple(outputs), spec, given, conv_tf32)


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
    call = make_call(name, inputs, outputs, args, spec, conv_tf32=conv_tf32)
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
    if factor is not None:
        cost = cost.with_host(factor * spec.launch_overhead)
    return cost.without_price(reason) if reason else cost
