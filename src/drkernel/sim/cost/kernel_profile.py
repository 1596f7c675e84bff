"""The work of each basic block of a kernel when it runs once, derived from the parsed function.

Together with how often programs entered each block (counted by the executor), this is all that the cost model knows
about a kernel's code: instructions by unit and width, rounds of memory latency, reductions, tensor work, registers. A
block that never runs contributes nothing, and nothing is inferred from the text.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from drkernel.sim.cost.instructions import CONVERSIONS, in_branch, instructions
from drkernel.sim.cost.layouts import (
    MOVES,
    VECTOR_BYTES,
    Layouts,
    Tile,
    fast_side,
    gathered,
    known_number,
    layouts_of,
    lines_of,
    nearby,
    spread,
    start_of,
    step,
)
from drkernel.sim.cost.pressure import BlockPressure, block_pressure
from ttir_executor.lower.access import counted_bytes, memory_bytes
from ttir_executor.lower.combine import COMBINED, repeated, unknown_length
from ttir_executor.lower.dot import PRODUCTS, factors_of, work_of
from ttir_executor.lower.plan import blocks_of, walk
from ttir_executor.skeleton.slim import ticket_loops
from ttir_executor.ttir.ir import BasicBlock, Function, Op, Value, elem_bytes

COMBINES = frozenset({"tt.reduce", "tt.scan"})
USUAL_WARPS = 4
"""What a program is assumed to have where its text decides what it does."""
_ORDERS = frozenset({"ttg.barrier", "gpu.barrier", "tt.debug_barrier"})
_NESTS = frozenset({"scf.for", "scf.while", "scf.if"})
_UNROLLED_OPERATIONS = 64
"""operations of a loop's body up to which ptxas unrolls it"""
_PLAIN = frozenset(
    {"tt.splat", "tt.addptr", "tt.broadcast", "tt.expand_dims", "tt.make_range", "tt.load", "tt.extern_elementwise",
     "tt.bitcast", "tt.fp_to_fp", "tt.int_to_ptr", "tt.clampf", "scf.yield"}
)  # fmt: skip
_MOVED = _PLAIN - {"tt.load", "scf.yield"}
_LOOPS = ("scf.for", "scf.while")
_POSITIONAL = MOVES | {"tt.splat", "arith.remsi", "arith.remui", "arith.trunci", "arith.cmpi", "arith.andi"}
COPY_BYTES = 4
"""least bytes of an asynchronous copy (``cp.async``, PTX ISA)"""
_PIECE = 16
"""most elements of one access"""
_WITHIN_WARP = 0.2
"""a reduction along the rows of a product over one that all warps take part in: two shuffles, no barrier"""
_ONE_WARP = 0.5
"""the same for one that a warp does alone: five shuffles"""

Lanes = tuple[str, int, float, Tile | None]
"""(unit, elements of the block value, instructions for each element, tile that it is spread along); a scalar has one
element"""


@dataclass(frozen=True)
class Dot:
    """One product of a block."""

    unit: str
    operations: float
    rows: int
    """of the result; the full tensor rate from Hopper on takes 64 for every four warps"""
    elements: int
    """of the result"""
    crossed: float = 0.0
    """elements of operands that shared memory gives one by one: those that do not lie along the sum, of other than 16
    bits, which alone ``ldmatrix`` and ``wgmma`` transpose"""
    scaled: float = 0.0
    """elements of operands of microscaling formats"""
    chained: bool = False
    """one product of its block is made of another: Triton then puts all warps along one side of the result"""


@dataclass(frozen=True)
class Load:
    """One ``tt.load`` of a block."""

    number: int
    """of the operation (``Op.number``), as in ``LaunchStats.sites``"""
    nbytes: float
    """that the text says it asks for, in whole sectors"""
    array: int
    """loads of one block with the same number start from the same pointer"""
    level: int = 0
    """its place in the block's ``levels``"""
    elements: float = 0.0
    """bytes of its elements"""
    crowding: float = 1.0
    """how many times its bytes count among those that a thread can have outstanding"""
    carried: bool = False
    """a loop carries on what is summed of it"""
    whole: bool = False
    """its mask can be off for all elements at once"""
    exposed: bool = False
    """in a loop that is pipelined for its products: it does not lead to one, and is not loaded ahead"""
    lines: float = 0.0
    """of L1 that it asks for one by one: those of a gathered operand's lanes, where each lies in its own"""
    nearby: float = 1.0
    """bytes that it asks for over those of whole sectors, where its lanes lie in sectors of their own; else 1"""
    pieces: float = 0.0
    """accesses of fewer bytes than an asynchronous copy has, in a loop that is pipelined: registers take them"""


@dataclass(frozen=True)
class BlockProfile:
    """One execution of one basic block."""

    lanes: tuple[Lanes, ...] = ()
    levels: tuple[float, ...] = ()
    """bytes of the loads at each level: loads of one level overlap, each level waits for the one before"""
    reductions: float = 0.0
    """reductions and scans, in such that go through shuffles and shared memory: barriers keep them one after another"""
    depth: float = 0.0
    """instructions on the longest chain of dependent element-wise operations"""
    dots: tuple[Dot, ...] = ()
    """products of ``tt.dot``"""
    vector_atomics: float = 0.0
    """updates that one instruction makes where the target has vector atomics (the least of the block's); 0: none"""
    pipelined: bool = False
    """Triton loads this loop's next iterations ahead"""
    stages: int | None = None
    """the loop's own depth of pipelining, where it names one"""
    loads: tuple[Load, ...] = ()
    stores: tuple[tuple[int, float, int], ...] = ()
    """each store: its number, bytes of its elements, of one element"""
    unrolled: bool = False
    """ptxas unrolls this loop and loads several iterations at once"""
    around: int = -1
    """number of the block in which the innermost loop around this one stands; -1: in none"""
    widest: int = 0
    """elements of the largest load"""
    serial: bool = False
    """a product's operands come from arithmetic of this block, or arithmetic of this block waits for its result, or
    the product is made by the same vector units"""
    across_rows: tuple[tuple[int, int, int], ...] = ()
    """reductions of two dimensions along the first: (rows, columns, bytes of an element)"""
    scans: tuple[tuple[int, int, int, tuple[tuple[str, float], ...]], ...] = ()
    """scans along the last side, as :func:`scanned` has them"""
    puts_off: bool = False
    """ptxas puts this block's loads off to where their values are used"""
    ahead: tuple[Lanes, ...] = ()
    """of ``lanes``, what makes operands' addresses and loads them, in a loop that loads ahead"""


@dataclass(frozen=True)
class KernelProfile:
    """The profiles of all blocks of a function, in the order of ``plan.blocks_of``."""

    blocks: tuple[BlockProfile, ...]
    pressure: tuple[BlockPressure, ...] = field(repr=False)
    unpriced: str = ""
    """why its time is a lower bound"""
    shared_out: frozenset[int] = frozenset()
    """blocks of loops whose rounds go to whichever program takes the next number (``ticket_loops``)"""


@dataclass(frozen=True)
class _Reach:
    """The distance of a value from the beginning of its block."""

    level: int = 0
    depth: float = 0.0

    def beside(self, other: _Reach) -> _Reach:
        return _Reach(max(self.level, other.level), max(self.depth, other.depth))


def profile_of(function: Function) -> KernelProfile:
    """Return the profile of a kernel; it depends on the parsed function alone."""
    blocks = blocks_of(function)
    layouts = layouts_of(function)
    numbers = {id(block): number for number, block in enumerate(blocks)}
    homes = homes_of(blocks)
    made: dict[int, list[Op]] = {}
    for op in (op for block in blocks for op in block.ops):
        made.setdefault(id(homes[id(op)]), []).append(op)
    profiles = tuple(_profile(block, layouts, numbers, made.get(id(block), [])) for block in blocks)
    unknown = any(op.name in COMBINED and unknown_length(op.regions[0]) for op in walk(function.body))
    reason = "a function of a reduction, scan or map has a loop whose rounds are not constant" if unknown else ""
    regions = [region for loop in ticket_loops(function) for region in loop.regions]
    inside = {id(op.block) for region in regions for op in walk(region)}
    shared_out = frozenset(number for number, block in enumerate(blocks) if id(block) in inside)
    return KernelProfile(profiles, block_pressure(function), reason, shared_out)


# ---- instructions


def homes_of(blocks: list[BasicBlock]) -> dict[int, BasicBlock]:
    """The block in which each operation is done, by identity: LLVM moves out of a loop what no round changes."""
    homes: dict[int, BasicBlock] = {}
    for block in blocks:
        for op in block.ops:
            home = block
            if op.results and (op.name in _MOVED or op.name.startswith(("arith.", "math."))):
                inside = {id(homes.get(id(value.op), block) if value.op else value.block) for value in op.operands}
                while home.parent is not None and home.parent.name in _LOOPS and id(home) not in inside:
                    assert home.parent.block is not None, "a loop stands in a block"
                    home = home.parent.block
            homes[id(op)] = home
    return homes


def _fused(op: Op) -> bool:
    """Whether a product is absorbed by the one sum that uses it; a sum absorbs one."""
    if not _feeds_one_sum(op):
        return False
    taken = next(operand.op for operand in op.results[0].uses[0].operands if _feeds_one_sum(operand.op))
    return taken is op


def _feeds_one_sum(op: Op | None) -> bool:
    uses = op.results[0].uses if op is not None and op.name == "arith.mulf" else []
    return len(uses) == 1 and uses[0].name in ("arith.addf", "arith.subf")


def lane_instructions(op: Op, layouts: Layouts) -> list[Lanes]:
    """Instructions of one operation, those inside a reduction's function included."""
    tiles = layouts.tiles.get(id(op.results[0]), []) if op.results and op.name not in COMBINED else []
    if op.name == "tt.load":
        tiles = [tile.of_load(_vector(op)) for tile in tiles]
    elif tiles and id(op.results[0]) in layouts.addresses:
        tiles = [tile.of_load(1 / _share(op, layouts)) for tile in tiles]
    return [(*each, tile) for tile in tiles or (None,) for each in _instructions_of(op, layouts)]


def _instructions_of(op: Op, layouts: Layouts) -> list[tuple[str, int, float]]:
    if op.name in COMBINED:
        return _combine_lanes(op, layouts)
    if op.name in ("tt.load", "tt.store"):
        each = op.operands[0].type.numel, 1.0 / _vector(op)  # the access, and its predicate and address
        return [("issue", *each), ("int", each[0], 2.0 * each[1])]
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
    share = _share(op, layouts) if result.is_block else 1.0
    return [(unit, result.numel, count * share) for unit, count in instructions(op).items()]


def _share(op: Op, layouts: Layouts) -> float:
    """Share of an operation's elements that it is done for: of addresses, one of each access."""
    accesses = layouts.addresses.get(id(op.results[0]))
    if accesses is None:
        return 1.0
    alone = (1.0 if each.name.startswith("tt.atomic") else 1.0 / _vector(each) for each in accesses)
    return max(alone)


@lru_cache(maxsize=256)
def _vector(op: Op) -> int:
    """Elements of a vector access: as many as its addresses and its mask have in one piece."""
    if op.name == "tt.load" and (small := _small(op)):
        return small
    known: dict[tuple[int, bool], int] = {}
    operands = op.operands if op.name == "tt.load" else [op.operands[0], *op.operands[2:]]
    most = VECTOR_BYTES // max(1, memory_bytes(op.operands[0].type))
    return max(1, min([most, *(_aligned(each, False, -1, known) for each in operands[:2])]))


@lru_cache(maxsize=256)
def _small(load: Op) -> int:
    """Elements of a load's pieces where these are smaller than an asynchronous copy, so that Triton does not load it
    ahead; else 0."""
    pointer, *mask = load.operands[:2]
    while (start := start_of(pointer)) is not None:
        pointer = start
    side = 0 if fast_side(pointer) == 0 else -1
    found = 1 if gathered(load) else min(_aligned(each, False, side, {}) for each in (pointer, *mask))
    return found if pointer.type.is_block and found * memory_bytes(pointer.type) < COPY_BYTES else 0


def _aligned(value: Value, alone: bool, side: int, known: dict[tuple[int, bool], int]) -> int:
    """The power of two, up to ``_PIECE``, that positions are a multiple of where a piece along ``side`` begins
    (``alone``: at each element), as far as the text's numbers say (Triton's ``AxisInfo``); what is not known may be
    anything."""
    op, key = value.op, (id(value), alone)
    if op is None or key in known:  # an argument that Triton was not told to be a multiple may be odd
        return known.get(key, 1 if value.multiple % _PIECE else _PIECE)
    last = op.name == "tt.expand_dims" and int(op.attrs.get("axis", "0")) == side % len(value.type.shape or (1,))
    inner = [_aligned(each, alone or last, side, known) for each in op.operands] if op.name in _POSITIONAL else []
    found = _PIECE
    if op.name == "arith.constant":
        number = known_number(value)
        found = number & -number or _PIECE
    elif op.name in ("tt.get_program_id", "arith.divsi", "arith.divui") or (op.name == "tt.make_range" and alone):
        found = 1
    elif op.name == "arith.muli":
        found = math.prod(inner)
    elif inner and not (op.name == "arith.cmpi" and (alone or step(value, side) == "same")):
        found = min(inner)
    known[key] = min(found, _PIECE)
    return known[key]


def _combine_lanes(op: Op, layouts: Layouts) -> list[tuple[str, int, float]]:
    """Every element is combined once in its thread; then lanes and warps exchange what is left.

    A scan exchanges for every run of neighbours that a thread holds, and combines every element once more
    (``ScanOpToLLVM`` of Triton; :func:`scanned`).
    """
    inner: Counter[str] = Counter()
    for each, times in repeated(op.regions[0]):
        if each.results:
            inner.update({unit: count * times for unit, count in instructions(each).items()})
    source = op.operands[0].type
    lanes = [(unit, source.numel, float(count)) for unit, count in inner.items()]
    if op.name == "tt.map_elementwise":
        return lanes
    side, shape = int(op.attrs.get("axis", "0")), source.shape or (1,)
    axis = shape[side]
    rows = source.numel // max(1, axis)
    across = _lanes_along(op)
    if layouts.default and len(shape) == 3:  # an element a thread, of all warps
        across = min(axis, max(1, 32 * USUAL_WARPS // math.prod(shape[side + 1 :])))
    exchanged, steps = max(1, rows * across), float(min(32, across).bit_length() - 1)
    if op.name == "tt.scan":
        lanes += lanes
        exchanged = source.numel // max(1, VECTOR_BYTES // scanned(op)[2])
    moved = 2.0 * steps * len(op.operands)
    return [*lanes, ("int", exchanged, moved), *((unit, exchanged, steps * count) for unit, count in inner.items())]


def scanned(op: Op) -> tuple[int, int, int, tuple[tuple[str, float], ...]]:
    """Rows, columns and, in bytes, the step of what a thread holds of a scan; instructions for one partial result.

    Each thread goes through those of all runs and warps before its own (``AddPartialReduce`` of Triton). What is loaded
    element by element is held so.
    """
    source, most = op.operands[0].type, VECTOR_BYTES // elem_bytes(op.operands[0].type.elem)
    axis = (source.shape or (1,))[int(op.attrs.get("axis", "0"))]
    made = _made_from([value.op for value in op.operands], lambda _: True).values()
    loads = [each for each in made if each.name == "tt.load" and each.operands[0].type.shape == source.shape]
    held = min(most, max(map(_vector, loads), default=most))
    inner: Counter[str] = Counter({"int": len(op.operands)})
    for each, times in repeated(op.regions[0]):
        inner.update({unit: count * times for unit, count in instructions(each).items()} if each.results else {})
    return source.numel // max(1, axis), axis, VECTOR_BYTES // held, tuple(inner.items())


def _lanes_along(op: Op) -> int:
    """Lanes of a warp that hold parts of one reduction: what each adds up alone needs no exchange.

    A product's result lies with 4 lanes to a row and 8 to a column; anything else with neighbouring lanes along the
    last dimension, 16 bytes each.
    """
    source = op.operands[0].type
    shape = source.shape or (1,)
    if _is_product(op.operands[0]):
        return 4 if _axis_is_last(op) else 8
    last = min(32, max(1, shape[-1] * elem_bytes(source.elem) // VECTOR_BYTES))
    along = last if _axis_is_last(op) else min(32 // last, shape[int(op.attrs.get("axis", "0"))])
    return 1 << (max(1, along).bit_length() - 1)


def _exchange(op: Op) -> float:
    """The share of a whole exchange between lanes and warps that a reduction or scan needs."""
    if not _axis_is_last(op):
        return 1.0
    if _is_product(op.operands[0]):
        return _WITHIN_WARP
    source = op.operands[0].type
    axis = (source.shape or (1,))[-1]
    return 1.0 if spread(source.numel // axis, axis, elem_bytes(source.elem), USUAL_WARPS)[2] > 1 else _ONE_WARP


def _across_rows(op: Op) -> list[tuple[int, int, int]]:
    """Rows, columns and bytes of an element of what a reduction of two dimensions takes along the first."""
    sources = [] if _axis_is_last(op) or _is_product(op.operands[0]) else [each.type for each in op.operands]
    shapes = [(each.shape or (), elem_bytes(each.elem)) for each in sources]
    return [(shape[0], shape[1], item) for shape, item in shapes if len(shape) == 2]


def _axis_is_last(op: Op) -> bool:
    return int(op.attrs.get("axis", "0")) == len(op.operands[0].type.shape or (1,)) - 1


def _is_product(value: Value) -> bool:
    """Whether a value is a product's result, or element-wise arithmetic on one."""
    made = _made_from([value.op], lambda op: op.name != "tt.load" and op.name not in COMBINES)
    return any(op.name in PRODUCTS for op in made.values())


# ---- chains


def dot_of(op: Op, chained: bool = False) -> Dot:
    """One product."""
    unit, operations = work_of(op)
    result = op.results[0].type
    rows = (result.shape or (1, 1))[-2] if len(result.shape or ()) == 2 else 1
    factors = factors_of(op)
    if op.name == "tt.dot_scaled":
        kinds = zip(factors, (op.attrs["lhs"], op.attrs["rhs"]), strict=True)
        narrow = {"e2m1": 2.0, "e4m3": 1.0, "e5m2": 1.0}
        scaled = sum(value.type.numel * narrow.get(kind, 0.0) for value, kind in kinds)
        return Dot(unit, operations, rows, result.numel, scaled=scaled, chained=chained)
    sums = zip(factors, (-1, -2), strict=True)
    crossed = sum(float(value.type.numel) for value, axis in sums if _crossed(value, axis))
    return Dot(unit, operations, rows, result.numel, crossed if unit.startswith("tensor_") else 0.0, chained=chained)


def _profile(block: BasicBlock, layouts: Layouts, numbers: dict[int, int], done: list[Op]) -> BlockProfile:
    levels: list[float] = []
    made = [operand.op for op in block.ops if op.name in PRODUCTS for operand in factors_of(op)]
    leading = _made_from(made, lambda op: op.block is block)  # operands' and addresses of their loads
    stages, pipelined = _pipelining(block, leading)
    chained = any(op.name in PRODUCTS and id(op) in leading for op in block.ops)
    lanes, ahead = Counter[tuple[str, int, Tile | None]](), Counter[tuple[str, int, Tile | None]]()
    dots: list[Dot] = []
    last = _Reach()
    level_of: dict[int, int] = {}
    for op, after in steps_of(block, levels):
        if op.name == "tt.load":
            level_of[op.number] = after.level - 1
        if op.name in PRODUCTS:
            dots.append(dot_of(op, chained))
        last = last.beside(after)
    loads, stores = ([op for op in block.ops if op.name == name] for name in ("tt.load", "tt.store"))
    ahead_of = [op for op in loads if pipelined and (id(op) in leading or gathered(op))]
    first = _made_from(ahead_of, lambda op: op.block is block)
    for op in done:
        for unit, numel, count, tile in lane_instructions(op, layouts):
            lanes[unit, numel, tile] += count  # type: ignore[assignment]
            if id(op) in first:
                ahead[unit, numel, tile] += count  # type: ignore[assignment]
    return BlockProfile(
        lanes=tuple((unit, numel, float(count), tile) for (unit, numel, tile), count in lanes.items()),
        ahead=tuple((unit, numel, float(count), tile) for (unit, numel, tile), count in ahead.items()),
        levels=tuple(levels),
        loads=_loads(loads, level_of, leading if pipelined and stages is None else None, pipelined),
        stores=tuple((op.number, bytes_of(op), memory_bytes(op.operands[0].type)) for op in stores),
        unrolled=not pipelined and _unrolled(block), around=_around(block, numbers),
        widest=max([op.operands[0].type.numel for op in loads], default=0),
        reductions=sum(_exchange(op) for op in block.ops if op.name in COMBINES), depth=last.depth,
        across_rows=tuple(shape for op in block.ops if op.name == "tt.reduce" for shape in _across_rows(op)),
        scans=tuple(scanned(op) for op in block.ops if op.name == "tt.scan" and _axis_is_last(op)),
        dots=tuple(dots), pipelined=pipelined,
        serial=any(_in_series(op) for op in block.ops if op.name in PRODUCTS)
        or any(pipelined and id(op) in leading and _small(op) for op in loads),
        stages=stages, puts_off=not pipelined and _puts_off(block),
        vector_atomics=min([_vector_of(op) for op in block.ops if op.name == "tt.atomic_rmw"], default=0.0),
    )  # fmt: skip


def _puts_off(block: BasicBlock) -> bool:
    """Whether element by element a block puts what it loads through special functions, with nothing in between that all
    elements wait for, nor branches, which functions of the device library have."""
    if any(op.name in (*COMBINED, *PRODUCTS, *_NESTS, *_ORDERS, "tt.extern_elementwise") for op in block.ops):
        return False
    made = [op for op in block.ops if op.results and op.results[0].type.is_block and op.name not in CONVERSIONS]
    return any("sfu" in instructions(op) for op in made)


def _crossed(value: Value, axis: int) -> bool:
    """Whether an operand comes from memory in which its neighbours along ``axis``, that of the sum, are not beside each
    other, in elements that are not transposed by hardware."""
    if elem_bytes(value.type.elem) == 2:
        return False
    op = value.op
    while op is not None and op.name != "tt.load" and len(op.operands) == 1 and op.results[0].type.is_block:
        axis = -3 - axis if op.name == "tt.trans" else axis  # of two dimensions
        op = op.operands[0].op
    if op is None or op.name != "tt.load" or len(op.operands[0].type.shape or ()) != 2:
        return False
    return step(op.operands[0], 2 + axis) == "other" and step(op.operands[0], -axis - 1) == "beside"


def steps_of(block: BasicBlock, levels: list[float]) -> Iterator[tuple[Op, _Reach]]:
    """Yield the block's operations, each with how far its results are from the beginning; fill in ``levels``, the bytes
    that the loads of each level load."""
    reach: dict[int, _Reach] = {}
    floor = 0  # loads from here on wait for this many levels
    for op in block.ops:
        before = _Reach()
        for operand in op.operands:
            before = before.beside(reach.get(id(operand), _Reach()))
        after, floor = _after(op, before, levels, floor)
        for result in op.results:
            reach[id(result)] = after
        yield op, after


def _after(op: Op, before: _Reach, levels: list[float], floor: int) -> tuple[_Reach, int]:
    """Return what an operation's results wait for, and the level that later loads start from."""
    if op.name == "tt.load" or (op.name.startswith("tt.atomic") and any(result.uses for result in op.results)):
        level = max(before.level, floor)
        while len(levels) <= level:
            levels.append(0.0)
        levels[level] += bytes_of(op)
        after = _Reach(level + 1, before.depth)
        return after, max(floor, level + 1) if op.name != "tt.load" else floor
    if op.name in ("tt.store", "tt.atomic_rmw", "tt.atomic_cas"):
        return before, max(floor, before.level)  # issued in order: what follows waits for what is stored
    if op.name in _NESTS or op.name in _ORDERS:
        return _Reach(len(levels), before.depth), len(levels)
    if op.name in COMBINES or not op.results:
        return before, floor
    depth = sum(instructions(op).values()) if not op.name.startswith("tt.dot") else 0.0
    return _Reach(before.level, before.depth + depth), floor


def _vector_of(op: Op) -> float:
    """Neighbouring updates of an atomic that go together: sums of side-by-side fp32 (v4) and 16-bit floats (v8)."""
    pointer = op.operands[0]
    width = {"f32": 4.0, "f16": 8.0, "bf16": 8.0}.get(pointer.type.pointee or "", 1.0)
    beside = op.attrs.get("word0") == "fadd" and step(pointer, -1) == "beside"
    return width if beside and pointer.type.numel >= 128 else 1.0


def _loads(ops: list[Op], levels: dict[int, int], ahead: Mapping[int, Op] | None, pipelined: bool) -> tuple[Load, ...]:
    arrays: dict[int, int] = {}
    return tuple(
        Load(
            op.number, float(counted_bytes(op.operands[0].type)), arrays.setdefault(_root(op), len(arrays)),
            levels[op.number], bytes_of(op), _crowding(op, ends), any(end.name == "scf.yield" for end in ends),
            len(op.operands) > 1 and _has_whole(op.operands[1]), ahead is not None and id(op) not in ahead,
            lines_of(op), nearby(op), op.operands[0].type.numel / _small(op) if pipelined and _small(op) else 0.0,
        )
        for op, ends in ((op, [user for user in _users(op) if not _in_step(user, op)]) for op in ops)
    )  # fmt: skip


def _crowding(load: Op, ends: list[Op]) -> float:
    """How many times a load's bytes count among a thread's outstanding ones; ``ends``: what they end in.

    What is summed as it arrives, or goes on into shared memory to be stored along a tile's other side, is not held:
    ptxas gives the next loads its registers, and waits. Four vectors are under way, in a loop two where a mask decides
    what registers begin with (12.8, sums of rows and columns, sm_80, 90).
    """
    side = fast_side(load.operands[0])
    if side is not None and any(op.name == "tt.store" and fast_side(op.operands[0]) == 1 - side for op in ends):
        return 4.0
    if len(ends) != 1 or not all(op.name in ("scf.yield", *COMBINES) for op in ends) or _meets_another(load):
        return 1.0
    looped = load.block is not None and load.block.parent is not None and load.block.parent.name == "scf.for"
    return 8.0 if looped and len(load.operands) > 1 else 4.0


def _meets_another(load: Op) -> bool:
    """Whether what a load brings is put together with that of another load of its block, so that both are held."""
    others = (_spread_from(operand) for op in _users(load) if _in_step(op, load) for operand in op.operands)
    return any(op.block is load.block and op.name == "tt.load" and op is not load for op in others if op)


def _spread_from(value: Value) -> Op | None:
    """The operation whose result a value is, but for its shape and its precision."""
    op = value.op
    while op is not None and op.name in ("tt.broadcast", "tt.expand_dims", "tt.fp_to_fp", "arith.extf"):
        op = op.operands[0].op
    return op


def _users(load: Op) -> Iterator[Op]:
    """The operations, each once, that take a load's values or what element-wise arithmetic of its block makes of
    them, that arithmetic among them."""
    ahead, seen = list(load.results), set[int]()
    while ahead:
        for user in ahead.pop().uses:
            if id(user) not in seen:
                seen.add(id(user))
                ahead += user.results if _in_step(user, load) else ()
                yield user


def _in_step(op: Op, load: Op) -> bool:
    return op.block is load.block and op.name.startswith(("arith.", "math.", "tt.fp_to_fp"))


def _has_whole(mask: Value) -> bool:
    """Whether one number decides of a mask: a load under it may ask for nothing and wait for nothing."""
    op = mask.op
    if not mask.type.is_block or mask.type.numel == 1:
        return op is None or op.name != "arith.constant"
    through = ("arith.andi", "tt.splat", "tt.broadcast", "tt.expand_dims")
    return op is not None and op.name in through and any(map(_has_whole, op.operands))


def _unrolled(block: BasicBlock) -> bool:
    """Whether ptxas unrolls a loop and brings its loads forward: a short body of arithmetic and loads, no store or
    barrier between them, and addresses that no loaded value decides."""
    loop = block.parent
    if loop is None or loop.name != "scf.for" or len(block.ops) > _UNROLLED_OPERATIONS:
        return False
    if not all(op.name in _PLAIN or op.name.startswith(("arith.", "math.")) for op in block.ops):
        return False
    carried = {id(value): place for place, value in enumerate(block.args[1:])}  # after the counter
    ahead = [operand for op in block.ops if op.name == "tt.load" for operand in op.operands]
    seen: set[int] = set()
    while ahead:
        value = ahead.pop()
        if id(value) not in seen and id(value) in carried:
            ahead.append(block.ops[-1].operands[carried[id(value)]])
        elif id(value) not in seen and value.op is not None and value.op.block is block:
            if value.op.name == "tt.load":
                return False
            ahead += value.op.operands
        seen.add(id(value))
    return bool(seen)


def _around(block: BasicBlock, numbers: dict[int, int]) -> int:
    op = block.parent
    while op is not None and op.name not in _LOOPS:
        op = op.block.parent if op.block is not None else None
    return numbers.get(id(op.block), -1) if op is not None else -1


def _made_from(last: Iterable[Op | None], within: Callable[[Op], bool]) -> dict[int, Op]:
    """Those operations and what they are made from, as far as they are ``within``, by identity."""
    ahead, found = list(last), dict[int, Op]()
    while ahead:
        op = ahead.pop()
        if op is not None and id(op) not in found and within(op):
            found[id(op)] = op
            ahead += [operand.op for operand in op.operands]
    return found


def _root(load: Op) -> int:
    """The value that a load's pointers were made of, by identity."""
    pointer = load.operands[0]
    while pointer.op is not None and pointer.op.operands:
        pointer = pointer.op.operands[0]
    return id(pointer)


def bytes_of(op: Op) -> float:
    """Bytes of all elements of an access, masked or not."""
    return float(op.operands[0].type.numel * memory_bytes(op.operands[0].type))


def _pipelining(block: BasicBlock, leading: Mapping[int, Op]) -> tuple[int | None, bool]:
    """(the loop's own depth, whether Triton pipelines it): loops with a depth, or whose loads feed a ``tt.dot``."""
    loop = block.parent
    if loop is None or loop.name != "scf.for":
        return None, False
    named = loop.attrs.get("tt.num_stages", "").partition(":")[0].strip()
    depth = max(1, int(named)) if named.isdigit() else None
    return depth, (depth or 1) > 1 or any(op.name == "tt.load" and id(op) in leading for op in block.ops)


def _in_series(dot: Op) -> bool:
    """Whether arithmetic of the same block makes a product's operands or waits for its result.

    A program then alternates between tensor cores and vector units (attention: scores, softmax, values). A sum that is
    only carried to the next iteration is part of the product.
    """

    def arithmetic(op: Op | None) -> bool:
        if op is None or op.block is not dot.block or not op.results or not op.results[0].type.is_block:
            return False
        if op.name == "arith.select" and in_branch(op):
            return False
        return op.name.startswith(("arith.", "math.")) or op.name in COMBINES or op.name == "tt.fp_to_fp"

    def carried(op: Op) -> bool:
        return op.name == "arith.addf" and all(user.name == "scf.yield" for user in op.results[0].uses)

    if not work_of(dot)[0].startswith("tensor_"):
        return True
    after = any(arithmetic(user) and not carried(user) for user in dot.results[0].uses)
    return after or any(arithmetic(operand.op) for operand in factors_of(dot))
