"""``drkernel sim`` where values are not computed: what it says of launches that never ran, and what it needs."""

import sys
from pathlib import Path

import pytest

from drkernel.cli import main
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
import torch, triton, triton.language as tl

@triton.jit
def scale_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2.0, mask=at < n)

x = torch.randn(512, 1 << 20, device="cuda")
out = torch.empty_like(x)
scale_kernel[(512 * 1024,)](x.relu(), out, x.numel(), BLOCK=1024)
"""


def drkernel_sim(patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *args: object) -> str:
    """What the command prints, in this process."""
    patch.setattr(sys, "argv", ["drkernel", "sim", *map(str, args)])
    patch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        main()
    out, errors = capsys.readouterr()
    assert not ended.value.code, errors + out
    return out


def test_what_never_ran_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "product.py"
    script.write_text(LONG)
    said = " ".join(drkernel_sim(monkeypatch, capsys, script).split())
    assert "product: 1 long launch counted from a sample of programs, not executed: nothing read" in said


def test_a_run_without_data_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    said = drkernel_sim(monkeypatch, capsys, EXAMPLES / "sim" / "large_matmul.py", "--no-data", "--", "2048")
    assert "No data: outputs hold nothing" in said and "sample of programs" in said
    assert "estimated error" in said and "assert_close was taken to pass" in said


def _memory(what: str) -> float:
    """A line of this process's status, in MiB."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(what))
    return int(line.split()[1]) / 1024


def test_memory_stays_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two gigabytes of input, an operator and a kernel: this machine gives next to nothing for it."""
    script = tmp_path / "large.py"
    script.write_text(LARGE)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _memory("VmRSS")
    drkernel_sim(monkeypatch, capsys, script, "--no-data")
    assert _memory("VmHWM") - before < 500
