"""Device library functions (``tt.extern_elementwise``) by symbol: ``__nv_*`` of NVIDIA, ``__ocml_*`` of AMD.

Every function here is either one that ``mathlib`` has, an exact operation on bits, or a composition evaluated in
double, so that a ``float`` result is right to about half a unit in the last place.
"""

import math
import re
from collections.abc import Callable

from ttir_executor.lower.emit import Emitter, vec
from ttir_executor.lower.mathlib import has_function, math_call
from ttir_executor.lower.rounding import constant, suffix
from ttir_executor.lower.strip import llvm_type
from ttir_executor.ttir.ir import Op, Type, UnsupportedTTIR

_ARITHMETIC = {"div": "fdiv", "add": "fadd", "sub": "fsub", "mul": "fmul"}
_SAME = {
    "rint": "rint", "nearbyint": "rint", "trunc": "trunc", "floor": "floor", "ceil": "ceil", "round": "round",
    "abs": "fabs", "fabs": "fabs", "sqrt_rn": "sqrt", "dsqrt_rn": "sqrt", "fsqrt_rn": "sqrt", "rsqrt": "rsqrt",
    "frsqrt_rn": "rsqrt", "tgamma": "tgamma", "scalbn": "ldexp",
    "fast_exp": "exp", "fast_log": "log", "fast_log2": "log2", "fast_sin": "sin", "fast_cos": "cos",
    "fast_tan": "tan", "fast_exp10": "exp10", "fast_log10": "log10", "fast_pow": "pow",
}  # fmt: skip
"""functions that another name already stands for; the fast ones are computed exactly"""

Text = Callable[[Emitter, list[str], str, int], str]


def extern(e: Emitter, op: Op, a: list[str], types: list[Type], result: Type, width: int) -> str:
    """The external function that ``op`` names, on lanes.

    Raises:
        UnsupportedTTIR: it is not one of those simulated; names the symbol.
    """
    symbol = op.attrs.get("symbol", "").strip('"')
    match = re.fullmatch(r"__(nv|ocml)_(\w+?)(?:_f32|_f64)?", symbol)
    if match is not None:
        name, ty, target = match.group(2), llvm_type(types[0]), llvm_type(result)
        value = (_integer if ty.startswith("i") else _floating)(e, name, a, types, ty, target, width)
        if value is not None:
            return value
    raise UnsupportedTTIR(f"the external function {symbol!r}", op.loc)


# ---- arguments that are integers


def _integer(e: Emitter, name: str, a: list[str], types: list[Type], ty: str, target: str, width: int) -> str | None:
    vt, rt = vec(width, ty), vec(width, target)
    if "_as_" in name:
        return e.cast("bitcast", vt, a[0], rt) if name.endswith(("float", "double")) else None
    convert = re.fullmatch(r"(int|uint|ll|ull)2(float|double)_rn", name)
    if convert is not None:
        return e.cast("sitofp" if convert.group(1) in ("int", "ll") else "uitofp", vt, a[0], rt)
    directed = re.fullmatch(r"(u?int)2float_(r[duz])", name)
    if directed is not None:
        exact = e.cast("uitofp" if directed.group(1) == "uint" else "sitofp", vt, a[0], vec(width, "double"))
        return _directed(e, "double2float", directed.group(2), [exact], width)
    bits = int(ty[1:])
    if name in ("popc", "popcll"):
        return _resize(e, e.call(f"llvm.ctpop.{suffix(width, ty)}", vt, (vt, a[0])), ty, target, width)
    if name in ("clz", "clzll", "ffs", "ffsll"):
        leading = name.startswith("clz")
        count = e.call(f"llvm.{'ctlz' if leading else 'cttz'}.{suffix(width, ty)}", vt, (vt, a[0]), ("i1", "false"))
        if not leading:  # one past the lowest set bit; 0 when there is none
            none = e.bin("icmp eq", vt, a[0], constant(0, width, ty))
            one_past = e.bin("add", vt, count, constant(1, width, ty))
            count = e.op(f"select {vec(width, 'i1')} {none}, {vt} {constant(0, width, ty)}, {vt} {one_past}")
        return _resize(e, count, ty, target, width)
    if name in ("brev", "brevll"):
        return e.call(f"llvm.bitreverse.{suffix(width, ty)}", vt, (vt, a[0]))
    if name in ("abs", "llabs"):
        return e.call(f"llvm.abs.{suffix(width, ty)}", vt, (vt, a[0]), ("i1", "false"))
    if name in ("mulhi", "umulhi", "mul64hi", "umul64hi"):
        return _high_product(e, a, vt, bits, width, signed=not name.startswith("u"))
    if name in ("mul24", "umul24"):
        by = constant(8, width, ty)
        low = [e.bin("ashr" if name == "mul24" else "lshr", vt, e.bin("shl", vt, v, by), by) for v in a]
        return e.bin("mul", vt, low[0], low[1])
    if name in ("hadd", "rhadd", "uhadd", "urhadd"):
        return _average(e, a, bits, width, signed=not name.startswith("u"), up="rhadd" in name)
    if name in ("sad", "usad"):
        kinds = ("smax", "smin") if name == "sad" else ("umax", "umin")
        top, bottom = (e.call(f"llvm.{kind}.{suffix(width, ty)}", vt, (vt, a[0]), (vt, a[1])) for kind in kinds)
        return e.bin("add", vt, e.bin("sub", vt, top, bottom), a[2])
    if name == "byte_perm":
        return byte_perm(e, a, width)
    return None


def _resize(e: Emitter, text: str, source: str, target: str, width: int) -> str:
    if source == target:
        return text
    return e.cast(
        "trunc" if int(target[1:]) < int(source[1:]) else "zext", vec(width, source), text, vec(width, target)
    )


def _high_product(e: Emitter, a: list[str], vt: str, bits: int, width: int, *, signed: bool) -> str:
    wide = vec(width, f"i{2 * bits}")
    x, y = (e.cast("sext" if signed else "zext", vt, v, wide) for v in a)
    high = e.bin("lshr", wide, e.bin("mul", wide, x, y), constant(bits, width, f"i{2 * bits}"))
    return e.cast("trunc", wide, high, vt)


def _average(e: Emitter, a: list[str], bits: int, width: int, *, signed: bool, up: bool) -> str:
    vt, wide = vec(width, f"i{bits}"), vec(width, f"i{2 * bits}")
    x, y = (e.cast("sext" if signed else "zext", vt, v, wide) for v in a)
    total = e.bin("add", wide, x, y)
    if up:
        total = e.bin("add", wide, total, constant(1, width, f"i{2 * bits}"))
    return e.cast("trunc", wide, e.bin("lshr", wide, total, constant(1, width, f"i{2 * bits}")), vt)


def byte_perm(e: Emitter, a: list[str], width: int) -> str:
    """Four bytes chosen from the eight of (a[1], a[0]) by the nibbles of a[2]; a nibble's top bit repeats the sign."""
    it, wt = vec(width, "i32"), vec(width, "i64")
    low, high, choice = (e.cast("zext", it, v, wt) for v in a)
    both = e.bin("or", wt, low, e.bin("shl", wt, high, constant(32, width, "i64")))
    total = constant(0, width, "i64")
    for k in range(4):
        nibble = e.bin("lshr", wt, choice, constant(4 * k, width, "i64"))
        shift = e.bin("shl", wt, e.bin("and", wt, nibble, constant(7, width, "i64")), constant(3, width, "i64"))
        byte = e.bin("and", wt, e.bin("lshr", wt, both, shift), constant(255, width, "i64"))
        spread = e.bin("mul", wt, e.bin("lshr", wt, byte, constant(7, width, "i64")), constant(255, width, "i64"))
        is_sign = e.bin("icmp ne", wt, e.bin("and", wt, nibble, constant(8, width, "i64")), constant(0, width, "i64"))
        byte = e.op(f"select {vec(width, 'i1')} {is_sign}, {wt} {spread}, {wt} {byte}")
        total = e.bin("or", wt, total, e.bin("shl", wt, byte, constant(8 * k, width, "i64")))
    return e.cast("trunc", wt, total, it)


# ---- arguments that are floats


def _floating(e: Emitter, name: str, a: list[str], types: list[Type], ty: str, target: str, width: int) -> str | None:
    vt = vec(width, ty)
    if "_as_" in name:
        return e.cast("bitcast", vt, a[0], vec(width, target))
    convert = re.fullmatch(r"(?:float|double)2(int|uint|ll|ull)_(r[nduz])", name)
    if convert is not None:
        return _to_integer(e, a[0], ty, target, width, convert.group(2), convert.group(1))
    if name == "double2float_rn":
        return e.cast("fptrunc", vt, a[0], vec(width, "float"))
    if name in ("double2hiint", "double2loint"):
        return _half_of_double(e, a[0], width, high=name == "double2hiint")
    arithmetic = re.fullmatch(r"(?:[fd]?(div|add|sub|mul)_rn)|fast_f(div)idef?", name)
    if arithmetic is not None:
        return e.bin(_ARITHMETIC[arithmetic.group(1) or arithmetic.group(2)], vt, a[0], a[1])
    directed = re.fullmatch(r"(fadd|fsub|fmul|fdiv|frcp|fsqrt|fmaf|double2float)_(r[duz])", name)
    if directed is not None:
        return _directed(e, directed.group(1), directed.group(2), a, width)
    if re.fullmatch(r"[fd]rcp_rn", name):
        return e.bin("fdiv", vt, constant(1.0, width, ty), a[0])
    if name in ("fma", "fmaf", "fma_rn", "fmaf_rn"):
        return e.call(f"llvm.fma.{suffix(width, ty)}", vt, (vt, a[0]), (vt, a[1]), (vt, a[2]))
    for base in dict.fromkeys((name, name[:-1] if name[-1] in "fd" else name)):
        value = _named(e, base, a, types, ty, target, width)
        if value is not None:
            return value
    return None


def _directed(e: Emitter, operation: str, mode: str, a: list[str], width: int) -> str:
    """An operation on fp32 (or the conversion of an fp64) rounded down, up or to zero: ``mode`` "rd", "ru", "rz".

    By way of fp64, which holds products of 24 bits exactly, and the error of a sum beside it. A quotient or a root of
    such numbers that is no fp32 number is further from all of them than fp64's spacing, so rounding it there first
    changes nothing.
    """
    ft, dt, it, bt = (vec(width, name) for name in ("float", "double", "i32", "i1"))
    none = constant(0.0, width, "double")
    x = a if operation == "double2float" else [e.cast("fpext", ft, value, dt) for value in a]
    exact, error = x[0], none
    if operation in ("fmul", "fdiv"):
        exact = e.bin(operation, dt, *x)
    elif operation == "frcp":
        exact = _reciprocal(e, x[0], "double", width)
    elif operation == "fsqrt":
        exact = math_call(e, "sqrt", x, "double", width)
    elif operation != "double2float":
        first, second = (e.bin("fmul", dt, x[0], x[1]), x[2]) if operation == "fmaf" else x
        second = e.op(f"fneg {dt} {second}") if operation == "fsub" else second
        exact = e.bin("fadd", dt, first, second)
        share = e.bin("fsub", dt, exact, first)
        lost = e.bin("fsub", dt, first, e.bin("fsub", dt, exact, share))
        error = e.bin("fadd", dt, lost, e.bin("fsub", dt, second, share))
    near = e.cast("fptrunc", dt, exact, ft)
    rest = e.bin("fsub", dt, exact, e.cast("fpext", ft, near, dt))
    rest = e.op(f"select {bt} {e.bin('fcmp oeq', dt, rest, none)}, {dt} {error}, {dt} {rest}")
    less, more = (e.bin(f"fcmp {which}", dt, rest, none) for which in ("olt", "ogt"))
    bits = e.cast("bitcast", ft, near, it)
    negative = e.bin("icmp slt", it, bits, constant(0, width, "i32"))
    one, back = constant(1, width, "i32"), constant(-1, width, "i32")
    if mode == "rz":
        wanted, step = e.op(f"select {bt} {negative}, {bt} {more}, {bt} {less}"), back
    else:
        away, home = (one, back) if mode == "rd" else (back, one)
        wanted, step = less if mode == "rd" else more, e.op(f"select {bt} {negative}, {it} {away}, {it} {home}")
    chosen = e.op(f"select {bt} {wanted}, {it} {e.bin('add', it, bits, step)}, {it} {bits}")
    return e.cast("bitcast", it, chosen, ft)


def _named(e: Emitter, name: str, a: list[str], types: list[Type], ty: str, target: str, width: int) -> str | None:
    vt = vec(width, ty)
    if name in ("isnan", "isinf", "finite", "isfinite", "signbit"):
        return _classify(e, name, a[0], ty, width, target)
    if name in ("fmax", "fmin"):
        return e.call(f"llvm.{name[1:]}num.{suffix(width, ty)}", vt, (vt, a[0]), (vt, a[1]))
    if name in ("llrint", "llround"):
        return _to_integer(e, a[0], ty, target, width, "rn" if name == "llrint" else "away", "ll")
    if name == "ilogb":
        whole = math_call(e, "logb", a, ty, width)
        return e.call(f"llvm.fptosi.sat.{suffix(width, target)}.{suffix(width, ty)}", vec(width, target), (vt, whole))
    if name in ("ldexp", "scalbn") and len(types) == 2:
        power = e.call(f"llvm.ldexp.{suffix(width, ty)}.{suffix(width, llvm_type(types[1]))}", vt, (vt, a[0]),
                       (vec(width, llvm_type(types[1])), a[1]))  # fmt: skip
        return power
    if name in ("powi", "pown"):
        exponent = e.cast("sitofp", vec(width, llvm_type(types[1])), a[1], vec(width, "double"))
        return _in_double(e, lambda e2, b, t, w: math_call(e2, "pow", [b[0], exponent], t, w), a[:1], ty, width)
    if name == "saturate":
        low = e.call(f"llvm.maxnum.{suffix(width, ty)}", vt, (vt, a[0]), (vt, constant(0.0, width, ty)))
        return e.call(f"llvm.minnum.{suffix(width, ty)}", vt, (vt, low), (vt, constant(1.0, width, ty)))
    if target != ty or any(llvm_type(t) != ty for t in types):
        return None
    composed = _COMPOSED.get(name)
    if composed is not None:
        return _in_double(e, composed, a, ty, width)
    plain = _SAME.get(name, name)
    return math_call(e, plain, a, ty, width) if has_function(plain) else None


def _to_integer(e: Emitter, a: str, ty: str, target: str, width: int, mode: str, kind: str) -> str:
    """Round as asked (nearest even, down, up, to zero), then convert; out of range saturates, NaN gives 0."""
    vt = vec(width, ty)
    how = {"rn": "roundeven", "rd": "floor", "ru": "ceil", "rz": "trunc", "away": "round"}[mode]
    whole = e.call(f"llvm.{how}.{suffix(width, ty)}", vt, (vt, a))
    cast = "fptoui" if kind.startswith("u") else "fptosi"
    return e.call(f"llvm.{cast}.sat.{suffix(width, target)}.{suffix(width, ty)}", vec(width, target), (vt, whole))


def _half_of_double(e: Emitter, a: str, width: int, *, high: bool) -> str:
    wide = vec(width, "i64")
    bits = e.cast("bitcast", vec(width, "double"), a, wide)
    if high:
        bits = e.bin("lshr", wide, bits, constant(32, width, "i64"))
    return e.cast("trunc", wide, bits, vec(width, "i32"))


def _classify(e: Emitter, name: str, a: str, ty: str, width: int, target: str) -> str:
    vt, rt = vec(width, ty), vec(width, target)
    magnitude = e.call(f"llvm.fabs.{suffix(width, ty)}", vt, (vt, a))
    infinite = constant(float("inf"), width, ty)
    if name == "isnan":
        flag = e.bin("fcmp uno", vt, a, a)
    elif name == "isinf":
        flag = e.bin("fcmp oeq", vt, magnitude, infinite)
    elif name == "signbit":
        it, bits = vec(width, "i32" if ty == "float" else "i64"), 32 if ty == "float" else 64
        flag = e.bin("icmp slt", it, e.cast("bitcast", vt, a, it), constant(0, width, f"i{bits}"))
    else:
        flag = e.bin("fcmp olt", vt, magnitude, infinite)
    return flag if target == "i1" else e.cast("zext", vec(width, "i1"), flag, rt)


# ---- compositions, on double lanes


def _in_double(e: Emitter, function: Text, a: list[str], ty: str, width: int) -> str:
    if ty == "double":
        return function(e, a, ty, width)
    vt, dt = vec(width, ty), vec(width, "double")
    value = function(e, [e.cast("fpext", vt, v, dt) for v in a], "double", width)
    return e.cast("fptrunc", dt, value, vt)


def _reciprocal(e: Emitter, value: str, ty: str, width: int) -> str:
    return e.bin("fdiv", vec(width, ty), constant(1.0, width, ty), value)


def _rcbrt(e: Emitter, a: list[str], ty: str, width: int) -> str:
    return _reciprocal(e, math_call(e, "cbrt", a, ty, width), ty, width)


def _norm(e: Emitter, a: list[str], ty: str, width: int) -> str:
    vt = vec(width, ty)
    total = e.bin("fmul", vt, a[0], a[0])
    for value in a[1:]:
        total = e.bin("fadd", vt, total, e.bin("fmul", vt, value, value))
    return math_call(e, "sqrt", [total], ty, width)


def _rnorm(e: Emitter, a: list[str], ty: str, width: int) -> str:
    return _reciprocal(e, _norm(e, a, ty, width), ty, width)


def _sinpi(e: Emitter, a: list[str], ty: str, width: int) -> str:
    return _of_pi(e, a[0], ty, width, "sin")


def _cospi(e: Emitter, a: list[str], ty: str, width: int) -> str:
    return _of_pi(e, a[0], ty, width, "cos")


def _of_pi(e: Emitter, a: str, ty: str, width: int, which: str) -> str:
    """sin or cos of π·a: whole turns are taken off first, which is exact."""
    vt = vec(width, ty)
    turns = e.call(f"llvm.roundeven.{suffix(width, ty)}", vt, (vt, e.bin("fmul", vt, a, constant(0.5, width, ty))))
    rest = e.bin("fsub", vt, a, e.bin("fadd", vt, turns, turns))
    angle = e.bin("fmul", vt, rest, constant(3.141592653589793, width, ty))
    return math_call(e, which, [angle], ty, width)


def _normcdf(e: Emitter, a: list[str], ty: str, width: int) -> str:
    """Φ(x) = erfc(-x/√2) / 2."""
    vt = vec(width, ty)
    tail = math_call(e, "erfc", [e.bin("fmul", vt, a[0], constant(-(0.5**0.5), width, ty))], ty, width)
    return e.bin("fmul", vt, tail, constant(0.5, width, ty))


def _inverse_erfc(e: Emitter, a: list[str], ty: str, width: int) -> str:
    """erfc⁻¹(z) on (0, 2), mirrored at 1."""
    vt, bt = vec(width, ty), vec(width, "i1")
    mirrored = e.bin("fsub", vt, constant(2.0, width, ty), a[0])
    upper = e.bin("fcmp ogt", vt, a[0], constant(1.0, width, ty))
    tail = e.op(f"select {bt} {upper}, {vt} {mirrored}, {vt} {a[0]}")
    root = _solve_erf(e, tail, e.bin("fsub", vt, constant(1.0, width, ty), tail), width)
    return e.op(f"select {bt} {upper}, {vt} {e.op(f'fneg {vt} {root}')}, {vt} {root}")


def _inverse_erf(e: Emitter, a: list[str], ty: str, width: int) -> str:
    vt = vec(width, ty)
    head = e.call(f"llvm.fabs.{suffix(width, ty)}", vt, (vt, a[0]))
    root = _solve_erf(e, e.bin("fsub", vt, constant(1.0, width, ty), head), head, width)
    return e.call(f"llvm.copysign.{suffix(width, ty)}", vt, (vt, root), (vt, a[0]))


def _inverse_normcdf(e: Emitter, a: list[str], ty: str, width: int) -> str:
    """Φ⁻¹(p) = -√2 · erfc⁻¹(2p)."""
    vt = vec(width, ty)
    root = _inverse_erfc(e, [e.bin("fadd", vt, a[0], a[0])], ty, width)
    return e.bin("fmul", vt, root, constant(-(2.0**0.5), width, ty))


def _solve_erf(e: Emitter, tail: str, head: str, width: int) -> str:
    """y ≥ 0 with erfc(y) = tail and erf(y) = head = 1 - tail: Winitzki's guess, then Halley's steps in double.

    The equation that keeps its digits is used: erf below one half, erfc above.
    """
    ty = "double"
    vt, bt = vec(width, ty), vec(width, "i1")

    def c(value: float) -> str:
        return constant(value, width, ty)

    def two(op: str, x: str, y: str) -> str:
        return e.bin(op, vt, x, y)

    log = math_call(e, "log", [two("fmul", tail, two("fadd", c(1.0), head))], ty, width)  # log(1 - head²)
    half = two("fadd", c(2.0 / (3.141592653589793 * 0.147)), two("fmul", log, c(0.5)))
    under = two("fsub", two("fmul", half, half), two("fmul", log, c(1 / 0.147)))
    y = math_call(e, "sqrt", [two("fsub", math_call(e, "sqrt", [under], ty, width), half)], ty, width)
    near = e.bin("fcmp olt", vt, head, c(0.5))
    for _ in range(3):
        below = two("fsub", head, math_call(e, "erf", [y], ty, width))
        above = two("fsub", math_call(e, "erfc", [y], ty, width), tail)
        error = e.op(f"select {bt} {near}, {vt} {below}, {vt} {above}")
        slope = math_call(e, "exp", [e.op(f"fneg {vt} {two('fmul', y, y)}")], ty, width)
        newton = two("fdiv", error, two("fmul", slope, c(1.1283791670955126)))
        y = two("fadd", y, two("fdiv", newton, two("fsub", c(1.0), two("fmul", newton, y))))
    at_zero = e.bin("fcmp oeq", vt, head, c(0.0))
    y = e.op(f"select {bt} {at_zero}, {vt} {c(0.0)}, {vt} {y}")
    at_one = e.bin("fcmp oeq", vt, tail, c(0.0))
    return e.op(f"select {bt} {at_one}, {vt} {c(float('inf'))}, {vt} {y}")


def _bessel_i(order: int) -> Text:
    """I₀ or I₁: the series in x²/4 up to 20, the one in 1/x beyond, where its least term is below fp64's spacing."""

    def series(e: Emitter, x: str, terms: list[float], width: int) -> str:
        dt, total = vec(width, "double"), constant(terms[-1], width, "double")
        for term in reversed(terms[:-1]):
            total = e.bin("fadd", dt, e.bin("fmul", dt, total, x), constant(term, width, "double"))
        return total

    def function(e: Emitter, a: list[str], ty: str, width: int) -> str:
        dt, bt = vec(width, ty), vec(width, "i1")
        near = [1 / (math.factorial(k) * math.factorial(k + order)) for k in range(48)]
        far = [math.prod(((2 * j - 1) ** 2 - 4 * order) / (8 * j) for j in range(1, k + 1)) for k in range(30)]
        size = e.call(f"llvm.fabs.{suffix(width, ty)}", dt, (dt, a[0]))
        most = constant(1e4, width, ty)  # infinite from 714 on, at infinity too
        size = e.op(f"select {bt} {e.bin('fcmp ogt', dt, size, most)}, {dt} {most}, {dt} {size}")
        half = e.bin("fmul", dt, size, constant(0.5, width, ty))
        small = series(e, e.bin("fmul", dt, half, half), near, width)
        small = e.bin("fmul", dt, small, half) if order else small
        root = math_call(e, "sqrt", [e.bin("fmul", dt, size, constant(2 * math.pi, width, ty))], ty, width)
        grown = math_call(e, "exp", [half], ty, width)
        large = e.bin("fdiv", dt, series(e, _reciprocal(e, size, ty, width), far, width), root)
        large = e.bin("fmul", dt, e.bin("fmul", dt, large, grown), grown)
        value = e.op(
            f"select {bt} {e.bin('fcmp ole', dt, size, constant(20.0, width, ty))}, {dt} {small}, {dt} {large}"
        )
        return e.call(f"llvm.copysign.{suffix(width, ty)}", dt, (dt, value), (dt, a[0])) if order else value

    return function


_COMPOSED: dict[str, Text] = {
    "cyl_bessel_i0": _bessel_i(0), "cyl_bessel_i1": _bessel_i(1),
    "rcbrt": _rcbrt, "sinpi": _sinpi, "cospi": _cospi, "normcdf": _normcdf, "erfinv": _inverse_erf,
    "erfcinv": _inverse_erfc, "normcdfinv": _inverse_normcdf, "rhypot": _rnorm, "norm3d": _norm, "norm4d": _norm,
    "rnorm3d": _rnorm, "rnorm4d": _rnorm,
}  # fmt: skip
