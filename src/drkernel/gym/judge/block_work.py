"""How often each basic block of a kernel ran, and how much of its work is lost when inner loops run less often.

Two launches of one kernel may do the same amount of work per program and still different work: a program may visit more
rows and run fewer rounds for each. Two counts tell them apart: how often a block runs for each run of its enclosing
block, and how many lanes of its loads and stores are masked off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from drkernel.sim.gpu.pricing import profile_of_text
from ttir_executor.compiled import compile_ttir
from ttir_executor.lower.plan import blocks_of
from ttir_executor.ttir.ir import BasicBlock, Op, elem_bytes

LOADED, STORED = "bytes loaded", "bytes stored"


@dataclass(frozen=True)
class BlockWork:
    """The work of one execution of a basic block, from the kernel's text."""

    parent: int | None
    """the enclosing block; None for the blocks of the function itself"""
    work: Mapping[str, float]
    """bytes of all lanes of its loads and stores, masked or not, and operations by unit"""


@lru_cache(maxsize=1024)
def blocks_in(ttir: str) -> tuple[BlockWork, ...]:
    """The blocks of a kernel's text, in the order of ``plan.blocks_of``."""
    blocks = blocks_of(compile_ttir(ttir).function)
    place = {id(block): number for number, block in enumerate(blocks)}
    found = []
    for block, profile in zip(blocks, profile_of_text(ttir).blocks, strict=True):
        work: Counter[str] = Counter()
        for unit, numel, count in profile.lanes:
            work[unit] += numel * count  # type: ignore[assignment]
        for dot in profile.dots:
            work[dot.unit] += dot.operations  # type: ignore[assignment]
        for op in block.ops:
            if op.name in ("tt.load", "tt.store"):
                work[LOADED if op.name == "tt.load" else STORED] += _nbytes(op)
        parent = None if block.parent is None else _place(block.parent, place)
        found.append(BlockWork(parent, dict(work)))
    return tuple(found)


def _place(op: Op, place: Mapping[int, int]) -> int | None:
    around: BasicBlock | None = op.block
    return None if around is None else place.get(id(around))


def _nbytes(op: Op) -> int:
    pointer = op.operands[0].type
    return pointer.numel * elem_bytes(pointer.pointee or "i8")


def asked(blocks: Sequence[BlockWork], entered: Mapping[int, float], unit: str) -> float:
    """Bytes of all lanes of loads or stores, over all executions."""
    return sum(block.work.get(unit, 0.0) * entered.get(number, 0.0) for number, block in enumerate(blocks))


def kept(
    blocks: Sequence[BlockWork],
    here: Mapping[int, float],
    programs_here: float,
    there: Mapping[int, float],
    programs_there: float,
    unit: str,
) -> float:
    """The share of the work ``there`` that remains when each block runs as often as ``here`` for each run of its
    enclosing block. A block that runs more often counts as once, so nothing makes up for a loop that runs less
    often."""
    left: list[float] = []
    total = remaining = 0.0
    for number, block in enumerate(blocks):
        around_here = programs_here if block.parent is None else here.get(block.parent, 0.0)
        around_there = programs_there if block.parent is None else there.get(block.parent, 0.0)
        before = there.get(number, 0.0) / around_there if around_there else 0.0
        now = here.get(number, 0.0) / around_here if around_here else 0.0
        share = min(1.0, now / before) if before else 1.0
        left.append(share if block.parent is None else share * left[block.parent])
        amount = block.work.get(unit, 0.0) * there.get(number, 0.0)
        total += amount
        remaining += amount * left[number]
    return remaining / total if total else 1.0
