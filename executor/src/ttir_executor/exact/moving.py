"""Operations that move elements, or make them of nothing."""

from functools import partial

import numpy as np

from ttir_executor.exact.frames import Frame, Handler
from ttir_executor.exact.shapes import each, joined, rank, ranked, shaped, spread
from ttir_executor.ttir.ir import Op
from ttir_executor.ttir.verify import trans_order


def _make_range(frame: Frame, op: Op) -> None:
    start, end = int(op.attrs["start"]), int(op.attrs["end"])
    frame.env[op.results[0]] = np.arange(start, end, dtype=np.int32).reshape(1, -1)


def _splat(frame: Frame, op: Op) -> None:
    inner = (1,) * len(op.results[0].type.shape or ())
    frame.env[op.results[0]] = each(
        frame.get(op.operands[0]), lambda part: part.reshape(part.shape + inner) if np.ndim(part) else part
    )


def _unsplat(frame: Frame, op: Op) -> None:
    frame.env[op.results[0]] = each(frame.get(op.operands[0]), lambda part: part.reshape(-1) if np.ndim(part) else part)


def _same(frame: Frame, op: Op) -> None:
    frame.env[op.results[0]] = frame.get(op.operands[0])


def _expand_dims(frame: Frame, op: Op) -> None:
    axis, axes = int(op.attrs["axis"]) + 1, rank(op.operands[0].type)
    frame.env[op.results[0]] = each(
        frame.get(op.operands[0]),
        lambda part: np.expand_dims(ranked(part, axes), axis) if np.size(part) > 1 else np.reshape(part, ()),
    )


def _trans(frame: Frame, op: Op) -> None:
    order, axes = (0, *(k + 1 for k in trans_order(op))), rank(op.operands[0].type)
    frame.env[op.results[0]] = each(
        frame.get(op.operands[0]),
        lambda part: ranked(part, axes).transpose(order) if np.size(part) > 1 else np.reshape(part, ()),
    )


def _reshape(frame: Frame, op: Op) -> None:
    source, target = op.operands[0].type, op.results[0].type
    axes, shape = rank(source), target.shape or ()

    def change(part: np.ndarray) -> np.ndarray:
        if np.size(part) == 1:
            return np.reshape(part, ())
        part = ranked(part, axes)
        if part.size == part.shape[0]:
            return part.reshape((-1,) + (1,) * len(shape))
        return np.broadcast_to(part, (part.shape[0], *(source.shape or ()))).reshape((part.shape[0], *shape))

    frame.env[op.results[0]] = each(frame.get(op.operands[0]), change)


def _join(frame: Frame, op: Op) -> None:
    axes = rank(op.operands[0].type)
    x, y = (each(frame.get(value), lambda part: ranked(part, axes)[..., None]) for value in op.operands)
    frame.env[op.results[0]] = joined(x, y, axes)


def _half(part: np.ndarray, k: int, axes: int) -> np.ndarray:
    part = ranked(part, axes)
    return part[..., min(k, part.shape[-1] - 1)]


def _split(frame: Frame, op: Op) -> None:
    value, axes = frame.get(op.operands[0]), rank(op.operands[0].type)
    for k, result in enumerate(op.results):
        frame.env[result] = each(value, partial(_half, k=k, axes=axes))


def _cat(frame: Frame, op: Op) -> None:
    x, y = (spread(frame.get(value), value.type) for value in op.operands)
    frame.env[op.results[0]] = joined(x, y, 1)


def _gather(frame: Frame, op: Op) -> None:
    source, index = op.operands[0].type, op.operands[1].type
    axis, shape = int(op.attrs["axis"]), source.shape or ()
    places = spread(frame.array(op.operands[1]).astype(np.int64) & (shape[axis] - 1), index)
    assert isinstance(places, np.ndarray)

    def change(part: np.ndarray) -> np.ndarray:
        if np.size(part) == 1:
            return np.reshape(part, ())
        part = ranked(part, rank(source))
        count = max(part.shape[0], places.shape[0])
        full = np.broadcast_to(part, (count, *shape))
        return np.take_along_axis(full, np.broadcast_to(places, (count, *places.shape[1:])), axis + 1)

    frame.env[op.results[0]] = each(frame.get(op.operands[0]), change)


def _dot(frame: Frame, op: Op) -> None:
    left, right, start = op.operands[:3]
    if not left.type.is_float:
        factors = [np.asarray(spread(frame.get(value), value.type)).astype(np.float64) for value in (left, right)]
        total = (factors[0] @ factors[1]).astype(np.int64) + frame.array(start)
        frame.env[op.results[0]] = total.astype(np.int32)
        return
    x, y = shaped(frame.exact(left), left.type), shaped(frame.exact(right), right.type)
    frame.env[op.results[0]] = x.matmul(y) + frame.exact(start)


HANDLERS: dict[str, Handler] = {
    "tt.make_range": _make_range, "tt.splat": _splat, "tt.unsplat": _unsplat, "tt.broadcast": _same,
    "ttg.convert_layout": _same, "tt.expand_dims": _expand_dims, "tt.trans": _trans, "tt.reshape": _reshape,
    "tt.join": _join, "tt.split": _split, "tt.cat": _cat, "tt.gather": _gather, "tt.dot": _dot,
}  # fmt: skip
