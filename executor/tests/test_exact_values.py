"""Values that carry their algebra: what is equal, what differs, and what stays open."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttir_executor.exact.field import SIGN, UNDEFINED, Field
from ttir_executor.exact.functions import FUNCTIONS
from ttir_executor.exact.values import Exact, compare, concatenate, where

FIELD = Field(7)
NUMBERS = np.random.default_rng(0)


def drawn(name: str, *shape: int, positive: bool = False) -> Exact:
    values = NUMBERS.standard_normal(shape)
    return Exact.drawn(FIELD, name, np.abs(values) + 0.1 if positive else values)


def number(value: float) -> Exact:
    return Exact.constant(FIELD, value)


X, Y, Z = (drawn(name, 8, 16) for name in "xyz")
POSITIVE = drawn("positive", 8, 16, positive=True)


def softmax(x: Exact) -> Exact:
    e = (x - x.extreme(-1, keepdims=True)).exp()
    return e / e.sum(-1, keepdims=True)


def online(x: Exact) -> Exact:
    """The sum of exponentials, in two blocks with their own maxima."""
    first, second = (x.map(lambda part, k=k: part[..., 8 * k : 8 * k + 8]) for k in (0, 1))
    m = first.extreme(-1, keepdims=True)
    s = (first - m).exp().sum(-1, keepdims=True)
    new = m.maximum(second.extreme(-1, keepdims=True))
    s = s * (m - new).exp() + (second - new).exp().sum(-1, keepdims=True)
    return concatenate([(first - new).exp() / s, (second - new).exp() / s], -1)


def variance(x: Exact) -> Exact:
    mean = x.sum(-1, keepdims=True) / 16
    return ((x - mean) * (x - mean)).sum(-1, keepdims=True) / 16


def log_of_sum(x: Exact) -> Exact:
    m = x.extreme(-1, keepdims=True)
    return m + (x - m).exp().sum(-1, keepdims=True).log()


def softplus(x: Exact) -> Exact:
    return (1.0 + x.exp()).log()


SAME: dict[str, tuple[Callable[[], Exact], Callable[[], Exact]]] = {
    "distributivity": (lambda: (X + Y) * Z, lambda: X * Z + Y * Z),
    "binomial": (lambda: (X - Y) * (X + Y), lambda: X.power(2) - Y.power(2)),
    "quotients": (lambda: X / Y / Z, lambda: X / (Y * Z)),
    "exponential of a sum": (lambda: (X + Y).exp(), lambda: X.exp() * Y.exp()),
    "exponential to base 2": (lambda: (X * number(1.4426950408889634)).exp2(), lambda: X.exp()),
    "logarithm to base 2": (lambda: POSITIVE.log2() * number(0.6931471805599453), lambda: POSITIVE.log()),
    "logarithm of a product": (lambda: (POSITIVE * POSITIVE).log(), lambda: POSITIVE.log() * 2.0),
    "exponential of a logarithm": (lambda: POSITIVE.log().exp(), lambda: POSITIVE),
    "root of a square": (lambda: (POSITIVE * POSITIVE).sqrt().power(2), lambda: POSITIVE * POSITIVE),
    "root of a product": (lambda: POSITIVE.sqrt() * POSITIVE.exp().sqrt(), lambda: (POSITIVE * POSITIVE.exp()).sqrt()),
    "reciprocal root": (lambda: POSITIVE.rsqrt(), lambda: 1.0 / POSITIVE.sqrt()),
    "power of a half": (lambda: POSITIVE.power(0.5), lambda: POSITIVE.sqrt()),
    "power of a variable": (lambda: POSITIVE.power(X), lambda: (X * POSITIVE.log()).exp()),
    "power of a sum": (lambda: POSITIVE.power(X + Y), lambda: POSITIVE.power(X) * POSITIVE.power(Y)),
    "variance in one pass": (
        lambda: variance(X), lambda: X.power(2).sum(-1, keepdims=True) / 16 - (X.sum(-1, keepdims=True) / 16).power(2),
    ),
    "softmax, online": (lambda: softmax(X), lambda: online(X)),
    "softmax, shifted": (lambda: softmax(X), lambda: softmax(X + 3.0)),
    "logsumexp": (lambda: log_of_sum(X), lambda: X.exp().sum(-1, keepdims=True).log()),
    "log-softmax": (lambda: (X - log_of_sum(X)).exp(), lambda: softmax(X)),
    "log-softmax, of softmax": (lambda: X - log_of_sum(X), lambda: softmax(X).log()),
    "sigmoid": (lambda: X.sigmoid(), lambda: X.exp() / (1.0 + X.exp())),
    "silu": (lambda: X * X.sigmoid(), lambda: X - X / (1.0 + X.exp())),
    "tanh by sigmoid": (lambda: X.tanh(), lambda: 2.0 * (2.0 * X).sigmoid() - 1.0),
    "tanh of hyperbolic functions": (lambda: X.tanh(), lambda: FUNCTIONS["sinh"](X) / FUNCTIONS["cosh"](X)),
    "gelu": (
        lambda: 0.5 * X * (1.0 + (number(0.7978845608) * (X + 0.044715 * X.power(3))).tanh()),
        lambda: X * (number(1.5957691216) * X * (1.0 + 0.044715 * X * X)).sigmoid(),
    ),
    "mish": (
        lambda: X * softplus(X).tanh(), lambda: X * (1.0 - 2.0 / ((1.0 + X.exp()).power(2) + 1.0)),
    ),
    "elu": (
        lambda: where(X.f > 0, X, X.exp() - 1.0), lambda: X.maximum(0.0) + FUNCTIONS["expm1"](X.minimum(0.0)),
    ),
    "absolute value": (lambda: X.abs(), lambda: X.maximum(0.0) - X.minimum(0.0)),
    "product of matrices": (lambda: X.matmul(Y.map(lambda part: part.T)), lambda: (
        X.map(lambda part: part[:, None]) * Y.map(lambda part: part[None])).sum(-1),
    ),
    "products in parts": (
        lambda: X.matmul(Y.map(lambda part: part.T)),
        lambda: X.map(lambda part: part[:, :5]).matmul(Y.map(lambda part: part[:, :5].T))
        + X.map(lambda part: part[:, 5:]).matmul(Y.map(lambda part: part[:, 5:].T)),
    ),
    "running sums": (lambda: X.cumsum(-1).map(lambda part: part[:, -1]), lambda: X.sum(-1)),
    "product along an axis": (
        lambda: X.prod(-1),
        lambda: X.map(lambda part: part[:, ::2]).prod(-1) * X.map(lambda part: part[:, 1::2]).prod(-1),
    ),
    "erf of one argument": (lambda: FUNCTIONS["erf"](X + Y), lambda: FUNCTIONS["erf"](Y + X)),
    "cancelled error functions": (lambda: FUNCTIONS["erfc"](X) + FUNCTIONS["erf"](X), lambda: number(1.0) + 0.0 * X),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_equal_expressions_are_equal(name: str) -> None:
    one, other = (make() for make in SAME[name])
    assert np.allclose(one.f, other.f, rtol=1e-9, atol=1e-12)
    assert compare(one, other).equal.all()


DIFFERENT: dict[str, tuple[Callable[[], Exact], Callable[[], Exact]]] = {
    "eps": (lambda: POSITIVE.rsqrt(), lambda: (POSITIVE + 1e-12).rsqrt()),
    "a tiny part": (lambda: X, lambda: X + Y * 1e-9),
    "a temperature": (lambda: softmax(X), lambda: softmax(X * 1.0001)),
    "a vanishing weight": (lambda: X.sum(-1), lambda: X.sum(-1) - X.map(lambda part: part[:, 3]) * 1e-8),
    "a coefficient": (lambda: 0.044715 * X, lambda: 0.0447 * X),
    "another input of equal numbers": (lambda: X, lambda: Exact.drawn(FIELD, "again", X.f)),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_other_expressions_differ(name: str) -> None:
    one, other = (make() for make in DIFFERENT[name])
    assert np.allclose(one.f, other.f, rtol=1e-3, atol=1e-3)
    assert compare(one, other).differ.mean() > 0.1
    assert not compare(one, other).equal.any()


OPEN: dict[str, tuple[Callable[[], Exact], Callable[[], Exact]]] = {
    "something unknown": (lambda: Exact.unknown(FIELD, X.f), lambda: X),
    "infinity": (lambda: number(np.inf) + X, lambda: number(np.inf) + X),
}


@pytest.mark.parametrize("name", OPEN)
def test_what_no_field_has_is_open(name: str) -> None:
    found = compare(*(make() for make in OPEN[name]))
    assert not found.equal.any() and not found.unequal.any()


def test_an_exponential_times_a_logarithm_is_equal_to_the_same_alone() -> None:
    """No field has both factors: a hash of them proves equality, and is no evidence of anything else."""
    first = X.exp() * POSITIVE.log()
    assert compare(first, POSITIVE.log() * X.exp()).equal.all()
    other = compare(first, (X * number(2.0)).exp() * POSITIVE.log())
    assert other.unequal.all() and not other.differ.any()


def test_an_approximation_is_not_condemned() -> None:
    wave = X - X.power(3) * number(0.1666) + X.power(5) * number(0.00833)
    found = compare(FUNCTIONS["sin"](X), wave)
    assert found.unequal.all() and not found.differ.any()
    assert FIELD.reasons["sin"]


def test_exact_zero_ends_what_is_unknown() -> None:
    unknown = Exact.unknown(FIELD, np.full(4, np.nan))
    found = unknown * number(0.0) + number(2.0)
    assert found.f.tolist() == [2.0] * 4 and compare(found, number(2.0)).equal.all()
    masked = (Exact.constant(FIELD, -np.inf) - X).exp()
    assert compare(masked * Y, number(0.0) * X).equal.all()


def test_signs_of_logarithms() -> None:
    """Half of all residues have only the logarithm of their negative; whole multiples stay exact, halves are open."""
    half = POSITIVE.log() * 0.5
    assert (POSITIVE.log().lost & SIGN).any()
    assert compare((POSITIVE.log() * 3.0).exp(), POSITIVE.power(3)).equal.all()
    assert not compare(half.exp(), POSITIVE.sqrt()).differ.any()
    assert compare((POSITIVE.log() - POSITIVE.log()).exp(), number(1.0) + 0.0 * X).equal.all()


def test_powers_read_their_exponent() -> None:
    """An exponent that is an input is no constant, whatever its number."""
    two = Exact.drawn(FIELD, "two", np.array([2.0]))
    assert compare(POSITIVE.power(two), POSITIVE * POSITIVE).unequal.all()
    assert compare(POSITIVE.power(2.0), POSITIVE * POSITIVE).equal.all()


def test_comparisons_follow_the_float() -> None:
    assert compare(X.maximum(Y), where(X.f > Y.f, X, Y)).equal.all()
    nan = Exact.unknown(FIELD, np.full(16, np.nan))
    assert np.isnan(X.maximum(nan).f).all() and not np.isnan(FUNCTIONS["fmax"](X, nan).f).any()
    assert compare(X.extreme(-1), X.map(lambda part: part[np.arange(8), X.f.argmax(-1)])).equal.all()


# ---- random rational programs


def rational(value: Fraction) -> tuple[float, float]:
    residues = [value.numerator * pow(value.denominator, -1, m) % m for m in (FIELD.p, FIELD.q)]
    return float(residues[0]), float(residues[1])


STEPS = st.lists(
    st.tuples(st.sampled_from(["+", "-", "*", "/", "neg", "square"]), st.integers(0, 9), st.integers(0, 9)),
    min_size=1, max_size=12,
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.lists(st.fractions(-9, 9, max_denominator=9), min_size=2, max_size=4), STEPS)
def test_rational_programs_are_what_fractions_give(start: list[Fraction], steps: list[tuple[str, int, int]]) -> None:
    ideal: list[Any] = list(start)
    exact = [Exact.whole(FIELD, np.array([x.numerator])) / float(x.denominator) for x in start]
    for name, k, n in steps:
        x, y = ideal[k % len(ideal)], ideal[n % len(ideal)]
        a, b = exact[k % len(exact)], exact[n % len(exact)]
        if name == "/" and y == 0:
            continue
        if name == "+":
            ideal, exact = [*ideal, x + y], [*exact, a + b]
        elif name == "-":
            ideal, exact = [*ideal, x - y], [*exact, a - b]
        elif name == "*":
            ideal, exact = [*ideal, x * y], [*exact, a * b]
        elif name == "/":
            ideal, exact = [*ideal, x / y], [*exact, a / b]
        elif name == "neg":
            ideal, exact = [*ideal, -x], [*exact, -a]
        else:
            ideal, exact = [*ideal, x * x], [*exact, a.power(2)]
    for want, got in zip(ideal, exact, strict=True):
        if want.denominator % FIELD.p == 0 or want.denominator % FIELD.q == 0 or got.has(UNDEFINED):
            continue
        assert (float(got.a.item()), float(got.b.item())) == rational(want)


def test_what_vanishes_is_equal_and_condemns_nothing() -> None:
    """A saturated tanh has e^2x in one form and e^-2x in another: one of them vanishes, which is no difference."""
    large = Exact.drawn(FIELD, "large", np.linspace(-900.0, 900.0, 64))
    one = 1.0 - 2.0 / ((large + large).exp() + 1.0)
    other = 2.0 * (large * 2.0).sigmoid() - 1.0
    found = compare(one, other)
    assert found.equal[np.abs(large.f) < 300].all() and not found.differ.any()
    masked, filled = number(-np.inf).exp(), (X * 0.0 - 1e9).exp()
    assert compare(masked, filled).equal.all()
