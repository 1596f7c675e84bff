"""Elementary functions on vectors: polynomials for the common ones, libm lane by lane for the rest."""

from collections.abc import Callable

from ttir_executor.lower.emit import Emitter, vec
from ttir_executor.lower.rounding import constant, suffix
from ttir_executor.ttir.ir import UnsupportedTTIR

_INTRINSICS = {"sqrt", "floor", "ceil", "trunc", "rint", "fabs", "roundeven", "round"}
_LIBM = {
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc",
    "expm1", "log1p", "log10", "exp10", "cbrt", "lgamma", "tgamma", "pow", "atan2", "fmod", "remainder", "hypot",
    "nextafter", "copysign", "fdim", "ldexp", "exp", "exp2", "log", "log2", "nearbyint", "logb", "j0", "j1", "y0", "y1",
}  # fmt: skip
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
"""Cephes expf: minimax for (exp(r) - 1 - r) / r² on |r| ≤ ln2/2"""
_LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
    2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
"""Cephes logf: minimax for (log(1+m) - m + m²/2) / m³ on [√½-1, √2-1]"""


_Body = Callable[[Emitter, list[str], int], str]


def has_function(name: str) -> bool:
    """Whether :func:`math_call` knows ``name``."""
    return name in _INTRINSICS or name in _LIBM or name == "rsqrt"


def math_call(e: Emitter, name: str, args: list[str], ty: str, width: int) -> str:
    """``name`` applied to lanes of ``float`` or ``double``."""
    vt = vec(width, ty)
    if name in _INTRINSICS:
        return e.call(f"llvm.{name}.{suffix(width, ty)}", vt, (vt, args[0]))
    if name == "rsqrt":
        root = e.call(f"llvm.sqrt.{suffix(width, ty)}", vt, (vt, args[0]))
        return e.bin("fdiv", vt, constant(1.0, width, ty), root)
    if ty == "float" and name in ("exp", "exp2"):
        return _exp(e, args[0], width, base2=name == "exp2")
    if ty == "float" and name in ("log", "log2"):
        return _log(e, args[0], width, base2=name == "log2")
    if ty == "float" and name == "tanh":
        return _tanh(e, args[0], width)
    if ty == "float" and name in _LONG:
        return _call(e, name, args, width, _LONG[name])
    if name in _LIBM:
        return _libm(e, name + ("f" if ty == "float" else ""), args, ty, width)
    raise UnsupportedTTIR(f"the function {name}")


def _fma(e: Emitter, a: str, b: str, c: str, width: int) -> str:
    ft = vec(width, "float")
    return e.call(f"llvm.fma.{suffix(width)}", ft, (ft, a), (ft, b), (ft, c))


def _exp(e: Emitter, x: str, width: int, base2: bool) -> str:
    ft, it, bt = vec(width, "float"), vec(width, "i32"), vec(width, "i1")
    low, high = (-152.0, 129.0) if base2 else (-105.0, 89.5)

    def c(value: float) -> str:
        return constant(value, width, "float")

    clamped = e.call(f"llvm.maxnum.{suffix(width)}", ft, (ft, x), (ft, c(low)))
    clamped = e.call(f"llvm.minnum.{suffix(width)}", ft, (ft, clamped), (ft, c(high)))
    scaled = clamped if base2 else e.bin("fmul", ft, clamped, c(1.44269504088896341))
    whole = e.call(f"llvm.roundeven.{suffix(width)}", ft, (ft, scaled))
    if base2:
        rest = e.bin("fmul", ft, e.bin("fsub", ft, clamped, whole), c(0.693147180559945309))
    else:
        rest = _fma(e, whole, c(-0.693359375), clamped, width)
        rest = _fma(e, whole, c(2.12194440e-4), rest, width)
    poly = c(_EXP[0])
    for coefficient in _EXP[1:]:
        poly = _fma(e, poly, rest, c(coefficient), width)
    square = e.bin("fmul", ft, rest, rest)
    value = e.bin("fadd", ft, _fma(e, poly, square, rest, width), c(1.0))
    n = e.cast("fptosi", ft, whole, it)
    half = e.bin("ashr", it, n, constant(1, width, "i32"))
    for part in (half, e.bin("sub", it, n, half)):
        bits = e.bin("shl", it, e.bin("add", it, part, constant(127, width, "i32")), constant(23, width, "i32"))
        value = e.bin("fmul", ft, value, e.cast("bitcast", it, bits, ft))
    nan = e.bin("fcmp uno", ft, x, x)
    return e.op(f"select {bt} {nan}, {ft} {x}, {ft} {value}")


def _log(e: Emitter, x: str, width: int, base2: bool) -> str:
    ft, it, bt = vec(width, "float"), vec(width, "i32"), vec(width, "i1")

    def c(value: float) -> str:
        return constant(value, width, "float")

    tiny = e.bin("fcmp olt", ft, x, c(1.17549435e-38))
    lifted = e.op(f"select {bt} {tiny}, {ft} {e.op(f'fmul {ft} {x}, {c(8388608.0)}')}, {ft} {x}")
    bits = e.cast("bitcast", ft, lifted, it)
    # mantissa in [sqrt(1/2), sqrt(2)): subtract the bits of sqrt(1/2) before splitting
    shifted = e.bin("sub", it, bits, constant(0x3F3504F3, width, "i32"))
    exponent = e.bin("ashr", it, shifted, constant(23, width, "i32"))
    low = e.bin("and", it, shifted, constant(0x7FFFFF, width, "i32"))
    m_bits = e.bin("add", it, low, constant(0x3F3504F3, width, "i32"))
    m = e.bin("fsub", ft, e.cast("bitcast", it, m_bits, ft), c(1.0))
    n = e.cast("sitofp", it, exponent, ft)
    n = e.op(f"select {bt} {tiny}, {ft} {e.op(f'fsub {ft} {n}, {c(23.0)}')}, {ft} {n}")
    poly = c(_LOG[0])
    for coefficient in _LOG[1:]:
        poly = _fma(e, poly, m, c(coefficient), width)
    square = e.bin("fmul", ft, m, m)
    tail = e.bin("fmul", ft, e.bin("fmul", ft, poly, m), square)
    tail = _fma(e, square, c(-0.5), tail, width)
    if base2:
        log_m = e.bin("fadd", ft, m, tail)
        value = _fma(e, log_m, c(1.44269504088896341), n, width)
    else:
        tail = _fma(e, n, c(-2.12194440e-4), tail, width)
        value = e.bin("fadd", ft, m, tail)
        value = _fma(e, n, c(0.693359375), value, width)
    infinite = e.bin("fcmp oeq", ft, x, c(float("inf")))
    value = e.op(f"select {bt} {infinite}, {ft} {x}, {ft} {value}")
    zero = e.bin("fcmp oeq", ft, x, c(0.0))
    value = e.op(f"select {bt} {zero}, {ft} {c(float('-inf'))}, {ft} {value}")
    invalid = e.bin("fcmp ult", ft, x, c(0.0))  # negative or NaN
    return e.op(f"select {bt} {invalid}, {ft} {c(float('nan'))}, {ft} {value}")


def _tanh(e: Emitter, x: str, width: int) -> str:
    """Cephes tanhf: a polynomial near zero, 1 - 2/(exp(2|x|)+1) elsewhere."""
    ft, bt = vec(width, "float"), vec(width, "i1")

    def c(value: float) -> str:
        return constant(value, width, "float")

    mag = e.call(f"llvm.fabs.{suffix(width)}", ft, (ft, x))
    grown = _exp(e, e.bin("fadd", ft, mag, mag), width, base2=False)
    far = e.bin("fdiv", ft, c(2.0), e.bin("fadd", ft, grown, c(1.0)))
    far = e.bin("fsub", ft, c(1.0), far)
    far = e.call(f"llvm.copysign.{suffix(width)}", ft, (ft, far), (ft, x))
    square = e.bin("fmul", ft, x, x)
    poly = c(-5.70498872745e-3)
    for coefficient in (2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1):
        poly = _fma(e, poly, square, c(coefficient), width)
    near = _fma(e, e.bin("fmul", ft, poly, square), x, x, width)
    is_near = e.bin("fcmp olt", ft, mag, c(0.625))
    return e.op(f"select {bt} {is_near}, {ft} {near}, {ft} {far}")


def _call(e: Emitter, name: str, args: list[str], width: int, body: _Body) -> str:
    """A longer ``float`` function as a function of the module, written once however often it is used."""
    ft, symbol = vec(width, "float"), f"dk_{name}_{width}"
    if symbol not in e.declares:
        inner = Emitter()
        result = body(inner, [f"%a{k}" for k in range(len(args))], width)
        params = ", ".join(f"{ft} %a{k}" for k in range(len(args)))
        lines = "\n".join([*inner.lines, f"  ret {ft} {result}"])
        e.declares.update(inner.declares)
        e.declares[symbol] = f"define internal {ft} @{symbol}({params}) noinline {{\nentry:\n{lines}\n}}"
    return e.op(f"call {ft} @{symbol}({', '.join(f'{ft} {a}' for a in args)})")


def _horner(e: Emitter, coefficients: tuple[float, ...], x: str, width: int) -> str:
    """A polynomial, highest power first."""
    total = constant(coefficients[0], width, "float")
    for value in coefficients[1:]:
        total = _fma(e, total, x, constant(value, width, "float"), width)
    return total


_ERF_NEAR = (
    7.889119297033176e-05, -0.0008020841050893068, 0.005189535208046436, -0.026854444295167923, 0.11283600330352783,
    -0.3761262595653534, 0.1283791065216064,
)  # fmt: skip
"""erf(x)/x - 1 in x² on [0, 1]; least maximum error 1.2e-9"""
_ERF_FAR = (
    0.00019150503794662654, -0.0029995490331202745, 0.02205202914774418, -0.10356695204973221, -0.6375999450683594,
    -1.1274261474609375, -0.0002564366441220045,
)  # fmt: skip
"""ln erfc(x) on [0.95, 4], weighted by erfc: error 1.3e-9 in erf; beyond 4, erf is 1 in float"""


def _erf(e: Emitter, args: list[str], width: int) -> str:
    ft, bt, x = vec(width, "float"), vec(width, "i1"), args[0]
    near = _fma(e, x, _horner(e, _ERF_NEAR, e.bin("fmul", ft, x, x), width), x, width)
    mag = e.call(f"llvm.fabs.{suffix(width)}", ft, (ft, x))
    bounded = e.call(f"llvm.minnum.{suffix(width)}", ft, (ft, mag), (ft, constant(4.0, width, "float")))
    tail = _exp(e, _horner(e, _ERF_FAR, bounded, width), width, base2=False)
    far = e.bin("fsub", ft, constant(1.0, width, "float"), tail)
    far = e.call(f"llvm.copysign.{suffix(width)}", ft, (ft, far), (ft, x))
    is_near = e.bin("fcmp ult", ft, mag, constant(1.0, width, "float"))  # NaN too
    return e.op(f"select {bt} {is_near}, {ft} {near}, {ft} {far}")


_SIN = (-0.0001958297798410058, 0.008332725614309311, -0.166666641831398)
_COS = (2.454299828968942e-05, -0.0013888280373066664, 0.0416666641831398)
"""(sin(r)/r - 1)/r² and (cos(r) - 1 + r²/2)/r⁴ in r² on |r| ≤ π/4; least maximum errors 2e-8 and 2e-9"""
_HALF_PI = (1.57079637050628662109375, -4.37113900018624283e-8, -1.71512426e-15)
_REDUCIBLE = 48000.0
"""arguments up to here are reduced by three parts of π/2; beyond, the C library does it"""


def _sine(shift: int) -> _Body:
    """sin for ``shift`` 0, cos for 1: a quarter turn further."""

    def body(e: Emitter, args: list[str], width: int) -> str:
        ft, x = vec(width, "float"), args[0]
        mag = e.call(f"llvm.fabs.{suffix(width)}", ft, (ft, x))
        large = e.bin("fcmp ogt", ft, mag, constant(_REDUCIBLE, width, "float"))
        if width > 1:
            bits = e.cast("bitcast", f"<{width} x i1>", large, f"i{width}")
            large = e.bin("icmp ne", f"i{width}", bits, "0")
        yes, no, end = e.new_label("large"), e.new_label("usual"), e.new_label("either")
        e.branch(large, yes, no, likely=False)
        e.start(yes)
        slow = _libm(e, "cosf" if shift else "sinf", [x], "float", width)
        e.jump(end)
        e.start(no)
        quick = _reduced_sine(e, x, shift, width)
        e.jump(end)
        e.start(end)
        return e.phi(ft, (slow, yes), (quick, no))

    return body


def _reduced_sine(e: Emitter, x: str, shift: int, width: int) -> str:
    ft, it, bt = vec(width, "float"), vec(width, "i32"), vec(width, "i1")
    turns = e.bin("fmul", ft, x, constant(0.636619772367581343, width, "float"))
    whole = e.call(f"llvm.roundeven.{suffix(width)}", ft, (ft, turns))
    rest = x
    for part in _HALF_PI:
        rest = _fma(e, whole, constant(-part, width, "float"), rest, width)
    square = e.bin("fmul", ft, rest, rest)
    cube = e.bin("fmul", ft, rest, square)
    sine = _fma(e, _horner(e, _SIN, square, width), cube, rest, width)
    fourth = e.bin("fmul", ft, square, square)
    cosine = _fma(e, square, constant(-0.5, width, "float"), constant(1.0, width, "float"), width)
    cosine = _fma(e, _horner(e, _COS, square, width), fourth, cosine, width)
    quarter = e.call(f"llvm.fptosi.sat.{suffix(width, 'i32')}.{suffix(width)}", it, (ft, whole))
    if shift:
        quarter = e.bin("add", it, quarter, constant(1, width, "i32"))
    odd = e.bin("icmp ne", it, e.bin("and", it, quarter, constant(1, width, "i32")), constant(0, width, "i32"))
    value = e.op(f"select {bt} {odd}, {ft} {cosine}, {ft} {sine}")
    sign = e.bin("shl", it, e.bin("and", it, quarter, constant(2, width, "i32")), constant(30, width, "i32"))
    bits = e.bin("xor", it, e.cast("bitcast", ft, value, it), sign)
    return e.cast("bitcast", it, bits, ft)


def _tan(e: Emitter, args: list[str], width: int) -> str:
    ft = vec(width, "float")
    sine, cosine = (_call(e, name, args, width, _sine(k)) for k, name in enumerate(("sin", "cos")))
    return e.bin("fdiv", ft, sine, cosine)


def _log1p(e: Emitter, args: list[str], width: int) -> str:
    """log(u) for u = 1 + x, plus what rounding u lost, divided by u."""
    ft, bt, x, one = vec(width, "float"), vec(width, "i1"), args[0], constant(1.0, width, "float")
    u = e.bin("fadd", ft, x, one)
    lost = e.bin("fsub", ft, x, e.bin("fsub", ft, u, one))
    log = _log(e, u, width, base2=False)
    value = e.bin("fadd", ft, log, e.bin("fdiv", ft, lost, u))
    plain = e.bin("fcmp ueq", ft, u, constant(0.0, width, "float"))
    infinite = e.bin("fcmp oeq", ft, u, constant(float("inf"), width, "float"))
    plain = e.bin("or", bt, plain, infinite)
    return e.op(f"select {bt} {plain}, {ft} {log}, {ft} {value}")


_EXPM1 = (
    0.00019938709738198668, 0.0013954663882032037, 0.008333231322467327, 0.04166623204946518, 0.1666666716337204, 0.5,
)  # fmt: skip
"""(expm1(x)/x - 1)/x on |x| ≤ 0.42"""


def _expm1(e: Emitter, args: list[str], width: int) -> str:
    ft, bt, x = vec(width, "float"), vec(width, "i1"), args[0]
    near = _fma(e, e.bin("fmul", ft, x, x), _horner(e, _EXPM1, x, width), x, width)
    far = e.bin("fsub", ft, _exp(e, x, width, base2=False), constant(1.0, width, "float"))
    mag = e.call(f"llvm.fabs.{suffix(width)}", ft, (ft, x))
    is_near = e.bin("fcmp olt", ft, mag, constant(0.4, width, "float"))
    return e.op(f"select {bt} {is_near}, {ft} {near}, {ft} {far}")


_LONG: dict[str, _Body] = {
    "erf": _erf, "sin": _sine(0), "cos": _sine(1), "tan": _tan, "log1p": _log1p, "expm1": _expm1,
}  # fmt: skip


def _libm(e: Emitter, symbol: str, args: list[str], ty: str, width: int) -> str:
    """Call a scalar library function for every lane, in a helper that loops (unrolled calls would bloat the kernel)."""
    e.declare(symbol, ty, *(ty for _ in args))
    if width == 1:
        return e.call(symbol, ty, *((ty, a) for a in args))
    vt, name = vec(width, ty), f"lanes_{symbol}_{width}"
    return e.call_defined(name, _lane_loop(name, symbol, len(args), ty, width), vt, *((vt, a) for a in args))


def _lane_loop(name: str, symbol: str, count: int, ty: str, width: int) -> str:
    vt = vec(width, ty)
    params = ", ".join(f"{vt} %a{k}" for k in range(count))
    lanes = "\n".join(f"  %s{k} = extractelement {vt} %a{k}, i64 %lane" for k in range(count))
    scalars = ", ".join(f"{ty} %s{k}" for k in range(count))
    return f"""define internal {vt} @{name}({params}) noinline {{
entry:
  br label %loop
loop:
  %lane = phi i64 [ 0, %entry ], [ %next, %loop ]
  %part = phi {vt} [ zeroinitializer, %entry ], [ %full, %loop ]
{lanes}
  %value = call {ty} @{symbol}({scalars})
  %full = insertelement {vt} %part, {ty} %value, i64 %lane
  %next = add i64 %lane, 1
  %more = icmp ult i64 %next, {width}
  br i1 %more, label %loop, label %done
done:
  ret {vt} %full
}}"""
