"""Strip loops over a block, and the value of an expression at an index of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from ttir_executor.lower.elementwise import DIVISIONS, ELEMENTWISE, apply
from ttir_executor.lower.emit import WIDTH, Emitter, float_literal, vec
from ttir_executor.lower.strip import (
    Lin,
    Strip,
    Uni,
    Vec,
    add,
    int_literal,
    llvm_type,
    mul,
    numbers_of,
    shift_and_mask,
    strip_of,
    to_vec,
)
from ttir_executor.ttir.ir import Op, TTIRError, Type, UnsupportedTTIR, Value, number_of, rounded
from ttir_executor.ttir.verify import trans_order

if TYPE_CHECKING:
    from ttir_executor.lower.function import Lowering

Index = tuple[Strip, ...]


@dataclass(frozen=True)
class Buffer:
    """A block value in scratch memory, row-major, one register-typed element each (``i1`` as a byte)."""

    pointer: str
    type: Type

    @property
    def cell(self) -> str:
        """LLVM type of one stored element."""
        ty = llvm_type(self.type)
        return "i8" if ty == "i1" else ty


@dataclass(frozen=True)
class Shifted:
    """A loop-carried index: the initial block plus one running scalar (elements, or bytes for pointers)."""

    initial: Value
    offset: str


Binding = Uni | Buffer | Shifted


@dataclass
class Nest:
    """The body of one strip loop: its position, and the values already computed there."""

    low: Lowering
    width: int
    index: Index
    flat: Strip
    shape: tuple[int, ...]
    memo: dict[tuple[int, Index], Strip] = field(default_factory=dict)

    # ---- evaluation

    def eval(self, value: Value, index: Index | None = None) -> Strip:
        """The value's lanes at ``index`` (default: where the loop stands)."""
        index = self.index if index is None else index
        key = (id(value), index)
        if key not in self.memo:
            self.memo[key] = self._eval(value, index)
        return self.memo[key]

    def _eval(self, value: Value, index: Index) -> Strip:
        binding = self.low.env.get(value)
        if isinstance(binding, Uni):
            return binding
        if isinstance(binding, Buffer):
            return self.read(binding, index)
        if isinstance(binding, Shifted):
            start = self.eval(binding.initial, index)
            return add(self.low.e, start, Uni(binding.offset, start.ty), self.width)
        if value.op is None:
            raise TTIRError(f"value {value.name} has no definition here")
        return self.eval_op(value.op, value, index)

    def eval_op(self, op: Op, value: Value, index: Index) -> Strip:
        """The operation itself at ``index``, whatever is known of its result."""
        if op.name in ELEMENTWISE:
            operands = [self.eval(operand, index) for operand in op.operands]
            if op.name in DIVISIONS:
                self.low.watch_divisor(op, operands[1])
            return apply(self.low.e, op, operands, self.width)
        if op.name == "arith.constant":
            return self._constant(op, value.type, index)
        if op.name == "tt.load":
            return self.low.load(self, op, index)
        handler = _SHAPE.get(op.name)
        if handler is None:
            raise UnsupportedTTIR(op.name, op.loc)
        return handler(self, op, value, index)

    def _constant(self, op: Op, type_: Type, index: Index) -> Strip:
        text = op.attrs["value"]
        if text.startswith("["):
            return self.read(self.low.constant_block(op, type_), index)
        return Uni(constant_text(text, type_), llvm_type(type_))

    # ---- buffers

    def linear(self, shape: tuple[int, ...], index: Index) -> Strip:
        """Row-major element number of ``index``."""
        if index is self.index and shape == self.shape:
            return self.flat
        total: Strip = Uni("0", "i32")
        stride = prod(shape)
        for size, position in zip(shape, index, strict=True):
            stride //= size
            if size > 1:
                total = add(
                    self.low.e, total, mul(self.low.e, position, Uni(str(stride), "i32"), self.width), self.width
                )
        return total

    def read(self, buffer: Buffer, index: Index) -> Strip:
        """Elements of a buffer: one scalar, a contiguous run, or a gather."""
        e, ty = self.low.e, llvm_type(buffer.type)
        assert buffer.type.shape is not None
        at = self.linear(buffer.type.shape, index)
        if isinstance(at, Uni):
            pointer = e.op(f"getelementptr {buffer.cell}, ptr {buffer.pointer}, i32 {at.val}")
            return Uni(self._from_cell(e.op(f"load {buffer.cell}, ptr {pointer}"), ty, 1), ty)
        vt = vec(self.width, buffer.cell)
        if isinstance(at, Lin) and at.step == 1:
            pointer = e.op(f"getelementptr {buffer.cell}, ptr {buffer.pointer}, i32 {at.base}")
            align = _align(buffer.cell)
            return Vec(self._from_cell(e.op(f"load {vt}, ptr {pointer}, align {align}"), ty, self.width), ty)
        lanes = to_vec(e, at, self.width)
        pointers = e.op(f"getelementptr {buffer.cell}, ptr {buffer.pointer}, {vec(self.width, 'i32')} {lanes}")
        name = f"llvm.masked.gather.v{self.width}{_short(buffer.cell)}.v{self.width}p0"
        mask = "<" + ", ".join(["i1 true"] * self.width) + ">"
        values = e.call(name, vt, (f"<{self.width} x ptr>", pointers), (f"<{self.width} x i1>", mask), (vt, "poison"))
        return Vec(self._from_cell(values, ty, self.width), ty)

    def _from_cell(self, text: str, ty: str, width: int) -> str:
        if ty != "i1":
            return text
        return self.low.e.op(f"trunc {vec(width, 'i8')} {text} to {vec(width, 'i1')}")

    def write(self, buffer: Buffer, value: Strip, at: Strip | None = None) -> None:
        """Store lanes at the loop's place (or at a contiguous/uniform place given)."""
        e = self.low.e
        at = self.flat if at is None else at
        base = at.val if isinstance(at, Uni) else at.base if isinstance(at, Lin) and at.step == 1 else None
        if base is None:
            raise UnsupportedTTIR("a scattered write to scratch memory")
        width = 1 if isinstance(at, Uni) else self.width
        text = to_vec(e, value, width)
        ty = llvm_type(buffer.type)
        if ty == "i1":
            text = e.op(f"zext {vec(width, 'i1')} {text} to {vec(width, 'i8')}")
        pointer = e.op(f"getelementptr {buffer.cell}, ptr {buffer.pointer}, i32 {base}")
        e.do(f"store {vec(width, buffer.cell)} {text}, ptr {pointer}, align {_align(buffer.cell)}")


def _align(cell: str) -> int:
    return {"float": 4, "double": 8}.get(cell) or int(cell[1:]) // 8


def _short(cell: str) -> str:
    return {"float": "f32", "double": "f64"}.get(cell, cell)


def constant_text(text: str, type_: Type) -> str:
    """An LLVM literal of an MLIR scalar constant."""
    ty = llvm_type(type_)
    if not type_.is_float:
        if text in ("true", "false"):
            return text if ty == "i1" else str(int(text == "true"))
        number = int_literal(text)
        if number is None:
            raise TTIRError(f"malformed integer constant {text[:40]!r}")
        if ty == "i1":
            return "true" if number else "false"
        return str(number)
    return float_literal(rounded(number_of(text, type_.elem), type_.elem), ty)


@contextmanager
def strips(low: Lowering, shape: tuple[int, ...], width: int = WIDTH) -> Iterator[Nest]:
    """A loop over all elements of ``shape``, ``width`` at a time, along the last dimension where it is long enough."""
    e, total = low.e, prod(shape)
    last = shape[-1] if shape else 1
    width = min(width, total)
    if last >= width:
        with e.loop(total // last) as outer, e.loop(last, width) as inner:
            index = (*split_index(e, Uni(outer.var, "i32"), shape[:-1], 1), lanes(inner.var, width))
            base = mul(e, Uni(outer.var, "i32"), Uni(str(last), "i32"), 1)
            flat = add(e, base, lanes(inner.var, width), width)
            yield Nest(low, width, index[-len(shape) :] if shape else (), flat, shape)
        return
    with e.loop(total, width) as loop:
        flat = lanes(loop.var, width)
        yield Nest(low, width, split_flat(e, loop.var, shape, width), flat, shape)


def lanes(base: str, width: int) -> Strip:
    """base, base+1, ... (uniform when there is one lane)."""
    return Uni(base, "i32") if width == 1 else Lin(base, 1, "i32")


def split_index(e: Emitter, flat: Strip, shape: tuple[int, ...], width: int) -> Index:
    """Row-major element number to an index; sizes are powers of two."""
    index: list[Strip] = []
    stride = prod(shape)
    for k, size in enumerate(shape):
        stride //= size
        if size == 1:
            index.append(Uni("0", "i32"))
        else:
            index.append(shift_and_mask(e, flat, stride.bit_length() - 1, None if k == 0 else size - 1, width))
    return tuple(index)


def split_flat(e: Emitter, base: str, shape: tuple[int, ...], width: int) -> Index:
    """Like :func:`split_index` for a run that starts at a multiple of ``width``: leading dimensions stay uniform."""
    index: list[Strip] = []
    stride = prod(shape)
    for size in shape:
        stride //= size
        if size == 1:
            index.append(Uni("0", "i32"))
        elif stride >= width:
            index.append(shift_and_mask(e, Uni(base, "i32"), stride.bit_length() - 1, size - 1, width))
        elif stride * size <= width:
            inner = ", ".join(f"i32 {(lane // stride) % size}" for lane in range(width))
            index.append(Vec(f"<{inner}>", "i32"))
        else:
            index.append(shift_and_mask(e, Lin(base, 1, "i32"), stride.bit_length() - 1, size - 1, width))
    return tuple(index)


# ---- operations that rearrange elements: each gives the index of its operand


def _attr_int(op: Op, name: str) -> int:
    try:
        return int(op.attrs[name])
    except (KeyError, ValueError):
        raise TTIRError(f"{op.name} without a number {name!r}") from None


def _make_range(nest: Nest, op: Op, value: Value, index: Index) -> Strip:
    return add(nest.low.e, index[0], Uni(str(_attr_int(op, "start")), "i32"), nest.width)


def _splat(nest: Nest, op: Op, value: Value, index: Index) -> Strip:
    return nest.eval(op.operands[0], ())


def _same(nest: Nest, op: Op, value: Value, index: Index) -> Strip:
    return nest.eval(op.operands[0], index)


def _expand_dims(nest: Nest, op: Op, value: Value, index: Index) -> Strip:
    axis = _attr_int(op, "axis")
    return nest.eval(op.operands[0], index[:axis] + index[axis + 1 :])


def _broadcast(nest: Nest, op: Op, value: Value, index: Index) -> Strip:
    shape = op.operands[0].type.shape
    assert shape is not None
    zero = Uni("0", "i32")
    return nest.eval(op.operands[0], tuple(zero if size == 1 else at for size, at in zip(shape, index, strict=True)))


def _reshape(nest: Nest, op: Op, value: Value, index: Index) -> Strip:
    source, target = op.operands[0].type.shape, value.type.shape
    assert source is not None and target is not None
    if [d for d in source if d > 1] == [d for d in target if d > 1]:
        kept = iter([at for d, at in zip(target, index, strict=True) if d > 1])
        return nest.eval(op.operands[0], tuple(Uni("0", "i32") if d == 1 else next(kept) for d in source))
    flat = nest.linear(target, index)
    return nest.eval(op.operands[0], split_index(nest.low.e, flat, source, nest.width))


def _trans(nest: Nest, op: Op, value: Value, index: Index) -> Strip:
    order = trans_order(op)
    source: list[Strip] = [Uni("0", "i32")] * len(order)
    for k, axis in enumerate(order):
        source[axis] = index[k]
    return nest.eval(op.operands[0], tuple(source))


def _join(nest: Nest, op: Op, value: Value, index: Index) -> Strip:
    return _choose(nest, index[-1], "0", nest.eval(op.operands[0], index[:-1]), nest.eval(op.operands[1], index[:-1]))


def _choose(nest: Nest, which: Strip, key: str, first: Strip, second: Strip) -> Strip:
    """``first`` where ``which == key``, else ``second``."""
    e, width = nest.low.e, nest.width
    if isinstance(which, Uni) and int_literal(which.val) is not None:
        return first if which.val == key else second
    condition = numbers_of(e, which, 1 if isinstance(which, Uni) else width).equals(int(key))
    one, other = (numbers_of(e, value, width) for value in (first, second))
    return Vec(condition.choose(one, other).text, first.ty)


def _split(nest: Nest, op: Op, value: Value, index: Index) -> Strip:
    return nest.eval(op.operands[0], (*index, Uni(str(value.index), "i32")))


def _cat(nest: Nest, op: Op, value: Value, index: Index) -> Strip:
    shape = op.operands[0].type.shape
    assert shape is not None
    half = shape[0]
    which = shift_and_mask(nest.low.e, index[0], half.bit_length() - 1, None, nest.width)
    inside = shift_and_mask(nest.low.e, index[0], 0, half - 1, nest.width)
    at = (inside, *index[1:])
    return _choose(nest, which, "0", nest.eval(op.operands[0], at), nest.eval(op.operands[1], at))


def _gather(nest: Nest, op: Op, value: Value, index: Index) -> Strip:
    axis = _attr_int(op, "axis")
    source = nest.low.buffer_of(op.operands[0])
    assert source.type.shape is not None
    e, width, size = nest.low.e, nest.width, source.type.shape[axis]
    at = nest.eval(op.operands[1], index)
    # an index outside the block is undefined in Triton; keep it inside scratch memory
    position = strip_of(numbers_of(e, at, width).resized(32, signed=True) & size - 1)
    return nest.read(source, (*index[:axis], position, *index[axis + 1 :]))


def _poison(nest: Nest, op: Op, value: Value, index: Index) -> Strip:
    ty = llvm_type(value.type)
    return Uni(
        {"float": float_literal(0.0, "float"), "double": float_literal(0.0, "double"), "i1": "false"}.get(ty, "0"), ty
    )


FORWARDING = {
    "tt.splat": _splat,
    "tt.unsplat": _splat,
    "ttg.convert_layout": _same,
    "tt.expand_dims": _expand_dims,
    "tt.broadcast": _broadcast,
    "tt.trans": _trans,
}
"""lanes that are those of the operand, at another index"""
_SHAPE = {
    **FORWARDING,
    "tt.make_range": _make_range,
    "tt.reshape": _reshape,
    "tt.join": _join,
    "tt.split": _split,
    "tt.cat": _cat,
    "tt.gather": _gather,
    "ub.poison": _poison,
}
