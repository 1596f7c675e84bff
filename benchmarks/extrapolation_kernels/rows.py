"""Elementwise kernels, reductions, row kernels, scans, pooling."""

import torch
import triton
import triton.language as tl

from extrapolation_kernels import Case


@triton.jit
def gelu_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, 0.5 * value * (1.0 + tl.erf(value * 0.70710678)), mask=at < n)


def gelu(n: int) -> None:
    x = torch.randn(n, device="cuda")
    gelu_kernel[(triton.cdiv(n, 1024),)](x, torch.empty_like(x), n, BLOCK=1024)


@triton.jit
def row_sum_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * columns + at, mask=at < columns, other=0.0)
    tl.store(out + row, tl.sum(total, 0))


def row_sum(rows: int, columns: int) -> None:
    x = torch.randn(rows, columns, device="cuda")
    row_sum_kernel[(rows,)](x, torch.empty(rows, device="cuda"), columns, BLOCK=1024)


@triton.jit
def column_sum_kernel(x, out, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([COLUMNS], tl.float32)
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row[:, None] < rows) & (column[None, :] < columns)
        total += tl.sum(tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=0.0), 0)
    tl.store(out + column, total, mask=column < columns)


def column_sum(rows: int, columns: int) -> None:
    x = torch.randn(rows, columns, device="cuda")
    grid = (triton.cdiv(columns, 32),)
    column_sum_kernel[grid](x, torch.empty(columns, device="cuda"), rows, columns, ROWS=32, COLUMNS=32)


@triton.jit
def partial_sums_kernel(x, out, n, PER: tl.constexpr, BLOCK: tl.constexpr):
    part = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, PER, BLOCK):
        at = part * PER + start + tl.arange(0, BLOCK)
        total += tl.load(x + at, mask=at < n, other=0.0)
    tl.atomic_add(out, tl.sum(total, 0))


def loss_sum(n: int) -> None:
    x = torch.randn(n, device="cuda")
    grid = (triton.cdiv(n, 8192),)
    partial_sums_kernel[grid](x, torch.zeros(1, device="cuda"), n, PER=8192, BLOCK=1024)


@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    numerator = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * columns + at, numerator / tl.sum(numerator, 0), mask=at < columns)


def softmax(rows: int, columns: int) -> None:
    x = torch.randn(rows, columns, device="cuda")
    softmax_kernel[(rows,)](x, torch.empty_like(x), columns, BLOCK=triton.next_power_of_2(columns))


@triton.jit
def layer_norm_kernel(x, weight, bias, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(x + row * columns + at, mask=inside, other=0.0)
    mean = tl.sum(value, 0) / columns
    centred = tl.where(inside, value - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / columns + 1e-5)
    result = centred * scale * tl.load(weight + at, mask=inside) + tl.load(bias + at, mask=inside)
    tl.store(out + row * columns + at, result, mask=inside)


def layer_norm(rows: int, columns: int) -> None:
    x = torch.randn(rows, columns, device="cuda")
    weight, bias = torch.ones(columns, device="cuda"), torch.zeros(columns, device="cuda")
    block = triton.next_power_of_2(columns)
    layer_norm_kernel[(rows,)](x, weight, bias, torch.empty_like(x), columns, BLOCK=block)


@triton.jit
def persistent_rms_kernel(x, out, rows, columns, programs, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), rows, programs):
        value = tl.load(x + row * columns + at, mask=at < columns, other=0.0)
        scale = tl.rsqrt(tl.sum(value * value, 0) / columns + 1e-6)
        tl.store(out + row * columns + at, value * scale, mask=at < columns)


def persistent_rms(rows: int, columns: int) -> None:
    x = torch.randn(rows, columns, device="cuda")
    block = triton.next_power_of_2(columns)
    persistent_rms_kernel[(528,)](x, torch.empty_like(x), rows, columns, 528, BLOCK=block)


@triton.jit
def _add(a, b):
    return a + b


@triton.jit
def scan_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    carried = 0.0
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(x + row * columns + at, mask=at < columns, other=0.0)
        tl.store(out + row * columns + at, carried + tl.associative_scan(value, 0, _add), mask=at < columns)
        carried += tl.sum(value, 0)


def scan(rows: int, columns: int) -> None:
    x = torch.randn(rows, columns, device="cuda")
    scan_kernel[(rows,)](x, torch.empty_like(x), columns, BLOCK=1024)


@triton.jit
def transpose_kernel(x, out, rows, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    value = tl.load(x + row[:, None] * columns + column[None, :], mask=inside)
    tl.store(out + column[None, :] * rows + row[:, None], value, mask=inside)


def transpose(rows: int, columns: int) -> None:
    x = torch.randn(rows, columns, device="cuda")
    grid = (triton.cdiv(rows, 32), triton.cdiv(columns, 32))
    transpose_kernel[grid](x, torch.empty(columns, rows, device="cuda"), rows, columns, BLOCK=32)


@triton.jit
def max_pool_kernel(x, out, height, width, HALF: tl.constexpr, BLOCK: tl.constexpr):
    """Windows of 3 × 3 with stride 1 and padding 1: neighbours share what they read."""
    plane, row = tl.program_id(1), tl.program_id(0)
    column = tl.arange(0, BLOCK)
    best = tl.full([BLOCK], -float("inf"), tl.float32)
    for down in tl.static_range(-HALF, HALF + 1):
        for right in tl.static_range(-HALF, HALF + 1):
            r, c = row + down, column + right
            inside = (r >= 0) & (r < height) & (c >= 0) & (c < width)
            value = tl.load(x + (plane * height + r) * width + c, mask=inside, other=-float("inf"))
            best = tl.maximum(best, value)
    tl.store(out + (plane * height + row) * width + column, best, mask=column < width)


def max_pool(planes: int, height: int, width: int) -> None:
    x = torch.randn(planes, height, width, device="cuda")
    grid = (height, planes)
    max_pool_kernel[grid](x, torch.empty_like(x), height, width, HALF=1, BLOCK=triton.next_power_of_2(width))


CASES = (
    Case("gelu", "elementwise", gelu, (100_000_000,), (4096,)),
    Case("row_sum", "reduction", row_sum, (20000, 5000), (16, 2000)),
    Case("column_sum", "strided reduction", column_sum, (8192, 8192), (64, 64)),
    Case("loss_sum", "contended atomic", loss_sum, (100_000_000,), (16384,)),
    Case("softmax", "row kernel", softmax, (32768, 1500), (16, 1500)),
    Case("layer_norm", "row kernel, shared weights", layer_norm, (32768, 1024), (16, 1024)),
    Case("persistent_rms", "persistent", persistent_rms, (33001, 1024), (600, 1024)),
    Case("scan", "sequential scan", scan, (8192, 5000), (8, 2000)),
    Case("transpose", "tiles, uncoalesced", transpose, (5000, 8192), (64, 64)),
    Case("max_pool", "overlapping windows", max_pool, (64, 512, 512), (2, 16, 512)),
)
