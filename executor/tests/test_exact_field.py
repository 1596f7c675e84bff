"""The two fields: their primes, exponentials and logarithms, roots, and the constants of programs."""

import math
from fractions import Fraction

import numpy as np
import pytest

from ttir_executor.exact.field import UNCLEAN, UNDEFINED, Field, FieldConstant, inverse, power, times

FIELD = Field(1)


def _prime(n: int) -> bool:
    return n > 1 and all(n % k for k in range(2, math.isqrt(n) + 1))


@pytest.mark.parametrize("seed", range(6))
def test_primes(seed: int) -> None:
    field = Field(seed)
    assert _prime(field.p) and _prime(field.q) and field.p == 2 * field.q + 1
    assert field.q < 2**20
    assert pow(field.g, field.q, field.p) == 1 != field.g
    for square in (2, 3, 6):
        assert pow(square, (field.p - 1) // 2, field.p) == 1
        assert pow(square, (field.q - 1) // 2, field.q) == 1


def test_seeds_give_other_fields() -> None:
    assert len({(Field(seed).p, Field(seed).g) for seed in range(6)}) > 4


def test_exponential_and_logarithm() -> None:
    _, x = FIELD.draw("x", 1000)
    _, y = FIELD.draw("y", 1000)
    total = (x + y) % FIELD.q
    assert (FIELD.exp(total) == times(FIELD.exp(x), FIELD.exp(y), FIELD.p)).all()
    assert (FIELD.log(FIELD.exp(x)) == x).all()
    a, _ = FIELD.draw("a", 1000)
    back = FIELD.exp(FIELD.log(a))
    assert (np.where(FIELD.is_square(a), back, FIELD.p - back) == a).all()
    assert 350 < FIELD.is_square(a).sum() < 650


@pytest.mark.parametrize("modulus", [FIELD.p, FIELD.q])
def test_roots_and_inverses(modulus: int) -> None:
    x = np.arange(1.0, 20000.0)
    root = FIELD.root(times(x, x, modulus), modulus)
    assert (times(root, root, modulus) == times(x, x, modulus)).all()
    assert (times(x, inverse(x, modulus), modulus) == 1).all()
    assert inverse(np.zeros(3), modulus).tolist() == [0, 0, 0]
    assert (inverse(np.where(x % 7 == 0, 0, x), modulus) == np.where(x % 7 == 0, 0, inverse(x, modulus))).all()
    assert (power(x, 5, modulus) == [pow(int(n), 5, modulus) for n in x]).all()


def test_large_products_are_exact() -> None:
    x = np.array([FIELD.p - 1.0, FIELD.p - 2.0])
    assert times(x, x, FIELD.p).tolist() == [1.0, 4.0]


def _rational(number: Fraction) -> tuple[float, float]:
    residues = [number.numerator * pow(number.denominator, -1, m) % m for m in (FIELD.p, FIELD.q)]
    return float(residues[0]), float(residues[1])


@pytest.mark.parametrize(
    ("value", "bits", "meant"),
    [
        (1e-5, 64, Fraction(1, 100000)), (float(np.float32(1e-5)), 32, Fraction(1, 100000)),
        (float(np.float32(0.044715)), 32, Fraction("0.044715")), (-0.5, 32, Fraction(-1, 2)), (0.0, 32, Fraction(0)),
        (1 / 3000, 64, Fraction(1, 3000)), (float(np.float32(1 / 3000)), 32, Fraction(1, 3000)),
        (1 / 3, 32, Fraction(1, 3)), (16777215.0, 32, Fraction(16777215)),
        (float(np.float16(0.1)), 16, Fraction(1, 10)),
    ],
)  # fmt: skip
def test_rational_constants(value: float, bits: int, meant: Fraction) -> None:
    found = FIELD.constant(value, bits)
    assert (found.a, found.b, found.lost) == (*_rational(meant), 0)


def _product(x: FieldConstant, y: FieldConstant) -> tuple[int, int]:
    return int(x.a * y.a) % FIELD.p, int(x.b * y.b) % FIELD.q


def test_constants_that_belong_together() -> None:
    single = float(np.float32(math.log2(math.e)))
    assert _product(FIELD.constant(single, 32), FIELD.constant(math.log(2))) == (1, 1)
    assert _product(FIELD.constant(math.sqrt(2 / math.pi)), FIELD.constant(math.sqrt(math.pi / 2), 32)) == (1, 1)
    root = FIELD.constant(1 / math.sqrt(96))
    assert _product(root, root) == tuple(map(int, _rational(Fraction(1, 96))))
    scale = FIELD.constant(math.log2(math.e) / 8, 32)
    assert (scale.a * 8 % FIELD.p, scale.b * 8 % FIELD.q) == (FIELD.log2e.a, FIELD.log2e.b)
    assert FIELD.exp(np.float64(FIELD.ln2.b)) == 2  # type: ignore[arg-type]


def test_constants_without_explanation_are_symbols() -> None:
    field = Field(2)
    one, other = field.constant(0.254829592, 32), field.constant(-0.284496736, 32)
    assert one.lost == other.lost == UNCLEAN
    assert field.constant(0.254829592, 32) == one != other
    assert field.reasons["a constant of more than six digits"] == 2
    assert field.constant(float(np.float32(1 / 0.254829592)), 32).a * one.a % field.p == 1
    assert field.constant(math.inf).lost == field.constant(math.nan).lost == UNDEFINED


def test_near_constants_differ() -> None:
    values = (0.0447, 0.044715, 1.0, 1.0001, 1e-5, 1.1e-5, math.pi, 3.14159, 1 / 3, 0.333)
    assert len({FIELD.constant(value, 32).a for value in values}) == len(values)


def test_draws_and_hashes_depend_on_names_and_seeds() -> None:
    x, y, again = (FIELD.draw(name, 100)[0] for name in ("x", "y", "x"))
    assert (x == again).all() and (x != y).mean() > 0.9
    one, same, other = (FIELD.hashed(name, x)[0] for name in ("sin", "sin", "cos"))
    assert (one == same).all() and (one != other).mean() > 0.9
    assert (Field(9).hashed("sin", x)[0] != one).mean() > 0.9
