"""Loads, stores and atomics."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ttir_executor.exact.field import SIGN, reduced
from ttir_executor.exact.frames import Frame, Handler
from ttir_executor.exact.functions import fmax, fmin
from ttir_executor.exact.integers import INTEGER
from ttir_executor.exact.memory import Undecided
from ttir_executor.exact.shapes import DTYPES, Array, chosen, each, picked, rank, ranked
from ttir_executor.exact.values import Exact
from ttir_executor.ttir.formats import bits_of
from ttir_executor.ttir.ir import FLOAT_BITS, Op, Type, Value


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
