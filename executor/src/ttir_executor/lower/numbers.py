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
from ttir_executor.ttir.ir import FLOAT_BITS, UnsupportedTTIR, small_format

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
        """Floats cut to integers as PTX's ``cvt`` does: those out of range become the nearest one, NaN becomes 0 or, of
        doubles and in 64 bits, the number whose top bit alone is set."""
        name = f"llvm.fpto{'s' if signed else 'u'}i.sat.{suffix(self.width, ty)}.{self.suffix}"
        found = self.held(self.e.call(name, vec(self.width, ty), (self.vector, self.text)), ty)
        return self.is_nan().choose(1 << (found.bits - 1), found) if 64 in (self.bits, found.bits) else found

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


# ---- narrow float formats, held in registers as ``float``: rounding to nearest even, and to and from memory bits


_FP8 = ("f8E5M2", "f8E4M3FN", "f8E5M2FNUZ", "f8E4M3FNUZ")
"""8-bit formats; what is larger than their largest number becomes that, as ``cvt.satfinite`` does"""


def round_to(x: Numbers, elem: str) -> Numbers:
    """``float`` lanes rounded to the nearest value of a narrow format."""
    if elem in ("f32", "f64"):
        return x
    if elem == "f16":
        return x.to("fptrunc", "half").to("fpext", "float")
    if elem == "bf16":
        return drop_bits(x, 16)
    if elem == "tf32":
        return _round_away(x, 13)
    if elem in _FP8:
        return _round_fp8(x, elem)
    raise UnsupportedTTIR(f"the float format {elem}")


def drop_bits(x: Numbers, drop: int) -> Numbers:
    """Round to nearest even by dropping ``drop`` mantissa bits; NaN stays NaN."""
    bits = x.as_bits_of("i32")
    bias = (bits >> drop & 1) + ((1 << (drop - 1)) - 1)
    rounded = bits + bias & -(1 << drop)
    nan = x.is_nan()
    return nan.choose((bits | 1 << 22) & -(1 << drop), rounded).as_bits_of("float")


def _round_away(x: Numbers, drop: int) -> Numbers:
    """Round to nearest by dropping ``drop`` mantissa bits, ties away from zero, as ``cvt.rna`` does."""
    rounded = (x.as_bits_of("i32") + (1 << (drop - 1)) & -(1 << drop)).as_bits_of("float")
    return (abs(x) < float("inf")).choose(rounded, x)


def _round_fp8(x: Numbers, elem: str) -> Numbers:
    mantissa, emin, largest = small_format(elem)
    size = abs(x)
    normal = drop_bits(size, 23 - mantissa)
    magic = 2.0 ** (emin - mantissa + 23)
    small = size + magic - magic
    rounded = (size < 2.0**emin).choose(small, normal)
    return (rounded > largest).choose(largest, rounded).call("copysign", x)


def narrowed(x: Numbers, elem: str, mode: str = "rn") -> Numbers:
    """``float`` or ``double`` lanes rounded once to a format: to nearest even, or as ``mode`` says down (``rm``), up
    (``rp``) or to zero (``rz``)."""
    near = x
    if x.ty == "double" and elem != "f64":
        near = x.to("fptrunc", "float")
        near = near if elem == "f32" else _to_odd(x, near)
    near = round_to(near, elem)
    if mode == "rn" or near is x:
        return near
    wide = near if near.ty == x.ty else near.to("fpext", x.ty)
    bits = to_bits(near, elem)
    negative = bits < 0
    if mode == "rz":
        return from_bits(negative.choose(x > wide, x < wide).choose(bits - 1, bits), elem)
    wanted, up = (x < wide, 1) if mode == "rm" else (x > wide, -1)
    return from_bits(wanted.choose(bits + negative.choose(bits.number(up), bits.number(-up)), bits), elem)


def _to_odd(x: Numbers, near: Numbers) -> Numbers:
    """``near`` (the float nearest to double ``x``) so changed that rounding it once more gives what ``x`` gives."""
    wide = near.to("fpext", "double")
    over = abs(wide) > abs(x)
    bits = near.as_bits_of("i32")
    inward = over.choose(bits - 1, bits)
    return (inward | wide.compare("one", x).to("zext", "i32")).as_bits_of("float")


def in_double(name: str, x: list[Numbers], mode: str = "rn") -> Numbers:
    """``add sub mul fma div sqrt`` of fp32 numbers held as ``double``, to be rounded once more by :func:`narrowed`.

    A double holds their products exactly. A quotient or root that is no fp32 number is further from all of them than
    fp64's spacing, so that rounding it there first changes nothing.
    """
    if name == "sqrt":
        return x[0].call("sqrt")
    if name in ("mul", "div"):
        return x[0].binary(f"f{name}", x[1])
    a, b = (x[0] * x[1], x[2]) if name == "fma" else x
    b = -b if name == "sub" else b
    exact = _sum_to_odd(a, b)
    if mode != "rm":
        return exact
    least = _sign(a).call("minimum", _sign(b))  # what cancels is minus zero then
    return exact.equals(0.0).choose(exact.call("copysign", least), exact)


def _sum_to_odd(a: Numbers, b: Numbers) -> Numbers:
    """a + b of doubles whose last bit tells whether it is exact, so that a second rounding is right."""
    total = a + b
    back = total - a  # Knuth's two-sum
    error = (a - (total - back)) + (b - back)
    bits = total.as_bits_of("i64")
    exact = error.compare("ueq", 0.0)
    odd = (bits & 1).compare("ne", 0)
    moved = (error * _sign(total) > 0.0).choose(bits + 1, bits - 1)
    return (exact | odd).choose(bits, moved).as_bits_of("double")


def _sign(x: Numbers) -> Numbers:
    return x.number(1.0).call("copysign", x)


def to_bits(x: Numbers, elem: str) -> Numbers:
    """Memory bits (an integer of the format's width) of register lanes."""
    if elem in ("f64", "f32"):
        return x.as_bits_of(f"i{FLOAT_BITS[elem]}")
    if elem in ("f16", "f8E5M2"):
        half = x.to("fptrunc", "half").as_bits_of("i16")
        return half if elem == "f16" else (half >> 8).resized(8)
    bits = x.as_bits_of("i32")
    if elem == "bf16":
        return (bits >> 16).resized(16)
    if elem in _FP8:
        return _fp8_bits(x, bits, elem)
    raise UnsupportedTTIR(f"the float format {elem}")


def _fp8_bits(x: Numbers, bits: Numbers, elem: str) -> Numbers:
    """Of formats without infinities. Those that end in UZ have one NaN, where others have the negative zero."""
    mantissa, emin, _ = small_format(elem)
    sign = bits >> 24 & 128
    size = abs(x)
    normal = (size.as_bits_of("i32") >> 23 - mantissa) - ((126 + emin) << mantissa)
    small = (size * 2.0 ** (mantissa - emin)).to_integer("i32")
    body = (size < 2.0**emin).choose(small, normal)
    nan = x.is_nan()
    if elem.endswith("UZ"):
        sign = body.equals(0).choose(0, sign)
        whole = nan.choose(128, sign | body)
    else:
        whole = sign | nan.choose(127, body)
    return whole.resized(8)


def from_bits(x: Numbers, elem: str) -> Numbers:
    """Register lanes of memory bits."""
    if elem in ("f64", "f32"):
        return x.as_bits_of("double" if elem == "f64" else "float")
    if elem == "f8E5M2":
        x = x.resized(16) << 8
    if elem in ("f16", "f8E5M2"):
        return x.as_bits_of("half").to("fpext", "float")
    if elem == "bf16":
        return (x.resized(32) << 16).as_bits_of("float")
    if elem in _FP8:
        return _from_fp8(x.resized(32), elem)
    raise UnsupportedTTIR(f"the float format {elem}")


def _from_fp8(bits: Numbers, elem: str) -> Numbers:
    mantissa, emin, _ = small_format(elem)
    low = bits & 127
    normal = ((low << 23 - mantissa) + ((126 + emin) << 23)).as_bits_of("float")
    small = low.to("uitofp", "float") * 2.0 ** (emin - mantissa)
    value = low.compare("ult", 1 << mantissa).choose(small, normal)
    nan = bits.equals(128) if elem.endswith("UZ") else low.equals(127)
    value = nan.choose(float("nan"), value)
    return bits.compare("ugt", 127).choose(-value, value)
