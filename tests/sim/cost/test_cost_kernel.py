"""The one formula behind operators and launches: monotone, bounded by the hardware, honest about parallelism."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drkernel.sim.cost.records import Access, Grid, KernelWork
from drkernel.sim.cost.roofline import L2State, kernel_cost, unit_rate
from drkernel.sim.spec import get_spec

H100 = get_spec("h100")
GIB = 2**30


def seconds(work: KernelWork, spec=H100) -> float:
    return kernel_cost(work, spec, L2State(spec)).seconds


def copy(nbytes: float) -> KernelWork:
    return KernelWork("copy", (Access(1, nbytes), Access(2, nbytes, write=True)))


@pytest.mark.parametrize("name", ["h100", "h200", "a100", "b200", "mi300x"])
def test_a_large_copy_reaches_the_bandwidth_the_spec_says_is_achievable(name: str) -> None:
    spec = get_spec(name)
    cost = kernel_cost(copy(8 * GIB), spec, L2State(spec))
    rate = 16 * GIB / cost.seconds
    assert 0.97 * spec.dram_bandwidth < rate <= 1.06 * spec.dram_bandwidth  # the last writes stay in L2
    assert cost.bound == "memory" and cost.roofline == pytest.approx(rate / spec.hbm_bandwidth)


@settings(max_examples=80, deadline=None)
@given(st.floats(1e3, 1e10), st.floats(1.01, 8.0), st.floats(1, 1e6), st.floats(0, 1e12))
def test_more_bytes_or_more_arithmetic_never_takes_less_time(
    nbytes: float, factor: float, blocks: float, ops: float
) -> None:
    work = replace(copy(nbytes), blocks=blocks, flops={"fp32": ops})
    more_bytes = replace(copy(nbytes * factor), blocks=blocks, flops={"fp32": ops})
    more_ops = replace(work, flops={"fp32": ops * factor})
    assert seconds(work) <= seconds(more_bytes)
    assert seconds(work) <= seconds(more_ops)
    assert seconds(work) >= H100.kernel_min


def test_one_block_cannot_draw_the_device_bandwidth_and_more_blocks_help_until_it_is_drawn() -> None:
    times = [seconds(replace(copy(64 * 2**20), blocks=float(n))) for n in (1, 4, 16, 64, 132, 1320)]
    assert all(a > b for a, b in itertools.pairwise(times[:4]))
    assert times[0] > 30 * times[-1]
    one_sm = H100.sm_bytes_per_clock * H100.clock_hz
    assert times[0] > 128 * 2**20 / one_sm


def test_a_last_wave_of_one_block_costs_as_much_as_a_full_wave() -> None:
    def busy(blocks: int) -> float:
        work = KernelWork("k", (), flops={"fp32": 1e7 * blocks}, blocks=float(blocks), grid=Grid(256, 1))
        return seconds(work) - H100.kernel_min

    assert busy(133) == pytest.approx(2 * busy(132), rel=1e-6)
    assert busy(264) == pytest.approx(busy(133), rel=1e-6)
    assert busy(132) == pytest.approx(busy(1), rel=1e-6)


def test_few_warps_cannot_fill_the_vector_units() -> None:
    def busy(threads: int) -> float:
        work = KernelWork("k", (), flops={"fp32": 1e12}, blocks=132.0, grid=Grid(threads, 1), ilp=1.0)
        return seconds(work) - H100.kernel_min

    assert busy(32) == pytest.approx(16 * busy(512), rel=1e-6)
    assert busy(512) == pytest.approx(busy(1024), rel=1e-6)


def test_arithmetic_and_memory_overlap_unless_told_otherwise() -> None:
    work = replace(copy(GIB), flops={"fp32": 1e10})
    memory, compute = seconds(copy(GIB)), seconds(replace(work, accesses=()))
    fixed = seconds(KernelWork("empty", ()))
    assert seconds(work) == pytest.approx(max(memory, compute), rel=0.01)
    assert seconds(replace(work, overlap=0.0)) == pytest.approx(memory + compute - fixed, rel=0.01)


def test_units_that_a_gpu_lacks_are_named() -> None:
    with pytest.raises(ValueError, match=r"'h100' has no peak for unit 'tensor_fp2'"):
        unit_rate("tensor_fp2", H100)


def test_faster_memory_helps_memory_bound_kernels_only() -> None:
    h200 = get_spec("h200")
    assert seconds(copy(GIB)) / seconds(copy(GIB), h200) == pytest.approx(4.8 / 3.35, rel=0.02)
    compute = KernelWork("k", (), flops={"tensor_fp16": 1e13})
    assert seconds(compute) == seconds(compute, h200)
