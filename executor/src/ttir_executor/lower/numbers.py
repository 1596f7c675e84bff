"""Values of several lanes, on which Python's operators write instructions.

``x * y + 1.0`` writes a product and a sum. A number stands for itself in every lane. ``+ - * /`` are of floats or
integers as the type says, ``< <= > >=`` order floats (false for NaN) and signed integers, ``>>`` brings in zeros;
anything else is named as LLVM names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ttir_executor.lower.emit import Emitter, float_literal, splat_literal, vec

Operand: TypeAlias = "Numbers | float"


def constant(value: float, width: int, ty: str) -> str:
    """A number in every lane."""
    if ty in ("float", "double"):
        text = float_literal(float(value), ty)
    else:
        text = str(bool(value)).lower() if ty == "i1" else str(value)
    return splat_literal(text, width, ty)


def suffix(width: int, ty: str = "float") -> str:
    """Intrinsic name suffix of a vector type."""
    short = {"float": "f32", "double": "f64", "half": "f16"}.get(ty, ty)
    return short if width == 1 else f"v{width}{short}"


@dataclass(frozen=True, eq=False, slots=True)
class Numbers:
    """``width`` values of one type, in a register or a constant; a scalar for one."""

    e: Emitter
    text: str
    ty: str
    """of a lane: ``float``, ``double``, ``half``, ``i32``, ``i1`` for truth values ..."""
    width: int

    @property
    def vector(self) -> str:
        """LLVM type of all lanes."""
        return vec(self.width, self.ty)

    @property
    def is_float(self) -> bool:
        """Whether lanes are floats."""
        return self.ty[0] != "i"

    @property
    def bits(self) -> int:
        """Bits of a lane."""
        return {"half": 16, "float": 32, "double": 64}[self.ty] if self.is_float else int(self.ty[1:])

    @property
    def suffix(self) -> str:
        """How intrinsic functions on lanes like these are named."""
        return suffix(self.width, self.ty)

    def held(self, text: str, ty: str = "") -> Numbers:
        """Another register of as many lanes."""
        return Numbers(self.e, text, ty or self.ty, self.width)

    def number(self, value: float, ty: str = "") -> Numbers:
        """A number in every lane."""
        return self.held(constant(value, self.width, ty or self.ty), ty)

    def binary(self, name: str, other: Operand) -> Numbers:
        """An instruction of two operands of one type."""
        return self.held(self.e.bin(name, self.vector, self.text, self._beside(other).text))

    def _beside(self, other: Operand) -> Numbers:
        return other if isinstance(other, Numbers) else self.number(other)

    def _arithmetic(self, name: str, other: Operand) -> Numbers:
        return self.binary(f"f{name}" if self.is_float else name, other)

    def __add__(self, other: Operand) -> Numbers:
        return self._arithmetic("add", other)

    def __radd__(self, other: float) -> Numbers:
        return self.number(other) + self

    def __sub__(self, other: Operand) -> Numbers:
        return self._arithmetic("sub", other)

    def __rsub__(self, other: float) -> Numbers:
        return self.number(other) - self

    def __mul__(self, other: Operand) -> Numbers:
        return self._arithmetic("mul", other)

    def __truediv__(self, other: Operand) -> Numbers:
        return self.binary("fdiv", other)

    def __rtruediv__(self, other: float) -> Numbers:
        return self.number(other) / self

    def __and__(self, other: Operand) -> Numbers:
        return self.binary("and", other)

    def __or__(self, other: Operand) -> Numbers:
        return self.binary("or", other)

    def __xor__(self, other: Operand) -> Numbers:
        return self.binary("xor", other)

    def __lshift__(self, other: Operand) -> Numbers:
        return self.binary("shl", other)

    def __rshift__(self, other: Operand) -> Numbers:
        return self.binary("lshr", other)

    def __neg__(self) -> Numbers:
        return self.held(self.e.op(f"fneg {self.vector} {self.text}")) if self.is_float else self.number(0) - self

    def __invert__(self) -> Numbers:
        return self ^ (1 if self.ty == "i1" else -1)

    def __abs__(self) -> Numbers:
        return self.call("fabs" if self.is_float else "abs")

    # ---- truth values

    def compare(self, how: str, other: Operand) -> Numbers:
        """Truth values of a comparison by LLVM's predicate: ``oeq``, ``ult``, ``slt``, ``eq`` ..."""
        name = f"{'f' if self.is_float else 'i'}cmp {how}"
        return self.held(self.e.bin(name, self.vector, self.text, self._beside(other).text), "i1")

    def __lt__(self, other: Operand) -> Numbers:
        return self.compare("olt" if self.is_float else "slt", other)

    def __le__(self, other: Operand) -> Numbers:
        return self.compare("ole" if self.is_float else "sle", other)

    def __gt__(self, other: Operand) -> Numbers:
        return self.compare("ogt" if self.is_float else "sgt", other)

    def __ge__(self, other: Operand) -> Numbers:
        return self.compare("oge" if self.is_float else "sge", other)

    def equals(self, other: Operand) -> Numbers:
        """Where both are equal; NaN is not."""
        return self.compare("oeq" if self.is_float else "eq", other)

    def is_nan(self) -> Numbers:
        """Where lanes are NaN."""
        return self.compare("uno", self)

    def choose(self, yes: Operand, no: Operand) -> Numbers:
        """Numbers of ``yes`` where this is true, of ``no`` elsewhere; one of them at least is no number."""
        like = yes if isinstance(yes, Numbers) else no
        assert isinstance(like, Numbers)
        yes, no, vt = like._beside(yes), like._beside(no), like.vector
        return like.held(self.e.op(f"select {self.vector} {self.text}, {vt} {yes.text}, {vt} {no.text}"))

    def packed(self) -> Numbers:
        """Truth values as the bits of one integer."""
        ty = f"i{self.width}"
        return self if self.width == 1 else Numbers(self.e, self.e.cast("bitcast", self.vector, self.text, ty), ty, 1)

    # ---- functions and conversions

    def call(self, name: str, *others: Operand) -> Numbers:
        """An intrinsic function of operands of this type, by its name after ``llvm.``"""
        args = [(self.vector, one.text) for one in (self, *map(self._beside, others))]
        args += [("i1", "false")] if name in ("ctlz", "cttz", "abs") else []  # zero, and the least number, are allowed
        return self.held(self.e.call(f"llvm.{name}.{self.suffix}", self.vector, *args))

    def to(self, how: str, ty: str) -> Numbers:
        """A conversion by LLVM's name: ``fpext``, ``fptrunc``, ``sitofp``, ``zext`` ..."""
        return self.held(self.e.cast(how, self.vector, self.text, vec(self.width, ty)), ty)

    def as_bits_of(self, ty: str) -> Numbers:
        """The same bits as another type of their size."""
        return self.to("bitcast", ty)

    def to_integer(self, ty: str, *, signed: bool = True) -> Numbers:
        """Floats cut to integers; those out of range become the nearest one, NaN becomes 0."""
        name = f"llvm.fpto{'s' if signed else 'u'}i.sat.{suffix(self.width, ty)}.{self.suffix}"
        return self.held(self.e.call(name, vec(self.width, ty), (self.vector, self.text)), ty)

    def resized(self, bits: int, *, signed: bool = False) -> Numbers:
        """Integers cut, or extended by zeros or the sign."""
        if bits == self.bits:
            return self
        return self.to("trunc" if bits < self.bits else "sext" if signed else "zext", f"i{bits}")

    def high_product(self, other: Numbers, *, signed: bool) -> Numbers:
        """The upper half of a product."""
        x, y = (one.resized(2 * self.bits, signed=signed) for one in (self, other))
        return (x * y >> self.bits).resized(self.bits)


def horner(coefficients: Sequence[float], x: Numbers) -> Numbers:
    """A polynomial, highest power first, by fused multiply-adds."""
    total = x.number(coefficients[0])
    for value in coefficients[1:]:
        total = total.call("fma", x, value)
    return total
