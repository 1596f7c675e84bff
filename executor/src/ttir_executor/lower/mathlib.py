"""Elementary functions on vectors: polynomials for the common ones, libm lane by lane for the rest."""

from collections.abc import Callable

from ttir_executor.lower.emit import Emitter, vec
from ttir_executor.lower.numbers import Numbers, horner
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


_Body = Callable[[list[Numbers]], Numbers]


def has_function(name: str) -> bool:
    """Whether :func:`math_call` knows ``name``."""
    return name in _INTRINSICS or name in _LIBM or name == "rsqrt"


def math_call(name: str, args: list[Numbers]) -> Numbers:
    """``name`` applied to lanes of ``float`` or ``double``."""
    x = args[0]
    if name in _INTRINSICS:
        return x.call(name)
    if name == "rsqrt":
        return 1.0 / x.call("sqrt")
    if x.ty == "float" and name in ("exp", "exp2"):
        return _exp(x, base2=name == "exp2")
    if x.ty == "float" and name in ("log", "log2"):
        return _log(x, base2=name == "log2")
    if x.ty == "float" and name == "tanh":
        return _tanh(x)
    if x.ty == "float" and name in _LONG:
        return _call(name, args, _LONG[name])
    if name in _LIBM:
        return _libm(name + ("f" if x.ty == "float" else ""), args)
    raise UnsupportedTTIR(f"the function {name}")


def _exp(x: Numbers, base2: bool = False) -> Numbers:
    low, high = (-152.0, 129.0) if base2 else (-105.0, 89.5)
    clamped = x.call("maxnum", low).call("minnum", high)
    whole = (clamped if base2 else clamped * 1.44269504088896341).call("roundeven")
    if base2:
        rest = (clamped - whole) * 0.693147180559945309
    else:
        rest = whole.call("fma", 2.12194440e-4, whole.call("fma", -0.693359375, clamped))
    poly = horner(_EXP, rest)
    value = poly.call("fma", rest * rest, rest) + 1.0
    n = whole.to("fptosi", "i32")
    half = n.binary("ashr", 1)
    for part in (half, n - half):
        value = value * (part + 127 << 23).as_bits_of("float")
    return x.is_nan().choose(x, value)


def _log(x: Numbers, base2: bool = False) -> Numbers:
    tiny = x < 1.17549435e-38
    bits = tiny.choose(x * 8388608.0, x).as_bits_of("i32")
    # mantissa in [sqrt(1/2), sqrt(2)): subtract the bits of sqrt(1/2) before splitting
    shifted = bits - 0x3F3504F3
    exponent = shifted.binary("ashr", 23)
    m = ((shifted & 0x7FFFFF) + 0x3F3504F3).as_bits_of("float") - 1.0
    n = exponent.to("sitofp", "float")
    n = tiny.choose(n - 23.0, n)
    poly = horner(_LOG, m)
    square = m * m
    tail = square.call("fma", -0.5, poly * m * square)
    if base2:
        value = (m + tail).call("fma", 1.44269504088896341, n)
    else:
        value = n.call("fma", 0.693359375, m + n.call("fma", -2.12194440e-4, tail))
    value = x.equals(float("inf")).choose(x, value)
    value = x.equals(0.0).choose(float("-inf"), value)
    return x.compare("ult", 0.0).choose(float("nan"), value)  # negative or NaN


def _tanh(x: Numbers) -> Numbers:
    """Cephes tanhf: a polynomial near zero, 1 - 2/(exp(2|x|)+1) elsewhere."""
    size = abs(x)
    far = (1.0 - 2.0 / (_exp(size + size) + 1.0)).call("copysign", x)
    square = x * x
    near = (horner(_TANH, square) * square).call("fma", x, x)
    return (size < 0.625).choose(near, far)


_TANH = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)


def _call(name: str, args: list[Numbers], body: _Body) -> Numbers:
    """A longer ``float`` function as a function of the module, written once however often it is used."""
    x, e = args[0], args[0].e
    symbol = f"dk_{name}_{x.width}"
    if symbol not in e.declares:
        inner = Emitter()
        result = body([Numbers(inner, f"%a{k}", x.ty, x.width) for k in range(len(args))])
        params = ", ".join(f"{x.vector} %a{k}" for k in range(len(args)))
        lines = "\n".join([*inner.lines, f"  ret {x.vector} {result.text}"])
        e.declares.update(inner.declares)
        e.declares[symbol] = f"define internal {x.vector} @{symbol}({params}) noinline {{\nentry:\n{lines}\n}}"
    return x.held(e.op(f"call {x.vector} @{symbol}({', '.join(f'{a.vector} {a.text}' for a in args)})"))


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


def _erf(args: list[Numbers]) -> Numbers:
    (x,) = args
    near = x.call("fma", horner(_ERF_NEAR, x * x), x)
    size = abs(x)
    far = (1.0 - _exp(horner(_ERF_FAR, size.call("minnum", 4.0)))).call("copysign", x)
    return size.compare("ult", 1.0).choose(near, far)  # NaN is near


_SIN = (-0.0001958297798410058, 0.008332725614309311, -0.166666641831398)
_COS = (2.454299828968942e-05, -0.0013888280373066664, 0.0416666641831398)
"""(sin(r)/r - 1)/r² and (cos(r) - 1 + r²/2)/r⁴ in r² on |r| ≤ π/4; least maximum errors 2e-8 and 2e-9"""
_HALF_PI = (1.57079637050628662109375, -4.37113900018624283e-8, -1.71512426e-15)
_REDUCIBLE = 48000.0
"""arguments up to here are reduced by three parts of π/2; beyond, the C library does it"""


def _sine(shift: int) -> _Body:
    """sin for ``shift`` 0, cos for 1: a quarter turn further."""

    def body(args: list[Numbers]) -> Numbers:
        (x,) = args
        e, large = x.e, (abs(x) > _REDUCIBLE).packed()
        large = large if x.width == 1 else large.compare("ne", 0)
        yes, no, end = e.new_label("large"), e.new_label("usual"), e.new_label("either")
        e.branch(large.text, yes, no, likely=False)
        e.start(yes)
        slow = _libm("cosf" if shift else "sinf", args)
        e.jump(end)
        e.start(no)
        quick = _reduced_sine(x, shift)
        e.jump(end)
        e.start(end)
        return x.held(e.phi(x.vector, (slow.text, yes), (quick.text, no)))

    return body


def _reduced_sine(x: Numbers, shift: int) -> Numbers:
    whole = (x * 0.636619772367581343).call("roundeven")
    rest = x
    for part in _HALF_PI:
        rest = whole.call("fma", -part, rest)
    square = rest * rest
    cube = rest * square
    sine = horner(_SIN, square).call("fma", cube, rest)
    fourth = square * square
    cosine = square.call("fma", -0.5, 1.0)
    cosine = horner(_COS, square).call("fma", fourth, cosine)
    quarter = whole.to_integer("i32")
    if shift:
        quarter = quarter + 1
    value = (quarter & 1).compare("ne", 0).choose(cosine, sine)
    sign = (quarter & 2) << 30
    return (value.as_bits_of("i32") ^ sign).as_bits_of("float")


def _tan(args: list[Numbers]) -> Numbers:
    return _call("sin", args, _sine(0)) / _call("cos", args, _sine(1))


def _log1p(args: list[Numbers]) -> Numbers:
    """log(u) for u = 1 + x, plus what rounding u lost, divided by u."""
    (x,) = args
    u = x + 1.0
    lost = x - (u - 1.0)
    log = _log(u)
    value = log + lost / u
    plain = u.compare("ueq", 0.0) | u.equals(float("inf"))
    return plain.choose(log, value)


_EXPM1 = (
    0.00019938709738198668, 0.0013954663882032037, 0.008333231322467327, 0.04166623204946518, 0.1666666716337204, 0.5,
)  # fmt: skip
"""(expm1(x)/x - 1)/x on |x| ≤ 0.42"""


def _expm1(args: list[Numbers]) -> Numbers:
    (x,) = args
    near = (x * x).call("fma", horner(_EXPM1, x), x)
    far = _exp(x) - 1.0
    return (abs(x) < 0.4).choose(near, far)


_LONG: dict[str, _Body] = {
    "erf": _erf, "sin": _sine(0), "cos": _sine(1), "tan": _tan, "log1p": _log1p, "expm1": _expm1,
}  # fmt: skip


def _libm(symbol: str, args: list[Numbers]) -> Numbers:
    """Call a scalar library function for every lane, in a helper that loops (unrolled calls would bloat the kernel)."""
    x, e, width = args[0], args[0].e, args[0].width
    given = [(a.vector, a.text) for a in args]
    e.declare(symbol, x.ty, *(a.ty for a in args))
    if width == 1:
        return x.held(e.call(symbol, x.ty, *given))
    name = f"lanes_{symbol}_{width}"
    return x.held(e.call_defined(name, _lane_loop(name, symbol, len(args), x.ty, width), x.vector, *given))


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
