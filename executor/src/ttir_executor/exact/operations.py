"""Operations of TTIR on exact values: of each element alone, moves of elements, reductions and scans.

Sums, products and extrema are seen by the form of their region; any other is folded by neighbours, the region running
on whole arrays.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ttir_executor.exact.frames import Frame, Handler, run_block, run_blocks
from ttir_executor.exact.functions import FUNCTIONS, external
from ttir_executor.exact.memory import Undecided
from ttir_executor.exact.shapes import (
    DTYPES,
    INTEGER,
    Array,
    chosen,
    compare_integers,
    each,
    extended_unsigned,
    flat,
    joined,
    picked,
    rank,
    ranked,
    shaped,
    spread,
    together,
    truncated,
    unflat,
    unsigned,
)
from ttir_executor.exact.values import Exact
from ttir_executor.ttir.ir import Op, Type, Value, bits_of, elem_bytes, floats_of, number_of
from ttir_executor.ttir.verify import trans_order

_MATH = {
    "exp": "exp", "exp2": "exp2", "log": "log", "log2": "log2", "sin": "sin", "cos": "cos", "tan": "tan",
    "tanh": "tanh", "erf": "erf", "sqrt": "sqrt", "rsqrt": "rsqrt", "floor": "floor", "ceil": "ceil", "absf": "fabs",
    "trunc": "trunc", "round": "round", "roundeven": "rint", "powf": "pow", "atan2": "atan2", "log1p": "log1p",
    "expm1": "expm1", "cbrt": "cbrt", "atan": "atan", "log10": "log10", "fma": "fma",
}  # fmt: skip
_FLOAT: dict[str, Callable[..., Exact]] = {
    "arith.addf": lambda x, y: x + y,
    "arith.subf": lambda x, y: x - y,
    "arith.mulf": lambda x, y: x * y,
    "arith.divf": lambda x, y: x / y,
    "tt.precise_divf": lambda x, y: x / y,
    "tt.precise_sqrt": Exact.sqrt,
    "arith.negf": lambda x: -x,
    "arith.maximumf": Exact.maximum,
    "arith.minimumf": Exact.minimum,
    "arith.maxnumf": FUNCTIONS["fmax"],
    "arith.minnumf": FUNCTIONS["fmin"],
    "arith.remf": FUNCTIONS["fmod"],
    **{f"math.{name}": FUNCTIONS[function] for name, function in _MATH.items()},
    **dict.fromkeys(("arith.extf", "arith.truncf", "tt.fp_to_fp"), lambda x: x),
}
_ORDERED: dict[str, Callable[[Any, Any], Any]] = {
    "oeq": np.equal, "ogt": np.greater, "oge": np.greater_equal, "olt": np.less, "ole": np.less_equal,
    "une": np.not_equal,
}  # fmt: skip
_UNORDERED = {"ueq": "oeq", "ugt": "ogt", "uge": "oge", "ult": "olt", "ule": "ole"}


def compare(predicate: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Compare floats as ``arith.cmpf`` does."""
    direct = _ORDERED.get(predicate)
    if direct is not None:
        return np.asarray(direct(x, y))
    neither = np.isnan(x) | np.isnan(y)
    if predicate == "ord":
        return ~neither
    if predicate == "uno":
        return neither
    if predicate == "one":
        return (x != y) & ~neither
    return np.asarray(_ORDERED[_UNORDERED[predicate]](x, y)) | neither


def _known(frame: Frame, op: Op) -> Array:
    found: Array = (_FLOAT.get(op.name) or INTEGER[op.name])(*[frame.get(value) for value in op.operands])
    return found


def _cmpf(frame: Frame, op: Op) -> Array:
    x, y = (frame.exact(value).f for value in op.operands)
    return compare(op.attrs["word0"], x, y)


def _cmpi(frame: Frame, op: Op) -> Array:
    x, y = (frame.array(value) for value in op.operands)
    return compare_integers(op.attrs["word0"], x, y)


def _select(frame: Frame, op: Op) -> Array:
    condition = frame.array(op.operands[0])
    if op.operands[0].type.shape is None and op.results[0].type.shape is not None and np.ndim(condition):
        condition = condition.reshape((-1,) + (1,) * len(op.results[0].type.shape))
    return chosen(condition, frame.get(op.operands[1]), frame.get(op.operands[2]))


def _addptr(frame: Frame, op: Op) -> Array:
    pointer, offset = (frame.array(value) for value in op.operands)
    size = elem_bytes(op.operands[0].type.pointee or "i8")
    return pointer + np.asarray(offset, np.int64) * size


def _clampf(frame: Frame, op: Op) -> Array:
    x, low, high = (frame.exact(value) for value in op.operands)
    if "all" in op.attrs.get("propagateNan", ""):
        return x.maximum(low).minimum(high)
    return FUNCTIONS["fmin"](FUNCTIONS["fmax"](x, low), high)


def _extern(frame: Frame, op: Op) -> Array:
    symbol = op.attrs.get("symbol", "").strip('"')
    types = [value.type for value in op.operands]
    found = external(symbol, [frame.get(value) for value in op.operands], types, op.results[0].type)
    if found is None:
        raise Undecided(f"the external function {symbol!r} ({op.loc})")
    return found


# ---- constants


def _constant(frame: Frame, op: Op) -> Array:
    """Numbers of the text; dense ones element by element."""
    type_ = op.results[0].type
    words = op.attrs["value"].replace("[", "").replace("]", "").split(",")
    numbers = [_number(frame, word.strip(), type_) for word in words]
    shape = (1, *(type_.shape or ()))
    return numbers[0] if len(words) == 1 else together(numbers, lambda parts: np.array(parts).reshape(shape))


def _number(frame: Frame, text: str, type_: Type) -> Array:
    if type_.is_float:
        return Exact.constant(frame.run.field, number_of(text, type_.elem), type_.bits)
    if text in ("true", "false"):
        return np.asarray(text == "true").astype(DTYPES[type_.elem])
    return np.asarray(int(text, 0), np.int64).astype(DTYPES[type_.elem])


def _poison(frame: Frame, op: Op) -> Array:
    type_ = op.results[0].type
    return Exact.unknown(frame.run.field, np.zeros(())) if type_.is_float else np.zeros((), DTYPES[type_.elem])


# ---- conversions


def _to_float(frame: Frame, op: Op) -> Array:
    x = frame.array(op.operands[0])
    if op.name == "arith.uitofp":
        x = extended_unsigned(x)
    elif x.dtype == np.bool_:
        x = -x.astype(np.int64)
    return Exact.whole(frame.run.field, x)


def _to_integer(frame: Frame, op: Op) -> Array:
    source, type_ = op.operands[0].type, op.results[0].type
    whole = np.trunc(frame.exact(op.operands[0]).f)
    return truncated(whole, source, type_.bits, signed=op.name == "arith.fptosi").astype(DTYPES[type_.elem])


def _resize(frame: Frame, op: Op) -> Array:
    x, target = frame.array(op.operands[0]), op.results[0].type
    if target.elem == "i1":
        return (x & 1) != 0
    if op.name == "arith.extui":
        x = extended_unsigned(x)
    elif x.dtype == np.bool_:
        x = -x.astype(np.int8)
    return x.astype(DTYPES[target.elem])


def _bitcast(frame: Frame, op: Op) -> Array:
    source, target = op.operands[0].type, op.results[0].type
    x = frame.get(op.operands[0])
    if isinstance(x, Exact):
        if source.elem == target.elem:
            return x
        x = bits_of(x.f, source.elem)
    if target.is_float:
        return Exact.unknown(frame.run.field, floats_of(x, target.elem))
    return (x & 1) != 0 if target.elem == "i1" else x.astype(DTYPES[target.elem])


# ---- moves


def _make_range(frame: Frame, op: Op) -> Array:
    return np.arange(int(op.attrs["start"]), int(op.attrs["end"]), dtype=np.int32).reshape(1, -1)


def _splat(frame: Frame, op: Op) -> Array:
    inner = (1,) * len(op.results[0].type.shape or ())
    return each(frame.get(op.operands[0]), lambda part: part.reshape(part.shape + inner) if np.ndim(part) else part)


def _unsplat(frame: Frame, op: Op) -> Array:
    return each(frame.get(op.operands[0]), lambda part: part.reshape(-1) if np.ndim(part) else part)


def _same(frame: Frame, op: Op) -> Array:
    return frame.get(op.operands[0])


def _moved(frame: Frame, op: Op, move: Callable[[np.ndarray], np.ndarray]) -> Array:
    """``move`` of the operand's parts with all axes; one number has none, before and after."""
    axes = rank(op.operands[0].type)

    def change(part: np.ndarray) -> np.ndarray:
        return move(ranked(part, axes)) if np.size(part) > 1 else np.reshape(part, ())

    return each(frame.get(op.operands[0]), change)


def _expand_dims(frame: Frame, op: Op) -> Array:
    return _moved(frame, op, lambda part: np.expand_dims(part, int(op.attrs["axis"]) + 1))


def _trans(frame: Frame, op: Op) -> Array:
    order = (0, *(k + 1 for k in trans_order(op)))
    return _moved(frame, op, lambda part: part.transpose(order))


def _reshape(frame: Frame, op: Op) -> Array:
    source, shape = op.operands[0].type, op.results[0].type.shape or ()

    def change(part: np.ndarray) -> np.ndarray:
        if part.size == part.shape[0]:
            return part.reshape((-1,) + (1,) * len(shape))
        return np.broadcast_to(part, (part.shape[0], *(source.shape or ()))).reshape((part.shape[0], *shape))

    return _moved(frame, op, change)


def _join(frame: Frame, op: Op) -> Array:
    axes = rank(op.operands[0].type)
    x, y = (each(frame.get(value), lambda part: ranked(part, axes)[..., None]) for value in op.operands)
    return joined(x, y, axes)


def _half(part: np.ndarray, k: int, axes: int) -> np.ndarray:
    part = ranked(part, axes)
    return part[..., min(k, part.shape[-1] - 1)]


def _split(frame: Frame, op: Op) -> None:
    value, axes = frame.get(op.operands[0]), rank(op.operands[0].type)
    for k, result in enumerate(op.results):
        frame.env[result] = each(value, partial(_half, k=k, axes=axes))


def _cat(frame: Frame, op: Op) -> Array:
    x, y = (spread(frame.get(value), value.type) for value in op.operands)
    return joined(x, y, 1)


def _gather(frame: Frame, op: Op) -> Array:
    axis, shape = int(op.attrs["axis"]), op.operands[0].type.shape or ()
    places = spread(frame.array(op.operands[1]).astype(np.int64) & (shape[axis] - 1), op.operands[1].type)
    assert isinstance(places, np.ndarray)

    def change(part: np.ndarray) -> np.ndarray:
        count = max(part.shape[0], places.shape[0])
        full = np.broadcast_to(part, (count, *shape))
        return np.take_along_axis(full, np.broadcast_to(places, (count, *places.shape[1:])), axis + 1)

    return _moved(frame, op, change)


def _dot(frame: Frame, op: Op) -> Array:
    left, right, start = op.operands[:3]
    if not left.type.is_float:
        factors = [np.asarray(spread(frame.get(value), value.type)).astype(np.float64) for value in (left, right)]
        return ((factors[0] @ factors[1]).astype(np.int64) + frame.array(start)).astype(np.int32)
    x, y = shaped(frame.exact(left), left.type), shaped(frame.exact(right), right.type)
    return x.matmul(y) + frame.exact(start)


# ---- reductions, scans, histograms, and functions applied to every element


_UFUNCS: dict[str, Any] = {
    "arith.addi": np.add, "arith.muli": np.multiply, "arith.maxsi": np.maximum, "arith.minsi": np.minimum,
    "arith.maxui": np.maximum, "arith.minui": np.minimum, "arith.andi": np.bitwise_and, "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
}  # fmt: skip
_EXTREMA = {"arith.maxnumf": True, "arith.maximumf": True, "arith.minnumf": False, "arith.minimumf": False}


def _region_is(op: Op) -> str:
    """The operation that a region is, or nothing."""
    blocks = op.regions[0].blocks
    if len(blocks) != 1 or len(blocks[0].args) != 2 or len(blocks[0].ops) != 2:
        return ""
    inner, last = blocks[0].ops
    return inner.name if set(inner.operands) == set(blocks[0].args) and last.operands == inner.results else ""


def _reduce(frame: Frame, op: Op) -> Array | None:
    axis, known = int(op.attrs.get("axis", "0")) + 1, _region_is(op)
    type_, x = op.operands[0].type, frame.get(op.operands[0])
    if isinstance(x, Exact) and known == "arith.addf":
        return shaped(x, type_).sum(axis)
    if isinstance(x, Exact) and known in _EXTREMA:
        return _extreme(shaped(x, type_), axis, known)
    if isinstance(x, Exact) or known not in _UFUNCS:
        _fold(frame, op, axis)
        return None
    whole = spread(x, type_)
    assert isinstance(whole, np.ndarray)
    if whole.dtype == np.bool_ and known in ("arith.addi", "arith.muli"):
        known = "arith.xori" if known == "arith.addi" else "arith.andi"
    if known in ("arith.maxui", "arith.minui"):
        return _UFUNCS[known].reduce(unsigned(np.ascontiguousarray(whole)), axis=axis).view(whole.dtype)
    return _UFUNCS[known].reduce(whole, axis=axis, dtype=whole.dtype)


def _extreme(x: Exact, axis: int, name: str) -> Exact:
    largest = _EXTREMA[name]
    if "num" in name and np.isnan(x.f).any():
        numbers = np.where(np.isnan(x.f), -np.inf if largest else np.inf, x.f)
        place = np.expand_dims((np.argmax if largest else np.argmin)(numbers, axis), axis)
        return x.map(lambda part: np.take_along_axis(part, place, axis).squeeze(axis))
    return x.extreme(axis, largest)


def _fold(frame: Frame, op: Op, axis: int) -> None:
    values = [spread(frame.get(value), value.type) for value in op.operands]
    size, axes = (op.operands[0].type.shape or ())[axis - 1], rank(op.operands[0].type)
    while size > 1:
        left, right = ([picked(value, _at(axis, slice(k, None, 2))) for value in values] for k in (0, 1))
        values = [_widened(value, axis, size // 2, axes) for value in _combined(frame, op, left, right)]
        size //= 2
    for result, value in zip(op.results, values, strict=True):
        frame.env[result] = picked(value, _at(axis, 0))


def _at(axis: int, where: int | slice) -> tuple[Any, ...]:
    return (*[slice(None)] * axis, where)


def _widened(value: Array, axis: int, size: int, axes: int) -> Array:
    """The same with the true size along the axis that is folded."""

    def change(part: np.ndarray) -> np.ndarray:
        part = ranked(part, axes)
        return np.broadcast_to(part, (*part.shape[:axis], size, *part.shape[axis + 1 :]))

    return each(value, change)


def _scan(frame: Frame, op: Op) -> None:
    axis, known = int(op.attrs.get("axis", "0")) + 1, _region_is(op)
    backwards = op.attrs.get("reverse") == "true"
    values = [spread(frame.get(value), value.type) for value in op.operands]
    if backwards:
        values = [each(value, lambda part: np.flip(part, axis)) for value in values]
    first = values[0]
    if isinstance(first, Exact) and known == "arith.addf":
        values = [shaped(first, op.operands[0].type).cumsum(axis)]
    elif isinstance(first, np.ndarray) and known in ("arith.addi", "arith.maxsi", "arith.minsi"):
        ufunc = np.logical_xor if known == "arith.addi" and first.dtype == np.bool_ else _UFUNCS[known]
        values = [ufunc.accumulate(first, axis=axis, dtype=first.dtype)]
    else:
        size, axes, step = (op.operands[0].type.shape or ())[axis - 1], rank(op.operands[0].type), 1
        while step < size:
            left = [picked(value, _at(axis, slice(0, size - step))) for value in values]
            right = [picked(value, _at(axis, slice(step, None))) for value in values]
            later = [_widened(value, axis, size - step, axes) for value in _combined(frame, op, left, right)]
            values = [
                joined(picked(value, _at(axis, slice(0, step))), rest, axis)
                for value, rest in zip(values, later, strict=True)
            ]
            step *= 2
    if backwards:
        values = [each(spread(value, op.operands[0].type), lambda part: np.flip(part, axis)) for value in values]
    frame.env.update(zip(op.results, values, strict=True))


def _combined(frame: Frame, op: Op, left: list[Array], right: list[Array]) -> list[Array]:
    """The region on arrays of any shape."""
    block = op.regions[0].blocks[0]
    given = dict(zip(block.args, [*left, *right], strict=True))
    if len(op.regions[0].blocks) == 1 and _plain(op):
        inside = Frame(frame.run, 0)
        inside.env.update(given)
        run_block(inside, block)
        return [inside.get(value) for value in block.ops[-1].operands]
    shape = np.broadcast_shapes(*(value.shape for value in given.values()))
    return _applied(frame, op, list(given.values()), shape)


def _plain(op: Op) -> bool:
    """Whether a region of one block has only operations on elements and constants, and uses nothing from outside."""
    block = op.regions[0].blocks[0]
    own: set[Value] = set(block.args)
    for inner in block.ops:
        if inner.regions or not own.issuperset(inner.operands):
            return False
        own.update(inner.results)
    return True


def _applied(frame: Frame, op: Op, values: list[Array], shape: tuple[int, ...]) -> list[Array]:
    """The function of a region on every element, each a program of its own."""
    elements = int(np.prod(shape[1:]))
    index = np.repeat(np.arange(shape[0]) if shape[0] == frame.count else np.zeros(1, np.int64), elements)
    inside = frame.part(index)
    type_ = Type("i1", shape[1:])
    arguments = [flat(value, type_, shape[0]) for value in values]
    inside.env.update(zip(op.regions[0].blocks[0].args, arguments, strict=True))
    return [unflat(value, shape) for value in run_blocks(inside, op.regions[0])]


def _map_elementwise(frame: Frame, op: Op) -> None:
    pack, type_ = int(op.attrs.get("pack", "1")), op.operands[0].type
    values = [spread(frame.get(value), value.type) for value in op.operands]
    count = max(value.shape[0] for value in values)
    shape = (count, type_.numel // pack)

    def lanes(part: np.ndarray, k: int) -> np.ndarray:
        return np.broadcast_to(part, (count, *(type_.shape or ()))).reshape(*shape, pack)[..., k]

    given = [each(value, partial(lanes, k=k)) for value in values for k in range(pack)]
    found = _applied(frame, op, given, shape)
    for n, result in enumerate(op.results):
        mine = [each(one, lambda part: np.broadcast_to(part, shape)) for one in found[n * pack : (n + 1) * pack]]
        frame.env[result] = together(mine, lambda parts: np.stack(parts, -1).reshape(count, *(type_.shape or ())))


def _histogram(frame: Frame, op: Op) -> Array:
    result = op.results[0].type
    bins, type_ = (result.shape or ())[0], op.operands[0].type
    values = spread(frame.array(op.operands[0]).astype(np.int64), type_)
    assert isinstance(values, np.ndarray)
    inside = (values >= 0) & (values < bins)
    if len(op.operands) > 1:
        inside = inside & frame.array(op.operands[1])
    values = np.broadcast_to(values, inside.shape)
    rows = np.broadcast_to(np.arange(inside.shape[0]).reshape(-1, *[1] * (rank(type_) - 1)), inside.shape)
    counts = np.bincount(rows[inside] * bins + values[inside], minlength=inside.shape[0] * bins)
    return counts.reshape(-1, bins).astype(DTYPES[result.elem])


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys((*_FLOAT, *INTEGER), _known),
    **dict.fromkeys(("arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast"), _resize),
    **dict.fromkeys(("tt.bitcast", "arith.bitcast", "tt.int_to_ptr", "tt.ptr_to_int"), _bitcast),
    **dict.fromkeys(("arith.sitofp", "arith.uitofp"), _to_float),
    **dict.fromkeys(("arith.fptosi", "arith.fptoui"), _to_integer),
    "arith.cmpf": _cmpf, "arith.cmpi": _cmpi, "arith.select": _select, "tt.addptr": _addptr, "tt.clampf": _clampf,
    "tt.extern_elementwise": _extern, "arith.constant": _constant, "ub.poison": _poison,
    "tt.make_range": _make_range, "tt.splat": _splat, "tt.unsplat": _unsplat, "tt.broadcast": _same,
    "ttg.convert_layout": _same, "tt.expand_dims": _expand_dims, "tt.trans": _trans, "tt.reshape": _reshape,
    "tt.join": _join, "tt.split": _split, "tt.cat": _cat, "tt.gather": _gather, "tt.dot": _dot,
    "tt.reduce": _reduce, "tt.scan": _scan, "tt.map_elementwise": _map_elementwise, "tt.histogram": _histogram,
}  # fmt: skip
