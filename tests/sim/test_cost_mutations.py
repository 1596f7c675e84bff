"""Real kernels with something added: what is added never makes them faster, what never runs makes no difference."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from drkernel import sim


@triton.jit
def row_kernel(x, out, junk, n, EXTRA: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    k = tl.arange(0, BLOCK)
    mask = k < n
    v = tl.load(x + row * n + k, mask=mask, other=-float("inf"))
    if EXTRA == "two dead passes":
        for _ in range(2):
            again = tl.load(x + row * n + k, mask=mask, other=0.0, volatile=True)
            v += again * 0.0
    if EXTRA == "a load that never runs" and n < 0:
        for start in range(0, 1 << 20, BLOCK):
            v += tl.load(x + start + k) + tl.load(junk + start + k)
    if EXTRA == "a dead load":
        v += tl.load(junk + row * n + k, mask=mask & (v > 1e38), other=0.0)
    if EXTRA == "a scalar loop":
        total = 0.0
        for i in range(2000):
            total = total * 0.5 + i
        v += tl.where(total < 0, 1.0, 0.0)
    if EXTRA == "a junk store":
        tl.store(junk + row * n + k, v * 2, mask=mask)
    if EXTRA == "a printed string" and n < 0:
        tl.device_print("tt.load %0 : tensor<65536x!tt.ptr<f64>>", row)
    if EXTRA == "lgamma":
        v = tl.where(v > 1e38, tl.extra.cuda.libdevice.lgamma(v), v)
    if EXTRA == "integer division":
        v += ((k % (n + 7)) // (n + 11)).to(tl.float32)
    if EXTRA == "spread atomics":
        tl.atomic_add(junk + row * n + k, v * 0.0, mask=mask)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * n + k, e / tl.sum(e, 0), mask=mask)


ADDED = ("two dead passes", "a dead load", "a scalar loop", "a junk store", "lgamma", "integer division",
         "spread atomics")  # fmt: skip
NOT_RUN = ("a load that never runs", "a printed string")


def seconds(extra: str, rows: int, columns: int, **options: int) -> float:
    with sim.device("h100", checks="off") as device:
        x, out, junk = (torch.zeros(rows, columns, device="cuda") for _ in range(3))
        block = triton.next_power_of_2(columns)
        device.reset_counters()
        row_kernel[(rows,)](x, out, junk, columns, EXTRA=extra, BLOCK=block, **options)
        return device.launches[0].seconds


@pytest.mark.parametrize("shape", [(64, 1000), (512, 4096), (2048, 512)])
def test_what_is_added_never_makes_a_kernel_faster(shape: tuple[int, int]) -> None:
    plain = seconds("nothing", *shape)
    for extra in ADDED:
        assert seconds(extra, *shape) >= plain, extra
    assert seconds("a scalar loop", *shape) > 1.2 * plain
    assert seconds("a junk store", 2048, 4096) > 1.2 * seconds("nothing", 2048, 4096)


@pytest.mark.parametrize("extra", NOT_RUN)
def test_what_never_runs_makes_no_difference(extra: str) -> None:
    """A branch on an argument costs its test and no more; above all it is not faster."""
    plain, with_it = seconds("nothing", 512, 4096), seconds(extra, 512, 4096)
    assert plain <= with_it < 1.1 * plain


def test_stages_without_a_loop_earn_nothing() -> None:
    times = {seconds("nothing", 512, 4096, num_stages=stages) for stages in (1, 2, 3, 5)}
    assert len(times) == 1


def test_warps_matter_where_rows_are_wide() -> None:
    """One warp for 16,384 elements holds 512 values a thread, which spill; eight hold 64."""
    times = [seconds("nothing", 264, 16384, num_warps=warps) for warps in (1, 2, 4, 8)]
    assert times == sorted(times, reverse=True) and times[0] > 1.5 * times[-1]
