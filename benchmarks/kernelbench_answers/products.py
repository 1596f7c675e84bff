"""Matrix products in all layouts."""

from __future__ import annotations

MATMUL = """
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, m, n, k, a_batch, a_row, a_inner, b_batch, b_inner, b_column, KEEP: tl.constexpr,
    GROUP: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):
    program, batch = tl.program_id(0), tl.program_id(1).to(tl.int64)
    tiles_m, tiles_n = tl.cdiv(m, M), tl.cdiv(n, N)
    group = program // (GROUP * tiles_n)
    height = min(tiles_m - group * GROUP, GROUP)
    tile_m = group * GROUP + program % (GROUP * tiles_n) % height
    tile_n = program % (GROUP * tiles_n) // height
    row = (tile_m * M + tl.arange(0, M)).to(tl.int64)
    column = (tile_n * N + tl.arange(0, N)).to(tl.int64)
    a_ptr += batch * a_batch
    b_ptr += batch * b_batch
    total = tl.zeros([M, N], tl.float32)
    first, last = 0, k
    if KEEP == "upper":
        first = tile_m * M // K * K
        last = min(k, (tile_n + 1) * N)
    if KEEP == "lower":
        first = tile_n * N // K * K
        last = min(k, (tile_m + 1) * M)
    for start in range(first, last, K):
        inner = start + tl.arange(0, K)
        a = tl.load(
            a_ptr + row[:, None] * a_row + inner[None, :].to(tl.int64) * a_inner,
            mask=(row[:, None] < m) & (inner[None, :] < k), other=0.0,
        )
        b = tl.load(
            b_ptr + inner[:, None].to(tl.int64) * b_inner + column[None, :] * b_column,
            mask=(inner[:, None] < k) & (column[None, :] < n), other=0.0,
        )
        total = tl.dot(a, b, total, input_precision="ieee")
    if KEEP == "upper":
        total = tl.where(row[:, None] <= column[None, :], total, 0.0)
    if KEEP == "lower":
        total = tl.where(row[:, None] >= column[None, :], total, 0.0)
    place = (batch * m + row[:, None]) * n + column[None, :]
    tl.store(c_ptr + place, total, mask=(row[:, None] < m) & (column[None, :] < n))


def product(a, b, keep=None):
    batch = a.shape[0] if a.dim() == 3 else 1
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    c = torch.empty((*a.shape[:-1], n), device=a.device, dtype=a.dtype)
    a_batch = a.stride(0) if a.dim() == 3 else 0
    b_batch = b.stride(0) if b.dim() == 3 else 0
    size_m, size_n = (128, 32) if n <= 32 else (64, 64)
    grid = (triton.cdiv(m, size_m) * triton.cdiv(n, size_n), batch)
    matmul_kernel[grid](
        a, b, c, m, n, k, a_batch, a.stride(-2), a.stride(-1), b_batch, b.stride(-2), b.stride(-1),
        KEEP=keep, GROUP=8, M=size_m, N=size_n, K=32, num_warps=4,
    )
    return c


class ModelNew(nn.Module):
    def forward(self, A, B):
        return RESULT
"""

SPLIT = """
@triton.jit
def split_kernel(a_ptr, b_ptr, c_ptr, m, n, k, share, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    row = (tl.program_id(0) * M + tl.arange(0, M)).to(tl.int64)
    column = tl.program_id(1) * N + tl.arange(0, N)
    first = tl.program_id(2) * share
    last = min(k, first + share)
    total = tl.zeros([M, N], tl.float32)
    for start in range(first, last, K):
        inner = start + tl.arange(0, K)
        a = tl.load(
            a_ptr + row[:, None] * k + inner[None, :], mask=(row[:, None] < m) & (inner[None, :] < last), other=0.0
        )
        b = tl.load(
            b_ptr + inner[:, None].to(tl.int64) * n + column[None, :],
            mask=(inner[:, None] < last) & (column[None, :] < n), other=0.0,
        )
        total = tl.dot(a, b, total, input_precision="ieee")
    tl.atomic_add(c_ptr + row[:, None] * n + column[None, :], total, mask=(row[:, None] < m) & (column[None, :] < n))


class ModelNew(nn.Module):
    def forward(self, A, B):
        A, B = A.contiguous(), B.contiguous()
        m, k, n = A.shape[0], A.shape[1], B.shape[1]
        c = torch.zeros(m, n, device=A.device, dtype=A.dtype)
        parts = max(1, min(32, k // 4096))
        share = triton.cdiv(triton.cdiv(k, parts), 32) * 32
        grid = (triton.cdiv(m, 64), triton.cdiv(n, 64), parts)
        split_kernel[grid](A, B, c, m, n, k, share, M=64, N=64, K=32)
        return c
"""

VECTOR = """
@triton.jit
def vector_kernel(a_ptr, b_ptr, c_ptr, k, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, k, BLOCK):
        at = start + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + row * k + at, mask=at < k, other=0.0)
        total += a * tl.load(b_ptr + at, mask=at < k, other=0.0)
    tl.store(c_ptr + row, tl.sum(total, 0))


class ModelNew(nn.Module):
    def forward(self, A, B):
        A, B = A.contiguous(), B.contiguous()
        c = torch.empty(A.shape[0], 1, device=A.device, dtype=A.dtype)
        vector_kernel[(A.shape[0],)](A, B, c, A.shape[1], BLOCK=4096, num_warps=8)
        return c
"""

DIAGONAL = """
@triton.jit
def diagonal_kernel(a_ptr, b_ptr, c_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b = tl.load(b_ptr + row * columns + at, mask=at < columns)
    tl.store(c_ptr + row * columns + at, b * tl.load(a_ptr + row), mask=at < columns)


class ModelNew(nn.Module):
    def forward(self, A, B):
        B = B.contiguous()
        c = torch.empty_like(B)
        rows, columns = B.shape
        diagonal_kernel[(triton.cdiv(columns, 1024), rows)](A.contiguous(), B, c, columns, BLOCK=1024)
        return c
"""


def product(result: str = "product(A, B)") -> str:
    """A product of two matrices or of batches of them."""
    return MATMUL.replace("RESULT", result)


ANSWERS = {
    **{f"level1/{number}": product() for number in (1, 2, 3, 7, 8, 9, 13)},
    "level1/4": VECTOR,
    "level1/6": SPLIT,
    "level1/10": product("product(A.reshape(-1, A.shape[-1]), B).reshape(*A.shape[:-1], B.shape[-1])"),
    "level1/11": product("product(A.reshape(-1, A.shape[-1]), B).reshape(*A.shape[:-1], B.shape[-1])"),
    "level1/12": DIAGONAL,
    "level1/14": product('product(A, B, "upper")'),
    "level1/15": product('product(A, B, "lower")'),
    "level1/16": product("product(A.T, B)"),
    "level1/17": product("product(A, B.T)"),
    "level1/18": product("product(A.T, B.T)"),
}
