"""Flash attention, causal and full."""

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from conformance_cases import Check, case, randn


@triton.jit
def forward_kernel(
    q, k, v, out, lse, scale, length,
    CAUSAL: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    block, head = tl.program_id(0), tl.program_id(1)
    base = head * length * D
    rm, rd = block * BM + tl.arange(0, BM), tl.arange(0, D)
    query = tl.load(q + base + rm[:, None] * D + rd[None, :], mask=rm[:, None] < length, other=0.0)
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    end = tl.minimum((block + 1) * BM, length) if CAUSAL else length
    for start in range(0, end, BN):
        rn = start + tl.arange(0, BN)
        key = tl.load(k + base + rn[None, :] * D + rd[:, None], mask=rn[None, :] < length, other=0.0)
        scores = tl.dot(query, key) * (scale * 1.44269504)
        allowed = rn[None, :] < length
        if CAUSAL:
            allowed = allowed & (rm[:, None] >= rn[None, :])
        scores = tl.where(allowed, scores, -1.0e30)
        higher = tl.maximum(top, tl.max(scores, 1))
        p = tl.math.exp2(scores - higher[:, None])
        shrink = tl.math.exp2(top - higher)
        total = total * shrink + tl.sum(p, 1)
        value = tl.load(v + base + rn[:, None] * D + rd[None, :], mask=rn[:, None] < length, other=0.0)
        acc = tl.dot(p.to(value.dtype), value, acc * shrink[:, None])
        top = higher
    inside = rm[:, None] < length
    tl.store(out + base + rm[:, None] * D + rd[None, :], (acc / total[:, None]).to(out.dtype.element_ty), mask=inside)
    tl.store(lse + head * length + rm, top + tl.math.log2(total), mask=rm < length)


def _reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool) -> torch.Tensor:
    scores = q @ k.transpose(1, 2) * scale
    if causal:
        length = q.shape[1]
        scores = scores.masked_fill(~torch.ones(length, length, dtype=torch.bool).tril(), -float("inf"))
    return scores.softmax(-1) @ v


def _run(
    device: str, dtype: torch.dtype, heads: int, length: int, d: int, causal: bool, bm: int, bn: int
) -> Iterator[Check]:
    q, k, v = (randn(heads, length, d, seed=s, dtype=dtype) for s in range(3))
    scale = d**-0.5
    out = torch.zeros(heads, length, d, dtype=dtype, device=device)
    lse = torch.zeros(heads, length, device=device)
    forward_kernel[(triton.cdiv(length, bm), heads)](
        q.to(device), k.to(device), v.to(device), out, lse, scale, length, CAUSAL=causal, D=d, BM=bm, BN=bn
    )
    want = _reference(q.double(), k.double(), v.double(), scale, causal)
    atol = 2e-3 if dtype is torch.float16 else 4e-3
    yield Check(f"{dtype} {heads}x{length}x{d} causal {causal}", out.cpu(), want, atol=atol)


@case()
def flash_attention_half(device: str) -> Iterator[Check]:
    yield from _run(device, torch.float16, 2, 64, 32, True, 32, 32)
    yield from _run(device, torch.float16, 1, 50, 16, False, 16, 32)


@case(interpreter=False)
def flash_attention_single(device: str) -> Iterator[Check]:
    yield from _run(device, torch.float32, 2, 70, 32, True, 32, 16)
