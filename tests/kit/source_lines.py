"""A script for ``test_source_lines.py``: a helper loads every other element, the kernel copies what it is told to."""

import sys

import torch
import triton
import triton.language as tl


@triton.jit
def every_other(p, at, inside):
    return tl.load(p + at * 2, mask=inside, other=0.0)


@triton.jit
def scaled(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    a = every_other(x, at, inside)
    b = tl.load(y + at, mask=inside)
    tl.store(out + at, tl.exp(a) * b, mask=inside)


n = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 22
x, y, out = torch.zeros(2 * n, device="cuda"), torch.ones(n, device="cuda"), torch.empty(n, device="cuda")
scaled[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
