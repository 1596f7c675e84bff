"""Narrow float formats, held in registers as ``float``: rounding to nearest even, and to and from memory bits."""

import struct

from ttir_executor.lower.emit import Emitter, float_literal, splat_literal, vec
from ttir_executor.ttir.ir import UnsupportedTTIR

_FP8 = {
    "f8E5M2": (2, -14, 57344.0), "f8E4M3FN": (3, -6, 448.0), "f8E5M2FNUZ": (2, -15, 57344.0),
    "f8E4M3FNUZ": (3, -7, 240.0),
}  # fmt: skip
"""mantissa bits, smallest normal exponent, largest finite value (conversions saturate to it, as cvt.satfinite does)"""


def int_vec(width: int, bits: int) -> str:
    """Vector type of integers."""
    return vec(width, f"i{bits}")


def constant(value: int | float, width: int, ty: str) -> str:
    """A splat constant of a number."""
    text = float_literal(float(value), ty) if ty in ("float", "double") else str(value)
    return splat_literal(text, width, ty)


def round_to(e: Emitter, text: str, elem: str, width: int) -> str:
    """``float`` lanes rounded to the nearest value of a narrow format."""
    if elem in ("f32", "f64"):
        return text
    if elem == "f16":
        half = e.cast("fptrunc", vec(width, "float"), text, vec(width, "half"))
        return e.cast("fpext", vec(width, "half"), half, vec(width, "float"))
    if elem == "bf16":
        return _round_bits(e, text, 16, width)
    if elem == "tf32":
        return _round_away(e, text, 13, width)
    if elem in _FP8:
        return _round_fp8(e, text, elem, width)
    raise UnsupportedTTIR(f"the float format {elem}")


def _round_bits(e: Emitter, text: str, drop: int, width: int) -> str:
    """Round to nearest even by dropping ``drop`` mantissa bits; NaN stays NaN."""
    ft, it = vec(width, "float"), int_vec(width, 32)
    bits = e.cast("bitcast", ft, text, it)
    lsb = e.bin("and", it, e.bin("lshr", it, bits, constant(drop, width, "i32")), constant(1, width, "i32"))
    bias = e.bin("add", it, lsb, constant((1 << (drop - 1)) - 1, width, "i32"))
    rounded = e.bin("and", it, e.bin("add", it, bits, bias), constant(-(1 << drop), width, "i32"))
    nan = e.bin("fcmp uno", ft, text, text)
    quiet = e.bin(
        "and", it, e.bin("or", it, bits, constant(1 << 22, width, "i32")), constant(-(1 << drop), width, "i32")
    )
    chosen = e.op(f"select {vec(width, 'i1')} {nan}, {it} {quiet}, {it} {rounded}")
    return e.cast("bitcast", it, chosen, ft)


def _round_away(e: Emitter, text: str, drop: int, width: int) -> str:
    """Round to nearest by dropping ``drop`` mantissa bits, ties away from zero, as ``cvt.rna`` does."""
    ft, it = vec(width, "float"), int_vec(width, 32)
    bits = e.bin("add", it, e.cast("bitcast", ft, text, it), constant(1 << (drop - 1), width, "i32"))
    rounded = e.cast("bitcast", it, e.bin("and", it, bits, constant(-(1 << drop), width, "i32")), ft)
    size = e.call(f"llvm.fabs.{suffix(width)}", ft, (ft, text))
    finite = e.bin("fcmp olt", ft, size, constant(float("inf"), width, "float"))
    return e.op(f"select {vec(width, 'i1')} {finite}, {ft} {rounded}, {ft} {text}")


def _round_fp8(e: Emitter, text: str, elem: str, width: int) -> str:
    mantissa, emin, largest = _FP8[elem]
    ft, bt = vec(width, "float"), vec(width, "i1")
    mag = e.call(f"llvm.fabs.{suffix(width)}", ft, (ft, text))
    normal = _round_bits(e, mag, 23 - mantissa, width)
    magic = constant(2.0 ** (emin - mantissa + 23), width, "float")
    small = e.bin("fsub", ft, e.bin("fadd", ft, mag, magic), magic)
    is_small = e.bin("fcmp olt", ft, mag, constant(2.0**emin, width, "float"))
    rounded = e.op(f"select {bt} {is_small}, {ft} {small}, {ft} {normal}")
    over = e.bin("fcmp ogt", ft, rounded, constant(largest, width, "float"))
    clamped = e.op(f"select {bt} {over}, {ft} {constant(largest, width, 'float')}, {ft} {rounded}")
    return e.call(f"llvm.copysign.{suffix(width)}", ft, (ft, clamped), (ft, text))


def suffix(width: int, ty: str = "float") -> str:
    """Intrinsic name suffix of a vector type."""
    short = {"float": "f32", "double": "f64", "half": "f16"}.get(ty, ty)
    return short if width == 1 else f"v{width}{short}"


def to_bits(e: Emitter, text: str, elem: str, width: int) -> str:
    """Memory bits (an integer of the format's width) of register lanes."""
    if elem == "f64":
        return e.cast("bitcast", vec(width, "double"), text, int_vec(width, 64))
    ft, i32 = vec(width, "float"), int_vec(width, 32)
    if elem == "f32":
        return e.cast("bitcast", ft, text, i32)
    if elem in ("f16", "f8E5M2"):
        half = e.cast("fptrunc", ft, text, vec(width, "half"))
        bits16 = e.cast("bitcast", vec(width, "half"), half, int_vec(width, 16))
        if elem == "f16":
            return bits16
        top = e.bin("lshr", int_vec(width, 16), bits16, constant(8, width, "i16"))
        return e.cast("trunc", int_vec(width, 16), top, int_vec(width, 8))
    bits = e.cast("bitcast", ft, text, i32)
    if elem == "bf16":
        return e.cast("trunc", i32, e.bin("lshr", i32, bits, constant(16, width, "i32")), int_vec(width, 16))
    if elem in _FP8:
        return _fp8_bits(e, text, bits, elem, width)
    raise UnsupportedTTIR(f"the float format {elem}")


def _fp8_bits(e: Emitter, text: str, bits: str, elem: str, width: int) -> str:
    """Of formats without infinities. Those that end in UZ have one NaN, where others have the negative zero."""
    mantissa, emin, _ = _FP8[elem]
    ft, i32, bt = vec(width, "float"), int_vec(width, 32), vec(width, "i1")
    sign = e.bin("and", i32, e.bin("lshr", i32, bits, constant(24, width, "i32")), constant(128, width, "i32"))
    mag = e.call(f"llvm.fabs.{suffix(width)}", ft, (ft, text))
    shifted = e.bin("lshr", i32, e.cast("bitcast", ft, mag, i32), constant(23 - mantissa, width, "i32"))
    normal = e.bin("sub", i32, shifted, constant((126 + emin) << mantissa, width, "i32"))
    scaled = e.bin("fmul", ft, mag, constant(2.0 ** (mantissa - emin), width, "float"))
    small = e.call(f"llvm.fptosi.sat.{suffix(width, 'i32')}.{suffix(width)}", i32, (ft, scaled))
    is_small = e.bin("fcmp olt", ft, mag, constant(2.0**emin, width, "float"))
    body = e.op(f"select {bt} {is_small}, {i32} {small}, {i32} {normal}")
    nan = e.bin("fcmp uno", ft, text, text)
    if elem.endswith("UZ"):
        zero = e.bin("icmp eq", i32, body, constant(0, width, "i32"))
        sign = e.op(f"select {bt} {zero}, {i32} {constant(0, width, 'i32')}, {i32} {sign}")
        whole = e.bin("or", i32, sign, body)
        whole = e.op(f"select {bt} {nan}, {i32} {constant(128, width, 'i32')}, {i32} {whole}")
    else:
        body = e.op(f"select {bt} {nan}, {i32} {constant(127, width, 'i32')}, {i32} {body}")
        whole = e.bin("or", i32, sign, body)
    return e.cast("trunc", i32, whole, int_vec(width, 8))


def from_bits(e: Emitter, text: str, elem: str, width: int) -> str:
    """Register lanes of memory bits."""
    ft, i32 = vec(width, "float"), int_vec(width, 32)
    if elem == "f64":
        return e.cast("bitcast", int_vec(width, 64), text, vec(width, "double"))
    if elem == "f32":
        return e.cast("bitcast", i32, text, ft)
    if elem == "f8E5M2":
        wide = e.cast("zext", int_vec(width, 8), text, int_vec(width, 16))
        text = e.bin("shl", int_vec(width, 16), wide, constant(8, width, "i16"))
    if elem in ("f16", "f8E5M2"):
        half = e.cast("bitcast", int_vec(width, 16), text, vec(width, "half"))
        return e.cast("fpext", vec(width, "half"), half, ft)
    if elem == "bf16":
        wide = e.cast("zext", int_vec(width, 16), text, i32)
        return e.cast("bitcast", i32, e.bin("shl", i32, wide, constant(16, width, "i32")), ft)
    if elem in _FP8:
        return _from_fp8(e, text, elem, width)
    raise UnsupportedTTIR(f"the float format {elem}")


def _from_fp8(e: Emitter, text: str, elem: str, width: int) -> str:
    mantissa, emin, _ = _FP8[elem]
    ft, i32, bt = vec(width, "float"), int_vec(width, 32), vec(width, "i1")
    bits = e.cast("zext", int_vec(width, 8), text, i32)
    low = e.bin("and", i32, bits, constant(127, width, "i32"))
    shifted = e.bin("shl", i32, low, constant(23 - mantissa, width, "i32"))
    normal = e.cast("bitcast", i32, e.bin("add", i32, shifted, constant((126 + emin) << 23, width, "i32")), ft)
    small = e.bin("fmul", ft, e.cast("uitofp", i32, low, ft), constant(2.0 ** (emin - mantissa), width, "float"))
    is_small = e.bin("icmp ult", i32, low, constant(1 << mantissa, width, "i32"))
    value = e.op(f"select {bt} {is_small}, {ft} {small}, {ft} {normal}")
    pattern, code = (bits, 128) if elem.endswith("UZ") else (low, 127)
    nan = e.bin("icmp eq", i32, pattern, constant(code, width, "i32"))
    value = e.op(f"select {bt} {nan}, {ft} {constant(float('nan'), width, 'float')}, {ft} {value}")
    negative = e.bin("icmp ugt", i32, bits, constant(127, width, "i32"))
    return e.op(f"select {bt} {negative}, {ft} {e.op(f'fneg {ft} {value}')}, {ft} {value}")


def round_constant(value: float, elem: str) -> float:
    """A Python float rounded to a format (constants in the text are decimal)."""
    if elem == "f64" or value != value or value in (float("inf"), float("-inf")):
        return value
    if elem == "f16":
        try:
            return float(struct.unpack("<e", struct.pack("<e", value))[0])
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")
    try:
        single = float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    if elem == "bf16":
        bits = struct.unpack("<I", struct.pack("<f", single))[0]
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        return float(struct.unpack("<f", struct.pack("<I", bits))[0])
    return single


def constant_from_hex(bits: int, elem: str) -> float:
    """A float from the hexadecimal bit pattern that the text uses for infinities and NaN."""
    if elem == "f64":
        return float(struct.unpack("<d", struct.pack("<Q", bits))[0])
    if elem == "f32":
        return float(struct.unpack("<f", struct.pack("<I", bits))[0])
    if elem == "f16":
        return float(struct.unpack("<e", struct.pack("<H", bits))[0])
    if elem == "bf16":
        return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])
    if elem == "f8E5M2":
        return float(struct.unpack("<e", struct.pack("<H", bits << 8))[0])
    if elem in _FP8:  # without infinities
        return float("nan")
    raise UnsupportedTTIR(f"a hexadecimal constant of {elem}")
