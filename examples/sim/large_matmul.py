"""Which tiles multiply large matrices fastest? ``drkernel sim examples/sim/large_matmul.py --no-data -- 8192``"""

import sys

import torch
import triton
import triton.language as tl


@triton.autotune(
    [
        triton.Config({"ROWS": 64, "COLUMNS": 64, "DEPTH": 32}, num_warps=4),
        triton.Config({"ROWS": 128, "COLUMNS": 128, "DEPTH": 64}, num_warps=8),
        triton.Config({"ROWS": 128, "COLUMNS": 256, "DEPTH": 64}, num_warps=8),
    ],
    key=["n"],
)
@triton.jit
def matmul_kernel(a, b, c, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, n, DEPTH):
        depth = start + tl.arange(0, DEPTH)
        total = tl.dot(tl.load(a + rows[:, None] * n + depth), tl.load(b + depth[:, None] * n + columns), total)
    tl.store(c + rows[:, None] * n + columns, total.to(tl.float16))


n = int(sys.argv[1]) if len(sys.argv) > 1 else 8192
a, b = (torch.randn(n, n, device="cuda", dtype=torch.float16) for _ in "ab")
c = torch.empty_like(a)
matmul_kernel[lambda meta: (n // meta["ROWS"], n // meta["COLUMNS"])](a, b, c, n)
print(f"{n} cubed: {matmul_kernel.best_config}")
torch.testing.assert_close(c, a @ b, rtol=1e-2, atol=1e-1)
