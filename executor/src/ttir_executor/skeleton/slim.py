"""Reduces a function to its skeleton: addresses, masks, branches and loops, with the rest replaced by counts.

The result is a function like any other, and is lowered like any other. Some operations are new (``lower/touch.py``):

- ``dk.count`` replaces operations that were left out: it adds their work to its basic block; ``dk.trips`` replaces a
  loop of which nothing else is left.
- ``dk.touch`` is an access whose data is not needed: it checks and counts, and moves nothing.
- ``dk.fetch`` and ``dk.put`` are the accesses that steer: they move data, if there is any.

Finds the values of a kernel that *steer* it: those that reach an address, a mask, a branch or a loop bound.

Everything else is data, which cannot change where the kernel goes. Steering values are computed in a data-free run; a
load whose result steers is a dependence on data, and harmless only if its memory has contents.

Compiles skeletons of kernels to native code, cached by the kernel's text.
"""

from collections.abc import Callable, Set
from dataclasses import dataclass, field, replace
from enum import IntFlag
from functools import cached_property, lru_cache

from ttir_executor.compiled import CompiledKernel, compile_ttir
from ttir_executor.lower.block_cost import BlockCost, count_operation
from ttir_executor.lower.combine import COMBINED, count_combined
from ttir_executor.lower.dot import count_products
from ttir_executor.lower.elementwise import ELEMENTWISE
from ttir_executor.lower.function import Lowered, Lowering
from ttir_executor.lower.jit import Code
from ttir_executor.lower.plan import SHAPE_OPS, SOURCES, argument_of, blocks_of, walk
from ttir_executor.ttir.ir import BasicBlock, Function, Op, Region, TTIRError, UnsupportedTTIR, Value


class Steers(IntFlag):
    """The kinds of decisions that a value enters."""

    ADDRESS = 1
    MASK = 2
    BRANCH = 4
    LOOP = 8

    def words(self) -> str:
        """In words, for messages."""
        names = {Steers.ADDRESS: "an address", Steers.MASK: "a mask", Steers.BRANCH: "a branch", Steers.LOOP: "a loop"}
        return " and ".join(name for flag, name in names.items() if flag in self)


ATOMICS = frozenset({"tt.atomic_rmw", "tt.atomic_cas"})
COMBINES = frozenset({"tt.reduce", "tt.scan", "tt.map_elementwise"})


@dataclass
class Steering:
    """The values that decide where a function goes."""

    needed: dict[int, Steers] = field(default_factory=dict)
    """id of a value -> what it decides"""
    reads: dict[int, Op] = field(default_factory=dict)
    """loads and atomics whose results are needed, by id"""
    writes: dict[int, Op] = field(default_factory=dict)
    """stores and atomics that may change what is read by one of those"""
    taken: set[int] = field(default_factory=set)
    """branches, by id, that are taken whatever decides them"""

    def needs(self, value: Value) -> bool:
        """Whether a value has to be computed."""
        return id(value) in self.needed

    def kinds(self, op: Op) -> Steers:
        """The kinds of decision that depend on an operation's results."""
        total = Steers(0)
        for value in op.results:
            total |= self.needed.get(id(value), Steers(0))
        return total


def steering_of(function: Function, *, apart: bool = False, taken: bool = False) -> Steering:
    """Follow addresses, masks, branches and loop bounds back to where they come from, through memory where need be.

    ``apart``: what is written through addresses from memory is taken to be none of the arguments that steer. ``taken``:
    so is every branch without an alternative that floating-point numbers decide, which is the most that it can do.
    """
    return _Tracer(function, apart, taken).run()


def mask_of(op: Op) -> Value | None:
    """The mask of a memory access, where it has one."""
    place = {"tt.load": 1, "tt.store": 2, "tt.atomic_rmw": 2}.get(op.name)
    return op.operands[place] if place is not None and len(op.operands) > place else None


def by_sign(op: Op) -> tuple[bool, Value | None] | None:
    """Of two atomics at one place of which each lane makes just one, as a float's minimum does by its sign: whether
    this is the second, and the mask of both together. None for any other operation."""
    beside = op.block.ops if op.block is not None and op.name == "tt.atomic_rmw" else []
    alike = [one for one in beside if one.name == op.name and one.operands[:1] == op.operands[:1]]
    masks = [mask for mask in map(mask_of, alike) if mask is not None]
    if len(alike) != 2 or len(masks) != 2:
        return None
    if _opposite(*masks):
        return op is alike[1], None
    left, right = (mask.op.operands if mask.op is not None and mask.op.name == "arith.andi" else [] for mask in masks)
    for mine, shared in zip(left[::-1], left, strict=True):
        if shared in right and _opposite(mine, right[1 - right.index(shared)]):
            return op is alike[1], shared
    return None


def _opposite(left: Value, right: Value) -> bool:
    """Whether of two conditions just one is true."""
    if left.op is None or right.op is None:
        return False
    for one, other in ((left.op, right), (right.op, left)):  # a constant that is not true is folded away
        if one.name == "arith.xori" and other in one.operands and _constant(*one.operands):
            return True
    pair = {left.op.attrs.get("word0"), right.op.attrs.get("word0")}
    return left.op.name == "arith.cmpi" and left.op.operands == right.op.operands and pair == {"eq", "ne"}


def _constant(*values: Value) -> bool:
    return any(value.op is not None and value.op.name == "arith.constant" for value in values)


class _Tracer:
    def __init__(self, function: Function, apart: bool, taken: bool):
        self.function = function
        self.apart = apart
        self.taken = taken
        self.ops = walk(function.body)
        self.found = Steering()
        self._open: list[tuple[Value, Steers]] = []
        self._predecessors: dict[str, list[list[Value]]] = {}
        for op in self.ops:
            for label, passed in op.successors:
                self._predecessors.setdefault(label, []).append(passed)

    def run(self) -> Steering:
        for op in self.ops:
            self._roots(op)
        self._follow()
        while self._memory():
            self._follow()
        return self.found

    def closure(self, value: Value, end: Set[int] = frozenset()) -> list[Value]:
        """The value and all that it is made of, up to results of the operations ``end``."""
        seen, left = dict[int, Value](), [value]
        while left:
            value = left.pop()
            left += self._sources(value) if id(value) not in seen and id(value.op) not in end else []
            seen[id(value)] = value
        return list(seen.values())

    # ---- where to begin

    def _roots(self, op: Op) -> None:
        if op.name in ("tt.load", "tt.store") or op.name in ATOMICS:
            self._open.append((op.operands[0], Steers.ADDRESS))
            pair = by_sign(op)
            mask = mask_of(op) if pair is None else pair[1]
            if mask is not None:
                self._open.append((mask, Steers.MASK))
        elif op.block is not None and _is_combine(op.block.parent):
            return  # loops and branches of a function on scalars decide about values alone
        elif op.name == "scf.for":
            self._open += [(value, Steers.LOOP) for value in op.operands[:3]]
        elif op.name == "scf.condition":
            self._open.append((op.operands[0], Steers.LOOP))
        elif op.name == "scf.if" and self.taken and _has_no_alternative(op) and self._by_floats(op.operands[0]):
            self.found.taken.add(id(op))
        elif op.name in ("scf.if", "cf.cond_br"):
            self._open.append((op.operands[0], Steers.BRANCH))

    def _by_floats(self, condition: Value) -> bool:
        """Whether floating-point numbers that are loaded, and nothing else from memory, decide a condition."""
        seen, left, loads = set[int](), [condition], list[bool]()
        while left:
            value = left.pop()
            if id(value) not in seen and value.op is not None and _reads(value.op):
                loads.append(value.op.name == "tt.load" and value.type.elem.startswith(("f", "bf")))
            elif id(value) not in seen:
                left += self._sources(value)
            seen.add(id(value))
        return bool(loads) and all(loads)

    def _memory(self) -> bool:
        """Find writes that may change what is read to steer; whether there are new ones."""
        if not self.found.reads:
            return False
        sources = {argument_of(op.operands[0]) for op in self.found.reads.values()}
        new = False
        for op in self.ops:
            if (op.name != "tt.store" and op.name not in ATOMICS) or id(op) in self.found.writes:
                continue
            target = argument_of(op.operands[0])
            if None in sources or target in sources or (target is None and not self.apart):
                self.found.writes[id(op)] = op
                self._open += [(value, Steers.ADDRESS) for value in op.operands]
                new = True
        return new

    # ---- following

    def _follow(self) -> None:
        while self._open:
            value, kinds = self._open.pop()
            known = self.found.needed.get(id(value), Steers(0))
            if kinds | known == known and id(value) in self.found.needed:
                continue
            self.found.needed[id(value)] = known | kinds
            if value.op is not None and _reads(value.op):
                self.found.reads[id(value.op)] = value.op
            self._open += [(source, kinds) for source in self._sources(value)]

    def _sources(self, value: Value) -> list[Value]:
        op = value.op
        if op is None:
            return self._of_argument(value)
        if op.name == "scf.for":
            return self._carried(op, value.index)
        if op.name == "scf.if":
            return [region.blocks[0].ops[-1].operands[value.index] for region in op.regions]
        if op.name == "scf.while":
            return [op.regions[0].blocks[0].ops[-1].operands[value.index + 1]]
        sources = list(op.operands)
        if op.name in COMBINES:
            sources += [operand for inner in walk(op.regions[0]) for operand in inner.operands]
        return sources

    def _of_argument(self, value: Value) -> list[Value]:
        block: BasicBlock | None = value.block
        if block is None:
            return []  # an argument of the kernel
        parent = block.parent
        if parent is None:
            return [passed[value.index] for passed in self._predecessors.get(block.label, [])]
        if parent.name == "scf.for":
            return [] if value.index == 0 else self._carried(parent, value.index - 1)
        if parent.name == "scf.while":
            if block is parent.regions[0].blocks[0]:
                sources = [parent.operands[value.index]]
                last = parent.regions[1].blocks[0].ops[-1:]
                return sources + [op.operands[value.index] for op in last if op.name == "scf.yield"]
            return [parent.regions[0].blocks[0].ops[-1].operands[value.index + 1]]
        return []  # of a combine function

    def _carried(self, loop: Op, index: int) -> list[Value]:
        """The sources of a value that a loop carries. All its names are needed together."""
        body = loop.regions[0].blocks[0]
        return [loop.operands[3 + index], body.args[1 + index], body.ops[-1].operands[index]]


def ticket_loops(function: Function) -> list[Op]:
    """The loops whose rounds programs share out among themselves: each takes the next number from one counter of all,
    and carries on nothing else; nor does another atomic tell a round what came before. What memory tells it the text
    does not say. (Here one program runs after the other, and the first takes all.)
    """
    tracer, found = _Tracer(function, apart=False, taken=False), list[Op]()
    for loop in (op for op in tracer.ops if op.name == "scf.while"):
        first, body = (region.blocks[0] for region in loop.regions)
        tickets = {id(op) for op in body.ops if _takes_number(op, tracer)}
        asked = (op for region in loop.regions for op in walk(region) if op.name in ATOMICS and op.results[0].uses)
        carried = [each for passed in body.ops[-1].operands for each in tracer.closure(passed, tickets)]
        decides = tracer.closure(first.ops[-1].operands[0])
        if len(tickets) == 1 and set(map(id, asked)) == tickets <= {id(each.op) for each in decides}:
            found += [loop] if not any(each.block in (first, body) for each in carried) else []
    return found


def _takes_number(op: Op, tracer: _Tracer) -> bool:
    """Whether an atomic counts up what all programs count up."""
    if op.name != "tt.atomic_rmw" or op.attrs["word0"] != "add" or op.results[0].type.is_block:
        return False
    by, made_of = op.operands[1].op, tracer.closure(op.operands[0])
    counts = by is not None and by.attrs.get("value", "")[:1] in "123456789"
    return counts and all(each.op is None or each.op.name in ("tt.addptr", "arith.constant") for each in made_of)


def _reads(op: Op) -> bool:
    return op.name == "tt.load" or op.name in ATOMICS


def _has_no_alternative(branch: Op) -> bool:
    others = [op for region in branch.regions[1:] for block in region.blocks for op in block.ops]
    return not branch.results and all(op.name == "scf.yield" for op in others)


def _is_combine(op: Op | None) -> bool:
    return op is not None and (op.name in COMBINES or (op.block is not None and _is_combine(op.block.parent)))


_FREE = frozenset(
    {
        "tt.print", "tt.assert", "ttg.barrier", "gpu.barrier", "tt.debug_barrier", "llvm.intr.assume", "tt.gather",
        "tt.get_program_id", "tt.get_num_programs", "tt.unsplat", "ub.poison", "tt.histogram",
    }
)  # fmt: skip
"""operations that are no work, and may be left out"""
_TERMINATORS = frozenset({"scf.yield", "scf.condition", "tt.return", "cf.br", "cf.cond_br"})


@dataclass(eq=False, repr=False)
class CountOp(Op):
    """``dk.count``: the work of operations that were left out."""

    cost: BlockCost = field(default_factory=BlockCost)


def slim(function: Function, steering: Steering, *, loads: bool = True) -> Function:
    """The skeleton of a function. Without ``loads``, reads that do not steer are counted as runs, and not looked at.

    Raises:
        UnsupportedTTIR: an operation whose work nobody could count.
    """
    return _Slimmer(function, steering, loads).run()


class _Slimmer:
    def __init__(self, function: Function, steering: Steering, loads: bool):
        self.function = function
        self.steering = steering
        self.loads = loads
        self.numbers = {id(block): k for k, block in enumerate(blocks_of(function))}
        self.new: dict[int, Value] = {}
        self.arguments: dict[str, list[int]] = {}
        """of a basic block, by label: the positions that are kept"""

    def run(self) -> Function:
        args = [self._value(a, None, k) for k, a in enumerate(self.function.args)]
        return Function(self.function.name, args, self._region(self.function.body, None))

    # ---- values and operations

    def _value(self, old: Value, op: Op | None, index: int, block: BasicBlock | None = None) -> Value:
        value = Value(old.name, old.type, op, index, block)
        self.new[id(old)] = value
        return value

    def _use(self, op: Op, olds: list[Value]) -> None:
        for old in olds:
            value = self.new[id(old)]
            op.operands.append(value)
            value.uses.append(op)

    def _emit(self, block: BasicBlock, name: str, old: Op, operands: list[Value], attrs: dict[str, str]) -> Op:
        op = Op(name, [], [], attrs, loc=old.loc, number=old.number, block=block)
        self._use(op, operands)
        block.ops.append(op)
        return op

    def _keep(self, block: BasicBlock, old: Op, name: str | None = None, results: list[Value] | None = None) -> Op:
        op = self._emit(block, name or old.name, old, old.operands, old.attrs)
        op.results = [self._value(v, op, k) for k, v in enumerate(old.results if results is None else results)]
        return op

    def _region(self, region: Region, parent: Op | None) -> Region:
        """The function's basic blocks, with the arguments that are needed."""
        blocks = []
        for old in region.blocks:
            self.arguments[old.label] = [k for k, a in enumerate(old.args) if self.steering.needs(a)]
        for old in region.blocks:
            block = BasicBlock(old.label, [], parent=parent)
            for k, argument in enumerate([a for a in old.args if self.steering.needs(a)]):
                block.args.append(self._value(argument, None, k, block))
            blocks.append(block)
        for old, block in zip(region.blocks, blocks, strict=True):
            count = self._count_of(old, block)
            for op in old.ops:
                self._op(block, op, count.cost)
        return Region(blocks)

    def _count_of(self, old: BasicBlock, block: BasicBlock) -> CountOp:
        """Begin a block with what counts the original one's work."""
        count = CountOp("dk.count", [], [], {}, block=block)
        count.cost.entered[self.numbers[id(old)]] += 1
        block.ops.append(count)
        return count

    def _op(self, block: BasicBlock, op: Op, cost: BlockCost) -> None:
        handler: Callable[[BasicBlock, Op], None] | None = {
            "scf.for": self._for, "scf.if": self._if, "scf.while": self._while,
        }.get(op.name)  # fmt: skip
        if handler is not None:
            handler(block, op)
        elif op.name in ("tt.load", "tt.store") or op.name in ATOMICS:
            self._access(block, op, cost)
        elif op.name in _TERMINATORS:
            self._terminator(block, op)
        elif any(self.steering.needs(value) for value in op.results):
            self._whole(block, op)
        else:
            _count(cost, op)

    def _whole(self, block: BasicBlock, op: Op) -> None:
        """An operation with its regions as they are (combine functions)."""
        kept = self._keep(block, op)
        for region in op.regions:
            kept.regions.append(self._copy(region, kept))

    def _copy(self, region: Region, parent: Op) -> Region:
        blocks = [BasicBlock(old.label, [], parent=parent) for old in region.blocks]
        for old, block in zip(region.blocks, blocks, strict=True):
            block.args = [self._value(a, None, k, block) for k, a in enumerate(old.args)]
            self.arguments[old.label] = list(range(len(old.args)))
        for old, block in zip(region.blocks, blocks, strict=True):
            for op in old.ops:
                if op.successors:
                    self._terminator(block, op)
                else:
                    self._whole(block, op)
        return Region(blocks)

    # ---- memory

    def _access(self, block: BasicBlock, op: Op, cost: BlockCost) -> None:
        how = {"tt.load": "load", "tt.store": "store"}.get(op.name, "atomic")
        steers = id(op) in self.steering.reads or id(op) in self.steering.writes
        if how != "atomic":
            count_operation(cost, op)
        elif not steers:  # one that steers counts itself
            cost.atomics += op.operands[0].type.numel
        if steers:
            name = {"load": "dk.fetch", "store": "dk.put"}.get(how, op.name)
            kept = self._keep(block, op, name)
            kept.attrs = {**op.attrs, "steers": "1"}
            return
        if how == "load" and not self.loads:
            return
        pair = by_sign(op)
        if pair is not None and pair[0] and not op.operands[0].type.is_block:
            return
        mask = mask_of(op) if pair is None else pair[1]
        attrs = {"how": how}
        self._emit(block, "dk.touch", op, [op.operands[0], *([mask] if mask is not None else [])], attrs)

    # ---- control

    def _for(self, block: BasicBlock, old: Op) -> None:
        body = old.regions[0].blocks[0]
        kept = [k for k in range(len(old.results)) if self.steering.needs(body.args[1 + k])]
        op = Op(old.name, [], [], old.attrs, loc=old.loc, block=block)
        self._use(op, old.operands[:3] + [old.operands[3 + k] for k in kept])
        yields = body.ops[-1].operands if body.ops and body.ops[-1].name == "scf.yield" else []
        region = self._body(op, body, [body.args[0], *(body.args[1 + k] for k in kept)], [yields[k] for k in kept])
        op.regions.append(region)
        op.results = [self._value(old.results[k], op, n) for n, k in enumerate(kept)]
        left = region.blocks[0].ops[:-1]
        if not kept and all(inner.name == "dk.count" for inner in left):
            op = _trips(op, left)
        block.ops.append(op)

    def _body(self, parent: Op, old: BasicBlock, args: list[Value], yields: list[Value]) -> Region:
        """A single block that ends in ``scf.yield`` of ``yields``."""
        block = BasicBlock(old.label, [], parent=parent)
        block.args = [self._value(a, None, k, block) for k, a in enumerate(args)]
        count = self._count_of(old, block)
        for op in old.ops:
            if op.name != "scf.yield":
                self._op(block, op, count.cost)
        last = Op("scf.yield", [], [], {}, block=block)
        self._use(last, yields)
        block.ops.append(last)
        return Region([block])

    def _if(self, block: BasicBlock, old: Op) -> None:
        kept = [k for k, value in enumerate(old.results) if self.steering.needs(value)]
        op = Op(old.name, [], [], old.attrs, loc=old.loc, block=block)
        if id(old) in self.steering.taken:
            true = Op("arith.constant", [], [], {"value": "true"}, loc=old.loc, block=block)
            true.results = [Value("%taken", old.operands[0].type, true, 0)]
            true.results[0].uses.append(op)
            op.operands.append(true.results[0])
            block.ops.append(true)
        else:
            self._use(op, old.operands)
        for region in old.regions:
            body = region.blocks[0]
            yields = body.ops[-1].operands if body.ops and body.ops[-1].name == "scf.yield" else []
            op.regions.append(self._body(op, body, [], [yields[k] for k in kept]))
        op.results = [self._value(old.results[k], op, n) for n, k in enumerate(kept)]
        block.ops.append(op)

    def _while(self, block: BasicBlock, old: Op) -> None:
        test, body = old.regions[0].blocks[0], old.regions[1].blocks[0]
        condition, last = test.ops[-1], body.ops[-1]
        carried = [k for k, a in enumerate(test.args) if self.steering.needs(a)]
        passed = [
            k for k, a in enumerate(body.args) if self.steering.needs(a) or self.steering.needs(old.results[k])
        ]  # fmt: skip
        op = Op(old.name, [], [], old.attrs, loc=old.loc, block=block)
        self._use(op, [old.operands[k] for k in carried])
        first = self._body(op, test, [test.args[k] for k in carried], [])
        ending = first.blocks[0].ops.pop()
        ending.name = condition.name
        self._use(ending, [condition.operands[0], *(condition.operands[1 + k] for k in passed)])
        first.blocks[0].ops.append(ending)
        yields = last.operands if last.name == "scf.yield" else []
        second = self._body(op, body, [body.args[k] for k in passed], [yields[k] for k in carried])
        op.regions = [first, second]
        op.results = [self._value(old.results[k], op, n) for n, k in enumerate(passed)]
        block.ops.append(op)

    def _terminator(self, block: BasicBlock, op: Op) -> None:
        if op.name == "scf.condition":
            return  # written by the loop
        kept = self._emit(block, op.name, op, op.operands, op.attrs)
        for label, passed in op.successors:
            values = [self.new[id(passed[k])] for k in self.arguments[label]]
            kept.successors.append((label, values))
            for value in values:
                value.uses.append(kept)


def _trips(loop: Op, left: list[Op]) -> CountOp:
    """Instead of a loop in which nothing happens any more: its work, as often as it runs."""
    op = CountOp("dk.trips", list(loop.operands), [], loop.attrs, loc=loop.loc, block=loop.block)
    for value in op.operands:
        value.uses.remove(loop)
        value.uses.append(op)
    for inner in left:
        assert isinstance(inner, CountOp)
        for name in ("load_bytes", "store_bytes", "atomics"):
            setattr(op.cost, name, getattr(op.cost, name) + getattr(inner.cost, name))
        op.cost.flops.update(inner.cost.flops)
        op.cost.entered.update(inner.cost.entered)
    return op


def _count(cost: BlockCost, op: Op) -> None:
    """Add the work of an operation that is left out."""
    if op.name in ("tt.dot", "tt.dot_scaled"):
        count_products(cost, op)
    elif op.name in COMBINED:
        count_combined(cost, op)
    elif op.name in ELEMENTWISE or op.name == "tt.elementwise_inline_asm":
        count_operation(cost, op)
    elif op.name not in SHAPE_OPS and op.name not in SOURCES and op.name not in _FREE:
        raise UnsupportedTTIR(op.name, op.loc)


def argument_name(op: Op) -> str | None:
    """Name of the argument that an access goes through, where that is certain."""
    argument = argument_of(op.operands[0])
    return argument.name.lstrip("%") if argument is not None else None


@dataclass(frozen=True)
class SteeringRead:
    """A load or atomic whose result decides where the kernel goes."""

    operation: str
    argument: str | None
    """the pointer argument that it reads through; None for an address from memory"""
    decides: str
    """in words: "an address and a loop" """
    loc: str
    """``file:line``"""


@dataclass(frozen=True)
class Skeleton:
    """A kernel as a data-free device runs it."""

    kernel: CompiledKernel
    lowered: Lowered
    code: Code
    steering: Steering
    reads: tuple[SteeringRead, ...]
    serial: bool
    """programs steer one another through memory: all of them must run, in order"""
    followed: frozenset[str | None]
    """arguments through which it writes what it is steered by, and does so here; None for an address from memory"""
    loose: frozenset[str | None]
    """arguments through which it writes data, which is not there afterwards"""

    @cached_property
    def stores(self) -> tuple[Lowered, Code]:
        """The same without looking at reads that do not steer; large launches alone need it."""
        lowered = _lower(self.kernel, self.steering, loads=False)
        return lowered, _code(lowered)


@lru_cache(maxsize=256)
def skeleton_of(ttir: str, name: str | None = None, *, apart: bool = False, taken: bool = False) -> Skeleton:
    """The skeleton of a kernel's text. ``apart``: what it writes through addresses from memory is taken to be none of
    the arguments that steer it, which is for the caller to make sure of; ``taken`` as for :func:`steering_of`.

    Raises:
        TTIRError: malformed text.
        UnsupportedTTIR: what cannot be simulated.
    """
    kernel = compile_ttir(ttir, name=name)
    steering = steering_of(kernel.function, apart=apart, taken=taken)
    lowered = _lower(kernel, steering, loads=True)
    reads = tuple(
        SteeringRead(op.name, argument_name(op), steering.kinds(op).words(), op.loc)
        for op in steering.reads.values()
    )  # fmt: skip
    serial = bool(steering.writes) or any(read.operation in ATOMICS for read in reads)
    writes = [op for op in walk(kernel.function.body) if op.name == "tt.store" or op.name in ATOMICS]
    moved = {**steering.writes, **steering.reads}
    followed = frozenset(argument_name(op) for op in writes if id(op) in moved)
    loose = frozenset(argument_name(op) for op in writes if id(op) not in moved)
    return Skeleton(kernel, lowered, _code(lowered), steering, reads, serial, followed, loose)


def _lower(kernel: CompiledKernel, steering: Steering, loads: bool) -> Lowered:
    function = slim(kernel.function, steering, loads=loads)
    try:
        lowered = Lowering(function, checked=False, allow_store_fusion=False).run()
    except (LookupError, ValueError, TypeError, AttributeError, AssertionError, OverflowError) as error:
        if isinstance(error, TTIRError):
            raise
        raise TTIRError(f"the skeleton of kernel {kernel.name} cannot be lowered: {error!r}") from error
    atomics = any(block.atomics for block in lowered.blocks)
    return replace(lowered, has_atomics=atomics or bool(steering.writes))


def _code(lowered: Lowered) -> Code:
    return Code(lowered.text, lowered.symbol)
