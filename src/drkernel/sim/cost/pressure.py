"""Estimates the registers of a Triton kernel's thread, and the spills, from the parsed function.

The estimate serves kernels that are not compiled for the target. It leaves out index arithmetic, which compilers
recompute, and operands of ``tt.dot`` that come from memory, which are kept in shared memory.

Two peaks matter. Values that are used again behind a reduction, a dot or a barrier, and values that a loop carries,
must be held whole; in the element-wise code between those, the compiler reorders freely and holds about half of what a
plain order would. When that *held* peak exceeds the registers, a share of all values of the block is written to local
memory and read back. The constants come from ptxas 12.8 for sm_90a on seven kernels (softmax, layer norm, rms norm's
backward, swiglu, a sum of three, cross entropy, JSD) of 16 to 128 elements per thread, 4 to 32 warps.

Around tensor cores it is otherwise: accumulators stay, their operands and addresses take a quarter of the
registers, and of what is held beyond the rest a block moves a fixed number of words (41 spilling kernels, sm_90a, whose
loops were counted by hand: docs/cost_model.md; ``test_fits_target.py`` counts three of them again).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from drkernel.sim.cost.instructions import instructions
from drkernel.sim.cost.layouts import gathered
from ttir_executor.lower.dot import PRODUCTS
from ttir_executor.lower.plan import Lifetimes, blocks_of, is_index_like, walk
from ttir_executor.ttir.ir import BasicBlock, Function, Op, Value, elem_bytes

MAX_REGISTERS = 255
"""a thread's limit on every GPU here, however few threads a program has"""
BASE_REGISTERS, BESIDE_PRODUCTS = 16, 20
"""addresses, counters and temporaries (ptxas 12.8: ten element-wise and row kernels of 4 to 64 elements a thread, sm_80
and 90); those of a kernel with products"""
CROWDED = 48.0, 0.12
"""held words from which on ptxas needs registers beside them, and how many for each (row kernels of the same)"""
GATHERED = 4.0
"""the same for one element of a gathered operand: its index, its address in two words, what its mask decides (ptxas on
15 convolutions by products, sm_90a: 1.6 to 5.2, median 4.6)"""
LEAST_REGISTERS = 10
"""what is left of those when registers are short"""
REORDERED = 0.5
"""share of the values between two synchronising operations that are held at a time"""
SPILLED = 0.65
"""share of all values that go through local memory when far more must be held than fits a bounded register file"""
GIVEN_UP = 0.75
"""the same at the limit of 255 registers, where the allocator fails (512 elements a thread: 0.52 to 0.93)"""
FORWARD = 1.75
"""loads over a thread's registers beyond which ptxas, which brings all loads of element-wise code forward, finds no
order in which they fit (12.8, sm_80 and 90: products and sums of one to three arrays, 64 to 512 elements a thread)"""
FORWARD_MOVED = 5.5
"""words that then go through local memory for each of theirs, from 220 elements of a load a thread on (4.4 to 6.1)"""
PRODUCT_ROOM = 0.75
"""share of a thread's registers that hold values in a block with tensor-core products"""
PRODUCT_MOVED = 3.9
"""words that one execution of such a block writes to local memory and reads back for each that it holds beyond"""
_SYNC = frozenset(
    {*PRODUCTS, "tt.reduce", "tt.scan", "tt.gather", "tt.histogram", "tt.trans", "scf.for", "scf.while", "scf.if",
     "ttg.barrier", "gpu.barrier", "tt.debug_barrier"}
)  # fmt: skip
_BESIDE = ("tt.scan", "math.erf")
"""operations whose results are held beside what they are made of (the same builds, fp32 and bf16)"""


@dataclass(frozen=True)
class BlockPressure:
    """One basic block, in bytes of a whole program."""

    held: float = 0.0
    """largest number of bytes held at one place"""
    values: float = 0.0
    """bytes that one execution produces and uses: the traffic if every value went through memory"""
    tile: float = 0.0
    """bytes of the largest product of tiles that it makes"""
    forward: float = 0.0
    """bytes of all loads, where element by element nothing but quick arithmetic is between them and what is stored"""
    widest: float = 0.0
    """bytes of the largest of those"""
    least: float = 0.0
    """of ``held``, what no order does without: what comes and goes takes the place of what is not needed any more"""


@dataclass(frozen=True)
class Pressure:
    """Registers of one thread, and the bytes that do not fit into them."""

    registers: int
    spilled_bytes: int


def register_limit(threads: int, regs_per_sm: int = 65536) -> int:
    """Registers that a thread may have: a whole program must fit one SM."""
    return min(MAX_REGISTERS, regs_per_sm // max(1, threads))


def spilled_bytes(block: BlockPressure, threads: int, limit: int) -> float:
    """Bytes that one execution of a block by ``threads`` threads of ``limit`` registers writes to local memory and
    reads back."""
    words = block.held / 4.0 / max(1, threads)
    if not block.tile:
        fits = block.forward / 4.0 / threads <= FORWARD * limit
        moved = FORWARD_MOVED * min(1.0, block.widest / 4.0 / threads / 220.0)
        return max(spilled_share(words, limit) * block.values, 0.0 if fits else block.forward * moved)
    beyond = 4.0 * threads * max(0.0, words - PRODUCT_ROOM * limit)
    whole = 2.0 * block.tile if block.tile > 4.0 * threads * limit else 0.0  # no place for a tile
    return max(PRODUCT_MOVED * beyond, whole)


def spilled_share(words: float, limit: int) -> float:
    """Share of a block's values that go through local memory when a thread must hold so many words that no product
    made."""
    room = float(limit - LEAST_REGISTERS)
    if words <= room:
        return 0.0
    share = SPILLED * (1.0 - room / words)
    if limit >= MAX_REGISTERS:
        share = max(share, GIVEN_UP * min(1.0, 4.0 * (words / room - 1.0)))
    return share


def register_pressure(function: Function, threads: int) -> Pressure:
    """The estimate for programs of ``threads`` threads; spilled is what one pass over the kernel's blocks moves."""
    limit = register_limit(threads)
    of_gathered = GATHERED * max(map(_gathered_elements, blocks_of(function)))
    blocks = block_pressure(function)
    if any(block.tile for block in blocks):
        words = BESIDE_PRODUCTS + (max(block.held for block in blocks) / 4.0 + of_gathered) / threads
    else:
        held = max(block.least for block in blocks) / 4.0 / threads
        words = BASE_REGISTERS + held + CROWDED[1] * max(0.0, held - CROWDED[0])
    spilled = sum(spilled_bytes(block, threads, limit) for block in blocks)
    return Pressure(int(min(words, limit)), int(spilled / threads))


def _gathered_elements(block: BasicBlock) -> float:
    """Those that a block loads for each of its products."""
    loaded = sum(op.operands[0].type.numel for op in block.ops if op.name == "tt.load" and gathered(op))
    return loaded / max(1, sum(op.name in PRODUCTS for op in block.ops))


@lru_cache(maxsize=64)
def block_pressure(function: Function) -> tuple[BlockPressure, ...]:
    """Held bytes and traffic of every block, in the order of ``plan.blocks_of``."""
    lifetimes, intervals = Lifetimes(function, _inline(function)), _intervals(function)
    passing, whole = (_held_at([each for each in intervals if each.whole is one]) for one in (False, True))
    return tuple(_of_block(block, lifetimes, passing, whole) for block in blocks_of(function))


def _held_at(intervals: list[_Interval]) -> Callable[[int], float]:
    """Bytes of these at a position."""
    changes = [change for each in intervals for change in ((each.begin, each.nbytes), (each.end, -each.nbytes))]
    changes.sort()
    places, sums = [place for place, _ in changes], [0.0, *accumulate(change for _, change in changes)]
    return lambda here: sums[bisect_right(places, here)]


@dataclass(frozen=True)
class _Interval:
    """A block value that lives in registers."""

    begin: int
    """first position"""
    end: int
    nbytes: float
    whole: bool
    """whether all of it is held at a time"""


def _of_block(
    block: BasicBlock, lifetimes: Lifetimes, passing: Callable[[int], float], whole: Callable[[int], float]
) -> BlockPressure:
    most = values = least = 0.0
    for op in block.ops:
        some, all_of = passing(lifetimes.end(op)), whole(lifetimes.end(op))
        most = max(most, all_of + REORDERED * some)
        least = max(least, all_of, REORDERED * (all_of + some))
        for value in (*op.results, *(operand for operand in op.operands if op.results or op.name == "tt.store")):
            if value.type.is_block and not is_index_like(value):
                values += _bytes_of(value)
    products = [_bytes_of(op.results[0]) for op in block.ops if op.name in PRODUCTS]
    loads = [_bytes_of(op.results[0]) for op in block.ops if op.name == "tt.load"]
    widest, forward = max(loads, default=0.0), sum(loads)
    least = max(least, widest)
    if not any(op.name in _SYNC or op.name == "tt.extern_elementwise" for op in block.ops):
        # one vector after the other: nothing else is held
        least = min(least, max(*(whole(lifetimes.end(op)) for op in block.ops), widest, REORDERED * forward))
    least += sum(_bytes_of(value) for op in block.ops if op.name in _BESIDE for value in op.results)
    if any(op.name in _SYNC or "sfu" in instructions(op) for op in block.ops if op.results):
        widest = forward = 0.0
    return BlockPressure(most, values, max(products, default=0.0), forward, widest, least)


def _intervals(function: Function) -> list[_Interval]:
    """The block values that live in registers."""
    ops = walk(function.body)
    inline = _inline(function)
    lifetimes = Lifetimes(function, inline)
    syncs = [(lifetimes.start(op), lifetimes.end(op)) for op in ops if op.name in _SYNC]
    found = []
    for op in ops:
        for value in op.results:
            if value.type.is_block and id(value) not in inline and not _elsewhere(value):
                begin, end = lifetimes.end(op), lifetimes.last_in_registers(value)
                held = op.name in PRODUCTS or any(begin <= start and stop < end for start, stop in syncs)
                if end >= begin:
                    found.append(_Interval(begin, end, _bytes_of(value), held))
        if op.name in ("scf.for", "scf.while"):
            for argument in op.regions[0].blocks[0].args:
                if argument.type.is_block and argument.type.elem != "ptr":
                    begin, end = lifetimes.start(op), lifetimes.end(op)
                    found.append(_Interval(begin, end, _bytes_of(argument), True))
    return found


def _inline(function: Function) -> set[int]:
    return {id(v) for op in walk(function.body) for v in op.results if v.type.is_block and is_index_like(v)}


def _bytes_of(value: Value) -> float:
    return float(value.type.numel * elem_bytes(value.type.elem))


def _elsewhere(value: Value) -> bool:
    """Whether a value takes no registers of its own: a dot's operand in shared memory, what a loop carries on, or a
    product that takes the place of what the loop has carried so far."""
    users: set[str] = {user.name for user in value.uses}
    op: Op | None = value.op
    from_memory = op is not None and op.name == "tt.load" and users <= {*PRODUCTS, "tt.trans"}
    carried = op.operands[2] if op is not None and op.name == "tt.dot" else None
    in_place = carried is not None and carried.op is None and carried.uses == [op]
    return from_memory or "scf.yield" in users or in_place
