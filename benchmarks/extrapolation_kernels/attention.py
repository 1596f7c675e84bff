"""Attention with an online softmax: over all keys, causal, over a window."""

import torch
import triton
import triton.language as tl

from extrapolation_kernels import Case

WIDTH = 64


@triton.jit
def attention_kernel(
    q, k, v, out, length, scale, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    base = tl.program_id(1).to(tl.int64) * length * WIDTH
    at = tl.arange(0, WIDTH)
    query = tl.load(q + base + row[:, None] * WIDTH + at[None, :], mask=row[:, None] < length, other=0.0)
    most = tl.full([ROWS], -1e30, tl.float32)
    below = tl.zeros([ROWS], tl.float32)
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    first, last = 0, length
    if CAUSAL:
        last = min(length, (tl.program_id(0) + 1) * ROWS)
    if WINDOW > 0:
        first = max(0, tl.program_id(0) * ROWS - WINDOW) // KEYS * KEYS
    for start in range(first, last, KEYS):
        key = start + tl.arange(0, KEYS)
        inside = key[None, :] < length
        keys = tl.load(k + base + key[:, None] * WIDTH + at[None, :], mask=key[:, None] < length, other=0.0)
        score = tl.dot(query, tl.trans(keys)) * scale
        if CAUSAL:
            inside = inside & (key[None, :] <= row[:, None])
        if WINDOW > 0:
            inside = inside & (key[None, :] + WINDOW >= row[:, None])
        score = tl.where(inside, score, -1e30)
        largest = tl.maximum(most, tl.max(score, 1))
        weight = tl.exp(score - largest[:, None])
        shrink = tl.exp(most - largest)
        values = tl.load(v + base + key[:, None] * WIDTH + at[None, :], mask=key[:, None] < length, other=0.0)
        below = below * shrink + tl.sum(weight, 1)
        total = tl.dot(weight.to(values.dtype), values, total * shrink[:, None])
        most = largest
    tl.store(out + base + row[:, None] * WIDTH + at[None, :], total / below[:, None], mask=row[:, None] < length)


def _attention(heads: int, length: int, causal: bool, window: int) -> None:
    q, k, v = (torch.randn(heads, length, WIDTH, device="cuda", dtype=torch.float16) for _ in range(3))
    out = torch.empty(heads, length, WIDTH, device="cuda")
    grid = (triton.cdiv(length, 64), heads)
    attention_kernel[grid](
        q, k, v, out, length, 0.125, CAUSAL=causal, WINDOW=window, ROWS=64, KEYS=64, WIDTH=WIDTH
    )  # fmt: skip


def attention(heads: int, length: int) -> None:
    _attention(heads, length, False, 0)


def causal_attention(heads: int, length: int) -> None:
    _attention(heads, length, True, 0)


def window_attention(heads: int, length: int) -> None:
    _attention(heads, length, True, 512)


CASES = (
    Case("attention", "attention", attention, (16, 2048), (1, 128)),
    Case("causal_attention", "work grows with the row", causal_attention, (16, 3000), (1, 128)),
    Case("window_attention", "short rows at the border", window_attention, (16, 8192), (1, 128)),
)
