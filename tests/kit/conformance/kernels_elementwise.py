"""Loads, stores, masks, arithmetic, casts and mathematical functions, element by element."""

from collections.abc import Callable, Iterator

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from conformance_cases import Check, case, randint, randn


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)


@case()
def add_masked(device: str) -> Iterator[Check]:
    for dtype in (torch.float32, torch.float16, torch.float64, torch.int8, torch.int16, torch.int32, torch.int64):
        x, y = (randn(1000, seed=s).mul(50).to(dtype) for s in (0, 1))
        out = torch.zeros(1000, dtype=dtype, device=device)
        add_kernel[(triton.cdiv(1000, 256),)](x.to(device), y.to(device), out, 1000, BLOCK=256)
        yield Check(str(dtype), out.cpu(), x + y)


@triton.jit
def strided_kernel(x, out, rows, cols, stride_r, stride_c, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    mask = (r[:, None] < rows) & (c[None, :] < cols)
    value = tl.load(x + r[:, None] * stride_r + c[None, :] * stride_c, mask=mask, other=0.0)
    tl.store(out + r[:, None] * cols + c[None, :], value * 2, mask=mask)


@triton.jit
def indirect_kernel(x, index, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    at = tl.load(index + offsets, mask=mask, other=0)
    tl.store(out + at, tl.load(x + offsets, mask=mask), mask=mask)


@case()
def scatter_by_index(device: str) -> Iterator[Check]:
    for dtype in (torch.float32, torch.float16, torch.int8, torch.float64):
        x = randn(300).mul(20).to(dtype)
        index = torch.randperm(300, generator=torch.Generator().manual_seed(3))
        out = torch.zeros(300, dtype=dtype, device=device)
        indirect_kernel[(5,)](x.to(device), index.to(device), out, 300, BLOCK=64)
        want = torch.zeros(300, dtype=dtype)
        want[index] = x
        yield Check(str(dtype), out.cpu(), want)


@triton.jit
def scalar_kernel(x, out, scale, shift, flag, n):
    pid = tl.program_id(0)
    value = tl.load(x + pid)
    if flag:
        value = value * scale
    else:
        value = value - scale
    tl.store(out + pid, value + shift)


@case(interpreter=False)  # the interpreter cannot take a bool argument
def scalar_programs(device: str) -> Iterator[Check]:
    x = randn(17)
    for flag in (True, False):
        out = torch.empty(17, device=device)
        scalar_kernel[(17,)](x.to(device), out, 3.25, -2, flag, 17)
        yield Check(f"flag={flag}", out.cpu(), (x * 3.25 if flag else x - 3.25) - 2)


@triton.jit
def integer_kernel(a, b, out, n, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    x, y = tl.load(a + k), tl.load(b + k)
    safe = tl.where(y == 0, 1, y)
    tl.store(out + k, x // safe)
    tl.store(out + n + k, x % safe)
    tl.store(out + 2 * n + k, x & y)
    tl.store(out + 3 * n + k, x | y)
    tl.store(out + 4 * n + k, x ^ y)
    tl.store(out + 5 * n + k, x << (y & 7))
    tl.store(out + 6 * n + k, x >> (y & 7))
    tl.store(out + 7 * n + k, x * y)
    tl.store(out + 8 * n + k, -x)
    tl.store(out + 9 * n + k, ~x)
    tl.store(out + 10 * n + k, tl.abs(x))
    tl.store(out + 11 * n + k, tl.minimum(x, y))
    tl.store(out + 12 * n + k, tl.maximum(x, y))
    tl.store(out + 13 * n + k, (x > y).to(x.dtype))


def _truncated(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    quotient = torch.div(x, y, rounding_mode="trunc")
    return quotient, x - quotient * y


@case()
def integer_arithmetic(device: str) -> Iterator[Check]:
    n = 128
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
        info = torch.iinfo(dtype)
        top = min(info.max, 1 << 62)
        x = torch.randint(-top, top, (n,), generator=torch.Generator().manual_seed(0), dtype=torch.int64).to(dtype)
        y = randint(-100, 100, (n,), seed=1, dtype=dtype)
        out = torch.zeros(14 * n, dtype=dtype, device=device)
        integer_kernel[(1,)](x.to(device), y.to(device), out, n, BLOCK=n)
        safe = torch.where(y == 0, 1, y).to(dtype)
        quotient, rest = _truncated(x, safe)
        rows = [quotient, rest, x & y, x | y, x ^ y, x << (y & 7), x >> (y & 7), x * y, -x, ~x, x.abs(),
                torch.minimum(x, y), torch.maximum(x, y), (x > y)]  # fmt: skip
        for k, want in enumerate(rows):
            yield Check(f"{dtype} row {k}", out[k * n : (k + 1) * n].cpu(), want.to(dtype))


@triton.jit
def unsigned_kernel(a, b, out, n, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    x = tl.load(a + k).to(tl.uint32, bitcast=True)
    y = tl.load(b + k).to(tl.uint32, bitcast=True) | 1
    tl.store(out + k, (x // y).to(tl.int32, bitcast=True))
    tl.store(out + n + k, (x % y).to(tl.int32, bitcast=True))
    tl.store(out + 2 * n + k, (x >> 3).to(tl.int32, bitcast=True))
    tl.store(out + 3 * n + k, tl.maximum(x, y).to(tl.int32, bitcast=True))
    tl.store(out + 4 * n + k, tl.umulhi(x, y).to(tl.int32, bitcast=True))
    tl.store(out + 5 * n + k, (x < y).to(tl.int32))


@case()
def unsigned_arithmetic(device: str) -> Iterator[Check]:
    n = 64
    x = randint(-(1 << 31), (1 << 31) - 1, (n,), dtype=torch.int64).to(torch.int32)
    y = randint(-(1 << 31), (1 << 31) - 1, (n,), seed=1, dtype=torch.int64).to(torch.int32)
    out = torch.zeros(6 * n, dtype=torch.int32, device=device)
    unsigned_kernel[(1,)](x.to(device), y.to(device), out, n, BLOCK=n)
    a, b = (v.tolist() for v in (x, y))
    a, b = [v & 0xFFFFFFFF for v in a], [v & 0xFFFFFFFF | 1 for v in b]
    pairs = list(zip(a, b, strict=True))
    rows = [
        [p // q for p, q in pairs], [p % q for p, q in pairs], [p >> 3 for p in a], [max(p, q) for p, q in pairs],
        [p * q >> 32 for p, q in pairs], [int(p < q) for p, q in pairs],
    ]  # fmt: skip
    want = torch.tensor(rows, dtype=torch.int64)
    want = torch.where(want >= 1 << 31, want - (1 << 32), want)
    yield Check("uint32", out.view(6, n).cpu(), want)


@triton.jit
def wide_shift_kernel(a, s, out, n, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    x, by = tl.load(a + k), tl.load(s + k)
    tl.store(out + k, x * (1 << 20) + by)
    tl.store(out + n + k, (x.to(tl.int64) << 33) >> 33)


@case()
def int64_offsets(device: str) -> Iterator[Check]:
    n = 64
    x, s = randint(0, 1 << 20, (n,), dtype=torch.int64), randint(0, 31, (n,), seed=1, dtype=torch.int64)
    out = torch.zeros(2 * n, dtype=torch.int64, device=device)
    wide_shift_kernel[(1,)](x.to(device), s.to(device), out, n, BLOCK=n)
    yield Check("int64", out.view(2, n).cpu(), torch.stack([x * (1 << 20) + s, (x << 33) >> 33]))


@triton.jit
def float_compare_kernel(a, b, out, n, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    x, y = tl.load(a + k), tl.load(b + k)
    tl.store(out + k, (x < y).to(tl.int32))
    tl.store(out + n + k, (x <= y).to(tl.int32))
    tl.store(out + 2 * n + k, (x == y).to(tl.int32))
    tl.store(out + 3 * n + k, (x != y).to(tl.int32))
    tl.store(out + 4 * n + k, ((x > y) | (x != x)).to(tl.int32))
    tl.store(out + 5 * n + k, (not (x >= y)).to(tl.int32))


@case(interpreter=False)  # the interpreter has no `not` of a block
def float_compare(device: str) -> Iterator[Check]:
    special = torch.tensor([0.0, -0.0, 1.0, float("inf"), -float("inf"), float("nan"), 2.5, -1.0])
    x, y = special.repeat_interleave(8), special.repeat(8)
    out = torch.zeros(6 * 64, dtype=torch.int32, device=device)
    float_compare_kernel[(1,)](x.to(device), y.to(device), out, 64, BLOCK=64)
    want = torch.stack([x < y, x <= y, x == y, x != y, (x > y) | x.isnan(), ~(x >= y)])
    yield Check("compare", out.view(6, 64).cpu(), want)


@triton.jit
def extrema_kernel(a, b, out, n, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    x, y = tl.load(a + k), tl.load(b + k)
    tl.store(out + k, tl.minimum(x, y))
    tl.store(out + n + k, tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out + 2 * n + k, tl.clamp(x, -1.0, 1.0))
    tl.store(out + 3 * n + k, tl.where(x > 0, x, y * 0.5))


@case(interpreter=False)  # the interpreter's minimum propagates NaN
def float_extrema(device: str) -> Iterator[Check]:
    special = torch.tensor([0.5, -0.5, 1.0, 7.0, -9.0, float("nan"), 2.5, -1.0])
    x, y = special.repeat_interleave(8), special.repeat(8)
    out = torch.zeros(4 * 64, device=device)
    extrema_kernel[(1,)](x.to(device), y.to(device), out, 64, BLOCK=64)
    clamped = torch.where(x.isnan(), torch.tensor(-1.0), x.clamp(-1, 1))  # propagate_nan=NONE: the bound wins
    want = torch.stack([torch.fmin(x, y), torch.maximum(x, y), clamped, torch.where(x > 0, x, y * 0.5)])
    got = out.view(4, 64).cpu()
    yield Check("min", got[0], want[0])
    yield Check("max, NaN propagates", got[1], want[1])
    defined = ~x.isnan()
    yield Check("clamp", got[2][defined], want[2][defined])
    yield Check("where", got[3], want[3])


@triton.jit
def unary_kernel(x, out, n, NAME: tl.constexpr, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = k < n
    tl.store(out + k, getattr(tl, NAME)(tl.load(x + k, mask=mask, other=1.0)), mask=mask)


_UNARY = {
    "exp": torch.exp, "exp2": torch.exp2, "log": torch.log, "log2": torch.log2, "sin": torch.sin, "cos": torch.cos,
    "sqrt": torch.sqrt, "sqrt_rn": torch.sqrt, "rsqrt": torch.rsqrt, "erf": torch.erf, "sigmoid": torch.sigmoid,
    "floor": torch.floor, "ceil": torch.ceil, "abs": torch.abs,
}  # fmt: skip
_POSITIVE = ("log", "log2", "sqrt", "sqrt_rn", "rsqrt")
_EXACT = ("floor", "ceil", "abs", "sqrt_rn")


@case()
def math_functions(device: str) -> Iterator[Check]:
    x = torch.cat([randn(700), randn(200, seed=1) * 20, randn(120, seed=2) * 1e-3])
    edge = torch.tensor([0.0, -0.0, 1.0, -1.0, 88.0, -87.0, 1e-30, 100.0])
    values = torch.cat([x, edge])
    for name, reference in _UNARY.items():
        inputs = values.abs() if name in _POSITIVE else values
        if name in ("exp", "exp2"):
            inputs = inputs.clamp(-80, 80)
        out = torch.empty(inputs.shape, dtype=inputs.dtype, device=device)
        unary_kernel[(triton.cdiv(len(inputs), 256),)](inputs.to(device), out, len(inputs), NAME=name, BLOCK=256)
        want = reference(inputs.double())
        if name in _EXACT:
            yield Check(name, out.cpu(), want.float())
        else:
            yield Check(name, out.cpu(), want, rtol=4e-7, atol=2e-7 if name in ("sin", "cos", "log", "log2") else 1e-38)


@case(interpreter=False)
def math_functions_f64(device: str) -> Iterator[Check]:
    values = torch.cat([randn(250).double() * 3, torch.tensor([0.0, 1.0, -1.0, 30.0, -30.0, 1e-3])])
    for name in ("exp", "log", "sin", "rsqrt", "erf", "sigmoid"):
        inputs = values.abs() + 1e-3 if name in _POSITIVE else values
        out = torch.empty(inputs.shape, dtype=inputs.dtype, device=device)
        unary_kernel[(1,)](inputs.to(device), out, len(inputs), NAME=name, BLOCK=256)
        yield Check(name, out.cpu(), _UNARY[name](inputs), rtol=1e-14, atol=1e-14)


@triton.jit
def libdevice_kernel(x, y, z, out, NAME: tl.constexpr, OPERANDS: tl.constexpr, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    a, b, c = tl.load(x + k), tl.load(y + k), tl.load(z + k)
    if OPERANDS == 1:
        value = getattr(libdevice, NAME)(a)
    elif OPERANDS == 2:
        value = getattr(libdevice, NAME)(a, b)
    else:
        value = getattr(libdevice, NAME)(a, b, c)
    tl.store(out + k, value.to(tl.float32))


def _bits(function: Callable[[int], int]) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function of the 32 bits of each integer."""
    return lambda x: torch.tensor([function(int(v) & 0xFFFFFFFF) for v in x.tolist()])


_X, _Y = randn(128), randn(128, seed=1)
_INTEGERS = (_X * 1000).int()
_LIBDEVICE: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]] = {
    **{name: (getattr(torch, name), (_X,)) for name in (
        "tanh", "expm1", "erf", "erfc", "atan", "sinh", "cosh", "tan", "lgamma", "isnan", "signbit")},
    **{name: (getattr(torch, name), (_X.abs(),)) for name in ("log1p", "log10", "rsqrt")},
    **{name: (getattr(torch, name), (_X / 8,)) for name in ("asin", "acos", "erfinv")},
    **{name: (getattr(torch, name), (_X, _Y)) for name in ("atan2", "copysign", "hypot")},
    **{name: (torch.div, (_X, _Y)) for name in ("fast_dividef", "div_rn")},
    **{name: (torch.round, (_X * 3,)) for name in ("rint", "nearbyint")},
    "trunc": (torch.trunc, (_X * 3,)), "float2int_rn": (torch.round, (_X * 10,)),
    "round": (lambda x: x.sign() * (x.abs() + 0.5).floor(), (_X * 4,)),
    "pow": (torch.pow, (_X.abs(), _Y)), "fast_expf": (torch.exp, (_X,)), "exp10": (lambda x: 10**x, (_X,)),
    "cbrt": (lambda x: x.sign() * x.abs() ** (1 / 3), (_X,)),
    "rcbrt": (lambda x: x.sign() * x.abs() ** (-1 / 3), (_X,)),
    "fma": (lambda x, y, z: x * y + z, (_X, _Y, _X)), "isinf": (torch.isinf, (_X / 0.0,)),
    "ffs": (_bits(lambda v: (v & -v).bit_length()), (_INTEGERS,)), "popc": (_bits(int.bit_count), (_INTEGERS,)),
    "clz": (_bits(lambda v: 32 - v.bit_length()), (_INTEGERS,)), "sinpi": (lambda x: (x * torch.pi).sin(), (_X,)),
    "normcdf": (torch.special.ndtr, (_X,)), "j0": (torch.special.bessel_j0, (_X,)),
    "ldexp": (lambda x, y: x * 2.0 ** y.double(), (_X, (_Y * 3).int())), "saturatef": (lambda x: x.clamp(0, 1), (_X,)),
}  # fmt: skip


@case(interpreter=False)
def libdevice_functions(device: str) -> Iterator[Check]:
    for name, (reference, operands) in _LIBDEVICE.items():
        out = torch.empty(128, device=device)
        given = [operand.to(device) for operand in (*operands, _X, _X)[:3]]
        libdevice_kernel[(1,)](*given, out, NAME=name, OPERANDS=len(operands), BLOCK=128)
        want = reference(*(x.double() if x.is_floating_point() else x for x in operands)).double()
        atol = 3e-6 if name in ("lgamma", "sinpi", "j0", "erfinv") else 3e-7
        yield Check(name, out.cpu(), want, rtol=3e-6 if name in ("pow", "exp10", "fast_expf") else 1e-6, atol=atol)


@triton.jit
def hash_kernel(x, out, factor, BLOCK: tl.constexpr):
    """Products of 32 bits wrap before they are widened, also where every operand is a range."""
    k = tl.arange(0, BLOCK)
    tl.store(out + k, (k * 0x3779B9B1).to(tl.int64))
    tl.store(out + BLOCK + k, (k * factor).to(tl.int64) + 1)
    h = tl.load(x + k).to(tl.uint32, bitcast=True)
    h ^= h >> 16
    h *= 0x85EBCA6B
    h ^= h >> 13
    tl.store(out + 2 * BLOCK + k, h.to(tl.int64))
    tl.store(out + 3 * BLOCK + k, (h % 1000).to(tl.int64) + (h // 7).to(tl.int64))


@case(interpreter=False)
def hashes_wrap(device: str) -> Iterator[Check]:
    def wrapped(value: torch.Tensor) -> torch.Tensor:
        return value.to(torch.int32).to(torch.int64)

    k, x = torch.arange(64), randint(-(2**31), 2**31 - 1, (64,))
    out = torch.zeros(4, 64, dtype=torch.int64, device=device)
    hash_kernel[(1,)](x.to(device), out, 0x3779B9B3, BLOCK=64)
    h = x.to(torch.int64) & 0xFFFFFFFF
    h ^= h >> 16
    h = (h * 0x85EBCA6B) & 0xFFFFFFFF
    h ^= h >> 13
    want = torch.stack([wrapped(k * 0x3779B9B1), wrapped(k * 0x3779B9B3) + 1, h, h % 1000 + h // 7])
    yield Check("hashes", out.cpu(), want)
