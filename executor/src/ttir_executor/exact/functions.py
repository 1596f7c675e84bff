"""Functions of floats by name: those of ``math`` and of device libraries (``__nv_*``, ``__ocml_*``).

What the fields express is composed of exponentials, logarithms and roots; anything else is a keyed hash under the
function's plain name.
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ttir_executor.exact import shapes
from ttir_executor.exact.shapes import DTYPES, Array
from ttir_executor.exact.values import Exact, where
from ttir_executor.ttir.ir import Type, bits_of


def whole(x: Exact, f: Any) -> Exact:
    """Whole numbers that ``f`` decides; where it has none, a float of which nothing is known."""
    f = np.asarray(f, np.float64)
    finite = np.isfinite(f)
    if finite.all():
        return Exact.whole(x.field, f)
    return where(finite, Exact.whole(x.field, np.where(finite, f, 0.0)), Exact.unknown(x.field, f))


def with_f(x: Exact, f: Any) -> Exact:
    """The same residues with a float that was computed more directly."""
    return Exact(x.field, np.asarray(f, np.float64), x.a, x.b, x.lost)


def _each(function: Callable[[float], float]) -> Callable[[np.ndarray], np.ndarray]:
    """A function of the standard library, element by element."""

    def safe(x: float) -> float:
        try:
            return function(x)
        except (ValueError, OverflowError):
            return math.nan if math.isnan(x) or function is not math.lgamma else math.inf

    return lambda f: np.array([safe(x) for x in np.ravel(f).tolist()]).reshape(np.shape(f))


def _round(f: np.ndarray) -> np.ndarray:
    return np.copysign(np.floor(np.abs(f) + 0.5), f)


OPAQUE: dict[str, Callable[..., Any]] = {
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "cbrt": np.cbrt, "erf": _each(math.erf), "lgamma": _each(math.lgamma), "tgamma": _each(math.gamma),
    "atan2": np.arctan2, "nextafter": np.nextafter, "sinpi": lambda f: np.sin(np.pi * np.fmod(f, 2.0)),
    "cospi": lambda f: np.cos(np.pi * np.fmod(f, 2.0)),
}  # fmt: skip
"""functions that no field has"""


def _opaque(name: str) -> Callable[..., Exact]:
    return lambda x, *others: x.opaque(name, OPAQUE[name](x.f, *(other.f for other in others)), *others)


def fmax(x: Exact, y: Exact) -> Exact:
    """The larger of two; a number where one is NaN."""
    return where((x.f >= y.f) | np.isnan(y.f), x, y)


def fmin(x: Exact, y: Exact) -> Exact:
    """The smaller of two; a number where one is NaN."""
    return where((x.f <= y.f) | np.isnan(y.f), x, y)


def _fmod(x: Exact, y: Exact) -> Exact:
    times = (x.f - np.fmod(x.f, y.f)) / y.f
    return with_f(x - whole(x, np.rint(times)) * y, np.fmod(x.f, y.f))


def _pow(x: Exact, y: Exact) -> Exact:
    if np.size(y.f) > 1 and np.all(y.f == np.ravel(y.f)[0]):
        y = Exact(y.field, *(np.ravel(part)[:1].reshape(()) for part in y.full().parts))
    return x.power(y)


def _normcdf(x: Exact) -> Exact:
    root = Exact.constant(x.field, 2.0).sqrt().reciprocal()
    return (FUNCTIONS["erf"](x * root) + 1.0) * 0.5


def _norm(*values: Exact) -> Exact:
    total = values[0] * values[0]
    for one in values[1:]:
        total = total + one * one
    return total.sqrt()


def _copysign(x: Exact, y: Exact) -> Exact:
    size = x.abs()
    return where(np.signbit(y.f), -size, size)


FUNCTIONS: dict[str, Callable[..., Exact]] = {
    "exp": Exact.exp, "exp2": Exact.exp2, "log": Exact.log, "log2": Exact.log2, "sqrt": Exact.sqrt,
    "rsqrt": Exact.rsqrt, "tanh": Exact.tanh, "fabs": Exact.abs, "pow": _pow,
    "exp10": lambda x: (x * Exact.constant(x.field, 10.0).log()).exp(),
    "log10": lambda x: with_f(x.log() / Exact.constant(x.field, 10.0).log(), np.log10(x.f)),
    "log1p": lambda x: with_f((x + 1.0).log(), np.log1p(x.f)),
    "expm1": lambda x: with_f(x.exp() - 1.0, np.expm1(x.f)),
    "floor": lambda x: whole(x, np.floor(x.f)), "ceil": lambda x: whole(x, np.ceil(x.f)),
    "trunc": lambda x: whole(x, np.trunc(x.f)), "rint": lambda x: whole(x, np.rint(x.f)),
    "round": lambda x: whole(x, _round(x.f)),
    "fma": lambda x, y, z: x * y + z, "fmax": fmax, "fmin": fmin, "fmod": _fmod,
    "remainder": lambda x, y: x - whole(x, np.rint(x.f / y.f)) * y,
    "erfc": lambda x: with_f(1.0 - FUNCTIONS["erf"](x), _each(math.erfc)(x.f)),
    "atanh": lambda x: with_f(((1.0 + x) / (1.0 - x)).log() * 0.5, np.arctanh(x.f)),
    "acosh": lambda x: with_f((x + (x * x - 1.0).sqrt()).log(), np.arccosh(x.f)),
    "asinh": lambda x: with_f((x + (x * x + 1.0).sqrt()).log(), np.arcsinh(x.f)),
    "cosh": lambda x: with_f((x.exp() + (-x).exp()) / 2.0, np.cosh(x.f)),
    "sinh": lambda x: with_f((x.exp() - (-x).exp()) / 2.0, np.sinh(x.f)),
    "normcdf": _normcdf, "hypot": _norm, "norm3d": _norm, "norm4d": _norm,
    "rhypot": lambda *x: _norm(*x).reciprocal(), "rnorm3d": lambda *x: _norm(*x).reciprocal(),
    "rnorm4d": lambda *x: _norm(*x).reciprocal(), "rcbrt": lambda x: FUNCTIONS["cbrt"](x).reciprocal(),
    "copysign": _copysign,
    "saturate": lambda x: fmin(fmax(x, Exact.constant(x.field, 0.0)), Exact.constant(x.field, 1.0)),
    "fdim": lambda x, y: where(x.f > y.f, x - y, Exact.constant(x.field, 0.0)),
    "div": lambda x, y: x / y, "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y,
    "rcp": Exact.reciprocal,
    **{name: _opaque(name) for name in OPAQUE},
}  # fmt: skip
_SAME = {
    "nearbyint": "rint", "abs": "fabs", "fdivide": "div", "powr": "pow", "fmaf": "fma", "double2float": "",
}  # fmt: skip


def external(symbol: str, args: Sequence[Array], types: Sequence[Type], result: Type) -> Array | None:
    """The function of a device library that a symbol names; None where it is none of these."""
    match = re.fullmatch(r"__(?:nv|ocml)_(\w+?)(?:_f32|_f64)?", symbol)
    if match is None:
        return None
    name, first = match.group(1), args[0]
    if not isinstance(first, Exact):
        return _of_integers(name, [np.asarray(one) for one in args], types[0], result)
    if "_as_" in name:
        return bits_of(first.f, types[0].elem).astype(DTYPES[result.elem])
    if name in _TESTS:
        return _TESTS[name](np.asarray(first.f)).astype(DTYPES[result.elem])  # type: ignore[no-any-return]
    convert = re.fullmatch(r"(?:float|double)2(int|uint|ll|ull)_(r[nduz])|ll(rint|round)", name)
    if convert is not None:
        f = _ROUNDED[convert.group(2) or convert.group(3)](first.f)
        signed = not (convert.group(1) or "").startswith("u")
        return shapes.truncated(f, types[0], result.bits, signed=signed).astype(DTYPES[result.elem])
    if len(args) == 2 and not isinstance(args[1], Exact):
        if name.startswith(("ldexp", "scalbn")):
            return _scaled(first, args[1])
        return _pow(first, Exact.whole(first.field, args[1])) if name.startswith("pow") else None
    plain = re.sub(r"^fast_|_r[nduz]$", "", name)
    for candidate in (plain, plain[:-1], plain[1:], plain[1:-1]):
        candidate = _SAME.get(candidate, candidate)
        if candidate in FUNCTIONS and all(isinstance(one, Exact) for one in args):
            return FUNCTIONS[candidate](*args)
    return first if plain == "double2float" else None


def _scaled(x: Exact, exponent: np.ndarray) -> Exact:
    """x times a power of two."""
    size = Exact.whole(x.field, np.ldexp(1.0, np.minimum(np.abs(exponent), 1000)))
    return where(exponent >= 0, x * size, x / size)


_ROUNDED: dict[str, Callable[[Any], Any]] = {
    "rn": np.rint, "rd": np.floor, "ru": np.ceil, "rz": np.trunc, "round": _round, "rint": np.rint,
}  # fmt: skip
_TESTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "isnan": np.isnan, "isnand": np.isnan, "isnanf": np.isnan, "isinf": np.isinf, "isinfd": np.isinf,
    "isinff": np.isinf, "isfinited": np.isfinite, "finitef": np.isfinite, "isfinite": np.isfinite,
    "signbit": np.signbit, "signbitf": np.signbit, "signbitd": np.signbit,
}  # fmt: skip


def _of_integers(name: str, args: list[np.ndarray], type_: Type, result: Type) -> Array | None:
    x = args[0]
    if name.startswith(("popc", "clz", "ffs", "brev")):
        plain = name.removesuffix("ll")
        functions = {"popc": shapes.bit_count, "clz": shapes.leading_zeros, "brev": shapes.reversed_bits}
        if plain == "ffs":
            return np.where(x == 0, 0, shapes.trailing_zeros(x) + 1).astype(DTYPES[result.elem])
        return functions[plain](x).astype(DTYPES[result.elem]) if plain in functions else None  # type: ignore[no-any-return]
    if name in ("abs", "llabs"):
        return np.abs(x)
    if name in ("mulhi", "mul64hi", "umulhi", "umul64hi"):
        return shapes.high_product(x, args[1], signed=name[0] != "u")  # type: ignore[no-any-return]
    return None
