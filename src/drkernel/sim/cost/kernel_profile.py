"""What one execution of each basic block of a kernel does, derived from the parsed function.

Together with how often programs entered each block (counted by the executor), this is all that the cost model knows
about a kernel's code: instructions by unit and width, rounds of memory latency, reductions, tensor work, registers. A
block that never runs contributes nothing, and nothing is inferred from the text.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from drkernel.sim.cost.instructions import instructions
from drkernel.sim.cost.pressure import BlockPressure, block_pressure
from drkernel.sim.executor.lower.dot import work_of
from drkernel.sim.executor.lower.plan import blocks_of, is_index_like, walk
from drkernel.sim.executor.ttir.ir import Block, Function, Op, Value, elem_bytes

VECTOR_BYTES = 16
"""bytes that one lane loads or stores with one instruction, where its elements lie side by side"""
_COMBINES = frozenset({"tt.reduce", "tt.scan"})
_ORDERS = frozenset({"ttg.barrier", "gpu.barrier", "tt.debug_barrier"})
_NESTS = frozenset({"scf.for", "scf.while", "scf.if"})
_SHUFFLE_STEPS = 5
"""steps of a reduction across the lanes of a warp"""

Lanes = tuple[tuple[str, int, float], ...]
"""(unit, elements of the block value, instructions for each element); a scalar has one element"""


@dataclass(frozen=True)
class BlockProfile:
    """One execution of one basic block."""

    lanes: Lanes = ()
    levels: tuple[float, ...] = ()
    """bytes of the loads at each level: loads of one level overlap, each level waits for the one before"""
    reductions: int = 0
    """reductions and scans on the longest chain: each goes through shuffles and shared memory"""
    depth: float = 0.0
    """instructions on the longest chain of dependent element-wise operations"""
    dots: tuple[tuple[str, float], ...] = ()
    """operations of ``tt.dot`` by unit"""
    vector_atomics: float = 0.0
    """updates that one instruction makes where the target has vector atomics (the least of the block's); 0: none"""
    pipelined: bool = False
    """Triton loads this loop's next iterations ahead"""
    stages: int | None = None
    """the loop's own depth of pipelining, where it names one"""


@dataclass(frozen=True)
class KernelProfile:
    """The profiles of all blocks of a function, in the order of ``plan.blocks_of``."""

    blocks: tuple[BlockProfile, ...]
    pressure: tuple[BlockPressure, ...] = field(repr=False)


@dataclass(frozen=True)
class _Reach:
    """The distance of a value from the beginning of its block."""

    level: int = 0
    reductions: int = 0
    depth: float = 0.0

    def beside(self, other: _Reach) -> _Reach:
        return _Reach(
            max(self.level, other.level), max(self.reductions, other.reductions), max(self.depth, other.depth)
        )


def profile_of(function: Function) -> KernelProfile:
    """Return the profile of a kernel; it depends on the parsed function alone."""
    blocks = blocks_of(function)
    addresses = _address_values(function)
    return KernelProfile(tuple(_profile(block, addresses) for block in blocks), block_pressure(function))


# ---- instructions


def _address_values(function: Function) -> set[int]:
    """Index arithmetic that only ends in addresses and masks: done once for a vector access, not for each element."""
    found: set[int] = set()
    for op in reversed(walk(function.body)):
        for value in op.results:
            if value.uses and is_index_like(value) and all(_only_addresses(value, user, found) for user in value.uses):
                found.add(id(value))
    return found


def _only_addresses(value: Value, user: Op, found: set[int]) -> bool:
    if user.name in ("tt.load", "tt.store", "tt.atomic_rmw", "tt.atomic_cas"):
        data = {"tt.load": (2,), "tt.store": (1,)}.get(user.name, (1, 2))
        return all(operand is not value or k not in data for k, operand in enumerate(user.operands))
    return bool(user.results) and all(id(result) in found for result in user.results)


def _fused(op: Op) -> bool:
    """Whether a product is absorbed by the one sum that uses it."""
    if op.name != "arith.mulf":
        return False
    uses = op.results[0].uses
    return len(uses) == 1 and uses[0].name in ("arith.addf", "arith.subf")


def _lanes(op: Op, addresses: set[int]) -> list[tuple[str, int, float]]:
    """Instructions of one operation, those inside a reduction's function included."""
    if op.name in _COMBINES or op.name == "tt.map_elementwise":
        return _combine_lanes(op)
    if op.name in ("tt.load", "tt.store"):
        pointer = op.operands[0].type
        vector = max(1, VECTOR_BYTES // max(1, elem_bytes(pointer.pointee or "i8")))
        return [("int", pointer.numel, 3.0 / vector)]  # the access, its predicate, its address
    if op.name.startswith("tt.atomic"):
        return [("int", op.operands[0].type.numel, 3.0)]
    if op.name == "tt.histogram":
        return [("int", op.operands[0].type.numel, 6.0)]
    if op.name in _NESTS or op.name.startswith(("tt.dot", "cf.")):
        return [("int", 1, 2.0)]
    if op.name in ("tt.print", "tt.assert"):
        return [("int", op.operands[0].type.numel if op.operands else 1, 40.0 if op.name == "tt.print" else 2.0)]
    if not op.results or _fused(op):
        return []
    result = op.results[0].type
    share = 0.25 if result.is_block and id(op.results[0]) in addresses else 1.0
    return [(unit, result.numel, count * share) for unit, count in instructions(op).items()]


def _combine_lanes(op: Op) -> list[tuple[str, int, float]]:
    """Every element is combined once in its thread; then lanes and warps exchange what is left."""
    inner: Counter[str] = Counter()
    for each in walk(op.regions[0]):
        if each.results:
            inner.update(instructions(each))
    source = op.operands[0].type
    lanes = [(unit, source.numel, float(count)) for unit, count in inner.items()]
    if op.name == "tt.map_elementwise":
        return lanes
    axis = (source.shape or (1,))[int(op.attrs.get("axis", "0"))]
    rows = source.numel // max(1, axis)
    exchanged = max(1, rows * min(32, axis))
    steps = float(min(_SHUFFLE_STEPS, max(1, axis.bit_length() - 1))) * len(op.operands)
    lanes += [("int", exchanged, 2.0 * steps)] + [(unit, exchanged, steps * count) for unit, count in inner.items()]
    if op.name == "tt.scan":
        lanes += [(unit, source.numel, float(count)) for unit, count in inner.items()]
    return lanes


# ---- chains


def _profile(block: Block, addresses: set[int]) -> BlockProfile:
    reach: dict[int, _Reach] = {}
    levels: list[float] = []
    lanes: Counter[tuple[str, int]] = Counter()
    dots: Counter[str] = Counter()
    floor = 0  # loads from here on wait for this many levels
    last = _Reach()
    for op in block.ops:
        for unit, numel, count in _lanes(op, addresses):
            lanes[unit, numel] += count  # type: ignore[assignment]
        before = _Reach()
        for operand in op.operands:
            before = before.beside(reach.get(id(operand), _Reach()))
        after, floor = _after(op, before, levels, floor)
        if op.name == "tt.dot":
            unit, operations = work_of(op)
            dots[unit] += operations  # type: ignore[assignment]
        for result in op.results:
            reach[id(result)] = after
        last = last.beside(after)
    stages, pipelined = _pipelining(block)
    return BlockProfile(
        lanes=tuple((unit, numel, float(count)) for (unit, numel), count in lanes.items()),
        levels=tuple(levels),
        reductions=last.reductions,
        depth=last.depth,
        dots=tuple((unit, float(count)) for unit, count in dots.items()),
        pipelined=pipelined,
        stages=stages,
        vector_atomics=min([_vector_of(op) for op in block.ops if op.name == "tt.atomic_rmw"], default=0.0),
    )


def _after(op: Op, before: _Reach, levels: list[float], floor: int) -> tuple[_Reach, int]:
    """Return what an operation's results wait for, and the level that later loads start from."""
    if op.name == "tt.load" or (op.name.startswith("tt.atomic") and any(result.uses for result in op.results)):
        level = max(before.level, floor)
        while len(levels) <= level:
            levels.append(0.0)
        levels[level] += _nbytes(op)
        after = _Reach(level + 1, before.reductions, before.depth)
        return after, max(floor, level + 1) if op.name != "tt.load" else floor
    if op.name in ("tt.store", "tt.atomic_rmw", "tt.atomic_cas"):
        return before, max(floor, before.level)  # issued in order: what follows waits for what is stored
    if op.name in _NESTS or op.name in _ORDERS:
        return _Reach(len(levels), before.reductions, before.depth), len(levels)
    if op.name in _COMBINES:
        return _Reach(before.level, before.reductions + 1, before.depth), floor
    if not op.results:
        return before, floor
    depth = sum(instructions(op).values()) if not op.name.startswith("tt.dot") else 0.0
    return _Reach(before.level, before.reductions, before.depth + depth), floor


def _vector_of(op: Op) -> float:
    """Neighbouring updates of an atomic that go together: sums of side-by-side fp32 (v4) and 16-bit floats (v8)."""
    pointer = op.operands[0]
    width = {"f32": 4.0, "f16": 8.0, "bf16": 8.0}.get(pointer.type.pointee or "", 1.0)
    beside = op.attrs.get("word0") == "fadd" and _side_by_side(pointer)
    return width if beside and pointer.type.numel >= 128 else 1.0


def _side_by_side(value: Value, steps: int = 32) -> bool:
    """Whether neighbouring elements have neighbouring addresses: a range plus what is the same, or varies elsewhere."""
    op = value.op
    if op is None or steps == 0:
        return False
    if op.name == "tt.make_range":
        return True
    if op.name in ("tt.addptr", "arith.addi"):
        ranges = [_side_by_side(operand, steps - 1) for operand in op.operands]
        others = [operand for operand, is_range in zip(op.operands, ranges, strict=True) if not is_range]
        return any(ranges) and all(_same_along(operand, steps - 1) for operand in others)
    names = ("arith.extsi", "arith.extui", "tt.broadcast", "tt.expand_dims")
    return op.name in names and _side_by_side(op.operands[0], steps - 1)


def _same_along(value: Value, steps: int) -> bool:
    """Whether a value is one scalar everywhere, or varies along another dimension only."""
    op = value.op
    if op is None or steps == 0:
        return not value.type.is_block
    if op.name in ("tt.splat", "tt.broadcast", "arith.constant"):
        return True
    return bool(op.operands) and all(_same_along(operand, steps - 1) for operand in op.operands)


def _nbytes(op: Op) -> float:
    pointer = op.operands[0].type
    return float(pointer.numel * elem_bytes(pointer.pointee or "i8"))


def _pipelining(block: Block) -> tuple[int | None, bool]:
    """(the loop's own depth, whether Triton pipelines it): loops with a depth, or whose loads feed a ``tt.dot``."""
    loop = block.parent
    if loop is None or loop.name != "scf.for":
        return None, False
    named = loop.attrs.get("tt.num_stages", "").partition(":")[0].strip()
    if named.isdigit():
        return int(named), True
    return None, any(
        op.name == "tt.dot" and any(_from_load(operand, block) for operand in op.operands[:2]) for op in block.ops
    )


def _from_load(value: Value, block: Block, steps: int = 12) -> bool:
    """Whether a dot's operand comes from a load of the same block, through casts and element-wise work."""
    op = value.op
    if op is None or op.block is not block or steps == 0:
        return False
    return op.name == "tt.load" or any(_from_load(operand, block, steps - 1) for operand in op.operands)
