"""Device library functions (``tt.extern_elementwise``) by symbol: ``__nv_*`` of NVIDIA, ``__ocml_*`` of AMD.

Every function here is either one that ``mathlib`` has, an exact operation on bits, or a composition evaluated in
double, so that a ``float`` result is right to about half a unit in the last place.
"""

import math
import re
from collections.abc import Callable

from ttir_executor.lower.mathlib import has_function, math_call
from ttir_executor.lower.numbers import Numbers, in_double, narrowed
from ttir_executor.ttir.ir import Op, UnsupportedTTIR

_MODES = {"rd": "rm", "ru": "rp", "rz": "rz"}
"""directed roundings, as PTX names them"""
_SAME = {
    "rint": "rint", "nearbyint": "rint", "trunc": "trunc", "floor": "floor", "ceil": "ceil", "round": "round",
    "abs": "fabs", "fabs": "fabs", "sqrt_rn": "sqrt", "dsqrt_rn": "sqrt", "fsqrt_rn": "sqrt", "rsqrt": "rsqrt",
    "frsqrt_rn": "rsqrt", "tgamma": "tgamma", "scalbn": "ldexp",
    "fast_exp": "exp", "fast_log": "log", "fast_log2": "log2", "fast_sin": "sin", "fast_cos": "cos",
    "fast_tan": "tan", "fast_exp10": "exp10", "fast_log10": "log10", "fast_pow": "pow",
}  # fmt: skip
"""functions that another name already stands for; the fast ones are computed exactly"""

Function = Callable[[list[Numbers]], Numbers]


def extern(op: Op, a: list[Numbers], target: str) -> Numbers:
    """The external function that ``op`` names, on lanes; ``target`` is the type of its result.

    Raises:
        UnsupportedTTIR: it is not one of those simulated; names the symbol.
    """
    symbol = op.attrs.get("symbol", "").strip('"')
    match = re.fullmatch(r"__(nv|ocml)_(\w+?)(?:_f32|_f64)?", symbol)
    if match is not None:
        value = (_floating if a[0].is_float else _integer)(match.group(2), a, target)
        if value is not None:
            return value
    raise UnsupportedTTIR(f"the external function {symbol!r}", op.loc)


# ---- arguments that are integers


def _integer(name: str, a: list[Numbers], target: str) -> Numbers | None:
    x, signed = a[0], not name.startswith("u")
    if "_as_" in name:
        return x.as_bits_of(target) if name.endswith(("float", "double")) else None
    convert = re.fullmatch(r"(int|uint|ll|ull)2(float|double)_rn", name)
    if convert is not None:
        return x.to("sitofp" if signed else "uitofp", target)
    directed = re.fullmatch(r"u?int2float_(r[duz])", name)
    if directed is not None:
        return narrowed(x.to("sitofp" if signed else "uitofp", "double"), "f32", _MODES[directed.group(1)])
    if name in ("popc", "popcll", "clz", "clzll"):
        return x.call("ctpop" if name.startswith("popc") else "ctlz").resized(int(target[1:]))
    if name in ("ffs", "ffsll"):  # one past the lowest set bit; 0 when there is none
        count = x.call("cttz")
        return x.equals(0).choose(0, count + 1).resized(int(target[1:]))
    if name in ("brev", "brevll"):
        return x.call("bitreverse")
    if name in ("abs", "llabs"):
        return abs(x)
    if name in ("mulhi", "umulhi", "mul64hi", "umul64hi"):
        return x.high_product(a[1], signed=signed)
    if name in ("mul24", "umul24"):
        low = [(one << 8).binary("ashr" if signed else "lshr", 8) for one in a]
        return low[0] * low[1]
    if name in ("hadd", "rhadd", "uhadd", "urhadd"):
        left, right = (one.resized(2 * x.bits, signed=signed) for one in a)
        total = left + right + 1 if "rhadd" in name else left + right
        return (total >> 1).resized(x.bits)
    if name in ("sad", "usad"):
        return distance(x, a[1], signed=signed) + a[2]
    return byte_perm(a) if name == "byte_perm" else None


def distance(x: Numbers, y: Numbers, *, signed: bool) -> Numbers:
    """The difference of two integers without its sign."""
    kind = "s" if signed else "u"
    return x.call(f"{kind}max", y) - x.call(f"{kind}min", y)


def byte_perm(a: list[Numbers]) -> Numbers:
    """Four bytes chosen from the eight of (a[1], a[0]) by the nibbles of a[2]; a nibble's top bit repeats the sign."""
    low, high, choice = (one.resized(64) for one in a)
    both = low | high << 32
    total = low.number(0)
    for k in range(4):
        nibble = choice >> 4 * k
        byte = both >> ((nibble & 7) << 3) & 255
        spread = (byte >> 7) * 255
        byte = (nibble & 8).compare("ne", 0).choose(spread, byte)
        total = total | byte << 8 * k
    return total.resized(32)


# ---- arguments that are floats


def _floating(name: str, a: list[Numbers], target: str) -> Numbers | None:
    x = a[0]
    if "_as_" in name:
        return x.as_bits_of(target)
    convert = re.fullmatch(r"(?:float|double)2(u?)(?:int|ll)_(r[nduz])", name)
    if convert is not None:
        return _to_integer(x, target, convert.group(2), signed=not convert.group(1))
    if name == "double2float_rn":
        return x.to("fptrunc", "float")
    if name in ("double2hiint", "double2loint"):
        bits = x.as_bits_of("i64")
        return (bits >> 32 if name == "double2hiint" else bits).resized(32)
    arithmetic = re.fullmatch(r"(?:[fd]?(div|add|sub|mul)_rn)|fast_f(div)idef?", name)
    if arithmetic is not None:
        return x.binary(f"f{arithmetic.group(1) or arithmetic.group(2)}", a[1])
    directed = re.fullmatch(r"f(add|sub|mul|div|rcp|sqrt|ma)f?_(r[duz])|double2float_(r[duz])", name)
    if directed is not None:
        return _directed(directed.group(1), _MODES[directed.group(2) or directed.group(3)], a)
    if re.fullmatch(r"[fd]rcp_rn", name):
        return 1.0 / x
    if name in ("fma", "fmaf", "fma_rn", "fmaf_rn"):
        return x.call("fma", a[1], a[2])
    for base in dict.fromkeys((name, name[:-1] if name[-1] in "fd" else name)):
        value = _named(base, a, target)
        if value is not None:
            return value
    return None


def _directed(operation: str | None, mode: str, a: list[Numbers]) -> Numbers:
    """An operation on fp32, or the conversion of an fp64, rounded down, up or to zero."""
    if operation is None:
        return narrowed(a[0], "f32", mode)
    x = [one.to("fpext", "double") for one in a]
    if operation == "rcp":
        return narrowed(1.0 / x[0], "f32", mode)
    return narrowed(in_double({"ma": "fma"}.get(operation, operation), x, mode), "f32", mode)


def _named(name: str, a: list[Numbers], target: str) -> Numbers | None:
    x = a[0]
    if name in ("isnan", "isinf", "finite", "isfinite", "signbit"):
        return _classify(name, x, target)
    if name in ("fmax", "fmin"):
        return x.call(f"{name[1:]}num", a[1])
    if name in ("llrint", "llround"):
        return _to_integer(x, target, "rn" if name == "llrint" else "away")
    if name == "ilogb":
        return math_call("logb", a).to_integer(target)
    if name in ("ldexp", "scalbn") and len(a) == 2:
        return scaled_by(x, a[1])
    if name in ("powi", "pown"):
        exponent = a[1].to("sitofp", "double")
        return _in_double(lambda b: math_call("pow", [b[0], exponent]), a[:1])
    if name == "saturate":
        return x.call("maxnum", 0.0).call("minnum", 1.0)
    if any(one.ty != target for one in a):
        return None
    composed = _COMPOSED.get(name)
    if composed is not None:
        return _in_double(composed, a)
    plain = _SAME.get(name, name)
    return math_call(plain, a) if has_function(plain) else None


def scaled_by(x: Numbers, power: Numbers) -> Numbers:
    """x times two to the power."""
    name = f"llvm.ldexp.{x.suffix}.{power.suffix}"
    return x.held(x.e.call(name, x.vector, (x.vector, x.text), (power.vector, power.text)))


def _to_integer(x: Numbers, target: str, mode: str, *, signed: bool = True) -> Numbers:
    """Round as asked (nearest even, down, up, to zero), then convert."""
    how = {"rn": "roundeven", "rd": "floor", "ru": "ceil", "rz": "trunc", "away": "round"}[mode]
    return x.call(how).to_integer(target, signed=signed)


def _classify(name: str, x: Numbers, target: str) -> Numbers:
    size = abs(x)
    if name == "isnan":
        flag = x.is_nan()
    elif name == "isinf":
        flag = size.equals(float("inf"))
    elif name == "signbit":
        flag = x.as_bits_of(f"i{x.bits}") < 0
    else:
        flag = size < float("inf")
    return flag if target == "i1" else flag.to("zext", target)


# ---- compositions, on double lanes


def _in_double(function: Function, a: list[Numbers]) -> Numbers:
    if a[0].ty == "double":
        return function(a)
    return function([one.to("fpext", "double") for one in a]).to("fptrunc", a[0].ty)


def _rcbrt(a: list[Numbers]) -> Numbers:
    return 1.0 / math_call("cbrt", a)


def _norm(a: list[Numbers]) -> Numbers:
    total = a[0] * a[0]
    for one in a[1:]:
        total = total + one * one
    return total.call("sqrt")


def _rnorm(a: list[Numbers]) -> Numbers:
    return 1.0 / _norm(a)


def _of_pi(which: str) -> Function:
    """sin or cos of π·x: whole turns are taken off first, which is exact."""

    def function(a: list[Numbers]) -> Numbers:
        turns = (a[0] * 0.5).call("roundeven")
        return math_call(which, [(a[0] - (turns + turns)) * math.pi])

    return function


def _normcdf(a: list[Numbers]) -> Numbers:
    """Φ(x) = erfc(-x/√2) / 2."""
    return math_call("erfc", [a[0] * -(0.5**0.5)]) * 0.5


def _inverse_erfc(a: list[Numbers]) -> Numbers:
    """erfc⁻¹(z) on (0, 2), mirrored at 1."""
    mirrored = 2.0 - a[0]
    upper = a[0] > 1.0
    tail = upper.choose(mirrored, a[0])
    root = _solve_erf(tail, 1.0 - tail)
    return upper.choose(-root, root)


def _inverse_erf(a: list[Numbers]) -> Numbers:
    head = abs(a[0])
    return _solve_erf(1.0 - head, head).call("copysign", a[0])


def _inverse_normcdf(a: list[Numbers]) -> Numbers:
    """Φ⁻¹(p) = -√2 · erfc⁻¹(2p)."""
    return _inverse_erfc([a[0] + a[0]]) * -(2.0**0.5)


def _solve_erf(tail: Numbers, head: Numbers) -> Numbers:
    """y ≥ 0 with erfc(y) = tail and erf(y) = head = 1 - tail: Winitzki's guess, then Halley's steps in double.

    The equation that keeps its digits is used: erf below one half, erfc above.
    """
    log = math_call("log", [tail * (1.0 + head)])  # log(1 - head²)
    half = 2.0 / (math.pi * 0.147) + log * 0.5
    under = half * half - log * (1 / 0.147)
    y = (under.call("sqrt") - half).call("sqrt")
    near = head < 0.5
    for _ in range(3):
        below = head - math_call("erf", [y])
        above = math_call("erfc", [y]) - tail
        error = near.choose(below, above)
        slope = math_call("exp", [-(y * y)])
        newton = error / (slope * 1.1283791670955126)
        y = y + newton / (1.0 - newton * y)
    y = head.equals(0.0).choose(0.0, y)
    return tail.equals(0.0).choose(float("inf"), y)


def _bessel_i(order: int) -> Function:
    """I₀ or I₁: the series in x²/4 up to 20, the one in 1/x beyond, where its least term is below fp64's spacing."""

    def series(x: Numbers, terms: list[float]) -> Numbers:
        total = x.number(terms[-1])
        for term in reversed(terms[:-1]):
            total = total * x + term
        return total

    def function(a: list[Numbers]) -> Numbers:
        near = [1 / (math.factorial(k) * math.factorial(k + order)) for k in range(48)]
        far = [math.prod(((2 * j - 1) ** 2 - 4 * order) / (8 * j) for j in range(1, k + 1)) for k in range(30)]
        size = abs(a[0])
        size = (size > 1e4).choose(1e4, size)  # infinite from 714 on, at infinity too
        half = size * 0.5
        small = series(half * half, near)
        small = small * half if order else small
        root = (size * (2 * math.pi)).call("sqrt")
        grown = math_call("exp", [half])
        large = series(1.0 / size, far) / root * grown * grown
        value = (size <= 20.0).choose(small, large)
        return value.call("copysign", a[0]) if order else value

    return function


_COMPOSED: dict[str, Function] = {
    "cyl_bessel_i0": _bessel_i(0), "cyl_bessel_i1": _bessel_i(1),
    "rcbrt": _rcbrt, "sinpi": _of_pi("sin"), "cospi": _of_pi("cos"), "normcdf": _normcdf, "erfinv": _inverse_erf,
    "erfcinv": _inverse_erfc, "normcdfinv": _inverse_normcdf, "rhypot": _rnorm, "norm3d": _norm, "norm4d": _norm,
    "rnorm3d": _rnorm, "rnorm4d": _rnorm,
}  # fmt: skip
