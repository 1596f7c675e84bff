"""Reductions, scans, histograms, and functions applied to every element.

Sums, products and extrema are seen by the form of their region; any other is folded by neighbours, the region running
on whole arrays.
"""

from functools import partial
from typing import Any

import numpy as np

from ttir_executor.exact.frames import Frame, Handler, run_block, run_blocks
from ttir_executor.exact.integers import unsigned
from ttir_executor.exact.shapes import DTYPES, Array, each, flat, joined, picked, rank, ranked, shaped, spread, unflat
from ttir_executor.exact.values import Exact
from ttir_executor.ttir.ir import Op, Type, Value

_UFUNCS: dict[str, Any] = {
    "arith.addi": np.add, "arith.muli": np.multiply, "arith.maxsi": np.maximum, "arith.minsi": np.minimum,
    "arith.maxui": np.maximum, "arith.minui": np.minimum, "arith.andi": np.bitwise_and, "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
}  # fmt: skip
_EXTREMA = {"arith.maxnumf": True, "arith.maximumf": True, "arith.minnumf": False, "arith.minimumf": False}


def _known(op: Op) -> str:
    """The operation that a region is, or nothing."""
    blocks = op.regions[0].blocks
    if len(blocks) != 1 or len(blocks[0].args) != 2 or len(blocks[0].ops) != 2:
        return ""
    inner, last = blocks[0].ops
    return inner.name if set(inner.operands) == set(blocks[0].args) and last.operands == inner.results else ""


def _reduce(frame: Frame, op: Op) -> None:
    axis, known = int(op.attrs.get("axis", "0")) + 1, _known(op)
    type_, x = op.operands[0].type, frame.get(op.operands[0])
    if isinstance(x, Exact) and known == "arith.addf":
        frame.env[op.results[0]] = shaped(x, type_).sum(axis)
    elif isinstance(x, Exact) and known in _EXTREMA:
        frame.env[op.results[0]] = _extreme(shaped(x, type_), axis, known)
    elif not isinstance(x, Exact) and known in _UFUNCS:
        whole = spread(x, type_)
        assert isinstance(whole, np.ndarray)
        if whole.dtype == np.bool_ and known in ("arith.addi", "arith.muli"):
            known = "arith.xori" if known == "arith.addi" else "arith.andi"
        if known in ("arith.maxui", "arith.minui"):
            found = _UFUNCS[known].reduce(unsigned(np.ascontiguousarray(whole)), axis=axis).view(whole.dtype)
        else:
            found = _UFUNCS[known].reduce(whole, axis=axis, dtype=whole.dtype)
        frame.env[op.results[0]] = found
    else:
        _fold(frame, op, axis)


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
    axis, known = int(op.attrs.get("axis", "0")) + 1, _known(op)
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
        first = mine[0]
        if isinstance(first, Exact):
            columns = zip(*(one.parts for one in mine if isinstance(one, Exact)), strict=True)
            parts = [np.stack(column, -1).reshape(count, *(type_.shape or ())) for column in columns]
            frame.env[result] = Exact(first.field, parts[0], parts[1], parts[2], parts[3])
        else:
            frame.env[result] = np.stack([np.asarray(one) for one in mine], -1).reshape(count, *(type_.shape or ()))


def _histogram(frame: Frame, op: Op) -> None:
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
    frame.env[op.results[0]] = counts.reshape(-1, bins).astype(DTYPES[result.elem])


HANDLERS: dict[str, Handler] = {
    "tt.reduce": _reduce, "tt.scan": _scan, "tt.map_elementwise": _map_elementwise, "tt.histogram": _histogram,
}  # fmt: skip
