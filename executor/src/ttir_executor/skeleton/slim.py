"""Reduces a function to its skeleton: addresses, masks, branches and loops, with the rest replaced by counts.

The result is a function like any other, and is lowered like any other. Some operations are new (``lower/touch.py``):

- ``dk.count`` replaces operations that were left out: it adds their work to its basic block; ``dk.trips`` replaces a
  loop of which nothing else is left.
- ``dk.touch`` is an access whose data is not needed: it checks and counts, and moves nothing.
- ``dk.fetch`` and ``dk.put`` are the accesses that steer: they move data, if there is any.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ttir_executor.lower.block_cost import BlockCost, count_operation
from ttir_executor.lower.combine import COMBINED, count_combined
from ttir_executor.lower.dot import count_products
from ttir_executor.lower.dot_scaled import count_scaled_products
from ttir_executor.lower.elementwise import ELEMENTWISE
from ttir_executor.lower.plan import SHAPE_OPS, SOURCES, argument_of, blocks_of
from ttir_executor.skeleton.steering import ATOMICS, Steering, mask_of
from ttir_executor.ttir.ir import BasicBlock, Function, Op, Region, UnsupportedTTIR, Value

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
        mask = mask_of(op)
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
    if op.name == "tt.dot":
        count_products(cost, op)
    elif op.name == "tt.dot_scaled":
        count_scaled_products(cost, op)
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
