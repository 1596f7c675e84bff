"""Sums the columns of a matrix. A program reads one column: neighbouring lanes read addresses a whole row apart.

Run with ``drkernel sim examples/sim/column_sum.py --no-data``; docs/sim.md tells what the report says, and
``column_sum_blocks.py`` is the mended kernel.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def column_sum(x, out, rows, columns, BLOCK: tl.constexpr):
    column = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, rows, BLOCK):
        total += tl.load(x + (start + at) * columns + column)
    tl.store(out + column, tl.sum(total))


x = torch.randn(8192, 8192, device="cuda")
out = torch.empty(8192, device="cuda")
column_sum[(8192,)](x, out, 8192, 8192, BLOCK=1024)
torch.testing.assert_close(out, x.sum(0), rtol=1e-4, atol=1e-2)
