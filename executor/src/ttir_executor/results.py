"""The results of a launch: findings of the sanitizers, exact counts, printed lines."""

from dataclasses import dataclass, field
from typing import Literal

from ttir_executor.ttir.ir import Type


class StepLimit(RuntimeError):
    """A launch looped longer than its budget: endless, or a lock that is never released."""


@dataclass(frozen=True)
class Checks:
    """The sanitizers that run; bounds and alignment are always checked."""

    uninitialized: bool = False
    race: bool = False
    max_findings: int = 20
    sample: int | None = None
    """number of programs that they examine, None for all; launches whose programs may synchronise are always examined
    whole"""
    seed: int | str = 0
    """seed of the sample"""
    fill: int = 0
    """64 bits, of which a masked load without ``other`` gives its inactive lanes the first"""


@dataclass(frozen=True)
class SimFinding:
    """A kernel's action that is an error on a GPU, or works only by luck."""

    kind: str
    """``out_of_bounds``, ``misaligned``, ``use_after_free``, ``uninitialized``, ``race``, ``assert``,
    ``division_by_zero``, ``false_hint``, ``undefined_value``"""
    message: str
    kernel: str
    file: str | None
    line: int | None
    program: tuple[int, int, int] | None
    arg: str | None
    offset_bytes: int | None
    count: int
    severity: Literal["error", "warning"]


@dataclass(frozen=True)
class LaunchStats:
    """Exact counts over a whole launch."""

    programs: int
    load_sectors: float
    """32-byte sectors that warps asked for, reads"""
    store_sectors: float
    flops: dict[str, float]
    """operations by unit: fp32, fp64, fp16, bf16, int, sfu, tensor_*, fp32_dot"""
    atomics: int
    max_same_address_atomics: int
    footprint: tuple[tuple[int, float, float], ...]
    """(allocation base, unique bytes read, unique bytes written), in whole sectors"""
    executed: tuple[tuple[int, float], ...] = ()
    """(basic block of the function, in the order of ``plan.blocks_of``; how often programs entered it)"""
    own_passes: float = 1.0
    """requests of a program for each byte that it reads: sectors requested over distinct ones, of the first program
    that reads"""
    classes: tuple[tuple[float, tuple[tuple[int, float], ...]], ...] = ()
    """programs of like work, the longest first: (how many, ``executed`` of them together); none where all are alike"""
    parts: tuple[tuple[int, tuple[float, float], tuple[float, float]], ...] = field(default=(), compare=False)
    """(allocation base, first byte read and end of the last, the same of bytes written), 0 and 0 for none"""
    sites: tuple[tuple[int, int, float, float], ...] = field(default=(), compare=False)
    """each access of the text: (``Op.number``, base of the allocation that its argument points to or -1, bytes that it
    asks for beyond those that the text says, lanes beyond them)"""


@dataclass(frozen=True)
class LaunchResult:
    """The result of one launch."""

    findings: tuple[SimFinding, ...]
    stats: LaunchStats
    seconds: float
    """host wall time of running"""
    prints: tuple[str, ...]
    written: tuple[int, ...]
    """bases of the allocations that were written"""


@dataclass(frozen=True)
class Param:
    """One parameter of a kernel."""

    name: str
    type: Type

    @property
    def is_pointer(self) -> bool:
        """Whether it is an address."""
        return self.type.elem == "ptr"
