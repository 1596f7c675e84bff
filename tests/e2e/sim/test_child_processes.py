"""Python processes that a script starts have a simulated GPU each, as processes on a machine with a card do."""

import subprocess

from farm import PYTHON

SCRIPT = """
import multiprocessing, subprocess, sys
import torch, triton
import triton.language as tl

@triton.jit
def add_one(x, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x + i, tl.load(x + i, i < n) + 1, i < n + (n == 3))
    if n == 4:
        tl.device_print("n", n)

def total(n):
    x = torch.zeros(n, device="cuda")
    add_one[(1,)](x, n, B=8)
    return x.sum().item()

if __name__ == "__main__":
    if sys.argv[1:]:
        print("child", torch.cuda.get_device_name(), total(4))
        total(3)
    else:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print("spawned", pool.apply(total, (5,)))
        child = subprocess.run([sys.executable, __file__, "child"], capture_output=True, text=True)
        print(child.returncode, child.stdout, child.stderr)
"""


def test_children_run_kernels_and_say_what_went_wrong(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [PYTHON, "-m", "drkernel", "sim", "--gpu", "a100", str(script)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "spawned 5.0" in done.stdout
    assert "child NVIDIA A100" in done.stdout and "0 pid (0, 0, 0)" not in done.stdout
    assert "4.0\npid (0, 0, 0) idx () n: 4" in done.stdout
    assert "drkernel sim: out_of_bounds in add_one" in done.stdout  # of the child, whose allocation is too short
