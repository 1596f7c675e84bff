"""Kernels on disk: the second run compiles nothing and gives the same; damage and foreign folders are survived."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from drkernel.sim.executor.kernel_cache import KernelCache, active, kernels_on_disk
from drkernel.sim.executor.lower import jit

SCRIPT = """
import torch, triton, triton.language as tl

@triton.jit
def softmax(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * n + at, mask=at < n, other=-float("inf"))
    top = tl.exp(row - tl.max(row, 0))
    tl.store(out + tl.program_id(0) * n + at, top / tl.sum(top, 0), mask=at < n)

x = torch.randn(16, 100, device="cuda")
out = torch.empty_like(x)
softmax[(16,)](x, out, 100, BLOCK=128)
torch.testing.assert_close(out.cpu(), x.cpu().softmax(1))
"""
REFUSING = """
import sys
from drkernel.sim.host import triton_kernel
def no_front_end(*_): raise AssertionError("the front end ran")
triton_kernel.ttir_text = no_front_end
from drkernel.cli import main
sys.argv = ["drkernel", "sim", *sys.argv[1:]]
main()
"""


def _run(script: Path, home: Path, code: str = "from drkernel.cli import main; main()") -> tuple[int, str, str]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(home)}
    arguments = ["sim", str(script), "--json"] if "argv" not in code else [str(script), "--json"]
    done = subprocess.run([sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_the_second_run_compiles_nothing_and_damage_is_survived(tmp_path: Path) -> None:
    script = tmp_path / "softmax.py"
    script.write_text(SCRIPT)
    folder = tmp_path / "drkernel" / "kernels"
    code, _, errors = _run(script, tmp_path, REFUSING)
    assert code == 1 and not list(folder.iterdir()), errors
    assert _run(script, tmp_path)[0] == 0
    entries = {path: path.read_bytes() for path in folder.iterdir()}
    assert len(entries) == 2  # what the front end made, and native code
    code, report, errors = _run(script, tmp_path, REFUSING)
    assert code == 0, errors
    assert json.loads(report)["launches"][0]["kernel"] == "softmax"
    for path, content in entries.items():
        path.write_bytes(content[:-7] + b"damaged")
    code, _, errors = _run(script, tmp_path)
    assert code == 0 and "damaged entry" in errors


TEXT = "define void @kernel(ptr %c, i64 %a, i64 %b) {\n  %s = add i64 %a, %b\n  store i64 %s, ptr %c\n  ret void\n}\n"


def test_native_code_comes_back(tmp_path: Path) -> None:
    for expected in (0, 1):  # the second time there is an entry already
        with kernels_on_disk(tmp_path / "kernels"):
            assert len(list((tmp_path / "kernels").iterdir())) == expected
            native = jit.build(TEXT, "kernel", optimise=False)
        out = torch.zeros(1, dtype=torch.int64)
        native.call(out.data_ptr(), 3, 4)
        assert out.item() == 7
    assert active() is None
    jit.build(TEXT.replace("add", "sub"), "kernel", optimise=False)  # nothing is kept outside of the block
    assert len(list((tmp_path / "kernels").iterdir())) == 1


def test_a_folder_that_others_may_write_to_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.warns(UserWarning, match="others may write"), kernels_on_disk(folder):
        assert active() is None
    missing = tmp_path / "file"
    missing.write_text("")
    with kernels_on_disk(missing / "folder"):
        assert active() is None


def test_old_entries_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drkernel.sim.executor.kernel_cache.MOST_ENTRIES", 5)
    kept = KernelCache(tmp_path)
    for k in range(8):
        kept.put(b"x", str(k))
        os.utime(kept._path((str(k),)), (k, k))
    kept.trim()
    assert [kept.get(str(k)) for k in range(8)] == [None] * 4 + [b"x"] * 4
