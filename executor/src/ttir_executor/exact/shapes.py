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
