"""Memory of exact values: storages of elements of one size, floats with their residues or integers.

What nobody wrote is unknown as a float and undecidable as an integer.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import Any

import numpy as np

from ttir_executor.exact.field import UNDEFINED, Field
from ttir_executor.exact.values import Exact
from ttir_executor.ttir.ir import FLOAT_BITS, bits_of, elem_bytes, floats_of


class Undecided(Exception):
    """The evaluation cannot go on; says why."""


class ExactMemory:
    """Storages at the addresses that programs see."""

    def __init__(self, field: Field):
        self.field = field
        self.noise: str | None = None
        """floats that are written while this is set get other residues, and keep their value"""
        self.written: set[int] = set()
        """where storages begin into which something was written"""
        self._disturbed = 0
        self._storages: dict[int, _Storage] = {}
        self._bases: list[int] = []

    def add(self, base: int, nbytes: int) -> None:
        """Memory that nobody wrote yet, in place of what began there."""
        if base not in self._storages:
            insort(self._bases, base)
        self._storages[base] = _Storage(self.field, base, nbytes)

    def remove(self, base: int) -> None:
        """Take memory back."""
        del self._storages[base]
        self._bases.remove(base)

    def read(self, addresses: np.ndarray, elem: str) -> Exact | np.ndarray:
        """Elements at addresses of any shape: floats as :class:`Exact`, integers as int64.

        Raises:
            Undecided: an address outside, an integer that nobody wrote, an element of another size.
        """
        addresses = np.asarray(addresses, np.int64)
        if not addresses.size:
            empty = np.zeros(addresses.shape)
            return Exact.unknown(self.field, empty) if elem in FLOAT_BITS else empty.astype(np.int64)
        first, last = int(addresses.min()), int(addresses.max())
        storage = self._at(first)
        if last < storage.base + storage.nbytes:
            return storage.read(addresses, elem)
        flat = addresses.reshape(-1)
        rows = np.searchsorted(self._bases, flat, "right") - 1
        order = np.argsort(rows, kind="stable")
        parts = [self._at(int(flat[some[0]])).read(flat[some], elem) for some in _groups(rows, order)]
        back = np.empty_like(order)
        back[order] = np.arange(order.size)
        if elem not in FLOAT_BITS:
            return np.concatenate([np.asarray(part) for part in parts])[back].reshape(addresses.shape)
        columns = zip(*(part.full().parts for part in parts if isinstance(part, Exact)), strict=True)
        joined = [np.concatenate(column)[back].reshape(addresses.shape) for column in columns]
        return Exact(self.field, joined[0], joined[1], joined[2], joined[3])

    def write(
        self, addresses: np.ndarray, elem: str, value: Exact | np.ndarray, mask: np.ndarray | None = None
    ) -> None:
        """Write a value of the addresses' shape, or one that broadcasts with it; of equal addresses the last wins.

        Raises:
            Undecided: an address outside, or a part of memory written anew in elements of another size.
        """
        addresses = np.asarray(addresses, np.int64)
        if self.noise is not None and isinstance(value, Exact):
            self._disturbed += 1
            name = f"{self.noise} {self._disturbed}"
            value = value + Exact.drawn(self.field, name, np.zeros(np.broadcast_shapes(addresses.shape, value.shape)))
        shapes = [addresses.shape, np.shape(mask) if mask is not None else ()]
        parts = list(value.parts) if isinstance(value, Exact) else [np.asarray(value)]
        shape = np.broadcast_shapes(*shapes, *(np.shape(part) for part in parts))
        where = np.broadcast_to(addresses, shape).reshape(-1)
        if mask is not None and not np.all(mask):
            chosen = np.flatnonzero(np.broadcast_to(mask, shape))
            where = where[chosen]
        else:
            chosen = None
        if not where.size:
            return
        given = [_chosen(part, shape, chosen) for part in parts]
        storage = self._at(int(where.min()))
        self.written.add(storage.base)
        if int(where.max()) < storage.base + storage.nbytes:
            storage.write(where, elem, given)
            return
        rows = np.searchsorted(self._bases, where, "right") - 1
        for some in _groups(rows, np.argsort(rows, kind="stable")):
            pieces = [part if np.ndim(part) == 0 else part[some] for part in given]
            storage = self._at(int(where[some[0]]))
            self.written.add(storage.base)
            storage.write(where[some], elem, pieces)

    def _at(self, address: int) -> _Storage:
        row = bisect_right(self._bases, address) - 1
        if row >= 0:
            storage = self._storages[self._bases[row]]
            if address < storage.base + storage.nbytes:
                return storage
        raise Undecided("an access outside of all memory")


def _chosen(part: Any, shape: tuple[int, ...], chosen: np.ndarray | None) -> np.ndarray:
    """A part of a value along the flat order of ``shape``; one number stays one."""
    if np.size(part) == 1:
        return np.asarray(part).reshape(())
    flat = np.broadcast_to(part, shape).reshape(-1)
    return flat if chosen is None else flat[chosen]


def _groups(rows: np.ndarray, order: np.ndarray) -> list[np.ndarray]:
    """Places of equal rows, in order."""
    edges = np.flatnonzero(np.diff(rows[order])) + 1
    return np.split(order, edges)


class _Storage:
    """Elements side by side."""

    def __init__(self, field: Field, base: int, nbytes: int):
        self.field, self.base, self.nbytes = field, base, nbytes
        self.elem = ""
        """type of the last write; empty where nothing was written"""
        self.size = 0
        self.parts: list[np.ndarray] = []
        """f, a, b of floats, or integers and whether each was written"""
        self.lost: np.ndarray | None = None
        """bits of floats; None where all are 0"""

    @property
    def is_float(self) -> bool:
        return self.elem in FLOAT_BITS

    def read(self, addresses: np.ndarray, elem: str) -> Exact | np.ndarray:
        if not self.elem:
            if elem in FLOAT_BITS:
                return Exact.unknown(self.field, np.full(addresses.shape, np.nan))
            raise Undecided("an integer in memory that nobody wrote")
        size = elem_bytes(elem)
        if size != self.size:
            raise Undecided(f"memory of {self.elem} read as {elem}")
        places = self._run(self._places(addresses, size))
        taken = [part[places] for part in self.parts]
        if isinstance(places, slice):
            taken = [part.copy().reshape(addresses.shape) for part in taken]
        if self.is_float:
            lost = np.uint8(0) if self.lost is None else self.lost[places].reshape(addresses.shape)
            if elem in FLOAT_BITS:
                return Exact(self.field, taken[0], taken[1], taken[2], np.array(lost))
            if np.any(np.isnan(taken[0]) & ((lost & UNDEFINED) == UNDEFINED)):
                raise Undecided("an integer in memory that nobody wrote")
            return bits_of(taken[0], self.elem)
        if elem in FLOAT_BITS:
            return Exact.unknown(self.field, np.where(taken[1], floats_of(taken[0], elem), np.nan))
        if not taken[1].all():
            raise Undecided("an integer in memory that nobody wrote")
        return taken[0]

    def write(self, addresses: np.ndarray, elem: str, value: list[np.ndarray]) -> None:
        size = elem_bytes(elem)
        places = self._places(addresses, size)
        count = self.nbytes // size
        if self.size != size or self.is_float != (elem in FLOAT_BITS):
            self._become(elem, size, places)
        self.elem = elem
        run = self._run(places)
        if elem not in FLOAT_BITS:
            self.parts[0][run], self.parts[1][run] = value[0], True
            return
        for part, new in zip(self.parts, value[:3], strict=True):
            part[run] = new
        lost = value[3]
        if self.lost is None and np.any(lost):
            self.lost = np.zeros(count, np.uint8)
        if self.lost is not None:
            self.lost[run] = lost
            if places.size >= count and not np.any(lost) and not self.lost.any():
                self.lost = None

    def _places(self, addresses: np.ndarray, size: int) -> np.ndarray:
        """Numbers of elements of this size."""
        offsets = addresses - self.base
        if size == 1:
            return offsets
        if np.any(offsets & (size - 1)):
            raise Undecided("an address between elements")
        places: np.ndarray = offsets >> (size.bit_length() - 1)
        if int(places.max()) >= self.nbytes // size:
            raise Undecided("an access outside of all memory")
        return places

    @staticmethod
    def _run(places: np.ndarray) -> np.ndarray | slice:
        """The same as a slice where elements lie side by side."""
        flat = places.reshape(-1)
        first, last = int(flat[0]), int(flat[-1])
        if last - first == flat.size - 1 and np.all(flat[1:] > flat[:-1]):
            return slice(first, last + 1)
        return places

    def _become(self, elem: str, size: int, places: np.ndarray) -> None:
        """Hold elements of another kind, or of another size where all are about to be written."""
        count = self.nbytes // size
        as_float = elem in FLOAT_BITS
        if self.elem and size != self.size:
            if places.size < count or np.unique(places).size < count:
                raise Undecided(f"memory of {self.elem} written as {elem}")
            self.elem = ""
        self.size = size
        if not self.elem:
            if as_float:
                self.parts = [np.full(count, np.nan), np.zeros(count), np.zeros(count)]
                self.lost = np.full(count, UNDEFINED, np.uint8)
            else:
                self.parts, self.lost = [np.zeros(count, np.int64), np.zeros(count, bool)], None
        elif as_float:
            integers, written = self.parts
            self.parts = [np.where(written, floats_of(integers, elem), np.nan), np.zeros(count), np.zeros(count)]
            self.lost = np.full(count, UNDEFINED, np.uint8)
        else:
            lost = np.zeros(count, np.uint8) if self.lost is None else self.lost
            unwritten = np.isnan(self.parts[0]) & ((lost & UNDEFINED) == UNDEFINED)
            self.parts, self.lost = [bits_of(self.parts[0], self.elem), ~unwritten], None
