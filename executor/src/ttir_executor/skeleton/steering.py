"""Finds the values of a kernel that *steer* it: those that reach an address, a mask, a branch or a loop bound.

Everything else is data, which cannot change where the kernel goes. Steering values are computed in a data-free run; a
load whose result steers is a dependence on data, and harmless only if its memory has contents.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntFlag

from ttir_executor.lower.plan import argument_of, walk
from ttir_executor.ttir.ir import BasicBlock, Function, Op, Value


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

    def needs(self, value: Value) -> bool:
        """Whether a value has to be computed."""
        return id(value) in self.needed

    def kinds(self, op: Op) -> Steers:
        """The kinds of decision that depend on an operation's results."""
        total = Steers(0)
        for value in op.results:
            total |= self.needed.get(id(value), Steers(0))
        return total


def steering_of(function: Function, *, apart: bool = False) -> Steering:
    """Follow addresses, masks, branches and loop bounds back to where they come from, through memory where need be.

    ``apart``: what is written through addresses from memory is taken to be none of the arguments that steer.
    """
    return _Tracer(function, apart).run()


def mask_of(op: Op) -> Value | None:
    """The mask of a memory access, where it has one."""
    place = {"tt.load": 1, "tt.store": 2, "tt.atomic_rmw": 2}.get(op.name)
    return op.operands[place] if place is not None and len(op.operands) > place else None


class _Tracer:
    def __init__(self, function: Function, apart: bool):
        self.function = function
        self.apart = apart
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

    # ---- where to begin

    def _roots(self, op: Op) -> None:
        if op.name in ("tt.load", "tt.store") or op.name in ATOMICS:
            self._open.append((op.operands[0], Steers.ADDRESS))
            mask = mask_of(op)
            if mask is not None:
                self._open.append((mask, Steers.MASK))
        elif op.block is not None and _is_combine(op.block.parent):
            return  # loops and branches of a function on scalars decide about values alone
        elif op.name == "scf.for":
            self._open += [(value, Steers.LOOP) for value in op.operands[:3]]
        elif op.name == "scf.condition":
            self._open.append((op.operands[0], Steers.LOOP))
        elif op.name in ("scf.if", "cf.cond_br"):
            self._open.append((op.operands[0], Steers.BRANCH))

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
        if op.name == "tt.load" or op.name in ATOMICS:
            self.found.reads[id(op)] = op
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


def _is_combine(op: Op | None) -> bool:
    return op is not None and (op.name in COMBINES or (op.block is not None and _is_combine(op.block.parent)))
