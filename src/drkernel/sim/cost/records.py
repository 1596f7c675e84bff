"""The records of the cost model: tensors by metadata alone, an operator call, kernels as work, modelled times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from drkernel.sim.spec import GPUSpec
from drkernel.verdict import Bound

SECTOR_BYTES = 32
"""that a cache fetches at least"""
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
    offset: int = 0
    """its first byte in the storage"""

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
    def part(self) -> tuple[float, float]:
        """Its first byte in the storage and the end of its last."""
        last = sum((size - 1) * stride for size, stride in zip(self.shape, self.stride, strict=True))
        return float(self.offset), float(self.offset + (last + 1) * self.itemsize)

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

    @property
    def facts(self) -> dict[str, Any]:
        """What the record of a launch says of it besides its seconds."""
        return {
            "bound": self.bound, "roofline": self.roofline, "dram_bytes": self.dram_bytes, "flops": self.total_flops
        }  # fmt: skip

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
    for total, counts in [(flops, item.flops) for item in items] + [(parts, item.parts) for item in items]:
        for name, count in counts.items():
            total[name] = total.get(name, 0.0) + count
    return CostEstimate(
        seconds=seconds, dram_bytes=sum(item.dram_bytes for item in items),
        l2_bytes=sum(item.l2_bytes for item in items), flops=flops,
        bound=max(items, key=lambda item: item.seconds).bound,
        roofline=sum(item.roofline * item.seconds for item in items) / seconds if seconds else 0.0, parts=parts,
        kernels=sum(item.kernels for item in items),
        unpriced=next((item.unpriced for item in items if item.unpriced), ""),
    )  # fmt: skip


@dataclass(frozen=True)
class Access:
    """One kernel's use of one storage.

    ``nbytes`` is the footprint; ``passes`` how often it streams; ``requested`` the total bytes requested from L2
    (default ``nbytes * passes``), which uncoalesced access increases.
    """

    storage: int
    nbytes: float
    write: bool = False
    passes: float = 1.0
    requested: float | None = None
    part: tuple[float, float] | None = None
    """first byte and end in the storage; None: it begins with them"""

    @property
    def l2_bytes(self) -> float:
        """Bytes that cross between the SMs and L2."""
        return self.nbytes * self.passes if self.requested is None else self.requested


class Grid(NamedTuple):
    """How a family of kernels fills an SM."""

    threads: int = 256
    """of a block"""
    resident: int = 8
    """blocks on one SM"""
    ahead: float = 64.0
    """bytes that one thread keeps outstanding"""


USUAL = Grid()


@dataclass(frozen=True)
class KernelWork:
    """One kernel, described by what it moves and computes.

    ``blocks`` and ``grid`` are its parallelism. ``reuse_window`` bytes must stay in L2 for later passes to hit (0: the
    whole footprint counts). ``compute_seconds`` replaces the count over ``flops`` where a family models its own tiles.
    ``overlap`` (0..1) is the degree to which memory and arithmetic overlap, ``serial_seconds`` adds dependent latency.
    ``ilp`` is the number of independent instructions that a thread has ready: a vector unit needs 16 / ilp warps per SM
    to be full (four schedulers, four clocks of latency).
    """

    name: str
    accesses: tuple[Access, ...]
    flops: dict[str, float] = field(default_factory=dict)
    blocks: float = 1e9
    grid: Grid = USUAL
    memory_efficiency: float = 1.0
    compute_efficiency: float = 1.0
    compute_seconds: float | None = None
    reuse_window: float = 0.0
    ilp: float = 2.0
    overlap: float = 1.0
    serial_seconds: float = 0.0
    atomic_seconds: float = 0.0
    fixed_kernels: int = 1


@dataclass(frozen=True)
class MetaCall:
    """An ATen operator on tensors of which only the metadata is known.

    ``base`` is its name without overload and trailing underscore; ``inputs`` are the tensors that it reads, in the
    order of its schema, ``outputs`` its results; ``given`` its arguments by name (only numbers, booleans and lists of
    them are used). ``conv_tf32`` says that fp32 convolutions round their operands to TF32.
    """

    base: str
    overload: str
    inputs: tuple[TensorMeta, ...]
    outputs: tuple[TensorMeta, ...]
    spec: GPUSpec
    given: Mapping[str, Any] = field(default_factory=dict)
    conv_tf32: bool = True

    @property
    def first(self) -> TensorMeta:
        """The first tensor of the call."""
        return (self.inputs or self.outputs)[0]

    @property
    def out(self) -> TensorMeta:
        """The first result (the first input when there is none)."""
        return (self.outputs or self.inputs)[0]

    def number(self, name: str, default: float) -> float:
        """A numeric argument."""
        value = self.given.get(name)
        return default if not isinstance(value, (int, float)) else value

    def numbers(self, name: str) -> list[int] | None:
        """A list-of-integers argument (a lone integer becomes a list of one); None when absent."""
        value = self.given.get(name)
        if isinstance(value, bool) or value is None:
            return None
        if isinstance(value, int):
            return [value]
        if isinstance(value, (list, tuple)) and all(isinstance(item, int) for item in value):
            return list(value)
        return None

    def flag(self, name: str, default: bool = False) -> bool:
        """A boolean argument."""
        value = self.given.get(name)
        return bool(value) if isinstance(value, (bool, int)) else default

    def axis(self, meta: TensorMeta, name: str = "dim", default: int = -1) -> int:
        """The dimension of ``meta`` that an argument names, counted from the front."""
        return int(self.number(name, default)) % max(1, len(meta.shape))


class Unpriced(Exception):
    """There is no model of this operator's kernels; the message says what is missing."""


def read(meta: TensorMeta, passes: float = 1.0, waste: float = 1.0, nbytes: float | None = None) -> Access:
    """Return the access of a kernel that reads a tensor (``nbytes`` of it) ``passes`` times; ``waste`` > 1 requests
    more from L2 than it uses (uncoalesced)."""
    size = meta.nbytes if nbytes is None else nbytes
    return Access(meta.storage, size, passes=passes, requested=size * passes * waste, part=meta.part)


def write(meta: TensorMeta, nbytes: float | None = None) -> Access:
    """Return the access of a kernel that writes a tensor (``nbytes`` of it) once."""
    return Access(meta.storage, meta.nbytes if nbytes is None else nbytes, write=True, part=meta.part)


def scratch(nbytes: float, write: bool = False) -> Access:
    """Return the access to working memory of the library itself."""
    return Access(-2, nbytes, write=write)
