"""Functions on scalars inside operations, early returns that pass blocks on, and products of microscaling formats."""

import functools
import itertools
import math
from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from conformance_cases import Check, case, randint, randn


@triton.jit
def gcd(x, y):
    while y != 0:
        rest = x % y
        x = y
        y = rest
    return x


@triton.jit
def gcd_kernel(x, out, scanned, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None]
    tl.store(out + tl.arange(0, ROWS), tl.reduce(tl.load(x + at), 1, gcd))
    tl.store(scanned + at, tl.associative_scan(tl.load(x + at), 0, gcd))


@case(interpreter=False)
def loops_in_combine_functions(device: str) -> Iterator[Check]:
    x = randint(1, 60, (8, 32), dtype=torch.int64) * 12
    out = torch.zeros(8, dtype=torch.int64, device=device)
    scanned = torch.zeros(8, 32, dtype=torch.int64, device=device)
    gcd_kernel[(1,)](x.to(device), out, scanned, 8, 32)
    yield Check("reduced", out, torch.tensor([functools.reduce(math.gcd, row) for row in x.tolist()]))
    columns = [list(itertools.accumulate(column, math.gcd)) for column in x.T.tolist()]
    yield Check("scanned", scanned, torch.tensor(columns).T)


@triton.jit
def stepped(x, y):
    if x > y:
        return x - y
    total = x
    while total < 10:
        total += y
    return total


@triton.jit
def stepped_kernel(x, y, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.map_elementwise(stepped, tl.load(x + at), tl.load(y + at)))


@case(interpreter=False)
def early_return_in_map_elementwise(device: str) -> Iterator[Check]:
    x, y = randint(0, 9, (64,), dtype=torch.int32), randint(1, 9, (64,), dtype=torch.int32, seed=1)
    out = torch.zeros(64, dtype=torch.int32, device=device)
    stepped_kernel[(1,)](x.to(device), y.to(device), out, 64)
    pairs = zip(x.tolist(), y.tolist(), strict=True)
    want = [a - b if a > b else a + b * max(0, -(-(10 - a) // b)) for a, b in pairs]
    yield Check("values", out, torch.tensor(want, dtype=torch.int32))


@triton.jit
def sorted_pair(x0, x1, y0, y1):
    if x0 <= x1:
        return x0, x1, y0, y1
    return x1, x0, y1, y0


@triton.jit
def sorted_pairs_kernel(x, y, keys, values, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    key, value = tl.map_elementwise(sorted_pair, tl.load(x + at), tl.load(y + at), pack=2)
    tl.store(keys + at, key)
    tl.store(values + at, value)


@case(interpreter=False)
def packed_map_elementwise(device: str) -> Iterator[Check]:
    x, y = randn(64), randn(64, seed=1)
    keys, values = torch.zeros(64, device=device), torch.zeros(64, device=device)
    sorted_pairs_kernel[(1,)](x.to(device), y.to(device), keys, values, 64)
    want, order = x.view(32, 2).sort(1)
    yield Check("keys", keys, want.flatten())
    yield Check("values", values, y.view(32, 2).gather(1, order).flatten())


@triton.jit
def branching_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value, bias = tl.load(x + at), 0.5
    if n > 3:
        value = value * 2
        bias += 1
        if n > 5:
            tl.store(out + at, value)
            return
        value += 1
    tl.store(out + at, value + bias)


@case()
def branches_that_carry_blocks(device: str) -> Iterator[Check]:
    x = randn(64)
    for n, want in ((1, x + 0.5), (4, x * 2 + 1 + 1.5), (9, x * 2)):
        out = torch.zeros(64, device=device)
        branching_kernel[(1,)](x.to(device), out, n, 64)
        yield Check(f"n={n}", out, want.double(), atol=1e-6)


E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)
NARROW = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "bf16": torch.bfloat16, "fp16": torch.float16}


@triton.jit
def scaled_kernel(
    a, sa, b, sb, out, M: tl.constexpr, N: tl.constexpr, BLOCKS: tl.constexpr, KA: tl.constexpr, KB: tl.constexpr,
    NB: tl.constexpr, FA: tl.constexpr, FB: tl.constexpr, SA: tl.constexpr, SB: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    m, n, block = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCKS)
    left = tl.load(a + m[:, None] * KA + tl.arange(0, KA)[None])
    right = tl.load(b + tl.arange(0, KB)[:, None] * NB + tl.arange(0, NB)[None])
    s = None
    t = None
    if SA:
        s = tl.load(sa + m[:, None] * BLOCKS + block[None])
    if SB:
        t = tl.load(sb + n[:, None] * BLOCKS + block[None])
    product = tl.dot_scaled(left, s, FA, right, t, FB, rhs_k_pack=PACKED)
    tl.store(out + m[:, None] * N + n[None], product)


def _wide(values: torch.Tensor, kind: str, axis: int) -> torch.Tensor:
    if kind != "e2m1":
        return values.double()
    low, high = E2M1[(values & 15).long()], E2M1[(values >> 4).long()]
    return torch.stack([low, high], axis + 1).flatten(axis, axis + 1)


def _operand(shape: tuple[int, int], kind: str, seed: int) -> torch.Tensor:
    if kind == "e2m1":
        return randint(0, 256, shape, seed=seed, dtype=torch.int32).to(torch.uint8)
    return randn(*shape, seed=seed).to(NARROW[kind])


@case(interpreter=False)
def scaled_products(device: str) -> Iterator[Check]:
    m, n, k = 16, 32, 128
    for fa, fb, size, sa, sb, packed in (
        ("e4m3", "e5m2", 32, True, True, True), ("e2m1", "e2m1", 32, True, True, False),
        ("bf16", "e2m1", 32, False, True, True), ("e2m1", "fp16", 32, True, False, True),
        ("e2m1", "e2m1", 16, True, True, True),
    ):  # fmt: skip
        ka, kb = k // (1 + (fa == "e2m1")), k // (1 + (fb == "e2m1" and packed))
        nb = n // (1 + (fb == "e2m1" and not packed))
        a, b = _operand((m, ka), fa, 1), _operand((kb, nb), fb, 2)
        if size == 32:
            scales = [randint(118, 136, (rows, k // size), dtype=torch.int32).to(torch.uint8) for rows in (m, n)]
            scales[0][0, 0] = 0
            factors = [torch.exp2(scale.double() - 127) for scale in scales]
        else:
            scales = [randn(rows, k // size).abs().to(torch.float8_e4m3fn) for rows in (m, n)]
            factors = [scale.double() for scale in scales]
        out = torch.zeros(m, n, device=device)
        scaled_kernel[(1,)](
            a.to(device), scales[0].to(device), b.to(device), scales[1].to(device), out, m, n, k // size, ka, kb, nb,
            fa, fb, sa, sb, packed,
        )  # fmt: skip
        left, right = _wide(a, fa, 1), _wide(b, fb, 0 if packed else 1)
        left = left * factors[0].repeat_interleave(size, 1) if sa else left
        right = right * factors[1].repeat_interleave(size, 1).T if sb else right
        error = (out.cpu().double() - left @ right) / (left.abs() @ right.abs())
        yield Check(f"{fa} {fb} {size}", error, torch.zeros(m, n, dtype=torch.float64), atol=1e-6)
