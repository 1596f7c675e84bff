"""Evaluation of TTIR on exact values, all programs of a grid at once, with its loads, stores and atomics."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ttir_executor.exact import frames, operations
from ttir_executor.exact.field import SIGN, reduced
from ttir_executor.exact.frames import Evaluation, Frame, Handler, Step
from ttir_executor.exact.functions import fmax, fmin
from ttir_executor.exact.memory import ExactMemory, Undecided
from ttir_executor.exact.shapes import DTYPES, INTEGER, Array, chosen, each, picked, rank, ranked
from ttir_executor.exact.values import Exact
from ttir_executor.ttir.ir import FLOAT_BITS, BasicBlock, Function, Op, Region, Type, Value, bits_of


def _of_type(value: Array, elem: str) -> Array:
    """What memory gives, as registers have it."""
    if isinstance(value, Exact):
        return value
    return value != 0 if elem == "i1" else value.astype(DTYPES[elem])


def _load(frame: Frame, op: Op) -> Array:
    """Lanes that are masked off and have no ``other`` are 0, and unknown."""
    addresses, elem = frame.array(op.operands[0]), op.operands[0].type.pointee or "i8"
    mask = frame.array(op.operands[1]) if len(op.operands) > 1 else None
    memory = frame.run.memory
    if mask is None or np.all(mask):
        return _of_type(memory.read(addresses, elem), elem)
    if len(op.operands) > 2:
        other = frame.get(op.operands[2])
    elif elem in FLOAT_BITS:
        other = Exact.unknown(frame.run.field, np.zeros(()))
    else:
        other = np.zeros((), DTYPES[elem])
    if not np.any(mask):
        return other
    shape = np.broadcast_shapes(addresses.shape, mask.shape)
    mask = np.broadcast_to(mask, shape)
    addresses = np.broadcast_to(addresses, shape)
    some = addresses[np.unravel_index(int(mask.argmax()), shape)]
    read = _of_type(memory.read(np.where(mask, addresses, some), elem), elem)
    return chosen(mask, read, other)


def _placed(handler: Handler) -> Handler:
    """Names the operation where it cannot be evaluated."""

    def placed(frame: Frame, op: Op) -> Array | None:
        try:
            return handler(frame, op)
        except Undecided as error:
            if str(error).endswith(")") or not op.loc:
                raise
            raise Undecided(f"{error} ({op.name}, {op.loc})") from None

    return placed


def _store(frame: Frame, op: Op) -> None:
    pointer, value = op.operands[:2]
    mask = frame.array(op.operands[2]) if len(op.operands) > 2 else None
    frame.run.memory.write(frame.array(pointer), pointer.type.pointee or "i8", frame.get(value), mask)


# ---- atomics


def behind(op: Op) -> list[Value]:
    """The float of which an atomic gets the bits: how kernels take maxima of floats."""
    if op.name != "tt.atomic_rmw" or op.attrs.get("word0") not in _FLOAT_EXTREMA:
        return []
    made = op.operands[1].op
    if made is None or made.name not in ("tt.bitcast", "arith.bitcast") or not made.operands[0].type.is_float:
        return []
    return [made.operands[0]]


_FLOAT_EXTREMA: dict[str, Callable[[Exact, Exact], Exact]] = {"max": fmax, "umin": fmax, "min": fmin, "umax": fmin}
"""larger bits of a negative number are a smaller one"""
_INTEGER = {
    "add": "arith.addi", "and": "arith.andi", "or": "arith.ori", "xor": "arith.xori", "max": "arith.maxsi",
    "min": "arith.minsi", "umax": "arith.maxui", "umin": "arith.minui",
}  # fmt: skip


class _Lanes:
    """The active lanes of an atomic, in the order of programs, flat."""

    def __init__(self, frame: Frame, op: Op, values: list[Array], mask: np.ndarray | None):
        pointer = op.operands[0]
        self.elem = pointer.type.pointee or "i32"
        axes, inner = rank(pointer.type), pointer.type.shape or ()
        self.shape = (frame.count, *inner)
        addresses = np.broadcast_to(ranked(frame.array(pointer), axes), self.shape).reshape(-1)
        full = [
            each(value, lambda part: np.broadcast_to(ranked(part, axes), self.shape).reshape(-1)) for value in values
        ]
        if mask is None:
            self.active = np.arange(addresses.size)
        else:
            self.active = np.flatnonzero(np.broadcast_to(ranked(mask, axes), self.shape))
        self.addresses = addresses[self.active]
        self.values = [picked(value, self.active) for value in full]

    def rounds(self) -> list[np.ndarray]:
        """Lanes in groups of different addresses, those of one address in order."""
        order = np.argsort(self.addresses, kind="stable")
        ordered = self.addresses[order]
        starts = np.concatenate([[True], ordered[1:] != ordered[:-1]])
        if starts.all():
            return [order]
        first = np.maximum.accumulate(np.where(starts, np.arange(order.size), 0))
        turn = np.empty(order.size, np.int64)
        turn[order] = np.arange(order.size) - first
        return [np.flatnonzero(turn == k) for k in range(int(turn.max()) + 1)]


def _rmw(frame: Frame, op: Op) -> Array | None:
    kind = op.attrs["word0"]
    mask = frame.array(op.operands[2]) if len(op.operands) > 2 else None
    floats = behind(op)
    value = frame.get(floats[0] if floats else op.operands[1])
    lanes = _Lanes(frame, op, [value], mask)
    used = bool(op.results and op.results[0].uses)
    update: Callable[[Any, Any], Any]
    if floats:
        lanes.elem, update = floats[0].type.elem, _FLOAT_EXTREMA[kind]
    elif kind in ("exch", "xchg"):
        update = _second
    elif kind == "fadd":
        update = Exact.__add__
    elif kind in _INTEGER and not isinstance(value, Exact):
        update = INTEGER[_INTEGER[kind]]
    else:
        raise Undecided(f"atomic {kind} ({op.loc})")
    if not used and kind in ("fadd", "add"):
        _summed(lanes)
    return _apply(frame, op, lanes, update)


def _second(old: Array, new: Array) -> Array:
    return new


def _cas(frame: Frame, op: Op) -> Array | None:
    lanes = _Lanes(frame, op, [frame.get(value) for value in op.operands[1:]], None)

    def update(old: Array, expected: Array, new: Array) -> Array:
        if isinstance(old, Exact) and isinstance(expected, Exact):
            return chosen(old.f == expected.f, new, old)
        return chosen(np.asarray(old) == np.asarray(expected), new, old)

    return _apply(frame, op, lanes, update)


def _apply(frame: Frame, op: Op, lanes: _Lanes, update: Callable[..., Any]) -> Array | None:
    memory, elem = frame.run.memory, lanes.elem
    seen: list[tuple[np.ndarray, Array]] = []
    if lanes.active.size:
        for some in lanes.rounds():
            frame.run.count()
            addresses = lanes.addresses[some]
            old = _of_type(memory.read(addresses, elem), elem)
            new = update(old, *(picked(value, some) for value in lanes.values))
            memory.write(addresses, elem, new)
            seen.append((lanes.active[some], old))
    used = op.results and op.results[0].uses
    return _old(frame, lanes, seen, op.results[0].type) if used else None


def _old(frame: Frame, lanes: _Lanes, seen: list[tuple[np.ndarray, Array]], type_: Type) -> Array:
    """What lanes found in memory; 0 for those that did not look."""
    size = int(np.prod(lanes.shape))
    if lanes.elem in FLOAT_BITS:
        parts: list[np.ndarray] = [np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size, np.uint8)]
        for some, old in seen:
            assert isinstance(old, Exact)
            for part, new in zip(parts, old.parts, strict=True):
                part[some] = new
        if not type_.is_float:
            return bits_of(parts[0], lanes.elem).reshape(lanes.shape).astype(DTYPES[type_.elem])
        return Exact(frame.run.field, *(part.reshape(lanes.shape) for part in parts))
    found = np.zeros(size, DTYPES[type_.elem])
    for some, old in seen:
        found[some] = old
    return found.reshape(lanes.shape)


def _summed(lanes: _Lanes) -> None:
    """Add up the lanes of one address first, where nobody looks at what lies between."""
    if lanes.active.size < 2:
        return
    order = np.argsort(lanes.addresses, kind="stable")
    ordered = lanes.addresses[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    if starts.size == ordered.size:
        return
    value = lanes.values[0]
    lanes.active, lanes.addresses = lanes.active[order][starts], ordered[starts]
    if not isinstance(value, Exact):
        lanes.values = [np.add.reduceat(value[order], starts, dtype=value.dtype)]
        return
    f, a, b = (np.add.reduceat(part[order], starts) for part in value.parts[:3])
    lost = value.lost[order]
    bits = np.bitwise_or.reduceat(lost & np.uint8(~SIGN & 0xFF), starts)
    bits = bits | np.bitwise_xor.reduceat(lost & np.uint8(SIGN), starts)
    lanes.values = [Exact(value.field, f, reduced(a, value.field.p), reduced(b, value.field.q), bits)]


HANDLERS = {
    "tt.load": _placed(_load), "tt.store": _placed(_store), "tt.atomic_rmw": _placed(_rmw),
    "tt.atomic_cas": _placed(_cas),
}  # fmt: skip


# ---- evaluation


MOST_ELEMENTS = 1 << 18
"""of the copies of one block that programs evaluated together have; programs that may wait for each other run one after
another"""
_decoded: WeakKeyDictionary[Function, dict[BasicBlock, list[Step]]] = WeakKeyDictionary()


def run_exact(
    function: Function,
    grid: Sequence[int],
    args: Sequence[int | float],
    memory: ExactMemory,
    *,
    deadline: float | None = None,
) -> None:
    """Evaluate a kernel over a grid.

    Args:
        args: one for each parameter; addresses for pointers.
        deadline: by ``time.thread_time()``.

    Raises:
        Undecided: what exact values do not have, by name and line; what was written until then stays.
    """
    x, y, z = (*map(int, grid), 1, 1)[:3]
    try:
        with np.errstate(all="ignore"):
            _evaluate(function, (x, y, z), args, memory, deadline)
    except (LookupError, ValueError, TypeError, AttributeError, AssertionError, OverflowError, MemoryError) as error:
        # text that keeps the shape rules can still name attributes or use types that make no sense
        raise Undecided(f"kernel {function.name}: {error!r}") from error


def _evaluate(
    function: Function,
    grid: tuple[int, int, int],
    args: Sequence[int | float],
    memory: ExactMemory,
    deadline: float | None,
) -> None:
    steps = _decoded.get(function)
    if steps is None:
        steps = _decoded[function] = {}
        _decode(function.body, steps)
    ops = [op for block in steps.values() for op, _, _ in block]
    largest = max((value.type.numel for op in ops for value in op.results), default=1)
    piece = 1 if _may_wait(function, ops) else max(1, MOST_ELEMENTS // largest)
    given = [_argument(memory, value.type, number) for value, number in zip(function.args, args, strict=True)]
    count = prod(grid)
    for start in range(0, count, piece):
        programs = np.arange(start, min(count, start + piece))
        frame = Frame(Evaluation(memory, grid, programs, steps, deadline), programs.size)
        frame.env.update(zip(function.args, given, strict=True))
        frames.run_blocks(frame, function.body)


def _argument(memory: ExactMemory, type_: Type, given: int | float) -> Array:
    if type_.is_float:
        return Exact.constant(memory.field, float(given), type_.bits)
    number = int(given) & ((1 << type_.bits) - 1)
    if type_.bits > 1 and number >> (type_.bits - 1):
        number -= 1 << type_.bits
    return np.array([number], DTYPES[type_.elem])


def _may_wait(function: Function, ops: list[Op]) -> bool:
    """Whether a program may wait for another: a loop of open end looks at memory that others change."""
    loops = [op for op in ops if op.name == "scf.while"]
    inside = [op for loop in loops for region in loop.regions for op in _inside(region)]
    return any(op.name.startswith("tt.atomic") or op.attrs.get("isVolatile") == "true" for op in inside)


def _inside(region: Region) -> list[Op]:
    found = []
    for block in region.blocks:
        for op in block.ops:
            found.append(op)
            for inner in op.regions:
                found += _inside(inner)
    return found


# ---- decoding


def _decode(region: Region, steps: dict[BasicBlock, list[Step]]) -> None:
    """What evaluates each operation, and which values of its block are dead after it."""
    uses_of = {block: {value for op in block.ops for value in _used(op)} for block in region.blocks}
    for block in region.blocks:
        own = set(block.args) | {value for op in block.ops for value in op.results}
        found: list[Step] = []
        ends = bool(block.ops) and (bool(block.ops[-1].successors) or block.ops[-1].name in _TERMINATORS)
        needed = _used(block.ops[-1]) if ends else set()
        needed |= {value for other, uses in uses_of.items() if other is not block for value in uses}
        for op in reversed(block.ops[:-1] if ends else block.ops):
            uses = _used(op) & own
            dead = tuple((uses | set(op.results)) - needed)
            needed |= uses
            found.append((op, _handler(op), dead))
        steps[block] = found[::-1]
        for op in block.ops:
            for inner in op.regions:
                _decode(inner, steps)


def _used(op: Op) -> set[Value]:
    """The values that an operation reads."""
    found = set(op.operands) | set(behind(op)) | {value for _, passed in op.successors for value in passed}
    for region in op.regions:
        for inner in _inside(region):
            found |= set(inner.operands) | set(behind(inner))
            found |= {value for _, passed in inner.successors for value in passed}
    return found


_TERMINATORS = frozenset(
    {
        "scf.yield", "scf.condition", "tt.return", "tt.reduce.return", "tt.scan.return", "tt.map_elementwise.return",
    }
)  # fmt: skip


def _handler(op: Op) -> Handler:
    return _HANDLERS.get(op.name, _undecided)


def _undecided(frame: Frame, op: Op) -> None:
    raise Undecided(f"{op.name} ({op.loc})" if op.loc else op.name)


def _program_id(frame: Frame, op: Op) -> Array:
    axis = "xyz".index(op.attrs.get("word0", "x"))
    programs, (x, y, z) = frame.programs(), frame.run.grid
    if (x, y, z)[axis] == 1:
        return np.zeros(1, np.int32)
    return (programs % x, programs // x % y, programs // (x * y))[axis].astype(np.int32)


def _programs(frame: Frame, op: Op) -> Array:
    return np.array([frame.run.grid["xyz".index(op.attrs.get("word0", "x"))]], np.int32)


def _nothing(frame: Frame, op: Op) -> None:
    return None


_HANDLERS: dict[str, Handler] = {
    **operations.HANDLERS, **HANDLERS,
    "scf.for": frames.for_loop, "scf.if": frames.if_else, "scf.while": frames.while_loop,
    "tt.get_program_id": _program_id, "tt.get_num_programs": _programs,
    **dict.fromkeys(
        ("tt.print", "tt.assert", "ttg.barrier", "gpu.barrier", "tt.debug_barrier", "llvm.intr.assume"), _nothing
    ),
}  # fmt: skip
