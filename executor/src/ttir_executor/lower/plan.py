"""Decides which block values are computed inside their consumer and which get a buffer.

A block value is *inline* when the strip loop of its only consumer can compute it there. Index arithmetic always can be
(it is recomputed). Float arithmetic and loads can be when all their uses end in the same *root* (a store, a reduction,
one dot operand, a buffered value ...) of the same basic block and nothing on the way multiplies their elements. In
addition, loads must not move past a write, nor into a store that may overlap them.
"""

from dataclasses import dataclass

from ttir_executor.lower.elementwise import ELEMENTWISE
from ttir_executor.ttir.ir import BasicBlock, Function, Op, Region, Value

SHAPE_OPS = frozenset(
    {
        "tt.splat",
        "tt.broadcast",
        "tt.expand_dims",
        "tt.reshape",
        "tt.trans",
        "tt.join",
        "tt.split",
        "tt.cat",
        "ttg.convert_layout",
    }
)
"""operations that only rearrange elements, or say which thread holds them"""
SOURCES = frozenset({"tt.make_range", "arith.constant", "ub.poison"})
_COSTLY_INTEGER = frozenset({"arith.divsi", "arith.divui", "arith.remsi", "arith.remui", "arith.ceildivsi"})
_FLOAT_COMPARES = frozenset({"arith.cmpf", "arith.fptosi", "arith.fptoui"})
_WRITES = frozenset({"tt.store", "tt.atomic_rmw", "tt.atomic_cas"})

_MAX_DEPTH = 48
"""most nested operations before one is given a buffer: lowering recurses over them"""
_CHEAP = 16
"""most integer operations that are repeated at every use rather than stored"""

Root = tuple[str, int, int]


@dataclass
class Plan:
    """The decision for every block value of a function."""

    inline: set[int]
    """ids of values computed where they are used"""
    loads_fused_into_stores: bool
    """some inline load ends in a store: valid only when no two pointer arguments share memory"""


def is_index_like(value: Value) -> bool:
    """Cheap integer, pointer and mask values: recomputed wherever they are needed."""
    op = value.op
    if op is None:
        return False
    if op.name in SOURCES or op.name in SHAPE_OPS:
        return True
    if op.name not in ELEMENTWISE or op.name in _COSTLY_INTEGER or op.name in _FLOAT_COMPARES:
        return False
    return not value.type.is_float


def walk(region: Region) -> list[Op]:
    """All operations of a region in program order, nested ones after their parent."""
    ops = []
    for block in region.blocks:
        for op in block.ops:
            ops.append(op)
            for inner in op.regions:
                ops += walk(inner)
    return ops


def blocks_of(function: Function) -> list[BasicBlock]:
    """Every basic block of a function in program order, nested ones after the operation they belong to."""
    found: list[BasicBlock] = []

    def visit(region: Region) -> None:
        for block in region.blocks:
            found.append(block)
            for op in block.ops:
                for inner in op.regions:
                    visit(inner)

    visit(function.body)
    return found


def writes_memory(op: Op) -> bool:
    """Whether the operation, or one inside it, writes memory."""
    return op.name in _WRITES or any(inner.name in _WRITES for region in op.regions for inner in walk(region))


class Planner:
    """Decides, from the last operation to the first."""

    def __init__(self, function: Function, allow_store_fusion: bool):
        self.function = function
        self.allow_store_fusion = allow_store_fusion
        self.inline: set[int] = set()
        self.fused = False
        self._roots: dict[int, set[Root]] = {}
        self._grows: dict[int, bool] = {}
        self._root_ops: dict[Root, Op] = {}
        self._position: dict[int, int] = {}
        self._deep: set[int] = set()
        self._weight: dict[int, int] = {}

    def run(self) -> Plan:
        """The plan of the whole function."""
        ops = walk(self.function.body)
        for op in ops:
            if op.block is not None:
                for k, member in enumerate(op.block.ops):
                    self._position.setdefault(id(member), k)
        self._measure(ops)
        for op in reversed(ops):
            for value in op.results:
                if value.type.is_block:
                    self._decide(op, value)
        return Plan(self.inline, self.fused)

    def _measure(self, ops: list[Op]) -> None:
        """How deep and how costly each block's expression is, from the first operation to the last."""
        depth: dict[int, int] = {}
        for op in ops:
            level = 1 + max((depth.get(id(value), 0) for value in op.operands), default=0)
            weight = sum(self._weight.get(id(value), 0) for value in op.operands)
            weight += 0 if op.name in SOURCES or op.name in SHAPE_OPS else 4 if op.name == "tt.mulhiui" else 1
            for value in op.results:
                if not value.type.is_block:
                    continue
                if op.name not in ELEMENTWISE and op.name not in SHAPE_OPS:
                    level = weight = 0
                elif level >= _MAX_DEPTH and op.name in ELEMENTWISE:
                    self._deep.add(id(value))
                    level = weight = 0
                depth[id(value)], self._weight[id(value)] = level, min(weight, 1000)

    def _decide(self, op: Op, value: Value) -> None:
        roots, grows = self._consumers(value)
        self._roots[id(value)], self._grows[id(value)] = roots, grows
        if op.name in SOURCES or op.name in SHAPE_OPS:
            self.inline.add(id(value))
            return
        if op.name == "tt.load":
            if len(roots) == 1 and not grows and self._may_move_load(op, next(iter(roots))):
                self.inline.add(id(value))
            return
        if op.name not in ELEMENTWISE or id(value) in self._deep:
            return
        cheap = is_index_like(value) and self._weight[id(value)] <= _CHEAP
        if cheap or (len(roots) == 1 and not grows and self._same_block(op, next(iter(roots)))):
            self.inline.add(id(value))

    def _consumers(self, value: Value) -> tuple[set[Root], bool]:
        """Roots that the value ends in, and whether a broadcast on the way multiplies its elements."""
        roots: set[Root] = set()
        grows = False
        for user in value.uses:
            for position, operand in enumerate(user.operands):
                if operand is not value:
                    continue
                inlined = [r for r in user.results if id(r) in self.inline]
                if inlined:
                    for result in inlined:
                        roots |= self._roots[id(result)]
                        grows |= self._grows[id(result)] or result.type.numel > value.type.numel
                else:
                    root = self._root(user, position)
                    self._root_ops[root] = user
                    roots.add(root)
            for _, passed in user.successors:
                if value in passed:
                    roots.add(("branch", id(user), 0))
                    self._root_ops[("branch", id(user), 0)] = user
        return roots, grows

    @staticmethod
    def _root(user: Op, position: int) -> Root:
        if user.name in (
            "tt.dot",
            "tt.dot_scaled",
            "scf.yield",
            "scf.condition",
            "scf.for",
            "scf.while",
            "tt.gather",
            "tt.print",
        ):
            return (user.name, id(user), position)
        return (user.name, id(user), 0)

    def _same_block(self, op: Op, root: Root) -> bool:
        return self._root_ops[root].block is op.block

    def _may_move_load(self, op: Op, root: Root) -> bool:
        target = self._root_ops[root]
        if target.block is not op.block or op.block is None:
            return False
        if target.name in ("tt.gather", "tt.dot_scaled", "scf.for", "scf.while", "scf.condition"):
            return False
        between = op.block.ops[self._position[id(op)] + 1 : self._position[id(target)]]
        if any(writes_memory(other) for other in between):
            return False
        if target.name in _WRITES:
            if target.name == "tt.store" and target.operands[0] is op.operands[0]:
                return True
            if not self.allow_store_fusion or target.name != "tt.store":
                return False
            mine, theirs = argument_of(op.operands[0]), argument_of(target.operands[0])
            if mine is None or theirs is None or mine is theirs:
                return False
            self.fused = True
        return True


_POINTER_PATH = frozenset(
    {"tt.addptr", "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.bitcast", "tt.trans"}
)


def argument_of(value: Value, seen: frozenset[int] = frozenset()) -> Value | None:
    """The function argument that a pointer is derived from; None when that is not certain.

    Loop-carried pointers count as derived from their initial value's argument when what the loop yields is, too.
    """
    while value.op is not None:
        op = value.op
        if op.name in _POINTER_PATH:
            value = op.operands[0]
            continue
        if op.name == "scf.for":
            return _carried_argument(op, value.index, seen)
        return None
    block: BasicBlock | None = value.block
    if block is None:
        return value if value.type.elem == "ptr" else None
    parent = block.parent
    if parent is not None and parent.name == "scf.for" and value.index >= 1:
        return _carried_argument(parent, value.index - 1, seen)
    return None


def _carried_argument(loop: Op, index: int, seen: frozenset[int]) -> Value | None:
    initial = argument_of(loop.operands[3 + index], seen)
    if initial is None or id(loop) * 64 + index in seen:
        return initial
    following = loop.regions[0].blocks[-1].ops[-1].operands[index]
    after = argument_of(following, seen | {id(loop) * 64 + index})
    return initial if after is initial else None


def uniform_step(value: Value, carried: Value) -> list[tuple[Op, Value]] | None:
    """Return how a yielded index differs from the carried one: the uniform increments, or None if it differs otherwise.

    Each entry is (the addition, its uniform addend).
    """
    steps: list[tuple[Op, Value]] = []
    while value is not carried:
        op = value.op
        if op is None or op.name not in ("tt.addptr", "arith.addi"):
            return None
        left, right = op.operands
        if is_uniform(right):
            steps.append((op, right))
            value = left
        elif op.name == "arith.addi" and is_uniform(left):
            steps.append((op, left))
            value = right
        else:
            return None
    return steps


def is_uniform(value: Value) -> bool:
    """Whether every element is the same scalar, by construction."""
    op = value.op
    if op is None or not value.type.is_block:
        return op is not None and not value.type.is_block
    if op.name == "tt.splat":
        return True
    if op.name in ("tt.broadcast", "tt.expand_dims", "tt.reshape"):
        return is_uniform(op.operands[0])
    return op.name == "arith.constant" and not op.attrs["value"].startswith(("[", '"'))


# ---- the lifetimes of block values in scratch memory, and an arena that reuses freed memory


FOREVER = 1 << 60


class Lifetimes:
    """Positions in program order at which values are needed for the last time.

    A value that is computed inside its consumers (inline) is needed where those are. What a loop reads from outside is
    needed until the loop ends, since the next iteration reads it again.
    """

    def __init__(self, function: Function, inline: set[int]):
        self._inline = inline
        self._start: dict[int, int] = {}
        self._end: dict[int, int] = {}
        self._loops: dict[int, tuple[int, ...]] = {}
        self._last: dict[int, int] = {}
        self._count = 0
        self._number(function.body, ())
        for op in reversed(walk(function.body)):  # users come before what they use, so that nothing recurses
            for value in op.results:
                self._last[id(value)] = self.last(value)

    def _number(self, region: Region, loops: tuple[int, ...]) -> None:
        for block in region.blocks:
            for op in block.ops:
                self._start[id(op)] = self._count
                self._loops[id(op)] = loops
                self._count += 1
                inner = (*loops, id(op)) if op.name in ("scf.for", "scf.while") else loops
                for nested in op.regions:
                    self._number(nested, inner)
                self._end[id(op)] = self._count
                self._count += 1

    def start(self, op: Op) -> int:
        """Position of an operation."""
        return self._start[id(op)]

    def end(self, op: Op) -> int:
        """Position behind an operation and what is nested in it."""
        return self._end[id(op)]

    def last(self, value: Value) -> int:
        """The last position at which the value is read."""
        known = self._last.get(id(value))
        if known is not None:
            return known
        return max((self._use(value, user) for user in value.uses), default=-1)

    def last_in_registers(self, value: Value) -> int:
        """The same of a value in registers: a loop takes what it carries over when it starts."""
        return max((self._read(value, user) for user in value.uses), default=-1)

    def _read(self, value: Value, user: Op) -> int:
        if user.name in ("scf.for", "scf.while"):
            return self._again(value, user, self._start[id(user)])
        if user.name == "scf.condition":
            return self._again(value, user, self._end[id(user)])
        return self._use(value, user)

    def _use(self, value: Value, user: Op) -> int:
        if user.name in ("scf.while", "scf.condition") or user.successors:
            return FOREVER  # carried on under other names
        last = self._end[id(user)]
        inlined = [result for result in user.results if id(result) in self._inline]
        if inlined or user.name == "scf.for":
            last = max(last, *(self.last(result) for result in user.results), -1)
        return self._again(value, user, last)

    def _again(self, value: Value, user: Op, last: int) -> int:
        """``last``, or the end of the loops around the user that read the value in each iteration."""
        outside = self._loops[id(value.op)] if value.op is not None else ()
        entered = [loop for loop in self._loops[id(user)] if loop not in outside]
        if value.op is None and value.block is not None and value.block.parent is not None:
            parent = value.block.parent
            entered = [loop for loop in entered if self._start_of(loop) > self._start[id(parent)]]
        return max([last, *(self._end[loop] for loop in entered)])

    def _start_of(self, loop: int) -> int:
        return self._start[loop]


class Arena:
    """Allocates offsets in scratch memory, and reuses them after the last use."""

    def __init__(self) -> None:
        self.size = 0
        self._blocks: list[tuple[int, int, int]] = []
        """(offset, bytes, last position) of everything given out"""

    def take(self, nbytes: int, now: int, last: int) -> int:
        """``nbytes`` that stay untouched from position ``now`` to ``last``."""
        best = -1
        for k, (_, size, until) in enumerate(self._blocks):
            if until < now and nbytes <= size <= 2 * nbytes and (best < 0 or size < self._blocks[best][1]):
                best = k
        if best >= 0:
            offset, size, _ = self._blocks[best]
            self._blocks[best] = (offset, size, last)
            return offset
        offset = self.size
        self.size += nbytes
        self._blocks.append((offset, nbytes, last))
        return offset
