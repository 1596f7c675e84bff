"""What a kernel's text says of its work: of each basic block, and which kernels are one but for numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from drkernel.sim.gpu.pricing import profile_of_text
from ttir_executor.compiled import compile_ttir
from ttir_executor.lower.plan import blocks_of
from ttir_executor.ttir.ir import BasicBlock, Op, elem_bytes

LOADED, STORED = "bytes loaded", "bytes stored"
WRITTEN = "bytes of lanes written"
"""of stores of all kinds and atomics; in :class:`BlockWork` alone"""
_WRITES = ("tt.store", "tt.descriptor_store", "tt.descriptor_reduce", "tt.atomic_rmw", "tt.atomic_cas")
PRODUCTS = "products in "
"""what a unit does for ``tl.dot``; before the unit's name, in :class:`BlockWork` alone"""


@dataclass(frozen=True)
class BlockWork:
    """The work of one execution of a basic block, from the kernel's text."""

    parent: int | None
    """the enclosing block; None for the blocks of the function itself"""
    work: Mapping[str, float]
    """bytes of all lanes of its loads and stores, masked or not, operations by unit, and of products alone"""


@lru_cache(maxsize=1024)
def blocks_in(ttir: str) -> tuple[BlockWork, ...]:
    """The blocks of a kernel's text, in the order of ``plan.blocks_of``."""
    blocks = blocks_of(compile_ttir(ttir).function)
    place = {id(block): number for number, block in enumerate(blocks)}
    found = []
    for block, profile in zip(blocks, profile_of_text(ttir).blocks, strict=True):
        work: Counter[str] = Counter()
        for unit, numel, count, _ in profile.lanes:
            work[unit] += numel * count  # type: ignore[assignment]
        for dot in profile.dots:
            for unit in (dot.unit, PRODUCTS + dot.unit):
                work[unit] += dot.operations  # type: ignore[assignment]
        for op in block.ops:
            if op.name in ("tt.load", "tt.store"):
                work[LOADED if op.name == "tt.load" else STORED] += _nbytes(op)
            if op.name in _WRITES:
                value = op.operands[1].type
                work[WRITTEN] += value.numel * elem_bytes(value.elem)
        parent = None if block.parent is None else _place(block.parent, place)
        found.append(BlockWork(parent, dict(work)))
    return tuple(found)


def _place(op: Op, place: Mapping[int, int]) -> int | None:
    around: BasicBlock | None = op.block
    return None if around is None else place.get(id(around))


def _nbytes(op: Op) -> int:
    pointer = op.operands[0].type
    return pointer.numel * elem_bytes(pointer.pointee or "i8")


_NAME = re.compile(r"%[\w$.#:-]+")
_OPERATOR = re.compile(r"^(?:%[\w$.#:, -]+ = )?\"?([a-z_]+\.[a-z_.]+)\"?")
_LOCATION = re.compile(r" ?loc\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
_WIDTH = re.compile(r"\bi64\b")
_ARITHMETIC = """
    constant addi subi muli divsi divui remsi remui ceildivsi floordivsi extsi extui trunci cmpi index_cast minsi maxsi
    minui maxui andi ori xori shli shrsi shrui select
"""
_WHOLE = frozenset(f"arith.{name}" for name in _ARITHMETIC.split()) | {
    "tt.addptr", "tt.splat", "tt.expand_dims", "tt.broadcast", "tt.make_range", "tt.get_program_id",
    "tt.get_num_programs", "tt.return", "tt.func", "ub.poison",
}  # fmt: skip
"""operations that only compute addresses: they come and go as Triton specialises on a size"""


@lru_cache(maxsize=1024)
def essence(ttir: str) -> str:
    """A kernel's text without Triton's specialisation on integers: constants, addresses, divisibility hints.

    What remains is its work: loads, stores, products, reductions, functions, loops and branches, each with the shapes
    and dtypes of its tiles. Two specialisations of one kernel for different sizes have the same essence, unless a size
    decides about more than numbers.
    """
    kept = []
    for line in ttir.splitlines():
        line = line.strip()
        match = _OPERATOR.match(line)
        if line.startswith("#") or (match is not None and match[1] in _WHOLE):
            continue
        kept.append(_WIDTH.sub("i32", _NAME.sub("%", _LOCATION.sub("", line))))
    return "\n".join(kept)
