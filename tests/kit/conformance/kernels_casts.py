"""Conversions between element types, and arithmetic that rounds after every operation."""

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from conformance_cases import Check, case, randint, randn


@triton.jit
def cast_kernel(x, out, n, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + k, mask=k < n)
    tl.store(out + k, value.to(out.dtype.element_ty), mask=k < n)


def _cast(x: torch.Tensor, dtype: torch.dtype, device: str) -> torch.Tensor:
    out = torch.zeros(x.shape, dtype=dtype, device=device)
    cast_kernel[(triton.cdiv(x.numel(), 512),)](x.to(device), out, x.numel(), BLOCK=512)
    return out.cpu()


def _hard_floats() -> torch.Tensor:
    """Values at and between the representable ones of narrow formats, with subnormals, both zeros and infinities."""
    wide = randn(600) * torch.tensor(2.0) ** randint(-28, 18, (600,), seed=1).float()
    halves = torch.arange(0, 256).float() / 16 + 1.03125  # ties of small formats
    tiny = torch.tensor([2.0**-k for k in range(5, 30)])
    edge = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 65504.0, 65519.0, 65520.0, 3e38, 1.0])
    return torch.cat([wide, halves, -halves, tiny, 1.5 * tiny, edge])


@case(interpreter=False)
def cast_f32_to_narrow(device: str) -> Iterator[Check]:
    x = _hard_floats()
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        yield Check(str(dtype), _cast(x, dtype, device), x.to(dtype))


@case(interpreter=False)
def cast_f64_to_narrow(device: str) -> Iterator[Check]:
    x = randn(500).double() * 2.0 ** randint(-20, 15, (500,), seed=4).double()
    for dtype in (torch.float32, torch.float16):
        yield Check(str(dtype), _cast(x, dtype, device), x.to(dtype))


@case(interpreter=False)
def cast_to_fp8(device: str) -> Iterator[Check]:
    """Nearest even; beyond the largest value Triton's conversions saturate, NaN stays NaN."""
    x = _hard_floats()
    for dtype, largest in ((torch.float8_e4m3fn, 448.0), (torch.float8_e5m2, 57344.0)):
        saturated = torch.where(x.isnan(), x, x.clamp(-largest, largest))
        for source in (torch.float32, torch.float16, torch.bfloat16):
            values = saturated.to(source)
            values = torch.where(values.isnan(), values, values.clamp(-largest, largest))
            got = _cast(values, dtype, device)
            yield Check(f"{source} -> {dtype}", got.float(), values.float().to(dtype).float())


@case(interpreter=False)
def cast_from_fp8(device: str) -> Iterator[Check]:
    codes = torch.arange(256, dtype=torch.int16).to(torch.uint8)
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        x = codes.view(dtype)
        for target in (torch.float32, torch.float16, torch.bfloat16):
            yield Check(f"{dtype} -> {target}", _cast(x, target, device), x.float().to(target))


@case()
def cast_between_integers(device: str) -> Iterator[Check]:
    x = torch.randint(-(1 << 40), 1 << 40, (500,), generator=torch.Generator().manual_seed(0), dtype=torch.int64)
    for dtype in (torch.int8, torch.int16, torch.int32, torch.uint8):
        narrow = _cast(x, dtype, device)
        yield Check(f"int64 -> {dtype}", narrow, x.to(dtype))
        yield Check(f"{dtype} -> int64", _cast(narrow, torch.int64, device), narrow.to(torch.int64))
        yield Check(f"{dtype} -> float32", _cast(narrow, torch.float32, device), narrow.float())


@case()
def cast_float_to_integer(device: str) -> Iterator[Check]:
    x = randn(500).clamp(-4, 4) * 31
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
        yield Check(str(dtype), _cast(x, dtype, device), x.to(dtype))


@case(interpreter=False)
def cast_integer_to_half(device: str) -> Iterator[Check]:
    x = randint(-(1 << 16), 1 << 16, (500,))
    for dtype in (torch.float16, torch.bfloat16):
        yield Check(str(dtype), _cast(x, dtype, device), x.to(dtype))


@case()
def cast_bool(device: str) -> Iterator[Check]:
    x = randn(300) > 0
    yield Check("bool -> float", _cast(x, torch.float32, device), x.float())
    yield Check("bool -> bool", _cast(x, torch.bool, device), x)
    yield Check("float -> bool", _cast(x.float() * 0.25, torch.bool, device), x)


@triton.jit
def bitcast_kernel(x, out, back, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    bits = tl.load(x + k).to(tl.int32, bitcast=True)
    tl.store(out + k, bits)
    tl.store(back + k, (bits ^ -2147483648).to(tl.float32, bitcast=True))


@case()
def bitcasts(device: str) -> Iterator[Check]:
    x = randn(64)
    out, back = torch.empty(64, dtype=torch.int32, device=device), torch.empty(64, device=device)
    bitcast_kernel[(1,)](x.to(device), out, back, BLOCK=64)
    yield Check("bits", out.cpu(), x.view(torch.int32))
    yield Check("negated", back.cpu(), -x)


@triton.jit
def half_bits_kernel(x, out, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    tl.store(out + k, tl.load(x + k).to(tl.int16, bitcast=True))


@case(interpreter=False)
def bitcast_halves(device: str) -> Iterator[Check]:
    for dtype in (torch.float16, torch.bfloat16):
        x = torch.cat([randn(60), torch.tensor([0.0, -0.0, float("inf"), 6e-8])]).to(dtype)
        out = torch.empty(64, dtype=torch.int16, device=device)
        half_bits_kernel[(1,)](x.to(device), out, BLOCK=64)
        yield Check(str(dtype), out.cpu(), x.view(torch.int16))


@triton.jit
def chain_kernel(x, y, out, n, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + k, mask=k < n), tl.load(y + k, mask=k < n)
    tl.store(out + k, (a * b + a) * b - a, mask=k < n)


@case(interpreter=False)
def narrow_arithmetic_rounds_each_step(device: str) -> Iterator[Check]:
    """Each operation rounds once; a multiply and an add may also be one fused operation, as compilers make them."""
    for dtype in (torch.float16, torch.bfloat16):
        x, y = randn(1000, dtype=dtype), randn(1000, seed=1, dtype=dtype)
        out = torch.empty(1000, dtype=dtype, device=device)
        chain_kernel[(4,)](x.to(device), y.to(device), out, 1000, BLOCK=256)
        yield Check(str(dtype), out.cpu(), (x * y + x) * y - x)


@triton.jit
def divide_kernel(x, y, out, n, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    a, b = tl.load(x + k, mask=k < n, other=1.0), tl.load(y + k, mask=k < n, other=1.0)
    tl.store(out + k, a / b, mask=k < n)
    tl.store(out + n + k, tl.div_rn(a.to(tl.float32), b.to(tl.float32)), mask=k < n)


@case(interpreter=False)
def division(device: str) -> Iterator[Check]:
    for dtype in (torch.float32, torch.float16):
        x, y = randn(200, dtype=dtype), randn(200, seed=1, dtype=dtype)
        out = torch.empty(400, dtype=dtype, device=device)
        divide_kernel[(1,)](x.to(device), y.to(device), out, 200, BLOCK=256)
        exact = (x.double() / y.double()).to(dtype)
        yield Check(f"{dtype} a / b", out[:200].cpu(), exact, rtol=1e-7)
        yield Check(f"{dtype} div_rn", out[200:].cpu(), (x.float() / y.float()).to(dtype))


@triton.jit
def mixed_kernel(x, i, out, n, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    a, b = tl.load(x + k), tl.load(i + k)
    tl.store(out + k, a * b + 1.5)
    tl.store(out + n + k, (a + 2).to(tl.float32))
    tl.store(out + 2 * n + k, tl.where(b > 0, a, b))


@case(interpreter=False)
def type_promotion(device: str) -> Iterator[Check]:
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        x, i = randn(64, dtype=dtype), randint(-5, 5, (64,))
        out = torch.empty(3 * 64, device=device)
        mixed_kernel[(1,)](x.to(device), i.to(device), out, 64, BLOCK=64)
        rows = out.view(3, 64).cpu()
        # Triton computes bf16 with an integer in float
        left = x.float() if dtype is torch.bfloat16 else x
        yield Check(f"{dtype} a*i+1.5", rows[0], (left * i + 1.5).float())
        yield Check(f"{dtype} a+2", rows[1], (x + 2).float())
        yield Check(f"{dtype} where", rows[2], torch.where(i > 0, left, i.to(left.dtype)).float())


@triton.jit
def rounding_mode_kernel(x, out, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    tl.store(out + k, tl.load(x + k).to(tl.float16, fp_downcast_rounding="rtz"))


@case(interpreter=False)
def cast_towards_zero(device: str) -> Iterator[Check]:
    x = torch.cat(
        [randn(100) * 3, randn(20, seed=1) * 1e-6, torch.tensor([0.0, 1.0, -1.0, 70000.0, -70000.0, 65504.0])]
    )
    x = torch.nn.functional.pad(x, (0, 2))
    out = torch.empty(128, dtype=torch.float16, device=device)
    rounding_mode_kernel[(1,)](x.to(device), out, BLOCK=128)
    near = x.to(torch.float16)
    inward = torch.where(near.double().abs() > x.double().abs(), near.view(torch.int16) - 1, near.view(torch.int16))
    yield Check("rtz", out.cpu(), inward.view(torch.float16))
