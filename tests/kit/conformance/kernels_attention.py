"""Flash attention, forward and backward, causal and full."""

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


@triton.jit
def delta_kernel(out, grad, delta, length, D: tl.constexpr, BM: tl.constexpr):
    rm, rd = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    at = tl.program_id(1) * length * D + rm[:, None] * D + rd[None, :]
    inside = rm[:, None] < length
    product = tl.load(out + at, mask=inside, other=0.0).to(tl.float32) * tl.load(grad + at, mask=inside, other=0.0)
    tl.store(delta + tl.program_id(1) * length + rm, tl.sum(product, 1), mask=rm < length)


@triton.jit
def backward_kernel(
    q, k, v, grad, lse, delta, dq, dk, dv, scale, length,
    CAUSAL: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """One block of keys a program: dK and dV kept, dQ added atomically."""
    block, head = tl.program_id(0), tl.program_id(1)
    base = head * length * D
    rn, rd = block * BN + tl.arange(0, BN), tl.arange(0, D)
    keys = rn[:, None] < length
    key = tl.load(k + base + rn[:, None] * D + rd[None, :], mask=keys, other=0.0)
    value = tl.load(v + base + rn[:, None] * D + rd[None, :], mask=keys, other=0.0)
    dkey, dvalue = tl.zeros((BN, D), tl.float32), tl.zeros((BN, D), tl.float32)
    first = block * BN // BM * BM if CAUSAL else 0
    for start in range(first, length, BM):
        rm = start + tl.arange(0, BM)
        rows = rm < length
        at = base + rm[:, None] * D + rd[None, :]
        query = tl.load(q + at, mask=rows[:, None], other=0.0)
        dout = tl.load(grad + at, mask=rows[:, None], other=0.0)
        m = tl.load(lse + head * length + rm, mask=rows, other=0.0)
        row_delta = tl.load(delta + head * length + rm, mask=rows, other=0.0)
        scores = tl.dot(query, tl.trans(key)) * (scale * 1.44269504)
        allowed = rows[:, None] & (rn[None, :] < length)
        if CAUSAL:
            allowed = allowed & (rm[:, None] >= rn[None, :])
        p = tl.where(allowed, tl.math.exp2(scores - m[:, None]), 0.0)
        dvalue += tl.dot(tl.trans(p.to(dout.dtype)), dout)
        dp = tl.dot(dout, tl.trans(value))
        ds = (p * (dp - row_delta[:, None])).to(query.dtype)
        dkey += tl.dot(tl.trans(ds), query)
        tl.atomic_add(dq + at, tl.dot(ds, key) * scale, mask=rows[:, None])
    tl.store(dk + base + rn[:, None] * D + rd[None, :], dkey * scale, mask=keys)
    tl.store(dv + base + rn[:, None] * D + rd[None, :], dvalue, mask=keys)


def _reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool) -> torch.Tensor:
    scores = q @ k.transpose(1, 2) * scale
    if causal:
        length = q.shape[1]
        scores = scores.masked_fill(~torch.ones(length, length, dtype=torch.bool).tril(), -float("inf"))
    return scores.softmax(-1) @ v


def _run(
    device: str, dtype: torch.dtype, heads: int, length: int, d: int, causal: bool, bm: int, bn: int
) -> Iterator[Check]:
    q, k, v, grad = (randn(heads, length, d, seed=s, dtype=dtype) for s in range(4))
    scale = d**-0.5
    on = [t.to(device) for t in (q, k, v, grad)]
    out = torch.zeros(heads, length, d, dtype=dtype, device=device)
    lse, delta = (torch.zeros(heads, length, device=device) for _ in range(2))
    forward_kernel[(triton.cdiv(length, bm), heads)](
        on[0], on[1], on[2], out, lse, scale, length, CAUSAL=causal, D=d, BM=bm, BN=bn
    )
    doubles = [t.double().requires_grad_() for t in (q, k, v)]
    want = _reference(*doubles, scale, causal)
    want.backward(grad.double())
    atol = 2e-3 if dtype is torch.float16 else 4e-3
    tag = f"{dtype} {heads}x{length}x{d} causal {causal}"
    yield Check(f"{tag} out", out.cpu(), want.detach(), atol=atol)
    delta_kernel[(triton.cdiv(length, bm), heads)](out, on[3], delta, length, D=d, BM=bm)
    dq, dk, dv = (torch.zeros(heads, length, d, device=device) for _ in range(3))
    backward_kernel[(triton.cdiv(length, bn), heads)](
        *on, lse, delta, dq, dk, dv, scale, length, CAUSAL=causal, D=d, BM=bm, BN=bn
    )
    for name, got, leaf in (("dq", dq, doubles[0]), ("dk", dk, doubles[1]), ("dv", dv, doubles[2])):
        yield Check(f"{tag} {name}", got.cpu(), leaf.grad, atol=2.5 * atol)


@case()
def flash_attention_half(device: str) -> Iterator[Check]:
    yield from _run(device, torch.float16, 2, 64, 32, True, 32, 32)
    yield from _run(device, torch.float16, 1, 50, 16, False, 16, 32)


@case(interpreter=False)
def flash_attention_single(device: str) -> Iterator[Check]:
    yield from _run(device, torch.float32, 2, 70, 32, True, 32, 16)
