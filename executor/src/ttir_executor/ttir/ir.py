"""Records of a TTIR function: types, values, operations, blocks, regions."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

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
