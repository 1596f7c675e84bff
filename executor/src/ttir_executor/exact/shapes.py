"""Arrays with an axis of programs in front, floats and integers alike; an axis may have size 1 where it is uniform."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ttir_executor.exact.values import Exact, where
from ttir_executor.ttir.ir import Type

Array = Exact | np.ndarray

DTYPES: dict[str, Any] = {
    "i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "index": np.int64,
    "ptr": np.int64,
}  # fmt: skip
"""integers have the width of their type, so that they wrap as it does"""
UNSIGNED: dict[Any, Any] = {
    np.dtype(np.int8): np.uint8, np.dtype(np.int16): np.uint16, np.dtype(np.int32): np.uint32,
    np.dtype(np.int64): np.uint64, np.dtype(np.bool_): np.uint8,
}  # fmt: skip


def rank(type_: Type) -> int:
    """Axes of an array of this type."""
    return 1 + len(type_.shape or ())


def each(x: Array, change: Callable[[np.ndarray], np.ndarray]) -> Array:
    """``change`` of an array, or of each part of a float."""
    if isinstance(x, Exact):
        return Exact(x.field, change(x.f), change(x.a), change(x.b), change(x.lost))
    return change(np.asarray(x))


def together(values: Sequence[Array], change: Callable[[Sequence[np.ndarray]], np.ndarray]) -> Array:
    """``change`` of several arrays of one kind, or of each part of several floats."""
    first = values[0]
    if isinstance(first, Exact):
        columns = zip(*(value.parts for value in values if isinstance(value, Exact)), strict=True)
        return Exact(first.field, *map(change, columns))
    return change([np.asarray(value) for value in values])


def ranked(part: np.ndarray, axes: int) -> np.ndarray:
    """The same with as many axes as these."""
    part = np.asarray(part)
    return part if part.ndim == axes else part.reshape((1,) * (axes - part.ndim) + part.shape)


def spread(x: Array, type_: Type) -> Array:
    """The same with the block's true sizes; only the axis of programs may still be missing in a part."""
    shape = type_.shape or ()

    def change(part: np.ndarray) -> np.ndarray:
        part = ranked(part, 1 + len(shape))
        return np.broadcast_to(part, (part.shape[0], *shape))

    return each(x, change)


def shaped(x: Exact, type_: Type) -> Exact:
    """The same float, whose shape is that of the block even if its parts' are not."""
    f = ranked(x.f, rank(type_))
    return Exact(x.field, np.broadcast_to(f, (f.shape[0], *(type_.shape or ()))), x.a, x.b, x.lost)


def taken(x: Array, index: np.ndarray, axes: int) -> Array:
    """The values of some programs."""
    return each(x, lambda part: part[index] if np.ndim(part) == axes and np.shape(part)[0] > 1 else part)


def chosen(condition: np.ndarray, x: Array, y: Array) -> Array:
    """The elements of ``x`` where the condition is true, else those of ``y``."""
    if isinstance(x, Exact) and isinstance(y, Exact):
        return where(condition, x, y)
    return np.where(condition, np.asarray(x), np.asarray(y))


def picked(x: Array, key: Any) -> Array:
    """An index of every part, which must have its full shape."""
    return each(x, lambda part: part[key])


def merged(groups: Sequence[tuple[np.ndarray, Array]], count: int, type_: Type) -> Array:
    """The values of all ``count`` programs, of which each group has some."""
    if len(groups) == 1 and groups[0][0].size == count:
        return groups[0][1]
    indices, values = zip(*groups, strict=True)
    return together(values, lambda parts: _merged(indices, parts, count, rank(type_)))


def _merged(indices: Sequence[np.ndarray], parts: Sequence[np.ndarray], count: int, axes: int) -> np.ndarray:
    parts = [ranked(part, axes) for part in parts]
    if all(part.size == 1 for part in parts) and len({part.item() for part in parts}) == 1:
        return parts[0]
    tail = np.broadcast_shapes(*(part.shape[1:] for part in parts))
    result = np.empty((count, *tail), parts[0].dtype)
    for index, part in zip(indices, parts, strict=True):
        result[index] = part
    return result


def joined(x: Array, y: Array, axis: int) -> Array:
    """Two values along an axis that has its true size, the other axes as large as either needs."""

    def pair(parts: Sequence[np.ndarray]) -> np.ndarray:
        tail = [max(sizes) for sizes in zip(*(part.shape for part in parts), strict=True)]
        wide = [np.broadcast_to(part, (*tail[:axis], part.shape[axis], *tail[axis + 1 :])) for part in parts]
        return np.concatenate(wide, axis)

    return together((x, y), pair)


def flat(x: Array, type_: Type, count: int) -> Array:
    """All elements of ``count`` programs as programs of their own."""
    shape = (count, *(type_.shape or ()))
    return each(x, lambda part: part if np.size(part) == 1 else np.broadcast_to(part, shape).reshape(-1))


def unflat(x: Array, shape: tuple[int, ...]) -> Array:
    """The inverse of :func:`flat`; ``shape`` begins with the programs."""
    return each(x, lambda part: ranked(part, len(shape)) if np.size(part) == 1 else np.reshape(part, shape))


# ---- arithmetic of integers as registers do it: arrays of the type's width, which wrap


Binary = Callable[[Any, Any], Any]


def unsigned(x: Any) -> Any:
    """The same bits without a sign."""
    x = np.asarray(x)
    return x.view(UNSIGNED[x.dtype])


def extended_unsigned(x: np.ndarray) -> np.ndarray:
    """An unsigned value as int64; of 64 bits as uint64."""
    x = np.asarray(x)
    if x.dtype == np.bool_:
        return x.astype(np.int64)
    wide: np.ndarray = unsigned(x)
    return wide if x.dtype.itemsize == 8 else wide.astype(np.int64)


def truncated(f: np.ndarray, source: Type, bits: int, *, signed: bool) -> np.ndarray:
    """Whole floats of a type as integers of at least 16 bits, as PTX's ``cvt`` does: beyond them the nearest one, for
    NaN 0 or, of doubles and in 64 bits, the number whose top bit alone is set."""
    bits = max(16, bits)
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    nan, top = np.isnan(f), f >= float(high)
    inside = np.where(nan | top, 0.0, np.maximum(f, float(low)))
    whole = inside.astype(np.int64) if signed else inside.astype(np.uint64).astype(np.int64)
    whole = np.where(top, np.int64(high if signed or bits < 64 else -1), whole)
    return np.where(nan, np.int64(-(1 << (bits - 1)) if 64 in (source.bits, bits) else 0), whole)


def divided(x: Any, y: Any) -> Any:
    """Towards zero; by zero gives 0."""
    x, y = np.asarray(x), np.asarray(y)
    zero = y == 0
    divisor = np.where(zero, 1, y).astype(y.dtype)
    quotient = x // divisor
    if x.size and (x.min() < 0 or divisor.min() < 0):
        rest = x - quotient * divisor
        quotient = quotient + ((rest != 0) & ((rest < 0) != (x < 0)))
    return np.where(zero, 0, quotient).astype(x.dtype)


def remainder(x: Any, y: Any) -> Any:
    """Of the division towards zero; by zero gives the dividend."""
    return x - divided(x, y) * y


def _as_unsigned(function: Binary) -> Binary:
    def apply(x: Any, y: Any) -> Any:
        dtype = np.asarray(x).dtype
        return np.asarray(function(unsigned(x), unsigned(y))).astype(UNSIGNED[dtype]).view(dtype)

    return apply


def _shifted(shift: Binary, fill_sign: bool) -> Binary:
    def apply(x: Any, y: Any) -> Any:
        x = np.asarray(x)
        bits = 8 * x.dtype.itemsize
        amount = unsigned(y)
        over = amount >= bits
        if not np.any(over):
            return shift(x, amount.astype(x.dtype))
        shifted = shift(x, np.minimum(amount, bits - 1).astype(x.dtype))
        return shifted if fill_sign else np.where(over, 0, shifted).astype(x.dtype)

    return apply


def high_product(x: Any, y: Any, *, signed: bool = False) -> Any:
    """The upper half of a product."""
    x, y = np.asarray(x), np.asarray(y)
    if x.dtype.itemsize < 8:
        bits = 8 * x.dtype.itemsize
        wide = (x.astype(np.int64), y.astype(np.int64)) if signed else (extended_unsigned(x), extended_unsigned(y))
        if not signed and bits == 32:
            product = (wide[0].astype(np.uint64) * wide[1].astype(np.uint64)) >> np.uint64(32)
            return product.astype(np.uint32).view(np.int32)
        return ((wide[0] * wide[1]) >> bits).astype(x.dtype)
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a, b = unsigned(x), unsigned(y)
    middle = (a >> half) * (b & low) + (((a & low) * (b & low)) >> half)
    cross = (a & low) * (b >> half) + (middle & low)
    high = ((a >> half) * (b >> half) + (middle >> half) + (cross >> half)).view(np.int64)
    if signed:
        high = high - np.where(x < 0, y, 0) - np.where(y < 0, x, 0)
    return high


def _logic(of_bool: Binary, of_integers: Binary) -> Binary:
    return lambda x, y: (of_bool if np.asarray(x).dtype == np.bool_ else of_integers)(x, y)


def bit_count(x: Any) -> Any:
    """Bits that are set."""
    return np.bitwise_count(unsigned(x)).astype(np.asarray(x).dtype)


def leading_zeros(x: Any) -> Any:
    """Zero bits above the highest that is set."""
    filled = unsigned(x).copy()
    bits = 8 * filled.dtype.itemsize
    shift = 1
    while shift < bits:
        filled |= filled >> filled.dtype.type(shift)
        shift *= 2
    return (bits - np.bitwise_count(filled)).astype(np.asarray(x).dtype)


def trailing_zeros(x: Any) -> Any:
    """Zero bits below the lowest that is set."""
    x = np.asarray(x)
    return np.bitwise_count(unsigned(~x & (x - x.dtype.type(1)))).astype(x.dtype)


def reversed_bits(x: Any) -> Any:
    """The bits in the opposite order."""
    x = np.asarray(x)
    rows = np.unpackbits(np.ascontiguousarray(x.reshape(-1)).view(np.uint8).reshape(x.size, -1), axis=1)
    order = np.packbits(rows.reshape(x.size, -1)[:, ::-1], axis=1)[:, :]
    return np.ascontiguousarray(order[:, :]).view(x.dtype).reshape(x.shape)


INTEGER: dict[str, Callable[..., Any]] = {
    "arith.addi": _logic(np.logical_xor, np.add),
    "arith.subi": _logic(np.logical_xor, np.subtract),
    "arith.muli": _logic(np.logical_and, np.multiply),
    "arith.andi": np.bitwise_and, "arith.ori": np.bitwise_or, "arith.xori": np.bitwise_xor,
    "arith.maxsi": np.maximum, "arith.minsi": np.minimum,
    "arith.maxui": _as_unsigned(np.maximum), "arith.minui": _as_unsigned(np.minimum),
    "arith.shli": _shifted(np.left_shift, False), "arith.shrsi": _shifted(np.right_shift, True),
    "arith.shrui": _shifted(lambda x, amount: (unsigned(x) >> unsigned(amount)).view(x.dtype), False),
    "arith.divsi": divided, "arith.remsi": remainder,
    "arith.divui": _as_unsigned(divided), "arith.remui": _as_unsigned(remainder),
    "arith.ceildivsi": lambda x, y: divided(x + y - 1, y),
    "tt.mulhiui": high_product, "math.absi": np.abs,
    "math.ctpop": bit_count, "math.ctlz": leading_zeros, "math.cttz": trailing_zeros,
}  # fmt: skip

_PREDICATES: dict[str, Binary] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


def compare_integers(predicate: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Compare as ``arith.cmpi`` does."""
    if predicate in ("eq", "ne"):
        return np.asarray(_PREDICATES[predicate](x, y))
    if predicate[0] == "u":
        x, y = unsigned(x), unsigned(y)
    elif np.asarray(x).dtype == np.bool_:
        x, y = y, x  # true is -1
    return np.asarray(_PREDICATES[predicate[1:]](x, y))
