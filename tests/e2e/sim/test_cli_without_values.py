"""``drkernel sim`` where values are not computed: what it says of launches that never ran, and what it needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from places import EXAMPLES

LONG = """
import torch, triton, triton.language as tl

@triton.jit
def product(a, b, c, K, B: tl.constexpr):
    row, col = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    total = tl.zeros((B, B), tl.float32)
    for k in range(0, K, B):
        inner = k + tl.arange(0, B)
        total = tl.dot(tl.load(a + row[:, None] * K + inner), tl.load(b + inner[:, None] * K + col), total)
    tl.store(c + row[:, None] * K + col, total.to(tl.float16))

for n in (128, 4096):
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)
    product[(n // 64, n // 64)](a, b, c, n, B=64)
"""
LARGE = """
import resource, sys, torch, triton, triton.language as tl

@triton.jit
def scale_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2.0, mask=at < n)

def used():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

def run(x):
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 1024),)](x.relu(), out, x.numel(), BLOCK=1024)

run(torch.randn(4096, device="cuda"))
before = used()
run(torch.randn(1536, 1 << 20, device="cuda"))
print("more", used() - before, "MiB", file=sys.stderr)
"""


def drkernel_sim(*args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "drkernel", "sim", *map(str, args)]
    env = {**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)


def test_what_never_ran_is_told(tmp_path: Path) -> None:
    script = tmp_path / "product.py"
    script.write_text(LONG)
    done = drkernel_sim(script)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "product: 1 long launch counted from a sample of programs, not executed: nothing read" in said


def test_a_run_without_data_says_so() -> None:
    done = drkernel_sim(EXAMPLES / "sim" / "large_matmul.py", "--no-data", "--", "4096")
    assert done.returncode == 0, done.stderr + done.stdout
    assert "No data: outputs hold nothing" in done.stdout and "sample of programs" in done.stdout
    assert "estimated error" in done.stdout and "assert_close was taken to pass" in done.stdout


def test_memory_stays_small(tmp_path: Path) -> None:
    """Six gigabytes of input, an operator and a kernel: this machine gives next to nothing for it."""
    script = tmp_path / "large.py"
    script.write_text(LARGE)
    done = drkernel_sim(script, "--no-data")
    assert done.returncode == 0, done.stderr + done.stdout
    (more,) = (line.split()[1] for line in done.stderr.splitlines() if line.startswith("more "))
    assert float(more) < 1500
