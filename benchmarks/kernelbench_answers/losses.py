"""Losses: one number out of two large inputs, in two kernels."""

from __future__ import annotations

LOSS = """
@triton.jit
def terms_kernel(p_ptr, t_ptr, part_ptr, n, columns, PER: tl.constexpr, BLOCK: tl.constexpr):
    base = tl.program_id(0).to(tl.int64) * PER
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, PER, BLOCK):
        at = base + start + tl.arange(0, BLOCK)
        inside = at < n
        p = tl.load(p_ptr + at, mask=inside, other=0.0)
        t = tl.load(t_ptr + TARGET, mask=inside, other=0.0)
        total += tl.where(inside, TERM, 0.0)
    tl.store(part_ptr + tl.program_id(0), tl.sum(total, 0))


@triton.jit
def total_kernel(part_ptr, out_ptr, parts, divisor, BLOCK: tl.constexpr):
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, parts, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(part_ptr + at, mask=at < parts, other=0.0)
    tl.store(out_ptr, tl.sum(total, 0) / divisor)


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        predictions, targets = predictions.contiguous(), targets.contiguous()
        n, columns = predictions.numel(), predictions.shape[-1]
        parts = triton.cdiv(n, 65536)
        part = torch.empty(parts, device=predictions.device, dtype=torch.float32)
        out = torch.empty((), device=predictions.device, dtype=torch.float32)
        terms_kernel[(parts,)](predictions, targets, part, n, columns, PER=65536, BLOCK=2048)
        total_kernel[(1,)](part, out, parts, DIVISOR, BLOCK=1024)
        return out
"""

CROSS_ENTROPY = """
@triton.jit
def rows_kernel(p_ptr, t_ptr, part_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    x = tl.load(p_ptr + row * columns + at, mask=at < columns, other=-float("inf"))
    most = tl.max(x, 0)
    total = tl.sum(tl.exp(x - most), 0)
    chosen = tl.load(p_ptr + row * columns + tl.load(t_ptr + row))
    tl.store(part_ptr + row, tl.log(total) + most - chosen)


@triton.jit
def mean_kernel(part_ptr, out_ptr, parts, BLOCK: tl.constexpr):
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, parts, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(part_ptr + at, mask=at < parts, other=0.0)
    tl.store(out_ptr, tl.sum(total, 0) / parts)


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        predictions = predictions.contiguous()
        rows, columns = predictions.shape
        part = torch.empty(rows, device=predictions.device, dtype=torch.float32)
        out = torch.empty((), device=predictions.device, dtype=torch.float32)
        rows_kernel[(rows,)](predictions, targets.contiguous(), part, columns, BLOCK=triton.next_power_of_2(columns))
        mean_kernel[(1,)](part, out, rows, BLOCK=1024)
        return out
"""


def loss(term: str, target: str = "at", divisor: str = "n") -> str:
    """The mean of ``term`` of ``p`` and ``t``."""
    return LOSS.replace("TERM", term).replace("TARGET", target).replace("DIVISOR", divisor)


HUBER = "tl.where(tl.abs(p - t) < 1.0, 0.5 * (p - t) * (p - t), tl.abs(p - t) - 0.5)"
KL = "tl.where(t > 0, t * (tl.log(tl.where(t > 0, t, 1.0)) - tl.log(p)), 0.0)"

ANSWERS = {
    "level1/94": loss("(p - t) * (p - t)"),
    "level1/95": CROSS_ENTROPY,
    "level1/96": loss(HUBER),
    "level1/98": loss(KL, divisor="predictions.shape[0]"),
    "level1/100": loss("tl.maximum(1.0 - p * t, 0.0)", "at % columns"),
}
