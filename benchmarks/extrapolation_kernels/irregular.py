"""Kernels that go by numbers in memory: ragged rows, experts of different sizes, gathered rows, histograms."""

import torch
import triton
import triton.language as tl

from extrapolation_kernels import Case


@triton.jit
def ragged_sum_kernel(x, offsets, out, columns, BLOCK: tl.constexpr):
    """Sums rows offsets[p] to offsets[p + 1]."""
    part = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for row in range(tl.load(offsets + part), tl.load(offsets + part + 1)):
        total += tl.load(x + row * columns + at, mask=at < columns, other=0.0)
    tl.store(out + part * columns + at, total, mask=at < columns)


def ragged_sum(parts: int, columns: int) -> None:
    generator = torch.Generator().manual_seed(1)
    lengths = (torch.rand(parts, generator=generator) ** 4 * 60).long()  # a few long parts, many short ones
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
    x = torch.randn(int(offsets[-1]), columns, device="cuda")
    out = torch.empty(parts, columns, device="cuda")
    block = triton.next_power_of_2(columns)
    ragged_sum_kernel[(parts,)](x, offsets.cuda(), out, columns, BLOCK=block)


@triton.jit
def experts_kernel(x, weight, offsets, out, into, width, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Rows offsets[e] to offsets[e + 1] of x times weight[e]; tiles beyond an expert's rows end at once."""
    expert = tl.program_id(2)
    first, last = tl.load(offsets + expert), tl.load(offsets + expert + 1)
    row = first + tl.program_id(0) * M + tl.arange(0, M)
    if first + tl.program_id(0) * M < last:
        column = tl.program_id(1) * N + tl.arange(0, N)
        total = tl.zeros([M, N], tl.float32)
        for start in range(0, into, K):
            inner = start + tl.arange(0, K)
            left = tl.load(x + row[:, None] * into + inner[None, :], mask=row[:, None] < last, other=0.0)
            right = tl.load(weight + (expert * into + inner[:, None]) * width + column[None, :])
            total = tl.dot(left, right, total)
        tl.store(out + row[:, None] * width + column[None, :], total, mask=row[:, None] < last)


def experts(tokens: int, width: int, count: int) -> None:
    generator = torch.Generator().manual_seed(2)
    share = torch.rand(count, generator=generator) ** 3
    ends = (share.cumsum(0) / share.sum() * tokens).long()
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), ends])
    most = int((offsets[1:] - offsets[:-1]).max())
    x = torch.randn(tokens, width, device="cuda", dtype=torch.float16)
    weight = torch.randn(count, width, width, device="cuda", dtype=torch.float16)
    out = torch.empty(tokens, width, device="cuda")
    grid = (triton.cdiv(most, 64), width // 64, count)
    experts_kernel[grid](x, weight, offsets.cuda(), out, width, width, M=64, N=64, K=32)


@triton.jit
def gather_kernel(index, table, out, columns, BLOCK: tl.constexpr):
    row = tl.load(index + tl.program_id(0))
    at = tl.arange(0, BLOCK)
    value = tl.load(table + row * columns + at, mask=at < columns)
    tl.store(out + tl.program_id(0) * columns + at, value, mask=at < columns)


def gather(rows: int, entries: int, columns: int) -> None:
    index = torch.randint(0, entries, (rows,), generator=torch.Generator().manual_seed(3))
    table = torch.randn(entries, columns, device="cuda")
    out = torch.empty(rows, columns, device="cuda")
    gather_kernel[(rows,)](index.cuda(), table, out, columns, BLOCK=triton.next_power_of_2(columns))


@triton.jit
def histogram_kernel(x, counts, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bucket = tl.load(x + at, mask=at < n, other=0)
    tl.atomic_add(counts + bucket, 1, mask=at < n)


def histogram(n: int, buckets: int) -> None:
    x = torch.randint(0, buckets, (n,), generator=torch.Generator().manual_seed(4), dtype=torch.int32)
    counts = torch.zeros(buckets, device="cuda", dtype=torch.int32)
    histogram_kernel[(triton.cdiv(n, 1024),)](x.cuda(), counts, n, BLOCK=1024)


CASES = (
    Case("ragged_sum", "ragged, steered by offsets", ragged_sum, (20000, 512), (64, 512)),
    Case("experts", "ragged product, many idle programs", experts, (4096, 768, 16), (128, 64, 4)),
    Case("gather", "rows by index", gather, (100000, 50000, 256), (64, 64, 256)),
    Case("histogram", "scattered atomics", histogram, (3_000_000, 1000), (4096, 16)),
)
