"""``triton.testing.perf_report`` as the tutorials use it: a table of modelled figures, and a plot."""

from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
import triton.testing

from drkernel import sim

pandas = pytest.importorskip("pandas")
pytest.importorskip("matplotlib").use("Agg")


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


SWEEP = triton.testing.Benchmark(
    x_names=["size"], x_vals=[2**12, 2**16, 2**20], x_log=True, line_arg="provider", line_vals=["triton", "torch"],
    line_names=["Triton", "Torch"], styles=[("blue", "-"), ("green", "-")], ylabel="GB/s", plot_name="add", args={},
)  # fmt: skip


def bandwidth(size: int, provider: str) -> tuple[float, float, float]:
    x, y = torch.rand(size, device="cuda"), torch.rand(size, device="cuda")
    out = torch.empty_like(x)
    call = (lambda: x + y) if provider == "torch" else (lambda: add[(triton.cdiv(size, 1024),)](x, y, out, size, 1024))
    ms, low, high = triton.testing.do_bench(call, quantiles=[0.5, 0.2, 0.8])
    return tuple(3 * x.numel() * x.element_size() / t * 1e-6 for t in (ms, high, low))  # type: ignore[return-value]


def test_tables_and_plots(tmp_path: Path) -> None:
    with sim.device("h100"):
        table = triton.testing.perf_report(SWEEP)(bandwidth).run(save_path=str(tmp_path), return_df=True)
    assert list(table.columns) == ["size", "Triton (GB/s)", "Torch (GB/s)"]
    assert table["Triton (GB/s)"].is_monotonic_increasing and 100 < table["Triton (GB/s)"].iloc[-1] < 6000
    written = pandas.read_csv(tmp_path / "add.csv")
    assert written["Torch (GB/s)"].tolist() == pytest.approx(table["Torch (GB/s)"].tolist(), rel=1e-3)
    assert (tmp_path / "add.png").read_bytes()[:4] == b"\x89PNG"
