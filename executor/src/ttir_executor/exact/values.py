"""Arrays of numbers that carry their algebra: a float that decides, and two residues that prove.

:class:`Exact` has the ideal value ``f`` (float64; casts to narrower floats do not round it), the residue ``a`` in Z_p,
``b`` in Z_q, and ``lost``, the bits of ``field.py``. Comparisons, maxima, masks, conversions to integers and control
flow follow ``f`` and carry the chosen value's residues along. The four parts broadcast to one shape; a part may be
smaller than that, so what is uniform costs nothing.

Exponentials map b to a, logarithms a to b. What a field cannot express (an error function, a sine) is a keyed hash of
the argument's residues: equal for equal arguments, and no evidence where it differs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ttir_executor.exact.field import (
    FRACTION,
    NOT_P,
    NOT_Q,
    SIGN,
    UNCLEAN,
    UNCLEAN_P,
    UNCLEAN_Q,
    UNDEFINED,
    Field,
    inverse,
    mixed,
    power,
    reduced,
    times,
)

_OR: Any = np.bitwise_or
_XOR: Any = np.bitwise_xor
VANISHES, MASKED = -700.0, -9000.0
"""below the first argument an exponential counts as zero, as fp64 has it, and unclean: another form of the program need
not see a zero. Below the second it is a mask's (-1e4, -1e9, minus infinity), and nothing but zero"""
MOST_POWER = 64
"""whole exponents up to this are products"""


@dataclass(frozen=True, eq=False)
class Exact:
    """An array of such numbers."""

    field: Field
    f: np.ndarray
    a: np.ndarray
    b: np.ndarray
    lost: np.ndarray

    # ---- making

    @staticmethod
    def constant(field: Field, value: float, bits: int = 64) -> Exact:
        """A constant of a program, of no dimensions."""
        found = field.constant(value, bits)
        return Exact(field, np.float64(value), np.float64(found.a), np.float64(found.b), np.uint8(found.lost))  # type: ignore[arg-type]

    @staticmethod
    def whole(field: Field, values: np.ndarray) -> Exact:
        """Whole numbers (or booleans) as values."""
        values = np.asarray(values)
        if values.dtype == bool:
            values = values.astype(np.int64)
        a, b = field.whole(values)
        return Exact(field, values.astype(np.float64), a, b, np.uint8(0))  # type: ignore[arg-type]

    @staticmethod
    def drawn(field: Field, name: str, values: np.ndarray) -> Exact:
        """Independent variables with these floats; the same residues for one name and shape."""
        f = np.asarray(values, np.float64)
        a, b = field.draw(name, f.size)
        return Exact(field, f, a.reshape(f.shape), b.reshape(f.shape), np.uint8(0))  # type: ignore[arg-type]

    @staticmethod
    def unknown(field: Field, f: np.ndarray) -> Exact:
        """Floats of which nothing is known but their value."""
        return Exact(field, np.asarray(f, np.float64), np.float64(0), np.float64(0), np.uint8(UNDEFINED))  # type: ignore[arg-type]

    # ---- form

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape to which the parts broadcast."""
        return np.broadcast_shapes(*(np.shape(part) for part in self.parts))

    @property
    def parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The four arrays."""
        return self.f, self.a, self.b, self.lost

    def full(self) -> Exact:
        """The same with every part of the full shape (views that repeat, not copies)."""
        shape = self.shape
        return Exact(self.field, *(np.broadcast_to(part, shape) for part in self.parts))

    def map(self, change: Callable[[np.ndarray], np.ndarray]) -> Exact:
        """Apply what moves elements (a transposition, an index, a reshape) to each part at its full shape."""
        return Exact(self.field, *(change(part) for part in self.full().parts))

    def fingerprints(self) -> tuple[int | None, int | None]:
        """A number for the elements in each field, whatever their order; None where an element has no residue there."""
        x = self.full()
        found = [
            None if x.has(bit) else int(mixed(np.asarray(part).astype(np.uint64)).sum(dtype=np.uint64))
            for part, bit in ((x.a, NOT_P), (x.b, NOT_Q))
        ]
        return found[0], found[1]

    def has(self, bits: int) -> bool:
        """Whether an element has one of these bits."""
        return bool(np.any(np.bitwise_and(self.lost, np.uint8(bits))))

    def _new(self, f: Any, a: Any, b: Any, lost: Any) -> Exact:
        return Exact(self.field, np.asarray(f), np.asarray(a), np.asarray(b), np.asarray(lost, np.uint8))

    def _other(self, other: Exact | float) -> Exact:
        return other if isinstance(other, Exact) else Exact.constant(self.field, other)

    # ---- arithmetic

    def __add__(self, other: Exact | float) -> Exact:
        y = self._other(other)
        a, b = self.a + y.a, self.b + y.b
        lost = (self.lost | y.lost) ^ (self.lost & y.lost & SIGN)
        return self._new(self.f + y.f, _once(a, self.field.p), _once(b, self.field.q), lost)

    __radd__ = __add__

    def __neg__(self) -> Exact:
        p, q = self.field.p, self.field.q
        return self._new(-self.f, np.where(self.a == 0, 0, p - self.a), np.where(self.b == 0, 0, q - self.b), self.lost)

    def __sub__(self, other: Exact | float) -> Exact:
        return self + -self._other(other)

    def __rsub__(self, other: Exact | float) -> Exact:
        return self._other(other) - self

    def __mul__(self, other: Exact | float) -> Exact:
        y = self._other(other)
        field = self.field
        with np.errstate(invalid="ignore", over="ignore"):
            f = self.f * y.f
        a, b = times(self.a, y.a, field.p), times(self.b, y.b, field.q)
        lost = self.lost | y.lost
        if np.any(lost):
            lost = self._after_product(y, lost)
            if np.any((lost & UNDEFINED) == UNDEFINED):
                a, b, lost = self._between_fields(y, a, b, lost)
            zeros = self.is_zero(), y.is_zero()
            unclean = np.where(zeros[0], self.lost & UNCLEAN, 0) | np.where(zeros[1], y.lost & UNCLEAN, 0)
            f, a, b = (np.where(zeros[0] | zeros[1], 0, part) for part in (f, a, b))
            lost = np.where(zeros[0] | zeros[1], unclean, lost)
        return self._new(f, a, b, lost)

    __rmul__ = __mul__

    def _between_fields(self, y: Exact, a: Any, b: Any, lost: Any) -> tuple[Any, Any, Any]:
        """A product of a value in Z_p alone and one in Z_q alone (p log p): a hash of both, equal for equal factors."""
        for one, other in ((self, y), (y, self)):
            crossed = ((one.lost & UNDEFINED) == NOT_Q) & ((other.lost & UNDEFINED) == NOT_P)
            if np.any(crossed):
                self.field.reasons["a product of an exponential and a logarithm"] += 1
                in_p, in_q = self.field.hashed("product", one.a, other.b)
                a, b = np.where(crossed, in_p, a), np.where(crossed, in_q, b)
                lost = np.where(crossed, UNCLEAN, lost)
        return a, b, lost

    def _after_product(self, y: Exact, lost: np.ndarray) -> np.ndarray:
        """Bits of a product: a logarithm's sign stays for odd multiples and the constants that change its base, goes
        for even ones, and makes any other multiple a fraction."""
        for one, factor in ((self, y), (y, self)):
            if not one.has(SIGN):
                continue
            number = np.rint(factor.f)
            a, b = self.field.whole(np.nan_to_num(number))
            whole = (factor.f == number) & (factor.a == a) & (factor.b == b) & ((factor.lost & UNDEFINED) == 0)
            based = factor.is_constant(self.field.ln2) | factor.is_constant(self.field.log2e)
            kept = based | (whole & (np.mod(number, 2) == 1))
            signed = (one.lost & SIGN) != 0
            lost = np.where(signed & ~kept, lost & ~np.uint8(SIGN), lost)
            lost = np.where(signed & ~whole & ~based, lost | np.uint8(FRACTION), lost)
        return lost

    def is_zero(self) -> np.ndarray:
        """Where this is exactly zero."""
        return (self.f == 0) & (self.a == 0) & (self.b == 0) & ((self.lost & UNDEFINED) == 0)

    def is_constant(self, constant: Any) -> np.ndarray:
        """Where this is a certain constant of the field."""
        return (self.a == constant.a) & (self.b == constant.b) & ((self.lost & UNDEFINED) == 0)

    def reciprocal(self) -> Exact:
        """1 / x; undefined in a field where x is 0."""
        with np.errstate(divide="ignore"):
            f = 1 / np.asarray(self.f, np.float64)
        lost = self.lost | np.where(self.a == 0, NOT_P, 0).astype(np.uint8)
        lost = lost | np.where(self.b == 0, NOT_Q, 0).astype(np.uint8)
        lost = np.where((lost & SIGN) != 0, (lost | UNDEFINED), lost)
        return self._new(f, inverse(np.asarray(self.a), self.field.p), inverse(np.asarray(self.b), self.field.q), lost)

    def __truediv__(self, other: Exact | float) -> Exact:
        return self * self._other(other).reciprocal()

    def __rtruediv__(self, other: Exact | float) -> Exact:
        return self._other(other) * self.reciprocal()

    def power(self, exponent: Exact | float) -> Exact:
        """x ** y: a product for a constant whole y, else e^(y log x), or a hash where x has no logarithm."""
        y = self._other(exponent)
        number = float(np.ravel(y.f)[0]) if np.size(y.f) else 0.0
        if all(np.size(part) == 1 for part in y.parts) and np.all(y.is_constant(self.field.constant(number))):
            if number.is_integer() and abs(number) <= MOST_POWER:
                return self._whole_power(int(number))
            if number in (0.5, -0.5):
                return self.sqrt() if number > 0 else self.rsqrt()
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            f = np.power(np.asarray(self.f, np.float64), y.f)
        if not self.has(NOT_P):
            found = (self.log() * y).exp()
            return self._new(f, found.a, found.b, found.lost)
        return self._hashed("pow", f, y)

    def _whole_power(self, n: int) -> Exact:
        base = self if n >= 0 else self.reciprocal()
        if n == 0:
            return Exact.constant(self.field, 1.0)
        with np.errstate(over="ignore"):
            f = np.power(np.asarray(base.f, np.float64), abs(n))
        a = power(np.asarray(base.a, np.float64), abs(n), self.field.p)
        b = power(np.asarray(base.b, np.float64), abs(n), self.field.q)
        lost = base.lost if n in (1, -1) else np.where((base.lost & SIGN) != 0, base.lost | UNDEFINED, base.lost)
        return self._new(f, a, b, lost)

    # ---- functions

    def exp(self) -> Exact:
        """e^x; zero far below (:data:`VANISHES`)."""
        with np.errstate(over="ignore"):
            f = np.exp(np.asarray(self.f, np.float64))
        field, lost = self.field, self.lost
        a = field.exp(self.b)
        if self.has(SIGN):
            a = np.where((lost & SIGN) != 0, field.p - a, a)
        if np.any(lost):
            again = (lost & UNDEFINED) == NOT_Q
            if np.any(again):
                a = np.where(again, self._exp_of_exp(), a)
            bits = np.where((lost & NOT_Q) != 0, UNDEFINED, NOT_Q)
            bits = bits | np.where((lost & (UNCLEAN_Q | FRACTION)) != 0, UNCLEAN_P, 0)
            lost = np.where(again, NOT_Q | UNCLEAN_P, bits)
        else:
            lost = np.asarray(NOT_Q)
        zero = self.f < VANISHES
        if np.any(zero):
            f, a = np.where(zero, 0, f), np.where(zero, 0, a)
            lost = np.where(zero, np.where(self.f < MASKED, 0, UNCLEAN), lost)
        return self._new(f, a, np.float64(0), lost)

    def _exp_of_exp(self) -> np.ndarray:
        """An exponential of what is known in Z_p alone: a hash, the reciprocal for the negative argument."""
        self.field.reasons["an exponential of an exponential"] += 1
        p = self.field.p
        turned = self.a > p // 2
        value = self.field.hashed("exp", np.where(turned, p - self.a, self.a))[0]
        return np.where(turned, inverse(value, p), value)

    def exp2(self) -> Exact:
        """2^x."""
        found = (self * self._ln2()).exp()
        with np.errstate(over="ignore"):
            return self._new(np.exp2(np.asarray(self.f, np.float64)) * (found.f != 0), *found.parts[1:])

    def _ln2(self) -> Exact:
        return self._new(np.log(2), self.field.ln2.a, self.field.ln2.b, 0)

    def log(self) -> Exact:
        """The natural logarithm."""
        with np.errstate(divide="ignore", invalid="ignore"):
            f = np.log(np.asarray(self.f, np.float64))
        missing = ((self.lost & NOT_P) != 0) | (self.a == 0)
        b = self.field.log(self.a)
        lost = np.where(self.field.is_square(np.asarray(self.a)), NOT_P, NOT_P | SIGN)
        lost = np.where((self.lost & UNCLEAN_P) != 0, lost | UNCLEAN_Q, lost)
        return self._new(f, np.float64(0), b, np.where(missing, UNDEFINED, lost))

    def log2(self) -> Exact:
        """The logarithm to base 2."""
        found = self.log()
        log2e = self._new(np.log2(np.e), self.field.log2e.a, self.field.log2e.b, 0)
        return found * log2e

    def sqrt(self) -> Exact:
        """The square root: in each field that of a square; of another value, that of its negative, and unclean."""
        field = self.field
        with np.errstate(invalid="ignore"):
            f = np.sqrt(np.asarray(self.f, np.float64))
        a, b = field.root(np.asarray(self.a), field.p), field.root(np.asarray(self.b), field.q)
        lost = np.where(times(a, a, field.p) == self.a, self.lost, self.lost | UNCLEAN_P)
        lost = np.where(times(b, b, field.q) == self.b, lost, lost | UNCLEAN_Q)
        if self.has(SIGN):
            lost = np.where((self.lost & SIGN) != 0, lost | UNDEFINED, lost)
        return self._new(f, a, b, lost)

    def rsqrt(self) -> Exact:
        """1 / sqrt(x)."""
        return self.sqrt().reciprocal()

    def sigmoid(self) -> Exact:
        """1 / (1 + e^-x)."""
        return (1.0 + (-self).exp()).reciprocal()

    def tanh(self) -> Exact:
        """(e^2x - 1) / (e^2x + 1), as 1 - 2 / (e^2x + 1), which no overflow spoils."""
        return 1.0 - 2.0 / ((self + self).exp() + 1.0)

    def opaque(self, name: str, f: np.ndarray, *others: Exact) -> Exact:
        """A function that the fields cannot express; it ends proofs of inequality, and is named as the reason."""
        self.field.reasons[name] += 1
        return self._hashed(name, f, *others)

    def _hashed(self, name: str, f: np.ndarray, *others: Exact) -> Exact:
        every = (self, *others)
        residues = [
            np.where((one.lost & bit) != 0, -1, part) for one in every for part, bit in ((one.a, NOT_P), (one.b, NOT_Q))
        ]
        a, b = self.field.hashed(name, *residues)
        lost: Any = np.uint8(0)
        for one in every:
            lost = np.where((one.lost & UNDEFINED) == UNDEFINED, UNDEFINED, lost)
        return self._new(f, a, b, np.where(lost == UNDEFINED, UNDEFINED, UNCLEAN))

    # ---- choices

    def abs(self) -> Exact:
        """|x|, by the sign of ``f``."""
        return where(self.f < 0, -self, self)

    def maximum(self, other: Exact | float) -> Exact:
        """The larger of two, by ``f``; NaN if one is."""
        y = self._other(other)
        return where((self.f >= y.f) | np.isnan(self.f), self, y)

    def minimum(self, other: Exact | float) -> Exact:
        """The smaller of two, by ``f``; NaN if one is."""
        y = self._other(other)
        return where((self.f <= y.f) | np.isnan(self.f), self, y)

    # ---- along axes

    def sum(self, axis: int | tuple[int, ...], keepdims: bool = False) -> Exact:
        """The sum along axes."""
        x, field = self.full(), self.field
        f, a, b = (part.sum(axis=axis, keepdims=keepdims) for part in (x.f, x.a, x.b))
        lost: Any = np.uint8(0)
        if np.any(self.lost):
            lost = _OR.reduce(x.lost & ~np.uint8(SIGN), axis=axis, keepdims=keepdims)
            lost = lost | _XOR.reduce(x.lost & np.uint8(SIGN), axis=axis, keepdims=keepdims)
        return self._new(f, reduced(a, field.p), reduced(b, field.q), lost)

    def prod(self, axis: int, keepdims: bool = False) -> Exact:
        """The product along an axis."""
        x = self.map(lambda part: np.moveaxis(part, axis, 0))
        while x.shape[0] > 1:
            half = x.shape[0] // 2
            rest = x._rows(2 * half, None)
            x = x._rows(0, half) * x._rows(half, 2 * half)
            if rest.shape[0]:
                x = concatenate([x, rest], 0)
        return x.map(lambda part: np.moveaxis(part, 0, axis) if keepdims else part[0])

    def _rows(self, start: int, stop: int | None) -> Exact:
        return self.map(lambda part: part[start:stop])

    def cumsum(self, axis: int) -> Exact:
        """Running sums along an axis."""
        x, field = self.full(), self.field
        f, a, b = (np.cumsum(part, axis=axis) for part in (x.f, x.a, x.b))
        lost: Any = np.uint8(0)
        if np.any(self.lost):
            lost = np.bitwise_or.accumulate(x.lost & ~np.uint8(SIGN), axis=axis)
            lost = lost | np.bitwise_xor.accumulate(x.lost & np.uint8(SIGN), axis=axis)
        return self._new(f, reduced(a, field.p), reduced(b, field.q), lost)

    def extreme(self, axis: int, largest: bool = True, keepdims: bool = False) -> Exact:
        """The largest or smallest along an axis, by ``f``."""
        place = np.expand_dims((np.argmax if largest else np.argmin)(self.full().f, axis), axis)
        found = self.map(lambda part: np.take_along_axis(part, place, axis))
        return found if keepdims else found.map(lambda part: part.squeeze(axis))

    def matmul(self, other: Exact) -> Exact:
        """The product of matrices in the last two axes, others broadcast."""
        x, y, field = self.full(), other.full(), self.field
        with np.errstate(invalid="ignore", over="ignore"):
            f = x.f @ y.f
        a, b = (
            np.float64(0) if any(np.size(part) == 1 and not np.any(part) for part in parts) else _matmul(*full, modulus)
            for parts, full, modulus in (
                ((self.a, other.a), (x.a, y.a), field.p),
                ((self.b, other.b), (x.b, y.b), field.q),
            )
        )
        lost: Any = np.uint8(0)
        if np.any(x.lost) or np.any(y.lost):
            lost = _lost_in_products(x, y)
        return self._new(f, a, b, lost)


def where(condition: np.ndarray, x: Exact, y: Exact) -> Exact:
    """The elements of ``x`` where the condition is true, else those of ``y``."""
    return Exact(x.field, *(_chosen(condition, left, right) for left, right in zip(x.parts, y.parts, strict=True)))


def _chosen(condition: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x is y or (np.size(x) == 1 and np.size(y) == 1 and np.ravel(x)[0] == np.ravel(y)[0]):
        return x if np.ndim(x) <= np.ndim(y) else y  # uniform parts stay so
    return np.where(condition, x, y)


def concatenate(values: Sequence[Exact], axis: int) -> Exact:
    """Values one after another along an axis; the other axes are equal."""
    full = [one.full().parts for one in values]
    return Exact(values[0].field, *(np.concatenate([one[n] for one in full], axis) for n in range(4)))


@dataclass(frozen=True)
class ExactComparison:
    """Two results, element by element."""

    equal: np.ndarray
    differ: np.ndarray
    """defined in a common field, unequal there, and no artefact could have made them so"""
    unequal: np.ndarray
    """defined and unequal, whatever that means"""


def compare(x: Exact, y: Exact) -> ExactComparison:
    """Compare two results of one shape; an element that is none of the three has no common field."""
    x, y = x.full(), y.full()
    lost = x.lost | y.lost
    in_p, in_q = (lost & NOT_P) == 0, (lost & NOT_Q) == 0
    not_in_p, not_in_q = in_p & (x.a != y.a), in_q & (x.b != y.b)
    unequal = not_in_p | not_in_q
    differ = (not_in_p & ((lost & UNCLEAN_P) == 0)) | (not_in_q & ((lost & (UNCLEAN_Q | FRACTION)) == 0))
    return ExactComparison((in_p | in_q) & ~unequal, differ, unequal)


def _once(x: np.ndarray, modulus: int) -> np.ndarray:
    """The residue of the sum of two."""
    return np.where(x >= modulus, x - modulus, x)


def _matmul(x: np.ndarray, y: np.ndarray, modulus: int) -> np.ndarray:
    """A product of matrices of residues, in pieces of which float64 has the exact sum."""
    most = int(2**52 // (modulus * modulus))
    result: Any = 0.0
    for start in range(0, x.shape[-1], most):
        result = reduced(result + x[..., start : start + most] @ y[..., start : start + most, :], modulus)
    return result


def _lost_in_products(x: Exact, y: Exact) -> np.ndarray:
    """Bits of a product of matrices: those of a factor whose partner is not exactly zero."""
    result: Any = np.uint8(0)
    live_x, live_y = (~x.is_zero()).astype(np.float64), (~y.is_zero()).astype(np.float64)
    for bit in (NOT_P, NOT_Q, UNCLEAN_P, UNCLEAN_Q, SIGN, FRACTION):
        left, right = ((one.lost & bit) != 0 for one in (x, y))
        if not left.any() and not right.any():
            continue
        met = left.astype(np.float64) @ live_y + live_x @ right.astype(np.float64)
        result = result | np.where(met > 0, bit if bit != SIGN else UNDEFINED, 0).astype(np.uint8)
    return result
