"""Products, windows and divisions of real Triton kernels: each mechanism by two kernels that differ in it alone."""

from dataclasses import replace

import pytest
import torch
import triton
import triton.language as tl

from drkernel import sim
from drkernel.sim.cost.kernel_profile import Dot
from drkernel.sim.cost.launch_time import Spread, dot_rate
from drkernel.sim.cost.products import Product, plan_gemm
from drkernel.sim.gpu.datafree import DataFree
from drkernel.sim.spec import get_spec


@triton.jit
def product(a, b, c, k, WAITS: tl.constexpr, B: tl.constexpr, CROSSED: tl.constexpr = False):
    rows, columns = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    deep = tl.arange(0, 64)
    acc = tl.zeros((B, B), dtype=tl.float32)
    for start in range(0, k, 64):
        x = tl.load(a + rows[:, None] * k + start + deep[None, :])
        if CROSSED:
            y = tl.load(b + columns[None, :] + (start + deep[:, None]) * k)
        else:
            y = tl.load(b + columns[None, :] * k + start + deep[:, None])
        if WAITS:
            x = tl.exp2(x.to(tl.float32)).to(tl.float16)
        acc = tl.dot(x, y, acc)
    tl.store(c + rows[:, None] * k + columns[None, :], acc.to(c.dtype.element_ty))


@triton.jit
def persistent(a, b, c, n, FLAT: tl.constexpr, SMS: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    """Each program makes several tiles: by two loops, or by one with a branch at the end of each tile."""
    first, across, deep = tl.program_id(0), n // N, tl.arange(0, 64)
    acc = tl.zeros((M, N), dtype=tl.float32)
    if FLAT:
        tile, start = first - SMS, -64
        rows, columns = tl.arange(0, M), tl.arange(0, N)
        for _ in range(n // 64 * (n // M * across // SMS)):
            start = tl.where(start == n - 64, 0, start + 64)
            if start == 0:
                tile += SMS
                rows, columns = tile // across * M + tl.arange(0, M), tile % across * N + tl.arange(0, N)
            x = tl.load(a + rows[:, None] * n + start + deep[None, :])
            y = tl.load(b + (start + deep[:, None]) * n + columns[None, :])
            acc = tl.dot(x, y, acc)
            if start == n - 64:
                tl.store(c + rows[:, None] * n + columns[None, :], acc.to(tl.float16))
                acc = tl.zeros((M, N), dtype=tl.float32)
    else:
        for tile in range(first, n // M * across, SMS):
            rows, columns = tile // across * M + tl.arange(0, M), tile % across * N + tl.arange(0, N)
            acc = tl.zeros((M, N), dtype=tl.float32)
            for start in range(0, n, 64):
                x = tl.load(a + rows[:, None] * n + start + deep[None, :])
                y = tl.load(b + (start + deep[:, None]) * n + columns[None, :])
                acc = tl.dot(x, y, acc)
            tl.store(c + rows[:, None] * n + columns[None, :], acc.to(tl.float16))


@triton.jit
def windows(x, out, width, STRIDE: tl.constexpr, TAPS: tl.constexpr, FAR: tl.constexpr, B: tl.constexpr):
    """Sums of windows; or the same number of reads of a program's inputs in passes, the whole between two of them."""
    i = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    total = tl.zeros((B,), dtype=tl.float32)
    if FAR:
        for _ in range(TAPS):
            for start in range(STRIDE):
                total += tl.load(
                    x + tl.program_id(0).to(tl.int64) * B * STRIDE + start * B + tl.arange(0, B), volatile=True
                )
    else:
        for tap in tl.static_range(TAPS):
            total += tl.load(x + i * STRIDE + tap, mask=i * STRIDE + tap < width)
    tl.store(out + i, total)


@triton.jit
def divide(x, out, n, EACH: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + i)
    for _ in range(16):
        value += value // (value + n) if EACH else value // n
    tl.store(out + i, value)


@triton.autotune(configs=[triton.Config({"B": b}) for b in (16, 1024)], key=["n"])
@triton.jit
def tuned(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i))


@triton.jit
def each(x, out, SPECIAL: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + i)
    for _ in tl.static_range(8):
        value = tl.exp2(value) if SPECIAL else value * 3.0
    tl.store(out + i, value)


def seconds(kernel, grid, *arguments, card: str = "h100", **options) -> float:
    shapes = [a if isinstance(a, tuple) else None for a in arguments]
    with sim.device(card, checks="off", data_free=DataFree()) as device:
        given = [
            torch.empty(shape[0], device="cuda", dtype=shape[1]) if shape else value
            for shape, value in zip(shapes, arguments, strict=True)
        ]
        kernel[grid](*given, **options)
        return device.launches[-1].seconds


def test_hopper_takes_four_warps_and_64_rows_for_its_own_instructions() -> None:
    h100, a100 = get_spec("h100"), get_spec("a100")
    full, few_warps = Dot("tensor_fp16", 2.0**19, 64, 64 * 64), Dot("tensor_fp16", 2.0**18, 32, 32 * 64)
    assert dot_rate(full, 128, h100) > 1.3 * dot_rate(full, 64, h100) == 1.3 * dot_rate(few_warps, 128, h100)
    assert dot_rate(full, 128, a100) == dot_rate(full, 64, a100) == dot_rate(few_warps, 128, a100)
    broad = Dot("tensor_fp16", 2.0**21, 64, 64 * 256)  # of which shared memory gives the operands fast enough
    for one in (full, broad):
        chained = replace(one, chained=True)  # eight warps along 64 rows make each of them twice
        assert dot_rate(chained, 256, h100) == dot_rate(chained, 128, h100) / 2
    assert dot_rate(chained, 256, h100) == dot_rate(broad, 256, h100) / 2 == dot_rate(chained, 128, h100) / 2
    assert dot_rate(full, 256, h100) < dot_rate(full, 128, h100)  # beside each other, warps read the same rows twice
    wide, narrow = Dot("fp32_dot", 1.0, 128, 128 * 128), Dot("fp32_dot", 1.0, 16, 16 * 16)
    assert dot_rate(wide, 128, h100) > 1.25 * dot_rate(narrow, 128, h100)


def test_arithmetic_that_a_product_waits_for_takes_its_time_beside_it() -> None:
    matrix = ((4096 * 4096,), torch.float16)
    run, waits = (
        seconds(product, (32, 32), matrix, matrix, matrix, 4096, WAITS=waits, B=128, num_warps=8, num_stages=3)
        for waits in (False, True)
    )
    peak = get_spec("h100").peak["tensor_fp16"]
    assert 0.4 < 2 * 4096**3 / run / peak < 0.8  # tiles of 128 by 128 are bound by L2
    assert waits > 1.1 * run


@pytest.mark.parametrize("card", ["a100", "h100"])
def test_a_branch_at_the_end_of_each_tile_costs_its_loop_little(card: str) -> None:
    """By machine code (sm_80, tiles of 128 x 256, 8 warps) nothing spills, and a tile is cleared in the branch."""
    matrix, options = ((2048 * 2048,), torch.float16), {"num_warps": 8, "num_stages": 3}
    flat, nested = (
        seconds(persistent, (64,), matrix, matrix, matrix, 2048, FLAT=flat, SMS=64, M=128, N=256, card=card, **options)
        for flat in (True, False)
    )
    assert nested < flat < 1.25 * nested


def test_more_warps_read_the_operands_of_a_small_tile_more_often() -> None:
    matrix = ((1024 * 1024,), torch.float32)
    four, eight = (
        seconds(product, (32, 32), matrix, matrix, matrix, 1024, WAITS=False, B=32, num_warps=warps, num_stages=3)
        for warps in (4, 8)
    )
    assert 1.2 < eight / four < 1.5  # H100: 34.4 and 46.6 us, 32 deep


def test_loads_before_special_functions_are_put_off_where_a_thread_has_many() -> None:
    many, few = ((4096,), torch.float32), ((256,), torch.float32)
    special, plain = (seconds(each, (1,), many, many, SPECIAL=some, B=4096, num_warps=1) for some in (True, False))
    short, shortest = (seconds(each, (1,), few, few, SPECIAL=some, B=256, num_warps=1) for some in (True, False))
    assert special - plain > 8 * get_spec("h100").dram_latency > short - shortest


def test_a_lone_program_waits_for_asynchronous_copies_as_its_stages_let_it() -> None:
    strip = ((64 * 4096,), torch.float16)
    two, three, four = (
        seconds(product, (1, 1), strip, strip, strip, 4096, WAITS=False, B=64, num_stages=stages) / 64
        for stages in (2, 3, 4)
    )
    assert two == pytest.approx(0.93e-6, rel=0.05) and four == pytest.approx(0.41e-6, rel=0.05)  # measured on an H200
    assert 0.45 < three / two < 0.6 and four < three


def test_hopper_turns_operands_of_32_bits_in_shared_memory_bank_by_bank() -> None:
    matrix = ((2048 * 2048,), torch.float32)
    along, across = (
        seconds(product, (32, 32), matrix, matrix, matrix, 2048, WAITS=False, B=64, CROSSED=crossed)
        for crossed in (False, True)
    )
    assert across > 2.0 * along


def test_programs_of_unequal_length_leave_an_sm_with_more_of_the_longest() -> None:
    triangle, alike = Spread.of((32, float(length)) for length in range(1, 65)), Spread.of([(2112, 32.5)])
    mean = triangle.seconds / 132
    assert 1.05 * mean < triangle.placed(132, 16) < 1.5 * mean  # all find a slot at once, and stay where they are
    assert mean < triangle.placed(132, 3) < 0.5 * (mean + triangle.placed(132, 16))  # most begin where one has ended
    assert alike.placed(132, 16) < 1.001 * alike.seconds / 132


@triton.jit
def sum_of_rows(x, out, width, MASKED: tl.constexpr, KEPT: tl.constexpr, B: tl.constexpr):
    at, total = tl.arange(0, B), tl.zeros([B], tl.float32)
    for start in range(0, width, B):
        if MASKED:
            value = tl.load(x + tl.program_id(0) * width + start + at, mask=start + at < width, other=0.0)
        else:
            value = tl.load(x + tl.program_id(0) * width + start + at)
        if KEPT:
            value -= tl.max(value, 0)
        total += value
    tl.store(out + tl.program_id(0), tl.sum(total, 0))


def test_what_is_summed_as_it_arrives_waits_for_few_loads_at_a_time_and_fewer_under_a_mask() -> None:
    x, out = ((100 * 2**16,), torch.float32), ((100,), torch.float32)

    def timed(masked: bool, kept: bool, width: int = 2**16, block: int = 8192, warps: int = 4) -> float:
        return seconds(sum_of_rows, (100,), x, out, width, MASKED=masked, KEPT=kept, B=block, num_warps=warps)

    assert timed(True, False) > 1.4 * timed(False, False)
    assert timed(True, True) < timed(True, False)  # what a maximum needs whole is loaded whole, for all its barriers
    sixteen, more = (timed(True, False, block=block, warps=8) for block in (4096, 8192))
    assert sixteen > 1.3 * more  # 16 sums leave one vector in 32 registers; more take more registers
    assert timed(True, False, 512) < 0.6 * timed(True, False, 2**13)  # what the mask leaves out waits for nothing


@triton.jit
def product_with_vector(a, v, out, width, PUT: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    total = tl.zeros((M,), dtype=tl.float32)
    for start in range(0, width, N):
        at = start + tl.arange(0, N)
        if PUT:
            weight = tl.load(v + at, mask=at < width, other=0.0)
        values = tl.load(a + rows[:, None] * width + at[None, :], mask=(at < width)[None, :], other=0.0)
        total += tl.sum(values * weight[None, :] if PUT else values, 1)
    tl.store(out + rows, total)


def test_values_that_are_put_together_with_others_that_were_loaded_before_them_are_all_under_way_at_once() -> None:
    """As machine code has it (Triton 3.7, sm_90): 17 loads before the first sum, against two to five."""
    a, v, out = ((2048 * 2**16,), torch.bfloat16), ((2**16,), torch.bfloat16), ((2048,), torch.float32)
    put, alone = (
        seconds(product_with_vector, (32,), a, v, out, 2**16, PUT=put, M=64, N=256, num_warps=4)
        for put in (True, False)
    )
    assert put < 0.5 * alone


def test_repeated_taps_of_a_window_come_from_l1_and_repeated_passes_do_not() -> None:
    count, stride = 2**20, 11
    x, out = ((count * stride,), torch.float32), ((count,), torch.float32)
    near, far = (
        seconds(windows, (count // 1024,), x, out, count * stride, STRIDE=stride, TAPS=11, FAR=far, B=1024)
        for far in (False, True)
    )
    assert near < 0.7 * far


def test_the_reciprocal_of_one_number_is_made_once() -> None:
    x = ((2**22,), torch.int32)
    each, one = (seconds(divide, (2**12,), x, x, 7, EACH=each, B=1024) for each in (True, False))
    assert 1.5 * one < each


def test_products_in_fp32_run_at_what_the_card_sustains_by_the_library_and_by_triton() -> None:
    """So that a card that is out of power changes no speedup over the library."""
    at_full_power = get_spec("l40s").model_copy(update={"fp32_dot_share": 1.0})
    for unit, share in (("fp32", get_spec("l40s").fp32_dot_share), ("fp64", 1.0), ("tensor_tf32", 1.0)):
        product = Product(4096, 4096, 4096, 1, 8 if unit == "fp64" else 4, unit)
        library = plan_gemm(product, at_full_power).seconds / plan_gemm(product, get_spec("l40s")).seconds
        assert library == pytest.approx(share), unit
    dot = Dot("fp32_dot", 2.0**18, 64, 64 * 64)
    triton_share = dot_rate(dot, 128, get_spec("l40s")) / dot_rate(dot, 128, at_full_power)
    assert triton_share == pytest.approx(get_spec("l40s").fp32_dot_share)


def test_a_tuner_that_outlives_its_device_measures_on_the_next_one() -> None:
    x = ((2**22,), torch.float32)
    for card in ("h100", "a100"):
        tuned.cache.clear()
        seconds(tuned, lambda meta: (2**22 // meta["B"],), x, x, 2**22, card=card)
        assert tuned.best_config.kwargs == {"B": 1024}


def test_pieces_smaller_than_an_asynchronous_copy_are_waited_for_in_every_round() -> None:
    """Rows of an odd number of halves: nothing of two bytes is copied ahead (Triton's pipeliner; PTX: ``cp.async``)."""
    strip = ((64 * 4096,), torch.float16)
    even, odd = (
        seconds(product, (1, 1), strip, strip, strip, k, WAITS=False, B=64, num_stages=4) / 64 for k in (4096, 4095)
    )
    assert odd > 2 * even


def test_sums_that_tensor_memory_holds_do_not_spill() -> None:
    """256 x 256 by eight warps: no sum in a register of sm_100, whose ``tcgen05.mma`` has them elsewhere (ptxas)."""
    matrix = ((4096 * 4096,), torch.float16)
    b200, h100 = (
        seconds(product, (16, 16), matrix, matrix, matrix, 4096, WAITS=False, B=256, num_warps=8, card=card)
        for card in ("b200", "h100")
    )
    assert 5 * b200 < h100
