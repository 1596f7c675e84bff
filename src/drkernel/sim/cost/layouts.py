"""How Triton spreads a kernel's values over the threads of a program, as far as instructions depend on it.

Every thread takes part in what is done to a block. A block of one dimension that is spread along a side of a tile lies
in the threads as that tile does (Triton's ``slice`` layouts): each thread holds all elements of its part of the tile,
so that neighbours do the same work, and loads of fewer elements than threads are made by every holder
(``isExpensiveLoadOrStore``, ``remove-layout-conversions`` of Triton 3).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from drkernel.sim.cost.records import SECTOR_BYTES
from ttir_executor.lower.access import hint
from ttir_executor.lower.dot import PRODUCTS, work_of
from ttir_executor.lower.plan import is_index_like, walk
from ttir_executor.ttir.ir import Function, Op, Value, elem_bytes

VECTOR_BYTES = 16
"""bytes that one lane loads or stores with one instruction, where its elements lie side by side"""
LINE_BYTES = 128
"""of L1"""
SPREADS = ("tt.splat", "tt.broadcast", "tt.expand_dims")
MOVES = frozenset(
    {"arith.addi", "arith.subi", "arith.muli", "arith.extsi", "arith.extui", "tt.addptr", "tt.broadcast",
     "tt.expand_dims"}
)  # fmt: skip
"""what addresses are made with whose neighbours' distance follows from the operands'"""
Group = tuple[int, ...]
"""a value's identity, and its shape"""
_ELEMENTWISE = ("arith.", "math.", "tt.fp_to_fp", "tt.addptr", "tt.extern_elementwise", "tt.clampf", "tt.bitcast")
_ACCESSES = ("tt.load", "tt.store", "tt.atomic_rmw")


def lanes_of(numel: int, tile: Tile | None, threads: int) -> float:
    """Lanes that execute an operation on a block: every thread takes part, however small the block."""
    once = float(-(-numel // threads) * threads)
    return once if tile is None else max(once, tile.lanes(numel, threads))


@dataclass(frozen=True)
class Tile:
    """A tile of two dimensions, along one side of which a value of one is spread."""

    shape: tuple[int, int]
    side: int = 0
    """of the tile that the value's elements lie along"""
    product: bool = False
    """a product on tensor cores made it"""
    fast: int = 1
    """the side along which lanes lie first"""
    beside: int = 1
    """elements along that side which a thread holds side by side"""
    loads: bool = False
    """the operation loads the value; from as many elements as threads on it is loaded once"""
    again: float = 1.0
    """instructions of an element where it is spread, over those where it is not"""

    def lanes(self, numel: int, threads: int) -> float:
        """Lanes that an operation on the value takes where it is spread."""
        return 0.0 if self.loads and numel >= threads else threads * self._held(threads) * self.again

    def of_load(self, vector: float) -> Tile:
        """The same for a load, or its addresses, of so many elements at a time where it is not spread."""
        alone = self.side != self.fast or self.product
        return replace(self, loads=True, again=vector / (1 if alone else min(self.beside, vector)))

    def _held(self, threads: int) -> float:
        """Elements along the side that one thread holds."""
        warps = max(1, threads // 32)
        if self.product:  # rows of 8 lanes, all warps along them as far as there are rows
            along = max(1, min(warps, self.shape[0] // 16))
            return self.shape[0] / (8 * along) if self.side == 0 else self.shape[1] / (4 * max(1, warps // along))
        fast, slow = self.shape[self.fast], self.shape[1 - self.fast]
        each = max(1, min(self.beside, fast, fast * slow // threads))
        lanes = max(1, min(32, fast // each))
        beside = max(1, min(warps, fast // (each * lanes)))
        if self.side == self.fast:
            return max(1.0, fast / (lanes * beside))
        return max(1.0, slow / (32 // lanes * (warps // beside)))


@dataclass(frozen=True)
class Layouts:
    """What is known of the values of a kernel, by identity."""

    addresses: dict[int, frozenset[Op]]
    """index arithmetic that only ends in addresses and masks, with the accesses that these are of"""
    tiles: dict[int, list[Tile]]
    """values that are spread along tiles: each has what it needs of them made for itself"""
    default: bool
    """no access or product lays out blocks of three sides: lanes, then warps, go along the last, an element each"""


def layouts_of(function: Function) -> Layouts:
    """Return the layouts of a kernel's values."""
    ops = walk(function.body)
    laid = (value for op in ops if op.name in (*_ACCESSES, *PRODUCTS) for value in op.operands)
    return Layouts(_address_values(ops), _tiles(ops), default=not any(_rank(value) == 3 for value in laid))


def _address_values(ops: list[Op]) -> dict[int, frozenset[Op]]:
    """Index arithmetic that only ends in addresses and masks: done once for a vector access, not for each element."""
    found: dict[int, frozenset[Op]] = {}
    for op in reversed(ops):
        for value in op.results:
            if value.uses and is_index_like(value):
                ends = [_accesses(value, user, found) for user in value.uses]
                if all(ends):
                    found[id(value)] = frozenset[Op]().union(*ends)
    return found


def _accesses(value: Value, user: Op, found: dict[int, frozenset[Op]]) -> frozenset[Op]:
    """The accesses that a use of a value ends in; none where it ends in anything else."""
    if user.name in ("tt.load", "tt.store", "tt.atomic_rmw", "tt.atomic_cas"):
        data = {"tt.load": (2,), "tt.store": (1,)}.get(user.name, (1, 2))
        whole = all(operand is not value or k not in data for k, operand in enumerate(user.operands))
        return frozenset([user] if whole else ())
    loop = user if user.name == "scf.for" else user.block.parent if user.name == "scf.yield" and user.block else None
    if loop is not None and loop.name == "scf.for" and value.type.elem == "ptr":  # pointers that it moves on
        carried = loop.regions[0].blocks[0].args[1:]
        given = user.operands[3:] if user is loop else user.operands
        uses = [use for one, argument in zip(given, carried, strict=True) if one is value for use in argument.uses]
        return frozenset(use for use in uses if use.name in _ACCESSES)
    ends = [found.get(id(result), frozenset[Op]()) for result in user.results]
    return frozenset[Op]().union(*ends) if all(ends) else frozenset()


# ---- tiles


def _tiles(ops: list[Op]) -> dict[int, list[Tile]]:
    together = _Groups()
    for op in ops:
        together.join([*op.operands, *op.results] if op.name.startswith(_ELEMENTWISE + _ACCESSES) else [])
        if op.name == "scf.for":
            body = op.regions[0].blocks[0]
            for carried in zip(body.args[1:], op.operands[3:], body.ops[-1].operands, op.results, strict=False):
                together.join(carried)
    layouts: dict[Group, Tile] = {}
    for op in ops:
        for value, asked in _seen_in(op):
            key = together.of(value)
            if key not in layouts or (asked.product, asked.beside) > (layouts[key].product, layouts[key].beside):
                layouts[key] = asked

    def tile(value: Value, side: int) -> Tile:
        shape = value.type.shape or (1, 1)
        return replace(layouts.get(together.of(value), Tile((shape[0], shape[1]))), side=side)

    sides: dict[Group, Tile] = {}  # by group of values that are one element wide
    found: dict[int, list[Tile]] = {}
    for op in ops:
        if op.name == "tt.broadcast" and _rank(op.results[0]) == 2 and op.operands[0].type.numel > 1:
            side = int((op.operands[0].type.shape or (1, 1))[0] == 1)
            sides.setdefault(together.of(op.operands[0]), tile(op.results[0], side))
        if op.name == "tt.reduce" and _rank(op.operands[0]) == 2:
            _spread(op.results, tile(op.operands[0], 1 - int(op.attrs.get("axis", "0"))), found, forwards=True)
    for op in ops:
        narrow = op.results[0] if op.results and _rank(op.results[0]) == 2 else None
        along = sides.get(together.of(narrow)) if narrow is not None else None
        if narrow is not None and along is not None:
            found[id(narrow)] = [along]
            _spread(op.operands if op.name in ("tt.expand_dims", "tt.reshape") else (), along, found)
    return found


class _Groups:
    """Values of one shape that lie alike, as element-wise operations and loops join them."""

    def __init__(self) -> None:
        self._parent: dict[Group, Group] = {}

    def of(self, value: Value) -> Group:
        """The name of a value's group."""
        key: Group = (id(value), *(value.type.shape or ()))
        while (above := self._parent.get(key, key)) != key:
            self._parent[key] = self._parent.get(above, above)
            key = above
        return key

    def join(self, values: Iterable[Value]) -> None:
        """Put values into one group, those of one shape each."""
        first: dict[Group, Group] = {}
        for value in values:
            if len(value.type.shape or ()) == 2:
                key = self.of(value)
                self._parent[key] = first.setdefault(key[1:], key)


def _seen_in(op: Op) -> Iterable[tuple[Value, Tile]]:
    """The layouts that an operation asks for: a product's, or that of an access whose elements lie side by side."""
    result = op.results[0] if op.results else op.operands[0] if op.operands else None
    if result is None or _rank(result) != 2:
        return
    rows, columns = result.type.shape or (1, 1)
    if op.name in PRODUCTS and work_of(op)[0].startswith("tensor_"):
        yield result, Tile((rows, columns), product=True)
    if op.name in _ACCESSES:
        side = next((side for side in (1, 0) if step(op.operands[0], side) == "beside"), None)
        beside = 1 if side is None else VECTOR_BYTES // max(1, elem_bytes(op.operands[0].type.pointee or "i8"))
        if side is not None or op.name == "tt.load":  # of sides that are alike Triton takes the first (up to 3.6)
            yield op.operands[0], Tile((rows, columns), fast=side or 0, beside=max(1, beside))


def _spread(values: Iterable[Value], tile: Tile, found: dict[int, list[Tile]], forwards: bool = False) -> None:
    """Note the values of one dimension that given ones are made of, or ``forwards`` what is made of them."""
    ahead = [value for value in values if _rank(value) == 1]
    while ahead:
        value = ahead.pop()
        known = found.setdefault(id(value), [])
        if tile in known:
            continue
        known.append(tile)
        if forwards:
            near = [each for user in value.uses if user.name.startswith(_ELEMENTWISE) for each in user.results]
        else:
            op = value.op
            near = op.operands if op is not None and op.name.startswith((*_ELEMENTWISE, "tt.load")) else []
        ahead += [each for each in near if each.type.shape == value.type.shape]


def _rank(value: Value) -> int:
    return len(value.type.shape or ())


# ---- addresses


def step(value: Value, axis: int) -> str:
    """How addresses go along an axis: ``same``, ``beside`` each other, or ``other``."""
    return {0.0: "same", 1.0: "beside"}.get(stride(value, axis), "other")


@lru_cache(maxsize=1024)
def stride(value: Value, axis: int) -> float:
    """Elements from one to the next along an axis: infinite times an unknown number, NaN where nothing is known."""
    return _stride(value, axis, 48, {})


def _stride(value: Value, axis: int, steps: int, seen: dict[tuple[int, int], float]) -> float:
    """Each value once: a chain of products of a value with itself has a number of ways that doubles with each."""
    key = id(value), axis
    if key not in seen:
        seen[key] = _new_stride(value, axis, steps, seen)
    return seen[key]


def _new_stride(value: Value, axis: int, steps: int, seen: dict[tuple[int, int], float]) -> float:
    shape, op = value.type.shape, value.op
    if not shape or shape[axis] == 1:
        return 0.0
    axis %= len(shape)
    if steps == 0:
        return math.nan
    if op is None:
        start = start_of(value)
        return _stride(start, axis, steps - 1, seen) if start is not None else math.nan
    if op.name == "tt.make_range" or hint(op, "contiguity") == shape[axis]:
        return 1.0
    if op.name in ("tt.splat", "arith.constant"):
        return 0.0
    if op.name == "scf.if":
        ends = [region.blocks[-1].ops[-1].operands[value.index] for region in op.regions]
        first, *others = [_stride(end, axis, steps - 1, seen) for end in ends]
        return first if all(each == first for each in others) else math.nan
    if op.name == "tt.expand_dims":
        new = int(op.attrs.get("axis", "0"))
        return 0.0 if axis == new else _stride(op.operands[0], axis - (axis > new), steps - 1, seen)
    if op.name == "tt.reshape":
        inner = op.operands[0].type.shape or ()
        wide, own = ([n for n, size in enumerate(sizes) if size > 1] for sizes in (inner, shape))
        alike = [inner[n] for n in wide] == [shape[n] for n in own]  # axes of one position come and go
        return _stride(op.operands[0], wide[own.index(axis)], steps - 1, seen) if alike else math.nan
    if any(_rank(operand) not in (0, len(shape)) for operand in op.operands):
        return math.nan
    each = [_stride(operand, axis, steps - 1, seen) for operand in op.operands]
    if not any(each):
        return 0.0
    if op.name in ("tt.broadcast", "arith.extsi", "arith.extui", "tt.bitcast", "arith.remsi", "arith.remui"):
        return each[0]
    if op.name in ("arith.divsi", "arith.divui") and each == [1.0, 0.0]:  # whole vectors have one quotient
        return math.nan if known_number(op.operands[1]) % VECTOR_BYTES else 0.0
    if op.name == "arith.muli" and 0.0 in each:
        factor = known_number(op.operands[each.index(0.0)])
        return sum(each) * factor if factor > 0 else math.inf
    return sum(each) if op.name in ("tt.addptr", "arith.addi", "arith.subi") else math.nan


def start_of(value: Value) -> Value | None:
    """The value that a loop's argument has before the loop."""
    loop = value.block.parent if value.block is not None else None
    if value.op is not None or loop is None or loop.name != "scf.for":
        return None
    return loop.operands[2 + value.index] if value.index else None


def known_number(value: Value) -> int:
    """The whole number that all elements of a value are; 0 where it is not known."""
    while value.op is not None and value.op.name in SPREADS:
        value = value.op.operands[0]
    if value.is_unit:
        return 1
    found = re.search(r"-?\d+", value.op.attrs.get("value", "")) if value.op is not None else None
    return int(found[0]) if found and value.op is not None and value.op.name == "arith.constant" else 0


def fast_side(pointer: Value) -> int | None:
    """The side of a tile along which addresses lie beside each other."""
    sides = range(2) if _rank(pointer) == 2 else ()
    return next((side for side in sides if step(pointer, side) == "beside"), None)


def gathered(load: Op) -> bool:
    """Whether a load brings a tile of which no side is seen to lie along memory: element by element."""
    return _rank(load.operands[0]) == 2 and fast_side(load.operands[0]) is None


def lines_of(load: Op) -> float:
    """Those that the lanes of a gathered tile ask for one by one, where each lies in its own; else 0."""
    pointer = load.operands[0]
    line = LINE_BYTES // max(1, elem_bytes(pointer.type.pointee or "i8"))
    if not gathered(load) or not stride(pointer, 0) >= line:  # along the first side, where its lanes lie
        return 0.0
    return pointer.type.numel * min(32, (pointer.type.shape or (1,))[0]) / 32.0


def nearby(load: Op) -> float:
    """Bytes of its elements over those of whole sectors, where its lanes lie in sectors of their own; else 1."""
    share = elem_bytes(load.operands[0].type.pointee or "i8") / SECTOR_BYTES
    return min(1.0, share) if stride(load.operands[0], 0) >= int(1.0 / share) else 1.0


def spread(rows: int, columns: int, item: int, num_warps: int) -> tuple[int, int, int]:
    """Neighbours, lanes and warps along the columns of a block of elements of ``item`` bytes, as Triton places them."""
    held = max(1, min(VECTOR_BYTES // item, rows * columns // (32 * num_warps)))
    lanes = max(1, min(32, columns // held))
    return held, lanes, max(1, min(num_warps, columns // (held * lanes)))


def bank_conflicts(rows: int, columns: int, item: int, num_warps: int) -> float:
    """Clocks of shared memory that a reduction along the rows takes beyond one for each access.

    Triton puts the partial sums of all warps of a column beside each other, so that lanes, which hold neighbouring
    columns, write and read in steps of as many words as they hold columns, times warps (sums of 16 x 128 by eight
    warps: all 32 lanes in one bank, by their machine code).
    """
    held, lanes, beside = spread(rows, columns, item, num_warps)
    along = max(1, min(num_warps // beside, rows * lanes // 32))
    if along == 1:
        return 0.0
    ways = max(1.0, lanes * math.gcd(held * along, 32) / 32.0)
    return 2.0 * columns / (lanes * beside) * num_warps * (ways - 1.0)
