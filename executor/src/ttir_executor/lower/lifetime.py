"""The lifetimes of block values in scratch memory, and an arena that reuses freed memory."""

from ttir_executor.lower.plan import walk
from ttir_executor.ttir.ir import Function, Op, Region, Value

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
