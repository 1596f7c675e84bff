"""The inputs and outputs of the cost model: tensors by metadata alone, and modelled times."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

from drkernel.verdict import Bound

ITEM_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1,
    "uint16": 2, "uint32": 4, "uint64": 8, "bool": 1, "complex32": 4, "complex64": 8, "complex128": 16,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
    "float4_e2m1fn_x2": 1,
}  # fmt: skip


@dataclass(frozen=True)
class TensorMeta:
    """A tensor without its data. ``storage`` identifies its memory, so that views share L2 residency.

    Raises ``ValueError`` for a dtype of unknown size.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    storage: int

    def __post_init__(self) -> None:
        if self.dtype not in ITEM_BYTES:
            raise ValueError(f"the cost model knows no size of dtype {self.dtype!r}")

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return ITEM_BYTES[self.dtype]

    @cached_property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of distinct elements: a broadcast dimension (stride 0) counts once."""
        if self.elements == 0:
            return 0
        distinct = math.prod(size for size, stride in zip(self.shape, self.stride, strict=True) if stride != 0)
        return distinct * self.itemsize

    @cached_property
    def is_dense(self) -> bool:
        """No gaps and no broadcasts: the elements fill one run of memory, in whatever order of dimensions."""
        expected = 1
        for stride, size in sorted((st, sz) for sz, st in zip(self.shape, self.stride, strict=True) if sz != 1):
            if stride != expected:
                return False
            expected *= size
        return True

    def same_layout(self, other: TensorMeta) -> bool:
        """Element order in memory agrees, so that one flat loop serves both."""
        return self.shape == other.shape and all(
            a == b for a, b, size in zip(self.stride, other.stride, self.shape, strict=True) if size != 1
        )


@dataclass(frozen=True)
class CostEstimate:
    """Modelled device time of one operator or one launch."""

    seconds: float
    """device seconds"""
    dram_bytes: float = 0.0
    """bytes between L2 and device memory"""
    l2_bytes: float = 0.0
    """bytes between the SMs and L2"""
    flops: dict[str, float] = field(default_factory=dict)
    """operations by unit"""
    bound: Bound = "latency"
    roofline: float = 0.0
    """fraction of the roofline reached: the ideal time over ``seconds``"""
    parts: dict[str, float] = field(default_factory=dict)
    """seconds that each resource alone would take: dram, l2, sm_memory, compute, atomics, fixed"""
    kernels: int = 1
    """device kernels"""
    host_seconds: float | None = None
    """host time to enqueue it; None for the spec's figure of its kind"""
    unpriced: str = ""
    """why there is no model of it: ``seconds`` is then only a lower bound and must not enter a speedup; "" if there
    is"""

    @property
    def total_flops(self) -> float:
        """Floating-point operations over all units (integer and special-function work left out)."""
        return sum(count for unit, count in self.flops.items() if unit not in ("int", "sfu"))

    def with_host(self, seconds: float | None) -> CostEstimate:
        """Return the estimate with another host time."""
        return replace(self, host_seconds=seconds)

    def without_price(self, reason: str) -> CostEstimate:
        """Return the estimate as a lower bound without a price, because of ``reason``. It counts as a kernel, so that a
        profile shows it."""
        return replace(self, unpriced=reason, kernels=max(1, self.kernels))


def combine(costs: Iterable[CostEstimate]) -> CostEstimate:
    """Combine kernels that run one after the other into one operator."""
    items = list(costs)
    if len(items) == 1:
        return items[0]
    if not items:
        return CostEstimate(seconds=0.0, kernels=0)
    seconds = sum(item.seconds for item in items)
    flops: dict[str, float] = {}
    parts: dict[str, float] = {}
    for item in items:
        for unit, count in item.flops.items():
            flops[unit] = flops.get(unit, 0.0) + count
        for part, value in item.parts.items():
            parts[part] = parts.get(part, 0.0) + value
    return CostEstimate(
        seconds=seconds,
        dram_bytes=sum(item.dram_bytes for item in items),
        l2_bytes=sum(item.l2_bytes for item in items),
        flops=flops,
        bound=max(items, key=lambda item: item.seconds).bound,
        roofline=sum(item.roofline * item.seconds for item in items) / seconds if seconds else 0.0,
        parts=parts,
        kernels=sum(item.kernels for item in items),
        unpriced=next((item.unpriced for item in items if item.unpriced), ""),
    )
