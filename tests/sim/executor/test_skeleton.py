"""Kernels without their data: skeletons count what the kernels themselves count, and samples stand for grids."""

import ctypes
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from all_cases import CASES, REACHABLE
from harness import executing
from ttir_executor.allocations import MemoryMap
from ttir_executor.compiled import CompiledKernel, LaunchResult
from ttir_executor.launch import LaunchLimits
from ttir_executor.skeleton.launch import SkeletonLaunch
from ttir_executor.skeleton.measure import EvenSample, corners, distinct_of, least_apart, total_of
from ttir_executor.skeleton.slim import skeleton_of

LIMITS = LaunchLimits(1 << 30, 60.0)


def _copy_of(memory: MemoryMap) -> tuple[MemoryMap, list[np.ndarray]]:
    """The same addresses, with contents elsewhere."""
    copy, kept = MemoryMap(), []
    for allocation in memory.all():
        held = np.frombuffer(ctypes.string_at(allocation.base, allocation.nbytes), np.uint8).copy()
        copy.add(allocation.base, allocation.nbytes, initialized=True)
        copy.find(allocation.base).contents = held.ctypes.data  # type: ignore[union-attr]
        kept.append(held)
    return copy, kept


class Both:
    """Runs the skeleton of every kernel that runs, on a copy of its memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.pairs: list[tuple[str, LaunchResult, LaunchResult]] = []
        self.log: Any = None
        original = CompiledKernel.run

        def run(
            kernel: CompiledKernel, grid: tuple[int, int, int], args: Sequence[Any], memory: MemoryMap, **rest: Any
        ) -> LaunchResult:
            copy, _kept = _copy_of(memory)
            result = original(kernel, grid, args, memory, **rest)
            launch = SkeletonLaunch(skeleton_of(self.log.ttir[-1]), grid, args, copy, LIMITS)
            self.pairs.append((kernel.name, result, launch.run()))
            assert launch.without_data() is None
            return result

        monkeypatch.setattr(CompiledKernel, "run", run)


def _assert_same(name: str, full: LaunchResult, bare: LaunchResult) -> None:
    one, other = full.stats, bare.stats
    assert one.flops == other.flops and one.atomics == other.atomics, name
    assert one.footprint == other.footprint and one.store_sectors == other.store_sectors, name
    assert one.max_same_address_atomics == other.max_same_address_atomics, name
    assert one.executed == other.executed and sum(count for _, count in one.executed) >= one.programs, name
    assert other.own_passes == pytest.approx(one.own_passes, rel=0.1), name
    assert other.load_sectors == pytest.approx(one.load_sectors, rel=0.1), name  # recency within a program may differ
    illegal = [
        [f.kind for f in result.findings if f.kind in ("out_of_bounds", "misaligned")] for result in (full, bare)
    ]
    assert illegal[0] == illegal[1], name


def _cases() -> list:
    return [pytest.param(name, marks=[pytest.mark.slow] if k % 4 else []) for k, name in enumerate(CASES)]


@pytest.mark.parametrize("name", _cases())
def test_skeletons_count_what_kernels_count(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    both = Both(monkeypatch)
    with executing() as both.log:
        both.log.reachable = REACHABLE
        list(CASES[name].run("cpu"))
    REACHABLE.clear()
    assert both.pairs
    for pair in both.pairs:
        _assert_same(*pair)


@triton.jit
def columns_kernel(x, out, rows, cols, ld, tail, R: tl.constexpr, C: tl.constexpr):
    """Blocks of a matrix whose columns lie in memory one after another."""
    r, c = tl.program_id(0) * R + tl.arange(0, R), tl.program_id(1) * C + tl.arange(0, C)
    at = x + r[:, None] + (c % cols)[None, :] * ld
    total = tl.zeros((C,), tl.float32)
    for _ in range(2):
        total += tl.sum(tl.load(at, mask=r[:, None] < rows - tail, other=0.0).to(tl.float32), axis=0)
        at += R
    tl.store(out + tl.program_id(0) * cols + c, total, mask=c < cols)


@triton.jit
def turned_kernel(x, out, ld, R: tl.constexpr, C: tl.constexpr):
    """The same by turned pointers, and along an axis in the middle of three."""
    r, c = tl.arange(0, R), tl.arange(0, C)
    two = tl.arange(0, 2)
    flat = tl.load(tl.trans(x + c[:, None] * ld + r[None, :]))
    middle = tl.load(x + two[:, None, None] * C * ld + r[None, :, None] + c[None, None, :] * ld)
    tl.store(out + r, tl.sum(tl.sum(middle, axis=0) + flat, axis=1).to(tl.float32))


@pytest.mark.parametrize("dtype", [torch.int8, torch.float16, torch.float32])
@pytest.mark.parametrize(("block", "offset", "tail"), [(64, 0, 0), (64, 3, 5), (16, 0, 0), (8, 0, 3), (128, 16, 40)])
def test_columns_count_as_they_do_with_data(
    dtype: torch.dtype, block: int, offset: int, tail: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are looked at along the columns, where that is a run of memory."""
    rows, cols, ld = 2 * block + 128, 48, 2 * block + 160
    both = Both(monkeypatch)
    with executing() as both.log:
        x = torch.zeros(ld * 80, dtype=dtype)[offset:]
        columns_kernel[(2, 2)](x, torch.empty(2, 64), rows, cols, ld, tail, R=block, C=32)
        turned_kernel[(1,)](x, torch.empty(block), ld, R=block, C=16)
    assert len(both.pairs) == 2
    for pair in both.pairs:
        _assert_same(*pair)


@triton.jit
def masks_kernel(x, out, low, high, far, wide, B: tl.constexpr):
    """Runs under masks that hold throughout, in part, nowhere, and across the end of the integers."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    total = tl.load(x + at, mask=(at >= low) & (at < high), other=0.0)
    total += tl.load(x + at, mask=(at < low) | (high > at), other=0.0)
    total += tl.load(x + at, mask=(at.to(tl.uint32) < high) & (low <= high), other=0.0)
    total += tl.load(x + at, mask=at + far < far, other=0.0)
    total += tl.load(x + at, mask=at.to(tl.int64) * 2 + wide <= high, other=0.0)
    total += tl.load(x + at, mask=(B - 1 - at > low) & (at != high), other=0.0)
    tl.store(out + at, total, mask=at < high)


@pytest.mark.parametrize("block", [16, 128, 1024])
@pytest.mark.parametrize(
    ("low", "high", "far", "wide"),
    [(0, 4096, 0, 0), (0, 1, 0, 0), (700, 300, 5, -9), (100, 1000, 2**31 - 520, 2**40),
     (1024, 2048, 2**31 - 1, -(2**40)), (4095, 4096, 2**31 - 4096, 77)],
)  # fmt: skip
def test_masks_count_as_they_do_with_data(
    block: int, low: int, high: int, far: int, wide: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = Both(monkeypatch)
    with executing() as both.log:
        x = torch.zeros(4096)
        masks_kernel[(4096 // block,)](x, torch.zeros(4096), low, high, far, wide, B=block)
    _assert_same(*both.pairs[0])


# ---- what steers


@triton.jit
def gather_kernel(index, x, out, n, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.load(index + rows, mask=rows < n, other=0)
    scale = tl.load(x + rows, mask=rows < n)
    tl.store(out + rows, tl.load(x + at, mask=rows < n) * scale, mask=rows < n)


@triton.jit
def ragged_kernel(lengths, x, out, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, tl.load(lengths + row), BLOCK):
        total += tl.load(x + row * 1024 + start + tl.arange(0, BLOCK))
    if tl.load(x + row) > 0:
        tl.store(out + row, tl.sum(total))


@triton.jit
def ticket_kernel(x, out, count, BLOCK: tl.constexpr):
    """The program that comes last adds up what all have left."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) * 2)
    if tl.atomic_add(count, 1) == tl.num_programs(0) - 1:
        for other in range(tl.num_programs(0)):
            tl.store(out + at, tl.load(x + other * BLOCK + tl.arange(0, BLOCK)))


@triton.jit
def plain_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, tl.where(value > 0, value, tl.exp(value) - 1), mask=at < n)


@triton.jit
def maximum_kernel(x, out, n, BLOCK: tl.constexpr, WHOLE: tl.constexpr):
    """A float's maximum is two atomics, of which each lane makes one by its sign."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if WHOLE:
        tl.atomic_max(out, tl.max(tl.load(x + at), 0))
    else:
        tl.atomic_max(out + at % 4, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def positive_kernel(x, out, BLOCK: tl.constexpr):
    value = tl.load(x + tl.arange(0, BLOCK))
    tl.atomic_add(out + tl.arange(0, BLOCK), value, mask=value > 0)
    tl.atomic_add(out + tl.arange(0, BLOCK), value, mask=value < 0)


def _decisions(ttir: str) -> set[tuple[str | None, str]]:
    return {(read.argument, read.decides) for read in skeleton_of(ttir).reads}


def test_what_steers_is_found() -> None:
    index, x = torch.randint(0, 64, (64,)), torch.randn(4096)
    with executing() as log:
        gather_kernel[(4,)](index, x, torch.empty(64), 64, BLOCK=16)
        ragged_kernel[(4,)](torch.tensor([16, 64, 128, 0]), x, torch.empty(4), BLOCK=16)
        ticket_kernel[(4,)](x, torch.empty(64), torch.zeros(1, dtype=torch.int32), BLOCK=16)
        plain_kernel[(4,)](x, torch.empty(64), 64, BLOCK=16)
    gather, ragged, ticket, plain = log.ttir
    assert _decisions(gather) == {("index", "an address")}
    assert _decisions(ragged) == {("lengths", "a loop"), ("x", "a branch")}
    assert _decisions(ticket) == {("count", "a branch")} and skeleton_of(ticket).serial
    assert _decisions(plain) == set() and not skeleton_of(plain).serial


def test_a_float_maximum_goes_nowhere_by_its_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    both, x, out = Both(monkeypatch), torch.randn(64), torch.zeros(64)
    with executing() as both.log:
        for whole in (True, False):
            maximum_kernel[(4,)](x, out, 64, BLOCK=16, WHOLE=whole)
        positive_kernel[(1,)](x, out, BLOCK=16)
    _assert_same(*both.pairs[0])
    one, each, signs = both.log.ttir
    assert _decisions(one) == set() and _decisions(each) == set()
    assert _decisions(signs) == {("x", "a mask")}  # of a zero neither


def test_a_skeleton_is_steered_by_contents_where_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    both = Both(monkeypatch)
    with executing() as both.log:
        ragged_kernel[(4,)](torch.tensor([16, 64, 128, 0]), torch.randn(4096), torch.empty(4), BLOCK=16)
        ticket_kernel[(4,)](torch.randn(64), torch.empty(64), torch.zeros(1, dtype=torch.int32), BLOCK=16)
    assert both.pairs
    for pair in both.pairs:
        _assert_same(*pair)


def test_steering_by_memory_without_contents_is_noted() -> None:
    with executing() as log:
        ragged_kernel[(4,)](torch.tensor([16, 64, 128, 0]), torch.randn(4096), torch.empty(4), BLOCK=16)
    memory = MemoryMap()
    for base in (1 << 40, 2 << 40, 3 << 40):
        memory.add(base, 1 << 16, initialized=True)
    launch = SkeletonLaunch(skeleton_of(log.ttir[0]), (4, 1, 1), [1 << 40, 2 << 40, 3 << 40], memory, LIMITS)
    launch.run()
    site = launch.without_data()
    assert site is not None and site.argument in ("lengths", "x")


def test_no_memory_is_needed() -> None:
    """Addresses of nothing: a launch over 64 GiB."""
    with executing() as log:
        plain_kernel[(1,)](torch.randn(16), torch.empty(16), 16, BLOCK=16)
    memory = MemoryMap()
    memory.add(1 << 42, 1 << 35, initialized=True)
    memory.add(1 << 43, 1 << 35, initialized=True)
    launch = SkeletonLaunch(
        skeleton_of(log.ttir[0]), (1 << 29, 1, 1), [1 << 42, 1 << 43, (1 << 31) - 1], memory, LIMITS
    )
    group = launch.run_group([0, 1, 1 << 20])
    assert group.load_bytes == group.store_bytes == 3 * 64
    assert [(read.total, written.total) for _, read, written in launch.touched()] == [(6, 0), (0, 6)]


# ---- samples


@pytest.mark.parametrize("grid", [(1000, 1, 1), (7, 300, 1), (16, 16, 16), (3, 1, 500)])
def test_a_spread_covers_a_grid_once(grid: tuple[int, int, int]) -> None:
    border = corners(grid)
    programs = grid[0] * grid[1] * grid[2]
    assert 0 in border and programs - 1 in border and len(border) <= 20
    spread = EvenSample(grid, border, seed=0)
    seen = list(border)
    while spread.left:
        seen += spread.group(64)
    assert sorted(seen) == list(range(programs))
    assert EvenSample(grid, border, seed=0).group(32) == EvenSample(grid, border, seed=0).group(32)


def test_a_group_meets_all_of_a_trend() -> None:
    """Causal attention: work grows along the first axis, over and over along the second."""
    grid, work = (256, 64, 1), [1.0 + k % 256 for k in range(256 * 64)]
    spread = EvenSample(grid, corners(grid), seed=0)
    groups = [spread.group(32) for _ in range(8)]
    found = total_of([sum(work[p] for p in group) for group in groups], [32] * 8, len(work))
    assert found.value == pytest.approx(sum(work), rel=0.01)
    assert found.low <= sum(work) <= found.high and found.high < 1.05 * sum(work)


def test_a_sample_covers_any_two_axes_of_three_evenly() -> None:
    """Tiles of a batched product are read by all programs along the third axis: 1,024 of them, here by 1,228 programs,
    of which as many at random would read 70%."""
    x, y, _ = grid = (8, 16, 128)
    drawn = EvenSample(grid, corners(grid), seed=0).group(1228)
    places = [(p % x, p // x % y, p // (x * y)) for p in drawn]
    for one, other, least in ((0, 1, 1.0), (0, 2, 0.8), (1, 2, 0.5)):
        covered = len({(place[one], place[other]) for place in places}) / (grid[one] * grid[other])
        assert covered >= least


def test_a_sample_meets_what_returns_at_any_distance() -> None:
    """375 blocks of 128 elements are rows of 6,000 eight times over, and 768,000 is a power of two times as many."""
    grid = (768_000, 1, 1)
    drawn = EvenSample(grid, corners(grid), seed=0).group(1500)
    assert len({program % 375 for program in drawn}) > 0.9 * 375
    assert len({program // 1024 for program in drawn}) > 0.95 * 750


def _touched(sets: list[list[int]], groups: list[list[int]]) -> list[int]:
    """By group: sectors that it touches and no later group does."""
    last: dict[int, int] = {}
    for g, group in enumerate(groups):
        for program in group:
            for sector in sets[program]:
                last[sector] = g
    return [sum(1 for g in last.values() if g == k) for k in range(len(groups))]


PROGRAMS = 4096
PATTERNS = {
    "each its own": [[4 * p + k for k in range(4)] for p in range(PROGRAMS)],
    "rows shared by 64": [[16 * (p // 64) + k for k in range(16)] for p in range(PROGRAMS)],
    "columns shared by 64": [[16 * (p % 64) + k for k in range(16)] for p in range(PROGRAMS)],
    "all read the same": [list(range(100)) for _ in range(PROGRAMS)],
    "own and shared": [[*range(100), 1000 + 2 * p, 1001 + 2 * p] for p in range(PROGRAMS)],
    "halo": [[8 * p + k for k in range(12)] for p in range(PROGRAMS)],
    "by two": [[8 * (p // 2) + k for k in range(8)] for p in range(PROGRAMS)],
}


@pytest.mark.parametrize("name", list(PATTERNS))
@pytest.mark.parametrize("share", [0.05, 0.2])
def test_distinct_sectors(name: str, share: float) -> None:
    sets = PATTERNS[name]
    truth = len({sector for touched in sets for sector in touched})
    chooser = random.Random(3)
    size = int(PROGRAMS * share / 16)
    order = chooser.sample(range(PROGRAMS), 16 * size)
    groups = [order[k * size : (k + 1) * size] for k in range(16)]
    asked = sum(map(len, sets))
    span = max(map(max, sets)) + 1
    found = distinct_of(_touched(sets, groups), [size] * 16, PROGRAMS, min(asked, span))
    assert found.low <= 1.02 * truth and found.high >= 0.98 * truth
    assert found.value == pytest.approx(truth, rel=0.4 if share < 0.1 else 0.12)


def test_distinct_sectors_of_what_the_last_programs_leave_alone() -> None:
    found = distinct_of([0, 5, 0, 0, 0, 0, 0, 0], [8] * 8, 10_000, 1e9)
    assert 5 <= found.low <= found.value <= found.high
    assert distinct_of([0] * 8, [8] * 8, 10_000, 1e9).value == 0


@pytest.mark.parametrize("sharing", [1, 2, 3, 16])
@pytest.mark.parametrize("ran", [200, 2000])
def test_the_least_number_of_distinct_sectors_is_a_bound_that_tightens(sharing: int, ran: int) -> None:
    """Programs of eight sectors each, which ``sharing`` programs at random have in common."""
    programs, each = 20_000, 8
    rng, missed, bounds = random.Random(f"{sharing} {ran}"), 0, []
    distinct = programs // sharing * each
    for _ in range(200):
        owners = [k // sharing for k in rng.sample(range(programs), ran)]
        bound = least_apart(ran * each, len(set(owners)) * each, ran, programs, programs * each)
        bounds.append(bound / (programs * each))
        missed += bound > distinct
    assert missed <= 10, "a bound of two standard errors"
    if sharing == 1:
        assert min(bounds) >= (0.98 if ran == 2000 else 0.0)
        assert missed == 0
