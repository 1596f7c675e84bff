"""Values of programs, and control flow: where programs take different ways, each way runs on its programs alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

from ttir_executor.exact.memory import ExactMemory, Undecided
from ttir_executor.exact.shapes import Array, merged, rank, taken
from ttir_executor.exact.values import Exact
from ttir_executor.ttir.ir import BasicBlock, Op, Region, Value

CLOCK = 128
"""operations between two looks at the clock, which costs as much as one"""
MOST_OPERATIONS = 2_000_000
"""evaluated before a launch counts as endless"""


class Evaluation:
    """One evaluation of some programs of a grid."""

    def __init__(
        self,
        memory: ExactMemory,
        grid: tuple[int, int, int],
        programs: np.ndarray,
        steps: Mapping[BasicBlock, list[Step]],
        deadline: float | None,
    ):
        self.memory, self.field, self.grid, self.programs = memory, memory.field, grid, programs
        self.steps, self.deadline = steps, deadline
        self.left = MOST_OPERATIONS

    def count(self) -> None:
        """One more operation."""
        self.left -= 1
        if self.left < 0:
            raise Undecided("a launch that does not end")
        if self.deadline is not None and self.left % CLOCK == 0 and time.thread_time() > self.deadline:
            raise Undecided("a launch that takes too long")


class Frame:
    """The values that some programs see: their own, then those of the frame around, of which they are a part."""

    def __init__(self, run: Evaluation, count: int, parent: Frame | None = None, index: np.ndarray | None = None):
        self.run, self.count, self.parent, self.index = run, count, parent, index
        self.env: dict[Value, Array] = {}

    def get(self, value: Value) -> Array:
        """A value, for these programs."""
        found = self.env.get(value)
        if found is None:
            found = self.env[value] = self.outer(value)
        return found

    def exact(self, value: Value) -> Exact:
        """A value that is a float."""
        found = self.get(value)
        assert isinstance(found, Exact)
        return found

    def array(self, value: Value) -> np.ndarray:
        """A value that is none."""
        found = self.get(value)
        assert not isinstance(found, Exact)
        return found

    def programs(self) -> np.ndarray:
        """Numbers of the programs."""
        if self.parent is None:
            return self.run.programs
        return self.parent.programs() if self.index is None else self.parent.programs()[self.index]

    def outer(self, value: Value) -> Array:
        """A value from outside."""
        if self.parent is None:
            raise Undecided(f"value {value.name}, which is not known here")
        found = self.parent.get(value)
        return found if self.index is None else taken(found, self.index, rank(value.type))

    def part(self, index: np.ndarray) -> Frame:
        """A frame for some of the programs."""
        return Frame(self.run, index.size, self, index)


Handler = Callable[[Frame, Op], Array | None]
"""gives the value of the operation's one result; nothing where it has none, or has put its results into the frame"""
Step = tuple[Op, Handler, tuple[Value, ...]]
"""an operation, what evaluates it, and the values that nothing needs afterwards"""


def run_block(frame: Frame, block: BasicBlock) -> None:
    """All operations of a block but its terminator."""
    run, env = frame.run, frame.env
    for op, handler, dead in run.steps[block]:
        run.count()
        found = handler(frame, op)
        if found is not None:
            env[op.results[0]] = found
        for value in dead:
            env.pop(value, None)


# ---- basic blocks


class _BlockFrame(Frame):
    """The programs that come to one of several blocks; values also come from the blocks on the way to it."""

    def __init__(self, run: Evaluation, parent: Frame, index: np.ndarray, done: dict[BasicBlock, _BlockFrame]):
        super().__init__(run, index.size, parent, index)
        self.done = done

    def outer(self, value: Value) -> Array:
        block = value.op.block if value.op is not None else value.block
        other = self.done.get(block) if block is not None else None
        if other is None:
            return super().outer(value)
        assert self.index is not None and other.index is not None
        return taken(other.get(value), np.searchsorted(other.index, self.index), rank(value.type))


def run_blocks(frame: Frame, region: Region) -> list[Array]:
    """A function's body, whose blocks come after all that lead to them; gives what it returns."""
    blocks = region.blocks
    if len(blocks) == 1:
        run_block(frame, blocks[0])
        return [frame.get(value) for value in blocks[0].ops[-1].operands] if blocks[0].ops else []
    everyone = np.arange(frame.count)
    pending: dict[str, list[tuple[np.ndarray, list[Array]]]] = {}
    done: dict[BasicBlock, _BlockFrame] = {}
    returned: list[tuple[np.ndarray, list[Array]]] = []
    types = []
    for block in blocks:
        arrivals = pending.pop(block.label, []) if block is not blocks[0] else [(everyone, [])]
        if not arrivals:
            continue
        index = np.sort(np.concatenate([some for some, _ in arrivals]))
        inside = _BlockFrame(frame.run, frame, index, done)
        if block is not blocks[0]:
            for k, argument in enumerate(block.args):
                groups = [(np.searchsorted(index, some), values[k]) for some, values in arrivals]
                inside.env[argument] = merged(groups, index.size, argument.type)
        run_block(inside, block)
        done[block] = inside
        last = block.ops[-1]
        if not last.successors:
            types = [value.type for value in last.operands]
            returned.append((index, [inside.get(value) for value in last.operands]))
        elif len(last.successors) == 1:
            label, passed = last.successors[0]
            pending.setdefault(label, []).append((index, [inside.get(value) for value in passed]))
        else:
            condition = _condition(inside, last.operands[0])
            for (label, passed), side in zip(last.successors, (condition, ~condition), strict=True):
                some = np.flatnonzero(side)
                if some.size:
                    values = [taken(inside.get(value), some, rank(value.type)) for value in passed]
                    pending.setdefault(label, []).append((index[some], values))
    return [
        merged([(index, values[k]) for index, values in returned], frame.count, type_) for k, type_ in enumerate(types)
    ]


def _condition(frame: Frame, value: Value) -> np.ndarray:
    return np.broadcast_to(frame.array(value), (frame.count,))


# ---- structured control flow


def _yielded(frame: Frame, block: BasicBlock) -> list[Array]:
    """Run a block, and give what it yields."""
    run_block(frame, block)
    last = block.ops[-1] if block.ops else None
    return [frame.get(value) for value in last.operands] if last is not None and last.name == "scf.yield" else []


def if_else(frame: Frame, op: Op) -> None:
    """``scf.if``."""
    condition = _condition(frame, op.operands[0])
    sides = [np.flatnonzero(condition), np.flatnonzero(~condition)]
    groups = []
    for some, region in zip(sides, op.regions, strict=False):
        if some.size == frame.count:
            frame.env.update(zip(op.results, _yielded(frame, region.blocks[0]), strict=True))
            return
        if some.size:
            groups.append((some, _yielded(frame.part(some), region.blocks[0])))
    for k, result in enumerate(op.results):
        frame.env[result] = merged([(some, values[k]) for some, values in groups], frame.count, result.type)


def for_loop(frame: Frame, op: Op) -> None:
    """``scf.for``: a step that is not positive ends it at once."""
    body = op.regions[0].blocks[0]
    start, stop, step = (frame.array(value).astype(np.int64) for value in op.operands[:3])
    counter = frame.array(op.operands[0]).dtype
    if op.attrs.get("unsigned"):
        start, stop = (
            np.where(end < 0, end + (1 << 32), end) if counter.itemsize == 4 else end for end in (start, stop)
        )
    length = np.maximum(stop - start, 0)
    trips = np.where(step > 0, -(-length // np.maximum(step, 1)), 0)
    carried = [frame.get(value) for value in op.operands[3:]]
    if trips.size == 1 or (trips == trips[0]).all():
        for trip in range(int(trips.reshape(-1)[0])):
            frame.run.count()
            frame.env[body.args[0]] = (start + trip * step).astype(counter)
            frame.env.update(zip(body.args[1:], carried, strict=True))
            carried = _yielded(frame, body)
        frame.env.update(zip(op.results, carried, strict=True))
        return
    axes = [rank(result.type) for result in op.results]
    trips = np.broadcast_to(trips, (frame.count,))
    alive, trip = np.arange(frame.count), 0
    inside: Frame | None = None
    groups: list[tuple[np.ndarray, list[Array]]] = []
    while alive.size:
        over = trips[alive] <= trip
        if over.any():
            groups.append((alive[over], _of(carried, over, axes)))
            alive, carried, inside = alive[~over], _of(carried, ~over, axes), None
            if not alive.size:
                break
        frame.run.count()
        inside = inside or frame.part(alive)
        counters = taken(start, alive, 1) + trip * taken(step, alive, 1)  # type: ignore[operator]
        inside.env[body.args[0]] = counters.astype(counter)  # type: ignore[union-attr]
        inside.env.update(zip(body.args[1:], carried, strict=True))
        carried = _yielded(inside, body)
        trip += 1
    for k, result in enumerate(op.results):
        frame.env[result] = merged([(some, values[k]) for some, values in groups], frame.count, result.type)


def _of(values: list[Array], some: np.ndarray, axes: list[int]) -> list[Array]:
    return [taken(value, some, n) for value, n in zip(values, axes, strict=True)]


def while_loop(frame: Frame, op: Op) -> None:
    """``scf.while``: the first region tests and passes values on, the second is the body."""
    test, body = op.regions[0].blocks[0], op.regions[1].blocks[0]
    condition, *passed = test.ops[-1].operands
    carried = [frame.get(value) for value in op.operands]
    axes = [rank(value.type) for value in passed]
    alive, inside = np.arange(frame.count), frame
    groups: list[tuple[np.ndarray, list[Array]]] = []
    while True:
        frame.run.count()
        inside.env.update(zip(test.args, carried, strict=True))
        run_block(inside, test)
        again = _condition(inside, condition)
        values = [inside.get(value) for value in passed]
        if not again.all():
            groups.append((alive[~again], _of(values, ~again, axes)))
            alive, values = alive[again], _of(values, again, axes)
            if not alive.size:
                break
            inside = frame.part(alive)
        inside.env.update(zip(body.args, values, strict=True))
        carried = _yielded(inside, body)
    for k, result in enumerate(op.results):
        frame.env[result] = merged([(some, values[k]) for some, values in groups], frame.count, result.type)
