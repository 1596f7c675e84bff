"""Real kernels with something added: what is added never makes them faster, what never runs makes no difference."""

import pytest
import torch
import triton
import triton.language as tl

from drkernel import sim
from drkernel.sim.gpu.datafree import DataFree
from drkernel.sim.spec import get_spec


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


@triton.jit
def one_worker_kernel(x, out, n, HOW: tl.constexpr):
    """The first program sums; others have a branch, or a loop, of no work."""
    if HOW == "branch":
        if tl.program_id(0) == 0:
            total = 0.0
            for i in range(n):
                total = total * 0.5 + tl.load(x + i)
            tl.store(out, total)
    else:
        total = 0.0
        for i in range(tl.where(tl.program_id(0) == 0, n, 0)):
            total = total * 0.5 + tl.load(x + i)
        tl.store(out, total, mask=tl.program_id(0) == 0)


@pytest.mark.parametrize("data_free", [None, DataFree()], ids=["executed", "data-free"])
def test_idle_programs_share_no_work(data_free: DataFree | None) -> None:
    """One program takes its time, however many others there are to divide it by."""
    with sim.device("h100", checks="off", data_free=data_free) as device:
        x, out = torch.zeros(2048, device="cuda"), torch.zeros(16, device="cuda")
        device.reset_counters()
        for how in ("branch", "loop"):
            for programs in (1, 132, 2000):
                one_worker_kernel[(programs,)](x, out, 2048, HOW=how)
        alone, *others = [launch.seconds for launch in device.launches]
    assert all(time == pytest.approx(alone, rel=0.02) for time in others)


@triton.jit
def sums_of_products_kernel(x, out, TIMES: tl.constexpr, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + k)
    w = v + 1.0
    for _ in range(TIMES):
        v, w = v * 0.7 + w * 0.3, v * 0.2 - w * 0.6
    tl.store(out + k, v + w)


def test_a_sum_absorbs_one_of_two_products() -> None:
    """``a * b + c * d`` is a product and a multiply-add: three operations, in no less than the peak allows."""
    with sim.device("h100", checks="off", data_free=DataFree()) as device:
        x, out = (torch.zeros(2112 * 1024, device="cuda") for _ in range(2))
        device.reset_counters()
        sums_of_products_kernel[(2112,)](x, out, TIMES=1000, BLOCK=1024)
        assert 0.5 < device.launches[0].roofline <= 0.75


@triton.jit
def table_kernel(table, out, a, b, n, EXTRA: tl.constexpr, BLOCK: tl.constexpr):
    """Every program reads a table from L2; with EXTRA the first one also reads small arrays."""
    k = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    if EXTRA and tl.program_id(0) == 0:
        for i in range(0, 12288, BLOCK):
            total += tl.load(a + i + k) + tl.load(b + i + k)
    for i in range(0, n, BLOCK):
        total += tl.load(table + i + k)
    tl.store(out + tl.program_id(0) * BLOCK + k, total)


def test_small_arrays_that_one_program_reads_keep_nothing_else_in_l1() -> None:
    with sim.device("h100", checks="off", data_free=DataFree()) as device:
        table, a, b = (torch.zeros(n, device="cuda") for n in (1 << 20, 12288, 12288))
        out = torch.zeros(1056 * 1024, device="cuda")
        device.reset_counters()
        for extra in (False, True):
            table_kernel[(1056,)](table, out, a, b, 1 << 20, EXTRA=extra, BLOCK=1024)
        plain, more = [launch.seconds for launch in device.launches]
    assert plain <= more < 1.05 * plain


@triton.jit
def passes_kernel(x, out, n, EXTRA: tl.constexpr, BLOCK: tl.constexpr):
    """Three passes over a row; with EXTRA each loads, too, what is masked off."""
    k = tl.arange(0, BLOCK)
    x += tl.program_id(0) * n
    total = 0.0
    for _ in range(3):
        for i in range(0, n, BLOCK):
            total += tl.sum(tl.load(x + i + k))
            if EXTRA:
                for j in tl.static_range(3):
                    total += tl.sum(tl.load(x + i + k + j, mask=k < 0, other=0.0))
    tl.store(out + tl.program_id(0), total)


def test_loads_that_are_masked_off_bring_no_other_ones_closer() -> None:
    found = []
    for extra in (False, True):
        with sim.device("h100", checks="off", data_free=DataFree()) as device:
            x, out = torch.zeros(1056, 65536, device="cuda"), torch.zeros(1056, device="cuda")
            device.reset_counters()
            passes_kernel[(1056,)](x, out, 65536, EXTRA=extra, BLOCK=2048)
            found += device.launches
    plain, more = found
    assert more.seconds >= plain.seconds and more.dram_bytes >= plain.dram_bytes


@triton.jit
def chase_kernel(x, index, out, n, EXTRA: tl.constexpr, BLOCK: tl.constexpr):
    """Sums what an index points to; with EXTRA the loop also makes a product that nobody needs."""
    k, tile = tl.arange(0, BLOCK), tl.arange(0, 16)
    total, product = tl.zeros([BLOCK], tl.float32), tl.zeros([16, 16], tl.float32)
    for i in range(0, n, BLOCK):
        total += tl.load(x + tl.load(index + i + k))
        if EXTRA:
            w = tl.load(x + tile[:, None] * 16 + tile[None, :])
            product = tl.dot(w, w, product)
    tl.store(out + tl.program_id(0) * BLOCK + k, total)
    if EXTRA:
        tl.store(out + tile[:, None] * 16 + tile[None, :], product, mask=tl.program_id(0) > 1 << 20)


def test_a_needless_product_does_not_load_a_loop_ahead() -> None:
    """Triton loads ahead what products are made of, and nothing else."""
    with sim.device("h100", checks="off") as device:
        x, index = torch.zeros(1 << 20, device="cuda"), torch.arange(1 << 14, device="cuda", dtype=torch.int32) * 61
        out = torch.zeros(132 * 256, device="cuda")
        device.reset_counters()
        for extra in (False, True):
            chase_kernel[(132,)](x, index, out, 1 << 14, EXTRA=extra, BLOCK=256, num_stages=5)
        plain, more = [launch.seconds for launch in device.launches]
    assert more >= plain


@triton.jit
def relu_kernel(x, out, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + k, tl.maximum(tl.load(x + k), 0.0))


def test_an_operator_and_a_kernel_that_move_the_same_bytes_share_a_roof() -> None:
    with sim.device("h200", checks="off", data_free=DataFree()) as device:
        x, out = (torch.zeros(1 << 24, device="cuda") for _ in range(2))
        device.reset_counters()
        torch.relu(x)
        relu_kernel[(1 << 14,)](x, out, BLOCK=1024)
        ideal = {row.owner: row.roofline * row.seconds for row in device.profile().rows}
        assert ideal["library"] == pytest.approx(ideal["custom"]) == pytest.approx((1 << 27) / 4.8e12)


@triton.jit
def outer_products_kernel(x, w, out, TIMES: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    rows, columns = tl.arange(0, M), tl.arange(0, N)
    total = tl.zeros([M, N], tl.float32)
    for k in range(TIMES):
        total += (
            tl.load(w + k * M + rows, mask=rows < M - 1, other=0.0)[:, None] * tl.load(x + k * N + columns)[None, :]
        )
    tl.store(out + rows[:, None] * N + columns[None, :] * 2, total)


def test_every_thread_loads_all_that_its_part_of_a_tile_takes() -> None:
    """32 numbers along the rows of 32 x 64 are 16 scalar loads in each of 128 threads, with their addresses: ptxas 12.8
    makes 112 instructions an iteration and warp (a convolution of NCHW, sm_80), 16 of them the multiply-adds."""
    spec, programs, times = get_spec("a100"), 108 * 16, 400
    with sim.device("a100", checks="off", data_free=DataFree()) as device:
        x, w, out = (torch.zeros(1 << 20, device="cuda") for _ in range(3))
        device.reset_counters()
        outer_products_kernel[(programs,)](x, w, out, TIMES=times, M=32, N=64)
        seconds = device.launches[0].seconds
    warp_instructions = seconds * spec.clock_hz * spec.sm_count * 2 / (programs * 4 * times)
    assert 85 < warp_instructions < 150


@triton.jit
def scaled_products_kernel(a, b, s, out, TIMES: tl.constexpr, BYTES: tl.constexpr, FORMAT: tl.constexpr):
    """Products of 128 x 128 x 128 in a microscaling format, or in bf16."""
    m, k, blocks = tl.arange(0, 128), tl.arange(0, BYTES), tl.arange(0, 4)
    total = tl.zeros([128, 128], tl.float32)
    for _ in range(TIMES):
        left, right = tl.load(a + m[:, None] * BYTES + k[None]), tl.load(b + k[:, None] * 128 + m[None])
        if FORMAT == "bf16":
            total = tl.dot(left, right, total)
        else:
            scales = tl.load(s + m[:, None] * 4 + blocks[None])
            total = tl.dot_scaled(left, scales, FORMAT, right, scales, FORMAT, total)
    tl.store(out + m[:, None] * 128 + m[None], total)


def test_products_of_microscaling_formats_go_by_the_units_that_a_card_has() -> None:
    times = {}
    for card in ("b200", "h100", "a100"):
        with sim.device(card, checks="off", data_free=DataFree()) as device:
            scales, out = torch.zeros(512, dtype=torch.uint8, device="cuda"), torch.zeros(128 * 128, device="cuda")
            for kind, dtype, nbytes in (
                ("e2m1", torch.uint8, 64), ("e5m2", torch.float8_e5m2, 128), ("bf16", torch.bfloat16, 128),
            ):  # fmt: skip
                x = torch.empty(128 * 128, dtype=dtype, device="cuda")
                device.reset_counters()
                scaled_products_kernel[(2000,)](x, x, scales, out, 500, nbytes, kind)
                times[card, kind] = device.launches[-1].seconds
    assert times["b200", "e2m1"] < times["b200", "e5m2"] < times["b200", "bf16"]
    for card in ("h100", "a100"):  # widened first, by instructions of their own
        assert times[card, "bf16"] < times[card, "e2m1"] == pytest.approx(times[card, "e5m2"], rel=0.1)


@triton.jit
def staged_kernel(a, b, out, LENGTH: tl.constexpr, OWN: tl.constexpr):
    m, k = tl.arange(0, 64), tl.arange(0, 32)
    total = tl.zeros([64, 64], tl.float32)
    for step in tl.range(0, LENGTH, 32, num_stages=OWN):
        left = tl.load(a + m[:, None] * LENGTH + (step + k)[None])
        total = tl.dot(left, tl.load(b + (step + k)[:, None] * 64 + m[None]), total)
    tl.store(out + m[:, None] * 64 + m[None], total)


def test_a_loops_own_stages_are_worth_what_the_launchs_are() -> None:
    with sim.device("h100", checks="off", data_free=DataFree()) as device:
        a, b = (torch.zeros(64 * 8192, dtype=torch.float16, device="cuda") for _ in range(2))
        out = torch.zeros(64 * 64, device="cuda")
        device.reset_counters()
        for stages in (1, 2, 4):
            staged_kernel[(8,)](a, b, out, 8192, stages)
            staged_kernel[(8,)](a, b, out, 8192, None, num_stages=stages)
        own, launched = ([launch.seconds for launch in device.launches][k::2] for k in (0, 1))
    assert own == pytest.approx(launched, rel=0.01)
    assert own[2] < own[1]
