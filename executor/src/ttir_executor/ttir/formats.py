"""Float formats: numbers as bits, bits as numbers, and the numbers of constants in the text."""

from functools import cache

import numpy as np

_SMALL = {
    "f8E5M2": (5, 2, 15), "f8E4M3FN": (4, 3, 7), "f8E4M3B11FNUZ": (4, 3, 11), "f8E5M2FNUZ": (5, 2, 16),
    "f8E4M3FNUZ": (4, 3, 8),
}  # fmt: skip
"""bits of the exponent and the fraction, and the exponent of 1"""
_OF_NUMPY = {"f64": (np.float64, np.int64), "f32": (np.float32, np.int32), "f16": (np.float16, np.int16)}


def bits_of(f: np.ndarray, elem: str) -> np.ndarray:
    """The bits of numbers rounded to a float type, as signed integers."""
    f = np.asarray(f, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        if elem in _OF_NUMPY:
            number, whole = _OF_NUMPY[elem]
            return f.astype(number).view(whole).astype(np.int64)
        if elem == "bf16":
            wide = f.astype(np.float32).view(np.uint32).astype(np.int64)
            near = (wide + 0x7FFF + ((wide >> 16) & 1)) >> 16
            return np.where(np.isnan(f), 0x7FC0, near).astype(np.int16).astype(np.int64)
    return _nearest(f, elem)


def number_of(text: str, elem: str) -> float:
    """A constant of the text: decimal, or hexadecimal bits where it is infinite or NaN."""
    if not text.startswith("0x"):
        return float(text)
    return float(floats_of(np.asarray(int(text, 16), np.uint64).astype(np.int64), elem))


def rounded(value: float, elem: str) -> float:
    """The nearest number of a format."""
    return float(floats_of(bits_of(np.asarray(value), elem), elem))


def floats_of(bits: np.ndarray, elem: str) -> np.ndarray:
    """The numbers of a float type that have these bits."""
    bits = np.asarray(bits, np.int64)
    with np.errstate(invalid="ignore"):
        if elem in _OF_NUMPY:
            number, whole = _OF_NUMPY[elem]
            return bits.astype(whole).view(number).astype(np.float64)
        if elem == "bf16":
            return (bits << 16).astype(np.int32).view(np.float32).astype(np.float64)
    return _values(elem)[bits & 0xFF]


@cache
def small_format(elem: str) -> tuple[int, int, float]:
    """Bits of the fraction, smallest exponent of a normal number and largest finite number of an 8-bit format."""
    _, fraction, bias = _SMALL[elem]
    known = _values(elem)
    return fraction, 1 - bias, float(known[np.isfinite(known)].max())


@cache
def _values(elem: str) -> np.ndarray:
    """The numbers of an 8-bit format, by their bits."""
    wide, fraction, bias = _SMALL[elem]
    bits = np.arange(256)
    exponent, rest = bits >> fraction & ((1 << wide) - 1), bits & ((1 << fraction) - 1)
    size = np.where(
        exponent == 0,
        rest * 2.0 ** (1 - bias - fraction),
        (1 + rest * 2.0**-fraction) * 2.0 ** (exponent - float(bias)),
    )
    if elem == "f8E5M2":
        size = np.where(exponent == 31, np.where(rest == 0, np.inf, np.nan), size)
    elif elem == "f8E4M3FN":
        size = np.where((bits & 0x7F) == 0x7F, np.nan, size)
    found: np.ndarray = np.where(bits < 128, size, -size)
    if elem.endswith("FNUZ"):
        found[128] = np.nan
    return found


def _nearest(f: np.ndarray, elem: str) -> np.ndarray:
    """The bits of the nearest numbers of an 8-bit format, even bits between two; the largest for what is larger."""
    size = _values(elem)[:128]
    known = size[np.isfinite(size)]
    magnitude = np.abs(f)
    above = np.clip(np.searchsorted(known, magnitude), 1, known.size - 1)
    low, high = magnitude - known[above - 1], known[above] - magnitude
    place = np.where((low < high) | ((low == high) & (above % 2 == 1)), above - 1, above)
    place = np.where(np.isnan(f), 0x80 if elem.endswith("FNUZ") else 0x7F, place)
    negative = np.signbit(f) & ~np.isnan(f) & ~(elem.endswith("FNUZ") & (place == 0))
    return np.where(negative, place | 0x80, place).astype(np.int8).astype(np.int64)
