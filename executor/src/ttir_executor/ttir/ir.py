"""Records of a TTIR function: types with the formats of floats, values, operations, blocks, regions."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from math import prod

import numpy as np

FLOAT_BITS = {
    "f64": 64, "f32": 32, "f16": 16, "bf16": 16, "f8E5M2": 8, "f8E4M3FN": 8, "f8E4M3B11FNUZ": 8, "f8E5M2FNUZ": 8,
    "f8E4M3FNUZ": 8,
}  # fmt: skip
"""widths of the float element types"""


class TTIRError(ValueError):
    """The text is not TTIR that this reader understands; names the line."""


class UnsupportedTTIR(NotImplementedError):
    """An operation that is not simulated; names it and its source line."""

    def __init__(self, what: str, where: str = ""):
        super().__init__(f"{what} is not supported by the simulator{f' ({where})' if where else ''}")
        self.what = what
        self.where = where


@dataclass(frozen=True)
class Type:
    """A scalar or a block type.

    ``elem`` is ``i1 i8 i16 i32 i64 index``, a float name, or ``ptr``; ``pointee`` is the element a pointer points to;
    ``shape`` is None for a scalar.
    """

    elem: str
    shape: tuple[int, ...] | None = None
    pointee: str | None = None

    @property
    def is_block(self) -> bool:
        """Whether this is a tensor type."""
        return self.shape is not None

    @property
    def numel(self) -> int:
        """Elements; 1 for a scalar."""
        return prod(self.shape) if self.shape is not None else 1

    @property
    def is_float(self) -> bool:
        """Whether elements are floating point."""
        return self.elem in FLOAT_BITS

    @property
    def bits(self) -> int:
        """Width of one element in registers (pointers and index: 64)."""
        if self.elem in FLOAT_BITS:
            return FLOAT_BITS[self.elem]
        return 64 if self.elem in ("ptr", "index") else int(self.elem[1:])

    def scalar(self) -> Type:
        """The element type as a scalar."""
        return Type(self.elem, None, self.pointee)

    def with_shape(self, shape: tuple[int, ...] | None) -> Type:
        """Same element, another shape."""
        return Type(self.elem, shape, self.pointee)

    def with_elem(self, elem: str) -> Type:
        """Same shape, another (non-pointer) element."""
        return Type(elem, self.shape)


def elem_bytes(elem: str) -> int:
    """Bytes of one element in memory (``i1`` takes one)."""
    if elem in FLOAT_BITS:
        return FLOAT_BITS[elem] // 8
    return 8 if elem in ("ptr", "index") else max(1, int(elem[1:]) // 8)


@dataclass(eq=False, repr=False)
class Value:
    """An SSA value."""

    name: str
    type: Type
    op: Op | None = None
    """the operation that makes it; None for a block or function argument"""
    index: int = 0
    """which result of ``op``, or which argument of its block"""
    block: BasicBlock | None = None
    uses: list[Op] = field(default_factory=list)
    multiple: int = 0
    """of a function's argument: the text says that it is a multiple of so many (bytes, where it is an address)"""
    is_unit: bool = False
    """an argument that is 1: the last stride of a host's descriptor"""

    def __repr__(self) -> str:  # values, operations and blocks refer to each other
        return f"{self.name}: {self.type}"


@dataclass(eq=False, repr=False)
class Op:
    """One operation."""

    name: str
    operands: list[Value]
    results: list[Value]
    attrs: dict[str, str]
    regions: list[Region] = field(default_factory=list)
    successors: list[tuple[str, list[Value]]] = field(default_factory=list)
    """branch targets with the values passed to their arguments"""
    loc: str = ""
    """``file:line`` of the source, where the text has it"""
    callers: tuple[str, ...] = ()
    """``file:line`` of the calls that led there, the innermost first, where it is in a helper function"""
    number: int = -1
    """its position in the text; a skeleton's operations keep it"""
    block: BasicBlock | None = None

    def __repr__(self) -> str:
        return f"{self.name} ({self.loc or 'no location'})"


@dataclass(eq=False, repr=False)
class BasicBlock:
    """A straight run of operations."""

    label: str
    args: list[Value]
    ops: list[Op] = field(default_factory=list)
    parent: Op | None = None

    def __repr__(self) -> str:
        return f"block {self.label or 'entry'} of {len(self.ops)} operations"


@dataclass(eq=False)
class Region:
    """Blocks of one region, entry first."""

    blocks: list[BasicBlock]


@dataclass(eq=False)
class Function:
    """A ``tt.func``."""

    name: str
    args: list[Value]
    body: Region


# ---- float formats: numbers as bits, bits as numbers, and the numbers of constants in the text


_SMALL = {
    "f8E5M2": (5, 2, 15), "f8E4M3FN": (4, 3, 7), "f8E4M3B11FNUZ": (4, 3, 11), "f8E5M2FNUZ": (5, 2, 16),
    "f8E4M3FNUZ": (4, 3, 8),
}  # fmt: skip
"""bits of the exponent and the fraction, and the exponent of 1"""
_OF_NUMPY = {"f64": (np.float64, np.int64), "f32": (np.float32, np.int32), "f16": (np.float16, np.int16)}


def bits_of(f: np.ndarray, elem: str) -> np.ndarray:
    """The bits of numbers rounded to a float type, as signed integers."""
    f = np.asarray(f, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        if elem in _OF_NUMPY:
            number, whole = _OF_NUMPY[elem]
            return f.astype(number).view(whole).astype(np.int64)
        if elem == "bf16":
            wide = f.astype(np.float32).view(np.uint32).astype(np.int64)
            near = (wide + 0x7FFF + ((wide >> 16) & 1)) >> 16
            return np.where(np.isnan(f), 0x7FC0, near).astype(np.int16).astype(np.int64)
    return _nearest(f, elem)


def number_of(text: str, elem: str) -> float:
    """A constant of the text: decimal, or hexadecimal bits where it is infinite or NaN."""
    if not text.startswith("0x"):
        return float(text)
    return float(floats_of(np.asarray(int(text, 16), np.uint64).astype(np.int64), elem))


def rounded(value: float, elem: str) -> float:
    """The nearest number of a format."""
    return float(floats_of(bits_of(np.asarray(value), elem), elem))


def floats_of(bits: np.ndarray, elem: str) -> np.ndarray:
    """The numbers of a float type that have these bits."""
    bits = np.asarray(bits, np.int64)
    with np.errstate(invalid="ignore"):
        if elem in _OF_NUMPY:
            number, whole = _OF_NUMPY[elem]
            return bits.astype(whole).view(number).astype(np.float64)
        if elem == "bf16":
            return (bits << 16).astype(np.int32).view(np.float32).astype(np.float64)
    return _values(elem)[bits & 0xFF]


@cache
def small_format(elem: str) -> tuple[int, int, float]:
    """Bits of the fraction, smallest exponent of a normal number and largest finite number of an 8-bit format."""
    _, fraction, bias = _SMALL[elem]
    known = _values(elem)
    return fraction, 1 - bias, float(known[np.isfinite(known)].max())


@cache
def _values(elem: str) -> np.ndarray:
    """The numbers of an 8-bit format, by their bits."""
    wide, fraction, bias = _SMALL[elem]
    bits = np.arange(256)
    exponent, rest = bits >> fraction & ((1 << wide) - 1), bits & ((1 << fraction) - 1)
    size = np.where(
        exponent == 0,
        rest * 2.0 ** (1 - bias - fraction),
        (1 + rest * 2.0**-fraction) * 2.0 ** (exponent - float(bias)),
    )
    if elem == "f8E5M2":
        size = np.where(exponent == 31, np.where(rest == 0, np.inf, np.nan), size)
    elif elem == "f8E4M3FN":
        size = np.where((bits & 0x7F) == 0x7F, np.nan, size)
    found: np.ndarray = np.where(bits < 128, size, -size)
    if elem.endswith("FNUZ"):
        found[128] = np.nan
    return found


def _nearest(f: np.ndarray, elem: str) -> np.ndarray:
    """The bits of the nearest numbers of an 8-bit format, even bits between two; the largest for what is larger."""
    size = _values(elem)[:128]
    known = size[np.isfinite(size)]
    magnitude = np.abs(f)
    above = np.clip(np.searchsorted(known, magnitude), 1, known.size - 1)
    low, high = magnitude - known[above - 1], known[above] - magnitude
    place = np.where((low < high) | ((low == high) & (above % 2 == 1)), above - 1, above)
    place = np.where(np.isnan(f), 0x80 if elem.endswith("FNUZ") else 0x7F, place)
    negative = np.signbit(f) & ~np.isnan(f) & ~(elem.endswith("FNUZ") & (place == 0))
    return np.where(negative, place | 0x80, place).astype(np.int8).astype(np.int64)
