"""Triton launches: from an executor's counts to time, on one footing with PyTorch's operators."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
import torch
import triton
import triton.language as tl

from drkernel import sim
from drkernel.sim.cost.kernel_profile import BlockProfile, Dot, KernelProfile, Load
from drkernel.sim.cost.launch_time import launch_cost
from drkernel.sim.cost.operators import operator_cost
from drkernel.sim.cost.pressure import BlockPressure
from drkernel.sim.cost.records import TensorMeta
from drkernel.sim.cost.roofline import L2State, blocks_per_sm
from drkernel.sim.gpu.datafree import DataFree
from drkernel.sim.spec import get_spec
from harness import executing

H100 = get_spec("h100")


@dataclass(frozen=True)
class Counts:
    """What the model reads of the executor's ``LaunchStats``: one block, entered once by every program."""

    programs: int
    footprint: tuple[tuple[int, float, float], ...]
    load_sectors: float
    store_sectors: float
    flops: dict[str, float] = field(default_factory=dict)
    max_same_address_atomics: int = 0
    atomics: int = 0
    own_passes: float = 1.0
    rounds: float = 1.0
    """times that every program enters the block"""
    inside: float = 0.0
    """rounds of a second block, which all programs enter together"""
    classes: tuple[tuple[float, tuple[tuple[int, float], ...]], ...] = ()
    parts = ()

    @property
    def sites(self) -> tuple[tuple[int, int, float, float], ...]:
        """A load for each storage that is read, numbered as it: the last asks for what the others leave."""
        left, rows = self.load_sectors * 32, []
        reads = [(base, read) for base, read, _ in self.footprint if read]
        for k, (base, read) in enumerate(reads, 1):
            asked = left if k == len(reads) else min(left, read * self.own_passes)
            left -= asked
            rows.append((base, base, asked, 0.0))
        return tuple(rows)

    @property
    def executed(self) -> tuple[tuple[int, float], ...]:
        return ((0, self.programs * self.rounds), *([(1, self.programs + self.inside)] if self.inside else []))


def stream(
    programs: int, read: float, written: float, flops: dict[str, float] | None = None, passes: float = 1
) -> Counts:
    return Counts(
        programs, ((1, read, 0.0), (2, 0.0, written)), passes * read / 32, written / 32, flops or {}, own_passes=passes
    )


def plain(stats: Counts, held: float = 0.0, **options) -> KernelProfile:
    """A block that loads what the counts say in one go and does their arithmetic."""
    entries = stats.programs * stats.rounds
    vector = {unit: count for unit, count in stats.flops.items() if not unit.startswith("tensor_")}
    arithmetic = {unit: count for unit, count in vector.items() if unit != "fp32_dot"}
    lanes = tuple((unit, max(1, int(count / entries)), 1.0, None) for unit, count in arithmetic.items())
    dots = tuple(
        Dot(unit, count / entries, 128, 128 * 128) for unit, count in stats.flops.items() if unit.startswith("tensor_")
    )
    loads = (stats.load_sectors * 32 / entries,) if stats.load_sectors else ()
    sites = tuple(Load(number, 0.0, number) for number, *_ in stats.sites)
    block = BlockProfile(**{"lanes": lanes, "levels": loads, "dots": dots, "loads": sites, **options})
    return KernelProfile((block,), (BlockPressure(held, 2.0 * held),))


def seconds(stats: Counts, num_warps: int = 4, spec=H100, profile: KernelProfile | None = None, **options) -> float:
    return launch_cost(stats, profile or plain(stats), num_warps, spec, L2State(spec), **options).seconds  # type: ignore[arg-type]


def matmul(size: int, tile_m: int, tile_n: int, unit: str = "tensor_fp16") -> Counts:
    item = 4 if "fp32" in unit else 2
    programs = (size // tile_m) * (size // tile_n)
    loads = programs * (tile_m + tile_n) * size * item / 32
    matrix = size * size * item
    return Counts(
        programs, ((1, matrix, 0.0), (2, matrix, 0.0), (3, 0.0, matrix)), loads, matrix / 32, {unit: 2.0 * size**3},
        rounds=size // 64,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["h100", "h200", "a100", "b200", "mi300x"])
def test_a_copy_kernel_reaches_the_achievable_bandwidth(name: str) -> None:
    spec = get_spec(name)
    nbytes = 2.0**32
    rate = 2 * nbytes / seconds(stream(int(nbytes / 4096), nbytes, nbytes), spec=spec)
    assert rate == pytest.approx(spec.dram_bandwidth, rel=0.05)


def test_uncoalesced_access_and_too_few_programs_are_slower() -> None:
    nbytes = 2.0**28
    good = stream(65536, nbytes, nbytes)
    assert seconds(replace(good, load_sectors=good.load_sectors * 16)) > 3 * seconds(good)
    assert seconds(replace(good, programs=16)) > 2 * seconds(good)


def test_a_triton_softmax_and_torchs_are_on_one_footing() -> None:
    rows, columns = 4096, 1024
    nbytes = 4.0 * rows * columns
    triton = seconds(stream(rows, nbytes, nbytes, {"fp32": 6.0 * rows * columns, "sfu": 1.0 * rows * columns}))
    x = TensorMeta((rows, columns), (columns, 1), "float32", 1)
    out = replace(x, storage=2)
    torch_softmax = operator_cost("_softmax.default", [x], [out], (None, -1, False), H100, L2State(H100)).seconds
    assert 0.8 < triton / torch_softmax < 1.25


def test_fusion_pays_by_the_bytes_it_saves() -> None:
    nbytes = 2.0**30
    fused = seconds(stream(2**18, nbytes, nbytes, {"fp32": 2.0**32}))
    x = TensorMeta((2**28,), (1,), "float32", 1)
    l2 = L2State(H100)
    chain = sum(
        operator_cost(name, [replace(x, storage=i)], [replace(x, storage=i + 1)], (), H100, l2).seconds
        for i, name in enumerate(("relu.default", "sigmoid.default", "tanh.default"))
    )
    assert 2.7 < chain / fused < 3.3


def test_a_good_triton_matmul_comes_near_the_library_and_a_small_tile_does_not() -> None:
    size = 4096
    a, b, out = (TensorMeta((size, size), (size, 1), "float16", i) for i in (1, 2, 3))
    library = operator_cost("mm.default", [a, b], [out], (), H100, L2State(H100)).seconds
    large, small = matmul(size, 128, 256), matmul(size, 32, 32)
    options = {"num_stages": 3, "shared_bytes": 147456, "registers": 168}
    good = seconds(large, 8, profile=plain(large, pipelined=True), **options)
    poor = seconds(small, 4, profile=plain(small, pipelined=True), num_stages=2, shared_bytes=8192, registers=64)
    assert 1.0 < good / library < 2.0
    assert poor > 2 * good


def test_occupancy_is_the_tightest_of_four_limits() -> None:
    assert blocks_per_sm(H100, 4) == 16  # 2048 threads
    assert blocks_per_sm(H100, 1) == 32  # blocks
    assert blocks_per_sm(H100, 4, shared_bytes=100_000) == 2
    assert blocks_per_sm(H100, 4, registers=255) == 2
    assert blocks_per_sm(H100, 4, registers=33) == 12  # granted as 40
    assert blocks_per_sm(get_spec("mi300x"), 4) == 8  # warps of 64


def test_low_occupancy_cannot_cover_memory_latency() -> None:
    stats = replace(stream(4096, 2.0**28, 2.0**28), rounds=64)
    free = seconds(stats, num_warps=1, num_stages=1)
    tight = seconds(stats, num_warps=1, num_stages=1, shared_bytes=200_000)
    assert tight > 2 * free


def test_atomics_on_one_address_serialise() -> None:
    stats = stream(1024, 2.0**20, 2.0**20)
    crowded = replace(stats, atomics=1_000_000, max_same_address_atomics=1_000_000)
    assert seconds(crowded) - seconds(stats) > 0.5e-3


def test_launches_and_operators_share_one_cache() -> None:
    l2 = L2State(H100)
    x = TensorMeta((2**20,), (1,), "float32", 7)
    operator_cost("relu.default", [x], [replace(x, storage=8)], (), H100, l2)
    stats = Counts(1024, ((8, 2.0**22, 0.0), (9, 0.0, 2.0**22)), 2.0**17, 2.0**17)
    cost = launch_cost(stats, plain(stats), 4, H100, l2)  # type: ignore[arg-type]
    assert cost.dram_bytes == 2.0**22  # the result alone
    alone = launch_cost(stats, plain(stats), 4, H100, L2State(H100)).dram_bytes  # type: ignore[arg-type]
    assert alone == 2.0**23 + 2.0**21  # a quarter of the lines it takes were dirty


def test_flops_are_reported_as_counted() -> None:
    stats = matmul(1024, 64, 64)
    cost = launch_cost(stats, plain(stats), 4, H100, L2State(H100))  # type: ignore[arg-type]
    assert cost.flops == {"tensor_fp16": 2.0 * 1024**3} and cost.total_flops == 2.0 * 1024**3


def test_what_every_program_reads_again_comes_from_l1() -> None:
    rows, width = 4096, 16384.0
    alone = Counts(rows, ((1, rows * width, 0.0), (2, 0.0, rows * width)), rows * width / 32, rows * width / 32)
    weighted = replace(
        alone, footprint=(*alone.footprint, (3, width, 0.0)), load_sectors=alone.load_sectors + rows * width / 32
    )
    assert seconds(weighted) == pytest.approx(seconds(alone), rel=0.05)
    shared = replace(weighted, footprint=((1, rows * width, 0.0), (2, 0.0, rows * width), (3, 2.0**23, 0.0)))
    small, large = (launch_cost(s, plain(s), 4, H100, L2State(H100)).l2_bytes for s in (weighted, shared))  # type: ignore[arg-type]
    assert large > 1.3 * small  # eight megabytes do not fit


def test_small_tiles_in_an_unpipelined_loop_wait_for_memory() -> None:
    stats = stream(264, 2.0**30, 2.0**20)
    small = replace(stats, rounds=2.0**30 / 264 / 512)
    large = replace(stats, rounds=2.0**30 / 264 / 16384)
    assert seconds(small) > 4 * seconds(large)
    ahead = plain(small, pipelined=True)
    assert seconds(small, profile=ahead, num_stages=4) < 0.5 * seconds(small, profile=ahead, num_stages=2)
    assert seconds(small, num_stages=4) == seconds(small, num_stages=2)  # nothing to load ahead


def test_each_pass_over_a_programs_own_data_costs() -> None:
    """Five reads of a row are never cheaper than four, whatever the caches hold."""
    for nbytes in (2.0**20, 2.0**25, 2.0**27, 2.0**30):
        times = [seconds(stream(512, nbytes, nbytes, passes=k)) for k in (1, 2, 3, 4, 5, 6, 8, 16)]
        assert times == sorted(times)
    assert seconds(stream(512, 2.0**27, 2.0**27, passes=5)) > 1.5 * seconds(stream(512, 2.0**27, 2.0**27))


def test_spills_cost_what_they_move() -> None:
    """16,384 values of four words in 128 threads: local memory of all programs together exceeds every cache."""
    stats = stream(8192, 2.0**29, 2.0**29)
    fits, spills = plain(stats, held=4.0 * 128 * 60), plain(stats, held=4.0 * 128 * 512)
    assert seconds(stats, profile=spills) > 3 * seconds(stats, profile=fits)
    assert seconds(stats, 16, profile=spills) < 0.5 * seconds(stats, 4, profile=spills)


def test_warps_that_add_up_columns_meet_in_a_bank() -> None:
    """Partial sums of 8 warps lie beside each other, so lanes of 4 columns each step by a whole row of banks."""

    def one_program(across_rows: tuple[tuple[int, int, int], ...], warps: int) -> float:
        block = BlockProfile(reductions=1.0, across_rows=across_rows)
        return seconds(
            replace(stream(1, 8192.0, 512.0), rounds=1000.0), warps, profile=KernelProfile((block,), (BlockPressure(),))
        )

    met = {warps: one_program(((16, 128, 4),), warps) - one_program((), warps) for warps in (1, 4, 8)}
    assert met[1] == 0.0  # all rows of a column are in one thread
    assert met[8] > 4 * met[4] > 0.0
    # 4 stores and 4 loads of 8 warps, 31 clocks more each
    assert met[8] == pytest.approx(1000 * 2 * 4 * 8 * 31 / H100.clock_hz, rel=0.01)
    narrow = one_program(((16, 32, 4),), 8) - one_program((), 8)
    assert 0.0 < narrow < met[8] / 4


def test_spread_atomics_cost_and_need_no_loads() -> None:
    stats = replace(stream(4096, 2.0**20, 2.0**20), load_sectors=0.0)
    many = replace(stats, atomics=2**26, max_same_address_atomics=64)
    assert 0.2e-3 < seconds(many) - seconds(stats) < 5e-3
    together = plain(many, vector_atomics=4.0)
    assert seconds(many, profile=together) < 0.5 * seconds(many)
    assert seconds(many, spec=get_spec("a100"), profile=together) == seconds(many, spec=get_spec("a100"))


def test_programs_that_do_nothing_are_not_free() -> None:
    empty = [Counts(programs, (), 0.0, 0.0) for programs in (1, 1000, 100_000, 1_000_000)]
    times = [seconds(stats, profile=KernelProfile((BlockProfile(),), (BlockPressure(),))) for stats in empty]
    assert times == sorted(times) and times[-1] > 100 * times[0]


@triton.jit
def copy_kernel(x, out, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + k, tl.load(x + k))


@triton.jit
def copy_rows_kernel(x, out, stride, COLUMNS: tl.constexpr):
    k = tl.program_id(0) * stride + tl.arange(0, COLUMNS)
    tl.store(out + k, tl.load(x + k))


def _modelled(launches: Callable[[], None]) -> list[float]:
    with sim.device("h100", checks="off") as dev:
        launches()
        return [launch.seconds for launch in dev.launches]


def test_smaller_programs_are_never_modelled_faster() -> None:
    """A program of one element asks for a whole sector and keeps one in flight."""

    def launches() -> None:
        x, out = torch.zeros(1 << 20, device="cuda"), torch.zeros(1 << 20, device="cuda")
        for block in (1, 4, 16, 64, 256, 1024):
            copy_kernel[(len(x) // block,)](x, out, BLOCK=block)

    times = _modelled(launches)
    assert times == sorted(times, reverse=True)
    assert times[0] > 20 * times[-1]


def test_more_rows_and_wider_rows_are_never_modelled_faster() -> None:
    def launches() -> None:
        x, out = torch.zeros(1 << 20, device="cuda"), torch.zeros(1 << 20, device="cuda")
        for rows, columns, stride in (
            (64, 64, 64),
            (256, 64, 64),
            (1024, 64, 64),
            (1024, 256, 256),
            (1024, 1024, 1024),
        ):
            copy_rows_kernel[(rows,)](x, out, stride, COLUMNS=columns)

    times = _modelled(launches)
    assert times == sorted(times)


@triton.jit
def tile_kernel(x, out, down, across, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    tile = tl.arange(0, ROWS)[:, None] * down + tl.arange(0, COLUMNS)[None, :] * across
    tl.store(out + tl.program_id(0), tl.sum(tl.load(x + tl.program_id(0) * ROWS * COLUMNS + tile)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_tile_asks_for_the_same_sectors_in_either_order(dtype: torch.dtype) -> None:
    """Triton lays a block out along whichever dimension is contiguous: a transposed tile costs no more."""

    def asked(down: int, across: int, shape: tuple[int, int]) -> float:
        with executing() as log:
            tile_kernel[(4,)](torch.zeros(4 * 2048, dtype=dtype), torch.zeros(4), down, across, *shape)
        return log.results[0].stats.load_sectors

    item = torch.empty(0, dtype=dtype).element_size()
    assert asked(64, 1, (32, 64)) == asked(1, 64, (64, 32)) == 4 * 2048 * item / 32


@triton.jit
def transposed_by_tiles(x, out, N: tl.constexpr, B: tl.constexpr):
    row, col = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    tile = tl.load(x + row[:, None] * N + col[None, :])
    tl.store(out + col[:, None] * N + row[None, :], tl.trans(tile))


@triton.jit
def transposed_by_reshaped_tiles(x, out, N: tl.constexpr, B: tl.constexpr):
    row, col = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    tile = tl.load(x + tl.reshape(row, (B, 1)) * N + tl.reshape(col, (1, B)))
    tl.store(out + tl.reshape(col, (B, 1)) * N + tl.reshape(row, (1, B)), tl.trans(tile))


@triton.jit
def transposed_by_elements(x, out, N: tl.constexpr, B: tl.constexpr):
    at = tl.arange(0, B * B)
    row, col = tl.program_id(0) * B + at // B, tl.program_id(1) * B + at % B
    tl.store(out + col * N + row, tl.load(x + row * N + col))


def test_a_warp_that_stores_to_thirty_two_places_pays_for_each() -> None:
    size = 1024
    with sim.device("h100") as gpu:
        x, out = torch.randn(size, size, device="cuda"), torch.empty(size, size, device="cuda")
        for kernel in (transposed_by_tiles, transposed_by_reshaped_tiles, transposed_by_elements):
            kernel[(size // 32, size // 32)](x, out, size, 32)
            assert torch.equal(out, x.t())
        tiles, reshaped, elements = (launch.seconds for launch in gpu.launches)
    with executing() as log:
        for kernel in (transposed_by_tiles, transposed_by_elements):
            kernel[(2, 2)](torch.randn(64, 64), torch.empty(64, 64), 64, 32)
    by_tiles, by_elements = (result.stats for result in log.results)
    assert by_tiles.store_sectors == 64 * 64 / 8 and by_elements.store_sectors == 64 * 64  # of each warp, in each row
    assert by_tiles.load_sectors == by_elements.load_sectors == 64 * 64 / 8
    assert reshaped == pytest.approx(tiles) and 1.5 * tiles < elements


def test_a_longest_program_shares_its_sm_with_others_that_find_a_slot_at_once() -> None:
    """Halves of a grid that do eight and no rounds, where two programs fit an SM: no SM has the mean."""
    programs = 2 * H100.sm_count
    counts = Counts(programs, (), 0.0, 0.0, {"fp32": programs * 1e7}, rounds=4.0)
    unlike = replace(counts, classes=((programs / 2, ((0, programs * 4.0),)), (programs / 2, ())))
    alike, crowded = (seconds(each, 8, profile=plain(counts), shared_bytes=100_000) for each in (counts, unlike))
    assert crowded > 1.4 * alike


@triton.jit
def _add_tile(x, out, tile, BLOCK: tl.constexpr):
    at = tile * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) + 1.0)


@triton.jit
def tiles_in_strides(x, out, counter, tiles, BLOCK: tl.constexpr):
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        _add_tile(x, out, tile, BLOCK)


@triton.jit
def tiles_by_tickets(x, out, counter, tiles, BLOCK: tl.constexpr):
    tile = tl.atomic_add(counter, 1)
    while tile < tiles:
        _add_tile(x, out, tile, BLOCK)
        tile = tl.atomic_add(counter, 1)


@triton.jit
def tiles_by_tickets_after_the_first(x, out, counter, tiles, BLOCK: tl.constexpr):
    tile = tl.program_id(0)
    while tile < tiles:
        _add_tile(x, out, tile, BLOCK)
        tile = tl.atomic_add(counter, 1) + tl.num_programs(0)


@triton.jit
def tiles_of_the_first_program(x, out, counter, tiles, BLOCK: tl.constexpr):
    tile = tl.atomic_add(counter + tl.program_id(0), 1)
    while tile < tiles * (tl.program_id(0) == 0):
        _add_tile(x, out, tile, BLOCK)
        tile = tl.atomic_add(counter + tl.program_id(0), 1)


@triton.jit
def tiles_in_turns(x, out, counter, tiles, BLOCK: tl.constexpr):
    tile = tl.atomic_add(counter, 1)
    while tile < tiles:
        while tl.atomic_add(counter + 1, 0) < tile:
            pass
        _add_tile(x, out, tile, BLOCK)
        tl.atomic_add(counter + 1, 1)
        tile = tl.atomic_add(counter, 1)


@triton.jit
def tiles_beside_the_last(x, out, counter, tiles, BLOCK: tl.constexpr):
    place, tile = 0, tl.atomic_add(counter, 1)
    while tile < tiles:
        _add_tile(x, out, place, BLOCK)
        place += 1
        tile = tl.atomic_add(counter, 1)


@triton.jit
def tiles_with_what_was_before(x, out, counter, tiles, BLOCK: tl.constexpr):
    total, tile = 0.0, tl.atomic_add(counter, 1)
    while tile < tiles:
        total += tl.load(x + tile)
        tl.store(out + tile, total)
        tile = tl.atomic_add(counter, 1)


@triton.jit
def tiles_with_what_an_atomic_says(x, out, counter, tiles, BLOCK: tl.constexpr):
    tile = tl.atomic_add(counter, 1)
    while tile < tiles:
        tl.store(out + tile, tl.atomic_add(counter + 1, 2))
        tile = tl.atomic_add(counter, 1)


@triton.jit
def tiles_with_what_the_last_wrote(x, out, counter, tiles, BLOCK: tl.constexpr):
    tile = tl.atomic_add(counter, 1)
    while tile < tiles:
        tl.store(out + tile + 1, tl.load(out + tile) + 1.0)
        tile = tl.atomic_add(counter, 1)


def test_tiles_from_a_counter_are_shared_out_where_no_round_waits_for_another() -> None:
    """Here the first program takes all of them; on a GPU each takes what it can. What goes in turns, or has what came
    before, is no program's own."""
    alone = (
        tiles_of_the_first_program, tiles_in_turns, tiles_beside_the_last, tiles_with_what_was_before,
        tiles_with_what_an_atomic_says, tiles_with_what_the_last_wrote,
    )  # fmt: skip
    with sim.device("h100", checks="off", data_free=DataFree()) as gpu:
        x, out = torch.empty(1 << 22, device="cuda"), torch.empty(1 << 22, device="cuda")
        for kernel in (tiles_in_strides,) * 2 + (tiles_by_tickets, tiles_by_tickets_after_the_first, *alone):
            kernel[(528,)](x, out, torch.zeros(528, dtype=torch.int32, device="cuda"), 4096, BLOCK=1024)
        _, strides, tickets, later, *others = (one.seconds for one in gpu.launches if one.name.startswith("tiles"))
    assert strides <= tickets < 1.5 * strides and strides <= later < 1.5 * strides
    assert min(others) > 20.0 * strides


def test_fewer_slots_never_make_shared_rounds_faster() -> None:
    block = BlockProfile(lanes=(("fp32", 1 << 16, 1.0, None),), around=0)
    profile = KernelProfile((BlockProfile(), block), (BlockPressure(0.0, 0.0),) * 2, shared_out=frozenset({1}))
    every = [Counts(4096, (), 0.0, 0.0, rounds=1.0, inside=number) for number in (0.0, 1.0, 100.0, 5000.0, 5001.0, 1e5)]
    for fewer in (1024, 32 * 1024, 100 * 1024):
        times = [seconds(each, 4, profile=profile, shared_bytes=fewer) for each in every]
        assert times == sorted(times)
    for each in every:
        times = [seconds(each, 4, profile=profile, shared_bytes=fewer) for fewer in (1024, 32 * 1024, 100 * 1024)]
        assert times == sorted(times)
