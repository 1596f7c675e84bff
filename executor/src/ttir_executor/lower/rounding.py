"""Narrow float formats, held in registers as ``float``: rounding to nearest even, and to and from memory bits."""

from ttir_executor.lower.numbers import Numbers
from ttir_executor.ttir.formats import small_format
from ttir_executor.ttir.ir import FLOAT_BITS, UnsupportedTTIR

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
