"""Two finite fields in which programs are evaluated, and the constants of programs in them.

Primes q below 2^20 and p = 2q + 1, so that products, and sums of a billion terms, are exact in float64. ``g`` generates
the squares modulo p: a value that is x in Z_q has e^x = g^x in Z_p. Both primes are 7 modulo 8 and leave 3 a square:
then 2, 3, 4, 6, ... are squares, half of all elements are, and the root of a square is a power of it. Squares modulo p
have logarithms; of another value a, log gives that of -a, and a bit says so. So e^(log(a) / 2) is the root of a.
Everything is drawn from a secret seed.

Residues are float64 arrays of whole numbers.
"""

import hashlib
import math
import random
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

NOT_P, NOT_Q, UNCLEAN_P, UNCLEAN_Q, SIGN, FRACTION = 1, 2, 4, 8, 16, 32
"""bits of a value: no residue in Z_p; none in Z_q; an inequality there means nothing; its exponential is -g^b; it is
a fraction of a logarithm that had this sign"""
UNDEFINED, UNCLEAN = NOT_P | NOT_Q, UNCLEAN_P | UNCLEAN_Q

DIGIT = 1 << 10
"""base in which exponents are split; its square exceeds every q"""
MANY = 1 << 14
"""elements that are worth inverting together"""
DIGITS = 6
"""significant digits up to which a constant is the decimal number that it is written as"""
MOST_SYMBOLS = 8
"""unexplained constants with which later ones are compared"""
ROUNDING = {64: 2.0**-52, 32: 2.0**-23, 16: 2.0**-10, 8: 2.0**-3}
"""relative error of a constant, by the bits of its type: rounded twice at most"""
_DECIMALS: dict[int, Any] = {32: np.float32, 16: np.float16}


def times(x: np.ndarray, y: np.ndarray, modulus: int) -> np.ndarray:
    """``x * y`` of residues."""
    return reduced(np.multiply(x, y), modulus)


def reduced(x: np.ndarray, modulus: int) -> np.ndarray:
    """Whole numbers of magnitudes below 2^53 - 2^20 as residues."""
    rest = np.rint(x * (1.0 / modulus))
    rest *= modulus
    rest = x - rest  # exact, and at most half a modulus: a quotient is off by less than one half and 2^-19
    return np.where(rest < 0, rest + modulus, rest)


def power(x: np.ndarray, exponent: int, modulus: int) -> np.ndarray:
    """``x ** exponent``, a whole number of at least 0."""
    result = np.ones_like(x)
    while exponent:
        if exponent & 1:
            result = times(result, x, modulus)
        exponent >>= 1
        if exponent:
            x = times(x, x, modulus)
    return result


def inverse(x: np.ndarray, modulus: int) -> np.ndarray:
    """``1 / x``; 0 for 0."""
    x = np.asarray(x, np.float64)
    if x.size == 1:
        return np.full(x.shape, float(pow(int(x.item()), modulus - 2, modulus)))
    if x.size < MANY:
        return power(x, modulus - 2, modulus)
    flat = np.where(x == 0, 1.0, x).reshape(-1)
    half = flat.size // 2  # 1 / x = y / (x y): an inversion for every two, and so on
    left, right = flat[:half], flat[half : 2 * half]
    both = inverse(times(left, right, modulus), modulus)
    rest = inverse(flat[2 * half :], modulus)
    found = np.concatenate([times(both, right, modulus), times(both, left, modulus), rest]).reshape(x.shape)
    return np.where(x == 0, 0.0, found)


@dataclass(frozen=True)
class FieldConstant:
    """A constant of a program in both fields."""

    a: float
    b: float
    lost: int = 0


class Field:
    """The fields of one comparison, shared by the programs that are compared. The first program's constants that have
    no other explanation become symbols, which the second one's may match."""

    def __init__(self, seed: int):
        dice = random.Random(seed)
        self.p, self.q = _primes(dice)
        log_of_2 = dice.randrange(2, self.q)
        self.g = pow(2, pow(log_of_2, -1, self.q), self.p)
        self._key = dice.randbytes(16)
        self.reasons: Counter[str] = Counter()
        """what made values undefined or inequality meaningless: name of the operation -> times"""
        self.least = 0.0
        """constants below are zero, except for those that appeared before it was set"""
        self._constants: dict[tuple[float, int], FieldConstant] = {}
        self._symbols: dict[float, FieldConstant] = {}
        self.ln2 = FieldConstant(self._symbol("ln2", self.p), float(log_of_2))
        self.log2e = self._inverted(self.ln2)
        self._bases = (
            (1.0, FieldConstant(1.0, 1.0)),
            (math.log2(math.e), self.log2e),
            (math.log(2), self.ln2),
            (math.pi, FieldConstant(self._symbol("pi", self.p), self._symbol("pi", self.q))),
            (math.e, FieldConstant(float(self.g), self._symbol("e", self.q))),
        )

    # ---- random points

    def _symbol(self, name: str, modulus: int) -> float:
        digest = hashlib.blake2b(f"{name}|{modulus}".encode(), key=self._key, digest_size=8).digest()
        return float(1 + int.from_bytes(digest, "little") % (modulus - 1))

    def draw(self, name: str, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Residues of ``count`` independent values, the same for one name."""
        digest = hashlib.blake2b(name.encode(), key=self._key, digest_size=16).digest()
        dice = np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))
        return dice.integers(1, self.p, count).astype(np.float64), dice.integers(1, self.q, count).astype(np.float64)

    def hashed(self, name: str, *residues: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residues that a keyed hash makes of others: a function of which nothing but that is known."""
        state = np.uint64(int.from_bytes(hashlib.blake2b(name.encode(), key=self._key, digest_size=8).digest(), "big"))
        shape = np.broadcast_shapes(*(np.shape(one) for one in residues))
        found = np.full(shape, state, np.uint64)
        for one in residues:
            found = mixed(found ^ np.asarray(one, np.float64).astype(np.int64).astype(np.uint64))
        other = mixed(found ^ state)
        return (
            (found % np.uint64(self.p - 1)).astype(np.float64) + 1,
            (other % np.uint64(self.q - 1)).astype(np.float64) + 1,
        )

    # ---- powers and logarithms

    @cached_property
    def _steps(self) -> tuple[np.ndarray, np.ndarray]:
        """g^i and g^(DIGIT i) for i below DIGIT."""
        return _powers(self.g, DIGIT, self.p), _powers(pow(self.g, DIGIT, self.p), DIGIT, self.p)

    def exp(self, b: np.ndarray) -> np.ndarray:
        """e^x in Z_p of x in Z_q."""
        small, large = self._steps
        whole = np.asarray(b, np.float64).astype(np.int64)
        return times(small[whole & (DIGIT - 1)], large[whole >> DIGIT.bit_length() - 1], self.p)

    @cached_property
    def _powers_of_g(self) -> np.ndarray:
        return _powers(self.g, self.q, self.p).astype(np.int64)

    @cached_property
    def _logarithms(self) -> np.ndarray:
        """The logarithm of each square, and of the negative of each other value, by value."""
        powers = self._powers_of_g
        table = np.zeros(self.p, np.int32)
        table[powers] = table[self.p - powers] = np.arange(self.q)
        return table

    @cached_property
    def _squares(self) -> np.ndarray:
        found = np.zeros(self.p, bool)
        found[self._powers_of_g] = found[0] = True
        return found

    def log(self, a: np.ndarray) -> np.ndarray:
        """The logarithm in Z_q of ``a`` in Z_p, other than 0, or of -a where that is the square: a homomorphism."""
        return self._logarithms[np.asarray(a, np.float64).astype(np.int64)].astype(np.float64)

    def is_square(self, a: np.ndarray) -> np.ndarray:
        """Whether elements of Z_p are squares (0 is one)."""
        return self._squares[np.asarray(a, np.float64).astype(np.int64)]

    def root(self, x: np.ndarray, modulus: int) -> np.ndarray:
        """The square root of what is a square; of anything else, that of its negative. Multiplicative."""
        return power(x, (modulus + 1) // 4, modulus)

    # ---- constants

    def constant(self, value: float, bits: int = 64) -> FieldConstant:
        """A constant of a program that was rounded to a type of ``bits`` bits."""
        key = (float(value), bits)
        if key not in self._constants:
            found = self.explained(0.0 if abs(value) < self.least else float(value), bits)
            if found is None:
                found = self._of_symbols(abs(value), ROUNDING[bits])
                found = self._negative(found) if value < 0 else found
            self._constants[key] = found
        return self._constants[key]

    def whole(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Whole numbers in both fields."""
        values = np.asarray(values)
        if values.dtype != np.float64:
            values = values.astype(np.uint64 if values.dtype == np.uint64 else np.int64)
            return np.mod(values, self.p).astype(np.float64), np.mod(values, self.q).astype(np.float64)
        return reduced(np.fmod(values, self.p), self.p), reduced(np.fmod(values, self.q), self.q)

    def _rational(self, number: Fraction) -> FieldConstant:
        over, under = number.numerator, number.denominator
        return FieldConstant(
            float(over * pow(under, -1, self.p) % self.p), float(over * pow(under, -1, self.q) % self.q)
        )

    def explained(self, value: float, bits: int) -> FieldConstant | None:
        """What a constant is, if it is a decimal of few digits, a simple quotient, or that times or over e, pi, a
        logarithm, or a root of these; None for any other."""
        if not math.isfinite(value):
            return FieldConstant(0.0, 0.0, UNDEFINED)
        if value < 0:
            found = self.explained(-value, bits)
            return None if found is None else self._negative(found)
        exact = _decimal(value, bits)
        if exact is not None:
            return self._rational(exact)
        rounding = ROUNDING[bits]
        for base, residues in self._bases:
            for other, factor in ((value / base, residues), (value * base, self._inverted(residues))):
                simple = _simple(other, rounding)
                if simple is not None:
                    return self._product(self._rational(simple), factor)
                square = _simple(other * other, 2 * rounding)
                if square is not None:
                    return self._product(self._root(self._rational(square)), factor)
        for base, residues in self._bases[3:4]:  # sqrt(2 / pi), 2 / sqrt(pi)
            for other, factor in ((value * value / base, residues), (value * value * base, self._inverted(residues))):
                square = _simple(other, 2 * rounding)
                if square is not None:
                    return self._root(self._product(self._rational(square), factor))
        return None

    def _of_symbols(self, value: float, rounding: float) -> FieldConstant:
        """A product of at most two constants that appeared before and a simple number, or a symbol of its own."""
        known = [(1.0, FieldConstant(1.0, 1.0))]
        for number, symbol in list(self._symbols.items())[:MOST_SYMBOLS]:
            known += [(number, symbol), (1 / number, self._inverted(symbol))]
        for number, symbol in known[1:]:
            for other, second in known:
                simple = _simple(value / (number * other), 3 * rounding)
                if simple is not None and (simple == 1 or second is known[0][1]):
                    return self._product(self._rational(simple), self._product(symbol, second))
        self.reasons["a constant of more than six digits"] += 1
        name = repr(float(np.float32(value)))
        symbol = FieldConstant(self._symbol(name, self.p), self._symbol(name, self.q), UNCLEAN)
        self._symbols[value] = symbol
        return symbol

    def _product(self, x: FieldConstant, y: FieldConstant) -> FieldConstant:
        return FieldConstant(float(int(x.a * y.a) % self.p), float(int(x.b * y.b) % self.q), x.lost | y.lost)

    def _inverted(self, x: FieldConstant) -> FieldConstant:
        return FieldConstant(float(pow(int(x.a), self.p - 2, self.p)), float(pow(int(x.b), self.q - 2, self.q)), x.lost)

    def _negative(self, x: FieldConstant) -> FieldConstant:
        return FieldConstant((-x.a) % self.p, (-x.b) % self.q, x.lost)

    def _root(self, x: FieldConstant) -> FieldConstant:
        return FieldConstant(
            float(pow(int(x.a), (self.p + 1) // 4, self.p)), float(pow(int(x.b), (self.q + 1) // 4, self.q)), x.lost
        )


def _primes(dice: random.Random) -> tuple[int, int]:
    """p and q as this module describes them."""
    while True:
        q = dice.randrange(1 << 18, 1 << 19) * 2 | 7
        q -= q % 24 - 23  # 7 modulo 8 and 2 modulo 3: 2 q + 1 is neither a multiple of 3 nor without a root of 3
        if all(q % n and (2 * q + 1) % n for n in (5, 7, 11, 13, 17, 19)) and _is_prime(q) and _is_prime(2 * q + 1):
            return 2 * q + 1, q


def _is_prime(n: int) -> bool:
    """Miller and Rabin's test, with bases that decide it below 2^32."""
    if n % 2 == 0 or n < 9:
        return n in (2, 3, 5, 7)
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 3, 5, 7):
        x = pow(base, odd, n)
        if x in (1, n - 1):
            continue
        for _ in range(twos - 1):
            x = x * x % n
            if x == n - 1:
                break
        else:
            return False
    return True


def _powers(base: int, count: int, modulus: int) -> np.ndarray:
    """base^0, base^1, ..."""
    found = np.ones(count)
    filled = 1
    while filled < count:
        part = found[filled : 2 * filled]
        part[:] = times(found[: part.size], np.asarray(float(pow(base, filled, modulus))), modulus)
        filled *= 2
    return found


def mixed(x: np.ndarray) -> np.ndarray:
    """splitmix64's finisher."""
    with np.errstate(over="ignore"):
        x = (x + np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _decimal(value: float, bits: int) -> Fraction | None:
    """The decimal number of few digits that is meant, or the whole number."""
    if value.is_integer() and value < 2**24:
        return Fraction(int(value))
    text = np.format_float_scientific(_DECIMALS.get(bits, np.float64)(value), unique=True)
    digits = text.partition("e")[0].replace(".", "").strip("0")
    return Fraction(text) if len(digits) <= DIGITS else None


def _simple(value: float, rounding: float) -> Fraction | None:
    """A whole number, its reciprocal, or a quotient of small numbers, as far as rounding leaves a choice."""
    if not 1e-7 < value < 1e7:
        return None
    for number, turned in ((value, False), (1 / value, True)):
        near = round(number)
        if near >= 1 and abs(number - near) <= rounding * near and (near < 2**16 or rounding < 1e-12):
            return Fraction(1, near) if turned else Fraction(near)
    for under in range(2, 17):
        over = round(value * under)
        if 1 <= over <= 256 and abs(value * under - over) <= rounding * over:
            return Fraction(over, under)
        over = round(under / value)
        if 1 <= over <= 256 and abs(under / value - over) <= rounding * over:
            return Fraction(under, over)
    return None
