"""Inline assembly against models written independently: Python's integers, and exact fractions for floats."""

import math
import random
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from drkernel import sim
from drkernel.sim.cost.instructions import assembled
from launches import fresh, launch
from ttir_executor import launch as executor
from ttir_executor.ttir.ir import UnsupportedTTIR
from ttir_executor.ttir.ptx import operations, read_ptx

M32 = 0xFFFFFFFF
COUNT = 256


@triton.jit
def on_three(a, b, c, out, ASM: tl.constexpr, CONSTRAINTS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x, y, z = tl.load(a + at), tl.load(b + at), tl.load(c + at)
    tl.store(out + at, tl.inline_asm_elementwise(ASM, CONSTRAINTS, [x, y, z], out.dtype.element_ty, True, 1))


def run(
    asm: str, a: list[int], b: list[int], c: list[int], constraints: str = "=r,r,r,r", dtype: Any = torch.int32
) -> Any:
    """The assembly on three operands of 32 bits, as unsigned numbers."""
    given = [torch.tensor([v - (v >> 31 << 32) for v in values], dtype=torch.int32) for values in (a, b, c)]
    (*_, out), _ = launch(on_three, (1,), *given, torch.zeros(len(a), dtype=dtype), asm, constraints, len(a))
    mask = (1 << (8 * dtype.itemsize)) - 1
    return [value & mask for value in out.tolist()]


def numbers(seed: int) -> list[int]:
    rng = random.Random(seed)
    special = [0, 1, 2, 31, 32, 33, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, M32, 0xFFFF8000]
    return (special + [rng.getrandbits(rng.choice((5, 8, 16, 32))) for _ in range(COUNT)])[:COUNT]


def signed(value: int, bits: int = 32) -> int:
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


def lop3(a: int, b: int, c: int, table: int) -> int:
    return sum((table >> ((a >> k & 1) * 4 + (b >> k & 1) * 2 + (c >> k & 1)) & 1) << k for k in range(32))


def prmt(a: int, b: int, c: int) -> int:
    source = [(b << 32 | a) >> (8 * k) & 255 for k in range(8)]
    total = 0
    for k in range(4):
        nibble = c >> (4 * k) & 15
        byte = source[nibble & 7]
        total |= ((255 if byte >> 7 else 0) if nibble & 8 else byte) << (8 * k)
    return total


def bfe(a: int, b: int, c: int, sign: bool) -> int:
    start, length = b & 255, c & 255
    wide = signed(a) if sign else a
    field = wide >> min(start, 64) & ((1 << min(length, 32)) - 1)
    if sign and length:
        top = wide >> min(start + min(length, 32) - 1, 64) & 1
        field -= (top << min(length, 32)) if length <= 32 else 0
    return field & M32


def bfi(a: int, b: int, c: int) -> int:
    start, length = b & 31, c & 31
    mask = ((1 << length) - 1) << start & M32
    return (0x12345678 & ~mask) | (a << start & mask)


INTEGER: list[tuple[str, Callable[[int, int, int], int]]] = [
    ("add.u32 $0, $1, $2;", lambda a, b, c: a + b),
    ("sub.s32 $0, $1, $2;", lambda a, b, c: a - b),
    ("add.sat.s32 $0, $1, $2;", lambda a, b, c: max(-(1 << 31), min((1 << 31) - 1, signed(a) + signed(b)))),
    ("mul.lo.s32 $0, $1, $2;", lambda a, b, c: a * b),
    ("mul.hi.u32 $0, $1, $2;", lambda a, b, c: a * b >> 32),
    ("mul.hi.s32 $0, $1, $2;", lambda a, b, c: signed(a) * signed(b) >> 32),
    ("mad.lo.u32 $0, $1, $2, $3;", lambda a, b, c: a * b + c),
    ("mad.hi.s32 $0, $1, $2, $3;", lambda a, b, c: (signed(a) * signed(b) >> 32) + c),
    ("min.s32 $0, $1, $2;", lambda a, b, c: min(signed(a), signed(b))),
    ("max.u32 $0, $1, $2;", lambda a, b, c: max(a, b)),
    ("and.b32 $0, $1, 0x7f007f00;", lambda a, b, c: a & 0x7F007F00),
    ("xor.b32 $0, $1, $2;", lambda a, b, c: a ^ b),
    ("not.b32 $0, $1;", lambda a, b, c: ~a),
    ("neg.s32 $0, $1;", lambda a, b, c: -a),
    ("abs.s32 $0, $1;", lambda a, b, c: abs(signed(a))),
    ("popc.b32 $0, $1;", lambda a, b, c: a.bit_count()),
    ("clz.b32 $0, $1;", lambda a, b, c: 32 - a.bit_length()),
    ("brev.b32 $0, $1;", lambda a, b, c: int(f"{a:032b}"[::-1], 2)),
    ("shl.b32 $0, $1, $2;", lambda a, b, c: a << b if b < 32 else 0),
    ("shr.u32 $0, $1, $2;", lambda a, b, c: a >> b if b < 32 else 0),
    ("shr.s32 $0, $1, $2;", lambda a, b, c: signed(a) >> min(b, 31)),
    ("shf.l.wrap.b32 $0, $1, $2, $3;", lambda a, b, c: (b << 32 | a) << (c & 31) >> 32),
    ("shf.l.clamp.b32 $0, $1, $2, $3;", lambda a, b, c: (b << 32 | a) << min(c, 32) >> 32),
    ("shf.r.wrap.b32 $0, $1, $2, $3;", lambda a, b, c: (b << 32 | a) >> (c & 31)),
    ("shf.r.clamp.b32 $0, $1, $2, $3;", lambda a, b, c: (b << 32 | a) >> min(c, 32)),
    ("lop3.b32 $0, $1, $2, $3, 0xea;", lambda a, b, c: lop3(a, b, c, 0xEA)),
    ("lop3.b32 $0, $1, $2, $3, 0x1b;", lambda a, b, c: lop3(a, b, c, 0x1B)),
    ("prmt.b32 $0, $1, $2, $3;", prmt),
    ("prmt.b32 $0, $1, $2, 0x9fe1;", lambda a, b, c: prmt(a, b, 0x9FE1)),
    ("bfe.u32 $0, $1, $2, $3;", lambda a, b, c: bfe(a, b, c, False)),
    ("bfe.s32 $0, $1, $2, $3;", lambda a, b, c: bfe(a, b, c, True)),
    ("{ .reg .b32 t, u; and.b32 t, $2, 31; and.b32 u, $3, 31; bfi.b32 $0, $1, 0x12345678, t, u; }", bfi),
    ("dp4a.s32.s32 $0, $1, $2, $3;",
     lambda a, b, c: c + sum(signed(a >> k & 255, 8) * signed(b >> k & 255, 8) for k in (0, 8, 16, 24))),
    ("dp4a.u32.s32 $0, $1, $2, $3;",
     lambda a, b, c: c + sum((a >> k & 255) * signed(b >> k & 255, 8) for k in (0, 8, 16, 24))),
    ("sad.s32 $0, $1, $2, $3;", lambda a, b, c: abs(signed(a) - signed(b)) + c),
    ("{ .reg .pred p; setp.lt.s32 p, $1, $2; selp.b32 $0, $1, $3, p; }",
     lambda a, b, c: a if signed(a) < signed(b) else c),
    ("{ .reg .pred p, q; setp.ge.u32 p|q, $1, $2; mov.b32 $0, $3; @q add.u32 $0, $0, 5; @!p add.u32 $0, $0, 1; }",
     lambda a, b, c: c if a >= b else c + 6),
    ("{ .reg .pred p<2>; setp.eq.u32 p0, $1, $2; setp.ne.or.s32 p1, $3, 0, p0; selp.u32 $0, 7, 9, p1; }",
     lambda a, b, c: 7 if c != 0 or a == b else 9),
    ("cvt.s32.s8 $0, $1;", lambda a, b, c: signed(a & 255, 8)),
    ("cvt.u32.u16 $0, $1;", lambda a, b, c: a & 0xFFFF),
    ("cvt.sat.s8.s32 $0, $1;", lambda a, b, c: max(-128, min(127, signed(a)))),
    ("cvt.sat.u8.s32 $0, $1;", lambda a, b, c: max(0, min(255, signed(a)))),
    ("{ .reg .b16 l, h; mov.b32 {l, h}, $1; mov.b32 $0, {h, l}; }", lambda a, b, c: a >> 16 | a << 16),
    ("{ .reg .u64 w; mul.wide.u32 w, $1, $2; mov.b64 {_, $0}, w; } // the upper half", lambda a, b, c: a * b >> 32),
    ("{ .reg .b32 %r<2>; mov.u32 %r0, 0x10; /* sixteen */ shl.b32 %r1, $1, 1; add.u32 $0, %r0, %r1; }",
     lambda a, b, c: 16 + 2 * a),
    ("add.u16x2 $0, $1, $2;",
     lambda a, b, c: (a + b & 0xFFFF) | ((a >> 16) + (b >> 16) & 0xFFFF) << 16),
]  # fmt: skip


@pytest.mark.parametrize(("asm", "model"), INTEGER, ids=[asm[:40] for asm, _ in INTEGER])
def test_integers(asm: str, model: Callable[[int, int, int], int]) -> None:
    a, b, c = numbers(1), numbers(2)[::-1], numbers(3)
    wanted = [model(x, y, z) & M32 for x, y, z in zip(a, b, c, strict=True)]
    assert run(asm, a, b, c) == wanted


# ---- floats: a model by exact fractions


class Format:
    """A binary float format: bits of exponent and mantissa; whether it has infinities."""

    def __init__(self, exponent: int, mantissa: int, finite_only: bool = False):
        self.exponent, self.mantissa, self.finite_only = exponent, mantissa, finite_only
        self.bias = (1 << (exponent - 1)) - 1
        self.bits = 1 + exponent + mantissa
        top = (1 << (self.bits - 1)) - 1
        self.nan = top
        self.largest = top - 1 if finite_only else ((1 << exponent) - 1 << mantissa) - 1
        self.infinity = ((1 << exponent) - 1) << mantissa

    def value(self, bits: int) -> Fraction | float:
        sign = -1 if bits >> (self.bits - 1) else 1
        body = bits & ((1 << (self.bits - 1)) - 1)
        if body > (self.largest if self.finite_only else self.infinity):
            return math.nan
        if body == self.infinity and not self.finite_only:
            return sign * math.inf
        exponent, mantissa = body >> self.mantissa, body & ((1 << self.mantissa) - 1)
        if exponent == 0:
            return sign * Fraction(mantissa) * Fraction(2) ** (1 - self.bias - self.mantissa)
        return sign * Fraction((1 << self.mantissa) + mantissa) * Fraction(2) ** (exponent - self.bias - self.mantissa)

    def nearest(self, value: Fraction | float, negative: bool, mode: str, saturates: bool = False) -> int:
        """Bits of a value rounded by ``mode``, found by bisection over all bit patterns."""
        if isinstance(value, float) and math.isnan(value):
            return self.nan
        sign = (1 << (self.bits - 1)) if negative else 0
        overflow = self.largest if self.finite_only or saturates else self.infinity
        if isinstance(value, float):
            return sign | overflow
        size, low, high = abs(value), 0, self.largest
        while low < high:  # the largest finite pattern that is not above
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.value(middle) <= size else (low, middle - 1)
        below = self.value(low)
        if below == size:
            return sign | low
        above = overflow if low == self.largest else low + 1
        step = 2 * (size - below) - self._gap(low)
        up = {
            "rz": False, "rm": negative, "rp": not negative, "rna": step >= 0,
            "rn": step > 0 or (step == 0 and low % 2 == 1),
        }[mode]  # fmt: skip
        return sign | (above if up else low)

    def _gap(self, low: int) -> Fraction:
        exponent = max(1, low >> self.mantissa)
        return Fraction(2) ** (exponent - self.bias - self.mantissa)


F32, F16, BF16 = Format(8, 23), Format(5, 10), Format(8, 7)
E4M3, E5M2, TF32 = Format(4, 3, finite_only=True), Format(5, 2), Format(8, 10)


def floats(seed: int) -> list[int]:
    rng = random.Random(seed)
    special = [0.0, -0.0, 1.0, -1.0, 65504.0, 65519.9, 65520.0, 448.0, 464.0, 480.0, 57344.0, 61440.0, 1e-8, -1e-8,
               6e-8, 2.0**-24, 2.0**-25, 3 * 2.0**-26, 2.0**-9, 2.0**-10, 2.0**-16, 2.0**-17, 1 + 2.0**-11,
               1 + 3 * 2.0**-11, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 1.0625, 1.1875, math.inf, -math.inf, math.nan, 1e-40,
               -1e-40, 3.4e38, 2.5, -2.5, 0.5, -0.5, 3.5, 2147483647.0, -2147483648.0, 4e9, 1e20]  # fmt: skip
    found = [struct.unpack("<I", struct.pack("<f", value))[0] for value in special]
    while len(found) < COUNT:
        scale = 2.0 ** rng.randint(-30, 20)
        found.append(struct.unpack("<I", struct.pack("<f", rng.uniform(-1, 1) * scale))[0])
    return found


def negative(bits: int) -> bool:
    return bool(bits >> 31)


@pytest.mark.parametrize("mode", ["rn", "rz"])
@pytest.mark.parametrize(("name", "target"), [("f16", F16), ("bf16", BF16)])
def test_packed_conversions_to_halves(name: str, target: Format, mode: str) -> None:
    a, b = floats(1), floats(2)[::-1]
    got = run(f"cvt.{mode}.{name}x2.f32 $0, $1, $2;", a, b, b)
    for bits_a, bits_b, found in zip(a, b, got, strict=True):
        for bits, half in ((bits_a, found >> 16), (bits_b, found & 0xFFFF)):  # the first operand goes to the upper half
            assert half == target.nearest(F32.value(bits), negative(bits), mode), (hex(bits), hex(half))


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_roundings_to_one_half(mode: str) -> None:
    a = floats(3)
    got = run(f"{{ .reg .b16 h; cvt.{mode}.f16.f32 h, $1; cvt.u32.u16 $0, h; }}", a, a, a)
    assert got == [F16.nearest(F32.value(bits), negative(bits), mode) for bits in a]


@pytest.mark.parametrize(("name", "target"), [("e4m3", E4M3), ("e5m2", E5M2)])
def test_conversions_to_fp8_saturate(name: str, target: Format) -> None:
    a, b = floats(4), floats(5)[::-1]
    asm = f"{{ .reg .b16 h; cvt.rn.satfinite.{name}x2.f32 h, $1, $2; cvt.u32.u16 $0, h; }}"
    for bits_a, bits_b, found in zip(a, b, run(asm, a, b, b), strict=True):
        for bits, byte in ((bits_a, found >> 8), (bits_b, found & 255)):
            assert byte == target.nearest(F32.value(bits), negative(bits), "rn", saturates=True), (hex(bits), hex(byte))


@pytest.mark.parametrize(("name", "source"), [("e4m3", E4M3), ("e5m2", E5M2)])
def test_fp8_to_halves_is_exact(name: str, source: Format) -> None:
    a = [k | (255 - k) << 8 for k in range(256)]
    got = run(f"{{ .reg .b16 h; cvt.u16.u32 h, $1; cvt.rn.f16x2.{name}x2 $0, h; }}", a, a, a)
    for bits, found in zip(a, got, strict=True):
        for byte, half in ((bits & 255, found & 0xFFFF), (bits >> 8, found >> 16)):
            assert half == F16.nearest(source.value(byte), bool(byte >> 7), "rn")


@pytest.mark.parametrize("mode", ["rna", "rn"])
def test_tf32(mode: str) -> None:
    a = floats(6)
    for bits, found in zip(a, run(f"cvt.{mode}.tf32.f32 $0, $1;", a, a, a), strict=True):
        value = F32.value(bits)
        assert found == (0x7FFFFFFF if value != value else TF32.nearest(value, negative(bits), mode) << 13)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("name", ["add", "mul", "fma"])
def test_arithmetic_in_all_roundings(name: str, mode: str) -> None:
    a, b, c = floats(7), floats(8)[::-1], floats(9)[::-1]
    b = b[5:] + b[:5]
    operands = "$1, $2, $3" if name == "fma" else "$1, $2"
    for x, y, z, found in zip(a, b, c, run(f"{name}.{mode}.f32 $0, {operands};", a, b, c), strict=True):
        values = [F32.value(bits) for bits in (x, y, z)]
        if any(isinstance(value, float) for value in values):
            continue  # infinities and NaN: below
        p, q, r = values
        exact = p + q if name == "add" else p * q if name == "mul" else p * q + r
        if exact == 0:
            continue  # the sign of zero: below
        assert found == F32.nearest(exact, exact < 0, mode), (hex(x), hex(y), hex(z), hex(found))


@pytest.mark.parametrize(("name", "target"), [("f16", F16), ("bf16", BF16)])
def test_packed_arithmetic(name: str, target: Format) -> None:
    rng = random.Random(10)
    a, b, c = ([rng.getrandbits(32) & 0x3FFF3FFF | 0x20002000 for _ in range(COUNT)] for _ in range(3))
    got = run(f"fma.rn.{name}x2 $0, $1, $2, $3;", a, b, c)
    for x, y, z, found in zip(a, b, c, got, strict=True):
        for shift in (0, 16):
            p, q, r = (target.value(bits >> shift & 0xFFFF) for bits in (x, y, z))
            assert found >> shift & 0xFFFF == target.nearest(p * q + r, False, "rn")


def bits_of(*values: float) -> list[int]:
    return [struct.unpack("<I", struct.pack("<f", value))[0] for value in values]


def test_special_values() -> None:
    nan, inf, tiny = math.nan, math.inf, 2.0**-130
    a = bits_of(nan, 1.0, nan, -0.0, 0.0, inf, -tiny, 2.0)
    b = bits_of(1.0, nan, nan, 0.0, -0.0, -inf, tiny, -3.0)
    assert run("min.f32 $0, $1, $2;", a, b, b) == [
        *bits_of(1.0, 1.0),
        0x7FFFFFFF,
        *bits_of(-0.0, -0.0, -inf, -tiny, -3.0),
    ]
    assert run("max.NaN.f32 $0, $1, $2;", a, b, b) == [*[0x7FFFFFFF] * 3, *bits_of(0.0, 0.0, inf, tiny, 2.0)]
    assert run("max.ftz.f32 $0, $1, $2;", a, b, b)[6] == 0
    assert run("add.rn.f32 $0, $1, $2;", a, b, b)[5] == 0x7FFFFFFF  # the canonical NaN
    assert run("add.rm.f32 $0, $1, $2;", bits_of(1.0, 0.0), bits_of(-1.0, 0.0), [0] * 2) == bits_of(-0.0, 0.0)
    assert run("mul.rn.ftz.f32 $0, $1, $2;", bits_of(tiny), bits_of(2.0), bits_of(0)) == [0]
    assert run("mul.rn.f32 $0, $1, $2;", bits_of(tiny), bits_of(2.0), bits_of(0)) == bits_of(2 * tiny)
    assert run(
        "add.sat.f32 $0, $1, $2;", bits_of(0.75, -1.0, nan, 0.25), bits_of(0.5, 0.5, 0.0, 0.5), [0] * 4
    ) == bits_of(1.0, 0.0, 0.0, 0.75)
    assert run("abs.f32 $0, $1;", bits_of(-0.0, -2.5), [0] * 2, [0] * 2) == bits_of(0.0, 2.5)
    assert run("copysign.f32 $0, $1, $2;", bits_of(-1.0, 1.0), bits_of(3.0, -4.0), [0] * 2) == bits_of(-3.0, 4.0)
    asm = "{ .reg .pred p; setp.ltu.f32 p, $1, $2; selp.u32 $0, 1, 0, p; }"
    assert run(asm, bits_of(nan, 1.0, 2.0, -0.0), bits_of(1.0, 2.0, 1.0, 0.0), [0] * 4) == [1, 1, 0, 0]


@pytest.mark.parametrize(
    ("asm", "model"),
    [
        ("cvt.rzi.s32.f32 $0, $1;", lambda v: math.trunc(v)),
        ("cvt.rni.s32.f32 $0, $1;", lambda v: round(v)),
        ("cvt.rmi.s32.f32 $0, $1;", lambda v: math.floor(v)),
        ("cvt.rpi.s32.f32 $0, $1;", lambda v: math.ceil(v)),
    ],
)
def test_floats_to_integers_saturate(asm: str, model: Callable[[Any], int]) -> None:
    a = floats(11)
    for bits, found in zip(a, run(asm, a, a, a), strict=True):
        value = F32.value(bits)
        if isinstance(value, float):
            wanted = 0 if math.isnan(value) else (1 << 31) - 1 if value > 0 else -(1 << 31)
        else:
            wanted = max(-(1 << 31), min((1 << 31) - 1, model(value)))
        assert found == wanted & M32


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_integers_to_floats(mode: str) -> None:
    a = numbers(12)
    assert run(f"cvt.{mode}.f32.s32 $0, $1;", a, a, a) == [
        F32.nearest(Fraction(signed(v)), signed(v) < 0, mode) for v in a
    ]


@pytest.mark.parametrize(
    ("asm", "function", "bound"),
    [
        ("ex2.approx.ftz.f32", lambda v: 2.0**v, 2.0**-22),
        ("lg2.approx.f32", lambda v: math.log2(abs(v)), 2.0**-22),
        ("rcp.approx.ftz.f32", lambda v: 1 / v, 2.0**-23),
        ("rsqrt.approx.f32", lambda v: abs(v) ** -0.5, 2.0**-22.4),
        ("sqrt.rn.f32", lambda v: abs(v) ** 0.5, 2.0**-24),
        ("sin.approx.f32", lambda v: math.sin(v), 2.0**-20.5),
        ("cos.approx.f32", lambda v: math.cos(v), 2.0**-20.5),
        ("tanh.approx.f32", lambda v: math.tanh(v), 2.0**-11),
    ],
)
def test_functions_are_within_what_ptx_promises(asm: str, function: Callable[[float], float], bound: float) -> None:
    rng = random.Random(13)
    values = [rng.uniform(-3, 3) for _ in range(COUNT)]
    if asm.startswith(("lg2", "rsqrt", "sqrt")):
        values = [abs(value) + 1e-3 for value in values]
    a = bits_of(*values)
    off = []
    for bits, found in zip(a, run(f"{asm} $0, $1;", a, a, a), strict=True):
        exact = function(struct.unpack("<f", struct.pack("<I", bits))[0])
        got = struct.unpack("<f", struct.pack("<I", found))[0]
        off.append(abs(got - exact) / max(abs(exact), 0.25 if asm[:3] in ("sin", "cos", "lg2") else 0.0))
    assert max(off) <= bound and (max(off) > bound / 2 or bound < 2.0**-20), "and no better, where fp32 would tell"


# ---- elements in registers


@triton.jit
def two_results(x, y, first, second, BLOCK: tl.constexpr, PACK: tl.constexpr, ASM: tl.constexpr, HOW: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a, b = tl.load(x + at), tl.load(y + at)
    p, q = tl.inline_asm_elementwise(ASM, HOW, [a, b], (tl.int32, tl.float32), True, PACK)
    tl.store(first + at, p)
    tl.store(second + at, q)


@pytest.mark.parametrize("count", [4, 16, 64, 512])
def test_four_bytes_share_a_register_and_results_are_several(count: int) -> None:
    asm = """{
        .reg .b8 t<4>;   // as in Triton's documentation
        mov.b32 {t0, t1, t2, t3}, $8;
        cvt.u32.u8 $0, t0; cvt.u32.u8 $1, t1; cvt.u32.u8 $2, t2; cvt.u32.u8 $3, t3;
        cvt.rn.f32.u32 $4, $0; cvt.rn.f32.u32 $5, $1; cvt.rn.f32.u32 $6, $2; cvt.rn.f32.u32 $7, $3;
        max.f32 $4, $4, $9; max.f32 $5, $5, $10; max.f32 $6, $6, $11; max.f32 $7, $7, $12;
    }"""
    constraints = "=r,=r,=r,=r,=f,=f,=f,=f,r,f,f,f,f"
    x, y = torch.randint(0, 256, (count,), dtype=torch.uint8), 255 * torch.rand(count)
    results = torch.zeros(count, dtype=torch.int32), torch.zeros(count)
    (_, _, first, second), _ = launch(two_results, (1,), x, y, *results, count, 4, asm, constraints)
    assert first.tolist() == x.tolist()
    assert torch.equal(second, torch.maximum(x.float(), y))


@triton.jit
def on_halves(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr, ASM: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    value = tl.inline_asm_elementwise(ASM, "=r,r", [tl.load(x + at)], tl.float16, True, 2)
    tl.store(out + at, tl.trans(tl.trans(value) + 0.0))


def test_halves_pair_by_pair_in_two_dimensions() -> None:
    x = torch.randn(8, 32).half()
    (_, out), _ = launch(on_halves, (1,), x, torch.zeros_like(x), 8, 32, "mul.rn.f16x2 $0, $1, $1;")
    assert torch.equal(out, (x.float() ** 2).half())


@triton.jit
def through_e4b15(x, out, back, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at).to(tl.float8e4b15, bitcast=True).to(tl.float16)
    tl.store(out + at, value.to(tl.float32))
    tl.store(back + at, value.to(tl.float8e4b15).to(tl.uint8, bitcast=True))


@pytest.mark.parametrize("gpu", ["h100", "a100"])
def test_fp8e4b15(gpu: str) -> None:
    form = Format(4, 3)  # without infinities and NaN; bias 15
    wanted = []
    for bits in range(256):
        exponent, mantissa, sign = bits >> 3 & 15, bits & 7, -1 if bits >> 7 else 1
        wanted.append(sign * (mantissa * 2.0**-17 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 18)))
    x = torch.arange(256, dtype=torch.uint8)
    (_, out, back), _ = launch(through_e4b15, (1,), x, torch.zeros(256), torch.zeros_like(x), 256, gpu=gpu)
    assert out.tolist() == wanted
    kept = [bits for bits in range(256) if bits & 127 < 126]  # the largest two are cut to 1.75
    assert [back.tolist()[bits] for bits in kept] == kept
    assert form.bits == 8


# ---- programs


@triton.jit
def dependent(x, BLOCK: tl.constexpr):
    tl.extra.cuda.gdc_wait()
    tl.store(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), 1.0)
    tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def where_and_when(where, when):
    pid = tl.program_id(0)
    start = tl.extra.cuda.globaltimer()
    tl.store(where + pid, tl.extra.cuda.smid())
    tl.store(when + 2 * pid, start)
    tl.store(when + 2 * pid + 1, tl.extra.cuda.globaltimer())


def test_programmatic_dependent_launch_and_special_registers(dev: sim.SimDevice) -> None:
    x = torch.zeros(64, device="cuda")
    dependent[(4,)](x, BLOCK=16, launch_pdl=True)
    assert x.sum().item() == 64
    where = torch.full((200,), -1, dtype=torch.int32, device="cuda")
    when = torch.zeros(400, dtype=torch.int64, device="cuda")
    where_and_when[(200,)](where, when)
    assert where.tolist() == [k % dev.spec.sm_count for k in range(200)]
    times = when.tolist()
    assert times == sorted(set(times))
    again = torch.zeros(400, dtype=torch.int64, device="cuda")
    where_and_when[(200,)](where, again)
    assert again.tolist() == times  # a clock tells the order, never how long the simulation takes


def test_a_clock_never_stands_still_or_goes_back_within_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr(executor, "_WORTH_THREADS", 0.0)
    programs = 5000  # so many that a part of them is examined and the rest not
    with sim.device("h100"):
        where, when = (
            torch.zeros(programs, dtype=torch.int32).cuda(),
            torch.zeros(2 * programs, dtype=torch.int64).cuda(),
        )
        where_and_when[(programs,)](where, when)
        times = when.view(programs, 2).cpu()
    assert (times[:, 0] < times[:, 1]).all() and len(times.unique()) == 2 * programs


def test_numbers_in_all_bases_of_ptx() -> None:
    a = numbers(3)
    for text, value in (("0b1011", 11), ("0B1011U", 11), ("0x1f", 31), ("017", 15), ("9", 9)):
        assert run(f"and.b32 $0, $1, {text};", a, a, a) == [x & value for x in a]


@pytest.mark.parametrize(
    "asm",
    [
        "ld.global.u32 $0, [$1];",
        "st.global.b32 [$1], $2;",
        "frobnicate.u32 $0, $1;",
        "bra done; done:",
        "mov.u32 $0, %tid.x;",
        "add.u32 $0, $1;",
        "add.u32 $0, $1, $9;",
        "add.s32 $0, $1, nowhere;",
        "cvt.f16.f32.u9 $0, $1;",
        "@p mov.u32 $0, $1;",
        "mov.b64 $0, $1;",
        "atom.global.add.u32 $0, [$1], 1;",
        "trap;",
        ".shared .b32 s[4];",
        "lop3.b32 $0, $1, $2, $3, many;",
    ],
)
def test_what_is_unknown_is_refused_with_its_text(asm: str) -> None:
    with pytest.raises(UnsupportedTTIR, match=r"inline assembly") as refused:
        run(asm, [1], [2], [3])
    assert " ".join(asm.split())[:12] in str(refused.value)


def test_assembly_is_priced_by_its_instructions() -> None:
    text = "{ .reg .b32 t; add.u32 t, $1, 1; // add more; mul\n ex2.approx.f32 $0, t; fma.rn.f16x2 t, t, t, t; }"
    assert operations(text) == {"int": 1, "sfu": 1, "fp16": 2}
    assert operations("griddepcontrol.wait; // dummy $0") == {}
    assert operations("div.rn.f64 $0, $1, $2; rem.s64 $0, $1, $2;", assembled) == {"fp64": 22, "int": 90}
    assert operations("rcp.approx.f32 $0, $1; sqrt.rn.f32 $0, $1;", assembled) == {"fp32": 5, "sfu": 2}
    assert [s.text for s in read_ptx("{ mov.b32 {a, b}, $1; }").statements] == ["mov.b32 {a, b}, $1"]
    size = 1 << 14

    def seconds(asm: str) -> float:
        given = [torch.zeros(size, dtype=torch.int32)] * 3
        return launch(on_three, (1,), *given, fresh(size, dtype=torch.int32), asm, "=r,r,r,r", size)[1].seconds[0]

    assert seconds("xor.b32 $0, $1, $2;" * 400) > 2 * seconds("xor.b32 $0, $1, $2;")
