"""A task as it was published: checked at sizes that fit, timed at its own, and both told wherever the answer shows."""

import json

import pytest

from commands import drkernel
from corpus_sources import module

TASK = module("torch.relu(x) * 0.5", {"x": "torch.randn(ROWS, COLS)"}, constants=["ROWS, COLS = 16384, 8192"])
ANSWER = """```python
import torch
import triton
import triton.language as tl

@triton.jit
def half_relu(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, tl.maximum(x, 0.0) * 0.5, mask=i < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        half_relu[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
```
"""
OWN, THIN = "x float32[16384, 8192]", "x float32[16, 8192]"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A bench of half a gigabyte a call, whose answer is right and fast; what it printed."""
    home = tmp_path_factory.mktemp("bench")
    (home / "wide.py").write_text(TASK)
    (home / "replies").mkdir()
    (home / "replies" / "turn1.md").write_text(ANSWER)
    terms = ["checked_bytes=2097152", "checks=2", "--turns=1", "--out=r", "bench.yaml"]
    (home / "bench.yaml").write_text("model: script:replies\ntasks: wide.py\n")
    return home, drkernel("bench", *terms, cwd=home, columns=160).stdout


def test_the_table_says_what_was_timed_and_what_was_checked(run):
    home, printed = run
    assert (
        "1 of 1 times are of the tasks' own sizes; the answers to 1 of 1 tasks were checked at smaller ones" in printed
    )
    sizes = json.loads((home / "r" / "summary.json").read_text())["sizes"]
    assert sizes["by_task"] == {"wide": {"checked_at": THIN, "timed_at": OWN}}
    assert (sizes["own"], sizes["checked"], sizes["untimed"]) == (1, 0, {})
    page = (home / "r" / "report.html").read_text()
    assert f"timed at {OWN}, checked at {THIN}" in page


def test_the_model_reads_it(run):
    rows = [json.loads(line) for line in (run[0] / "r" / "turns.jsonl").read_text().splitlines()]
    (feedback,) = [row["turn"]["feedback"] for row in rows if row.get("turn")]
    assert f"Timed at {OWN}; checked at {THIN}." in feedback


def test_exports_have_a_column_for_each(run):
    home, _ = run
    drkernel("export", "r", "--out", "data.jsonl", cwd=home)
    (row,) = map(json.loads, (home / "data.jsonl").read_text().splitlines())
    assert (row["turns"][-1]["checked_at"], row["turns"][-1]["timed_at"]) == (THIN, OWN)
    parquet = pytest.importorskip("pyarrow.parquet")
    drkernel("export", "r", "--out", "data.parquet", cwd=home)
    (again,) = parquet.read_table(home / "data.parquet").to_pylist()
    assert again["turns"][-1]["timed_at"] == OWN and again["turns"][-1]["untimed"] is None


def test_a_comparison_says_at_which_sizes_each_run_was_timed(run):
    printed = drkernel("compare", "r", "r", cwd=run[0], columns=160).stdout
    assert printed.count("1 of 1 times are of the tasks' own sizes") == 2
