"""Textbook Triton kernels, written for ``model_vs_figures.py``: the algorithms whose published figures it compares.

Each is the plain form that tutorials describe. ``run_*`` functions allocate, choose a grid and launch.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

TILES = [
    triton.Config({"BM": bm, "BN": bn, "BK": bk, "GROUP": 8}, num_stages=stages, num_warps=warps)
    for bm, bn, bk, stages, warps in (
        (128, 256, 64, 3, 8), (128, 128, 64, 3, 8), (128, 128, 32, 4, 4), (64, 256, 32, 4, 4), (128, 64, 32, 4, 4),
        (64, 128, 32, 4, 4), (64, 64, 32, 4, 4), (32, 64, 32, 5, 2), (128, 128, 128, 3, 8), (128, 256, 128, 3, 8),
    )
]  # fmt: skip
"""tiles of the usual sizes; the best is taken, as its authors' tuner did"""


@triton.autotune(configs=TILES, key=["m", "n", "k"])
@triton.jit
def matmul_kernel(a, b, c, m, n, k, sam, sak, sbk, sbn, scm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                  GROUP: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """Tiles in groups of rows, so that neighbours share operands in L2."""
    pid = tl.program_id(0)
    across = tl.cdiv(n, BN)
    group = pid // (GROUP * across)
    first = group * GROUP
    rows = min(tl.cdiv(m, BM) - first, GROUP)
    i = first + (pid % (GROUP * across)) % rows
    j = (pid % (GROUP * across)) // rows
    rm = (i * BM + tl.arange(0, BM)) % m
    rn = (j * BN + tl.arange(0, BN)) % n
    rk = tl.arange(0, BK)
    pa = a + rm[:, None] * sam + rk[None, :] * sak
    pb = b + rk[:, None] * sbk + rn[None, :] * sbn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(k, BK)):
        left = k - step * BK
        x = tl.load(pa, mask=rk[None, :] < left, other=0.0)
        y = tl.load(pb, mask=rk[:, None] < left, other=0.0)
        acc = tl.dot(x, y, acc, input_precision=PRECISION)
        pa += BK * sak
        pb += BK * sbk
    om = i * BM + tl.arange(0, BM)
    on = j * BN + tl.arange(0, BN)
    tl.store(
        c + om[:, None] * scm + on[None, :], acc.to(c.dtype.element_ty), mask=(om[:, None] < m) & (on[None, :] < n)
    )


def run_matmul(m: int, n: int, k: int, dtype: str = "float16", precision: str = "tf32") -> None:
    """A product in ``dtype``; eight-bit operands have the second one transposed and a half-precision result."""
    kind = getattr(torch, dtype)
    eight = dtype.startswith("float8")
    a, b = (torch.empty(shape, device="cuda", dtype=kind) for shape in ((m, k), (n, k) if eight else (k, n)))
    if eight:
        b = b.T
    c = torch.empty((m, n), device="cuda", dtype=torch.float16 if eight else kind)
    strides = (a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0))
    matmul_kernel[lambda meta: (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),)](
        a, b, c, m, n, k, *strides, PRECISION=precision
    )


@triton.autotune(
    configs=[
        triton.Config({"BM": bm, "BN": bn}, num_stages=stages, num_warps=warps)
        for bm, bn, stages, warps in ((64, 32, 3, 4), (128, 32, 3, 4), (128, 64, 3, 4), (128, 64, 3, 8))
    ],
    key=["length", "D"],
)  # fmt: skip
@triton.jit
def attention_kernel(q, k, v, out, scale, length, D: tl.constexpr, CAUSAL: tl.constexpr, BM: tl.constexpr,
                     BN: tl.constexpr):  # fmt: skip
    """A block of queries against all keys (or those before it), with a running maximum and sum."""
    start = tl.program_id(0) * BM
    base = tl.program_id(1).to(tl.int64) * length * D
    rm = start + tl.arange(0, BM)
    rn = tl.arange(0, BN)
    rd = tl.arange(0, D)
    query = tl.load(q + base + rm[:, None] * D + rd[None, :])
    top = tl.full((BM,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    acc = tl.zeros((BM, D), dtype=tl.float32)
    pk = k + base + rn[None, :] * D + rd[:, None]
    pv = v + base + rn[:, None] * D + rd[None, :]
    end = start if CAUSAL else length
    for begin in range(0, end, BN):
        scores = tl.dot(query, tl.load(pk + begin * D))
        new = tl.maximum(top, tl.max(scores, 1) * scale)
        p = tl.math.exp2(scores * scale - new[:, None])
        old = tl.math.exp2(top - new)
        total = total * old + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype.element_ty), tl.load(pv + begin * D), acc * old[:, None])
        top = new
    if CAUSAL:
        for begin in range(start, start + BM, BN):
            scores = tl.dot(query, tl.load(pk + begin * D))
            scores = scores * scale + tl.where(rm[:, None] >= begin + rn[None, :], 0.0, -1e6)
            new = tl.maximum(top, tl.max(scores, 1))
            p = tl.math.exp2(scores - new[:, None])
            old = tl.math.exp2(top - new)
            total = total * old + tl.sum(p, 1)
            acc = tl.dot(p.to(v.dtype.element_ty), tl.load(pv + begin * D), acc * old[:, None])
            top = new
    acc = acc / total[:, None]
    tl.store(out + base + rm[:, None] * D + rd[None, :], acc.to(out.dtype.element_ty))


def run_attention(batch: int, heads: int, length: int, dim: int, causal: bool = False) -> None:
    """Attention forward in fp16."""
    q, k, v, out = (torch.empty((batch, heads, length, dim), device="cuda", dtype=torch.float16) for _ in range(4))
    attention_kernel[lambda meta: (triton.cdiv(length, meta["BM"]), batch * heads)](
        q, k, v, out, 1.44 * dim**-0.5, length, D=dim, CAUSAL=causal
    )


@triton.jit
def norm_kernel(x, y, w, b, n, eps, BLOCK: tl.constexpr):
    """Layer norm in three passes over a row: mean, variance, result."""
    row = tl.program_id(0).to(tl.int64)
    x += row * n
    y += row * n
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for off in range(0, n, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        total += tl.load(x + cols, mask=cols < n, other=0.0).to(tl.float32)
    mean = tl.sum(total, 0) / n
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for off in range(0, n, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        each = tl.where(cols < n, tl.load(x + cols, mask=cols < n, other=0.0).to(tl.float32) - mean, 0.0)
        squares += each * each
    scale = 1 / tl.sqrt(tl.sum(squares, 0) / n + eps)
    for off in range(0, n, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        each = (tl.load(x + cols, mask=cols < n, other=0.0).to(tl.float32) - mean) * scale
        weight, bias = tl.load(w + cols, mask=cols < n), tl.load(b + cols, mask=cols < n)
        tl.store(y + cols, each * weight + bias, mask=cols < n)


def run_layer_norm(rows: int, n: int) -> None:
    """Layer norm with weight and bias in fp16."""
    x = torch.empty((rows, n), device="cuda", dtype=torch.float16)
    w, b = (torch.empty(n, device="cuda", dtype=torch.float16) for _ in range(2))
    block = min(65536 // 2, triton.next_power_of_2(n))
    norm_kernel[(rows,)](x, torch.empty_like(x), w, b, n, 1e-5, BLOCK=block, num_warps=min(max(block // 256, 1), 8))


@triton.jit
def copy_kernel(x, y, n, BLOCK: tl.constexpr):
    """A copy."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)


def run_copy(rows: int, n: int) -> None:
    """A copy of a bf16 matrix."""
    x = torch.empty((rows, n), device="cuda", dtype=torch.bfloat16)
    copy_kernel[(triton.cdiv(x.numel(), 2048),)](x, torch.empty_like(x), x.numel(), BLOCK=2048)


def run_torch_matmul(m: int, n: int, k: int, dtype: str = "float16") -> Any:
    """The library's product."""
    kind = getattr(torch, dtype)
    return torch.empty((m, k), device="cuda", dtype=kind) @ torch.empty((k, n), device="cuda", dtype=kind)


def run_torch_layer_norm(rows: int, n: int) -> Any:
    """PyTorch's layer norm in fp16."""
    x = torch.empty((rows, n), device="cuda", dtype=torch.float16)
    w, b = (torch.empty(n, device="cuda", dtype=torch.float16) for _ in range(2))
    return torch.nn.functional.layer_norm(x, (n,), w, b)


def run_torch_attention(batch: int, heads: int, length: int, dim: int, causal: bool = False) -> Any:
    """PyTorch's fused attention in fp16."""
    q, k, v = (torch.empty((batch, heads, length, dim), device="cuda", dtype=torch.float16) for _ in range(3))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
