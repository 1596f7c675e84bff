"""Sums the columns of a matrix. A program reads a strip of columns: neighbouring lanes read neighbouring addresses."""

import torch
import triton
import triton.language as tl


@triton.jit
def column_sum(x, out, rows, columns, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    at = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    down = tl.arange(0, ROWS)
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(0, rows, ROWS):
        total += tl.load(x + (start + down)[:, None] * columns + at[None, :])
    tl.store(out + at, tl.sum(total, axis=0))


x = torch.randn(8192, 8192, device="cuda")
out = torch.empty(8192, device="cuda")
ROWS, WIDTH = 32, 128
column_sum[(triton.cdiv(8192, WIDTH),)](x, out, 8192, 8192, ROWS=ROWS, WIDTH=WIDTH)
torch.testing.assert_close(out, x.sum(0), rtol=1e-4, atol=1e-2)
