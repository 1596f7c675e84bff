"""Matrix products: plain, grouped for L2, split along K, persistent, batched, triangular; a convolution."""

import torch
import triton
import triton.language as tl

from extrapolation_kernels import Case


@triton.jit
def _tile(a, b, m, n, k, row, column, first, last, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """(M, N) of a (m, k) times b (k, n), summed over [first, last)."""
    total = tl.zeros([M, N], tl.float32)
    for start in range(first, last, K):
        inner = start + tl.arange(0, K)
        left = tl.load(
            a + row[:, None] * k + inner[None, :], mask=(row[:, None] < m) & (inner[None, :] < last), other=0.0
        )
        right = tl.load(
            b + inner[:, None] * n + column[None, :], mask=(inner[:, None] < last) & (column[None, :] < n), other=0.0
        )
        total = tl.dot(left, right, total)
    return total


@triton.jit
def matmul_kernel(a, b, c, m, n, k, GROUP: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    tiles_m, tiles_n = tl.cdiv(m, M), tl.cdiv(n, N)
    program = tl.program_id(0)
    group = program // (GROUP * tiles_n)
    height = min(tiles_m - group * GROUP, GROUP)
    row = (group * GROUP + program % (GROUP * tiles_n) % height) * M + tl.arange(0, M)
    column = program % (GROUP * tiles_n) // height * N + tl.arange(0, N)
    total = _tile(a, b, m, n, k, row, column, 0, k, M, N, K)
    tl.store(c + row[:, None] * n + column[None, :], total, mask=(row[:, None] < m) & (column[None, :] < n))


def _operands(m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    a = torch.randn(m, k, device="cuda", dtype=torch.float16)
    b = torch.randn(k, n, device="cuda", dtype=torch.float16)
    return a, b, torch.zeros(m, n, device="cuda")


def matmul(m: int, n: int, k: int) -> None:
    grid = (triton.cdiv(m, 64) * triton.cdiv(n, 64),)
    matmul_kernel[grid](*_operands(m, n, k), m, n, k, GROUP=1, M=64, N=64, K=32)


def grouped_matmul(m: int, n: int, k: int) -> None:
    grid = (triton.cdiv(m, 64) * triton.cdiv(n, 64),)
    matmul_kernel[grid](*_operands(m, n, k), m, n, k, GROUP=8, M=64, N=64, K=32)


@triton.jit
def split_k_kernel(a, b, c, m, n, k, share, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0) * M + tl.arange(0, M)
    column = tl.program_id(1) * N + tl.arange(0, N)
    first = tl.program_id(2) * share
    total = _tile(a, b, m, n, k, row, column, first, min(k, first + share), M, N, K)
    tl.atomic_add(c + row[:, None] * n + column[None, :], total, mask=(row[:, None] < m) & (column[None, :] < n))


def split_k(m: int, n: int, k: int, parts: int) -> None:
    grid = (triton.cdiv(m, 64), triton.cdiv(n, 64), parts)
    split_k_kernel[grid](*_operands(m, n, k), m, n, k, triton.cdiv(k, parts), M=64, N=64, K=32)


@triton.jit
def persistent_matmul_kernel(a, b, c, m, n, k, programs, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    tiles_n = tl.cdiv(n, N)
    for tile in range(tl.program_id(0), tl.cdiv(m, M) * tiles_n, programs):
        row = tile // tiles_n * M + tl.arange(0, M)
        column = tile % tiles_n * N + tl.arange(0, N)
        total = _tile(a, b, m, n, k, row, column, 0, k, M, N, K)
        tl.store(c + row[:, None] * n + column[None, :], total, mask=(row[:, None] < m) & (column[None, :] < n))


def persistent_matmul(m: int, n: int, k: int) -> None:
    persistent_matmul_kernel[(132,)](*_operands(m, n, k), m, n, k, 132, M=64, N=64, K=32)


@triton.jit
def triangular_kernel(a, b, c, n, M: tl.constexpr, K: tl.constexpr):
    """A lower triangular: a tile's loop ends at its diagonal."""
    row = tl.program_id(0) * M + tl.arange(0, M)
    column = tl.program_id(1) * M + tl.arange(0, M)
    last = min(n, (tl.program_id(0) + 1) * M)
    total = _tile(a, b, n, n, n, row, column, 0, last, M, M, K)
    tl.store(c + row[:, None] * n + column[None, :], total, mask=(row[:, None] < n) & (column[None, :] < n))


def triangular(n: int) -> None:
    triangular_kernel[(triton.cdiv(n, 64), triton.cdiv(n, 64))](*_operands(n, n, n), n, M=64, K=32)


@triton.jit
def convolution_kernel(
    x, weight, out, height, width, INTO: tl.constexpr, SIDE: tl.constexpr, OUT: tl.constexpr, BLOCK: tl.constexpr
):
    """3 × 3 over (n, INTO, height, width) to OUT channels, as products of pixels and channels."""
    image, row = tl.program_id(2), tl.program_id(1)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    into, channel = tl.arange(0, INTO), tl.arange(0, OUT)
    total = tl.zeros([OUT, BLOCK], tl.float32)
    for down in range(SIDE):
        for right in range(SIDE):
            r, c = row + down - SIDE // 2, column + right - SIDE // 2
            inside = (r >= 0) & (r < height) & (c >= 0) & (c < width)
            pixels = tl.load(
                x + ((image * INTO + into[:, None]) * height + r) * width + c[None, :],
                mask=inside[None, :] & (into[:, None] < INTO), other=0.0,
            )  # fmt: skip
            taps = tl.load(weight + ((channel[:, None] * INTO + into[None, :]) * SIDE + down) * SIDE + right)
            total = tl.dot(taps, pixels, total)
    place = ((image * OUT + channel[:, None]) * height + row) * width + column[None, :]
    tl.store(out + place, total, mask=column[None, :] < width)


def convolution(images: int, side: int) -> None:
    x = torch.randn(images, 32, side, side, device="cuda", dtype=torch.float16)
    weight = torch.randn(32, 32, 3, 3, device="cuda", dtype=torch.float16)
    out = torch.empty(images, 32, side, side, device="cuda")
    grid = (triton.cdiv(side, 64), side, images)
    convolution_kernel[grid](x, weight, out, side, side, INTO=32, SIDE=3, OUT=32, BLOCK=64)


CASES = (
    Case("matmul", "product", matmul, (2000, 2048, 2048), (128, 128, 64)),
    Case("grouped_matmul", "product, tiles grouped for L2", grouped_matmul, (2048, 2048, 2048), (128, 128, 64)),
    Case("split_k", "split along K, atomics", split_k, (512, 512, 16384, 16), (64, 64, 512, 4)),
    Case("persistent_matmul", "persistent, ragged last wave", persistent_matmul, (2048, 2100, 2048), (1024, 1024, 64)),
    Case("triangular", "work grows with the row", triangular, (2560,), (128,)),
    Case("convolution", "overlapping windows, product", convolution, (16, 128), (1, 64)),
)
