"""Races: kernels that hide one behind aliases, casts, sizes or atomics, and honest ones that look alike."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from drkernel import sim
from harness import executing
from ttir_executor.compiled import Checks
from ttir_executor.launch import split_runs
from ttir_executor.lower.runtime import ACQUIRE, RELEASE
from ttir_executor.order import IN_ORDER, Order, Ordered, draw_order, others, sampled_runs


@triton.jit
def aliases_kernel(a, b, o, N: tl.constexpr):
    k = tl.arange(0, N)
    if tl.program_id(0) == 0:
        tl.store(a + k, 1.0)
    else:
        tl.store(b + k, 2.0)


@triton.jit
def shift_in_place_kernel(a, b, o, N: tl.constexpr):
    k = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(a + k, tl.load(a + k + 1))


@triton.jit
def integer_pointer_kernel(a, b, o, N: tl.constexpr):
    place = (a.to(tl.int64) + 4).to(tl.pointer_type(tl.float32))
    tl.store(place + tl.arange(0, N), tl.program_id(0) + 1.0)


@triton.jit
def bytes_kernel(a, b, o, N: tl.constexpr):
    """One program stores words under a mask, the other reads single bytes of them."""
    k = tl.arange(0, N)
    if tl.program_id(0) == 0:
        tl.store(a + k, 3.0, mask=k < 10)
    else:
        tl.store(o + k, tl.load(a.to(tl.pointer_type(tl.int8)) + k * 4 + 3, mask=k < 10, other=0))


@triton.jit
def wide_store_kernel(a, b, o, N: tl.constexpr):
    """One program stores eight bytes, the other one in the middle of them; both by addresses made from integers."""
    address = a.to(tl.int64)
    if tl.program_id(0) == 0:
        tl.store(address.to(tl.pointer_type(tl.int64)), -1)
    else:
        tl.store((address + 5).to(tl.pointer_type(tl.int8)), 7)


@triton.jit
def zeroed_by_one_kernel(a, b, o, N: tl.constexpr):
    if tl.program_id(0) == 0:
        tl.store(o, 0.0)
    tl.atomic_add(o, tl.sum(tl.load(b + tl.program_id(0) * N + tl.arange(0, N)), 0))


@triton.jit
def finished_by_the_last_kernel(a, b, o, N: tl.constexpr):
    """The last program comes last here, but not on a GPU."""
    tl.atomic_add(o, tl.sum(tl.load(b + tl.program_id(0) * N + tl.arange(0, N)), 0))
    if tl.program_id(0) == tl.num_programs(0) - 1:
        tl.store(o + 1, tl.sqrt(tl.load(o)))


@triton.jit
def race_beside_atomics_kernel(a, b, o, N: tl.constexpr):
    tl.atomic_add(o, 1.0)
    tl.store(a, tl.program_id(0) * 1.0)


@triton.jit
def read_then_written_kernel(a, b, o, N: tl.constexpr):
    if tl.program_id(0) == 1:
        tl.store(a, 5.0)
    else:
        tl.store(o, tl.load(a))


@triton.jit
def relaxed_ticket_kernel(a, b, o, N: tl.constexpr):
    """A ticket that orders nothing."""
    pid = tl.program_id(0)
    tl.store(a + pid, tl.sum(tl.load(b + pid * N + tl.arange(0, N)), 0))
    if tl.atomic_add(o, 1.0, sem="relaxed") == tl.num_programs(0) - 1:
        tl.store(o + 1, tl.load(a) + tl.load(a + 1))


@triton.jit
def written_after_the_ticket_kernel(a, b, o, N: tl.constexpr):
    pid = tl.program_id(0)
    ticket = tl.atomic_add(o, 1.0)
    tl.store(a + pid, tl.sum(tl.load(b + pid * N + tl.arange(0, N)), 0))
    if ticket == tl.num_programs(0) - 1:
        tl.store(o + 1, tl.load(a) + tl.load(a + 1))


@triton.jit
def race_beside_a_used_ticket_kernel(a, b, o, N: tl.constexpr):
    """One atomic whose result is used does not excuse stores that have nothing to do with it."""
    ticket = tl.atomic_add(o, 1.0)
    tl.store(o + 4 + tl.program_id(0), ticket)
    tl.store(a, tl.program_id(0) * 1.0)


@triton.jit
def race_beside_a_volatile_load_kernel(a, b, o, N: tl.constexpr):
    tl.store(o + tl.program_id(0), tl.load(b, volatile=True))
    tl.store(a, tl.program_id(0) * 1.0)


@triton.jit
def volatile_read_of_a_plain_store_kernel(a, b, o, N: tl.constexpr):
    pid = tl.program_id(0)
    tl.store(a + pid, 1.0)
    tl.store(o + pid, tl.load(a, volatile=True))


@triton.jit
def stored_outside_the_lock_kernel(a, b, o, N: tl.constexpr):
    lock = o.to(tl.pointer_type(tl.int32))
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    total = tl.load(a) + 1.0
    tl.atomic_xchg(lock, 0)
    tl.store(a, total)


@triton.jit
def failing_release_kernel(a, b, o, N: tl.constexpr):
    """The first program's compare-and-swap fails: it has released nothing."""
    lock = o.to(tl.pointer_type(tl.int32))
    if tl.program_id(0) == 0:
        tl.store(a, 1.0)
        tl.atomic_cas(lock, 7, 8)
    elif tl.atomic_cas(lock, 0, 1) == 0:
        tl.store(o + 1, tl.load(a))


RACES = [
    relaxed_ticket_kernel, written_after_the_ticket_kernel, race_beside_a_used_ticket_kernel,
    race_beside_a_volatile_load_kernel, volatile_read_of_a_plain_store_kernel, stored_outside_the_lock_kernel,
    failing_release_kernel,
    aliases_kernel, shift_in_place_kernel, integer_pointer_kernel, bytes_kernel, wide_store_kernel,
    zeroed_by_one_kernel, finished_by_the_last_kernel, race_beside_atomics_kernel, read_then_written_kernel,
]  # fmt: skip


@triton.jit
def halo_kernel(a, b, o, N: tl.constexpr):
    k = tl.program_id(0) * N + tl.arange(0, N)
    left, right = tl.load(b + k - 1, mask=k > 0, other=0.0), tl.load(b + k + 1)
    tl.store(o + k, left + right)


@triton.jit
def histogram_kernel(a, b, o, N: tl.constexpr):
    k = tl.program_id(0) * N + tl.arange(0, N)
    tl.atomic_add(o + (tl.load(b + k) > 0).to(tl.int32), 1.0)


@triton.jit
def own_slots_kernel(a, b, o, N: tl.constexpr):
    """Zeroed, added to and read by the same program."""
    k, slots = tl.arange(0, N), o + tl.program_id(0) * N
    tl.store(slots + k, 0.0)
    tl.debug_barrier()
    tl.atomic_add(slots + k % 4, tl.load(b + k))
    tl.debug_barrier()
    tl.store(a + tl.program_id(0), tl.sum(tl.load(slots + k), 0))


@triton.jit
def last_to_arrive_kernel(a, b, o, N: tl.constexpr):
    """A ticket says who is last; everything else has been written by then."""
    pid = tl.program_id(0)
    tl.store(a + pid, tl.sum(tl.load(b + pid * N + tl.arange(0, N)), 0))
    if tl.atomic_add(o, 1.0) == tl.num_programs(0) - 1:
        tl.store(o + 1, tl.load(a) + tl.load(a + 1))


@triton.jit
def neighbouring_bytes_kernel(a, b, o, N: tl.constexpr):
    tl.store(o.to(tl.pointer_type(tl.int8)) + tl.program_id(0), 1)


@triton.jit
def masked_off_kernel(a, b, o, N: tl.constexpr):
    k = tl.arange(0, N)
    tl.store(o + k, tl.load(b + k * 1000000, mask=k < 0, other=1.0), mask=tl.program_id(0) == 0)


@triton.jit
def lock_kernel(a, b, o, N: tl.constexpr):
    lock = o.to(tl.pointer_type(tl.int32))
    k = tl.arange(0, N)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(a + k, tl.load(a + k) + tl.load(b + tl.program_id(0) * N + k))
    tl.atomic_xchg(lock, 0)


@triton.jit
def chain_kernel(a, b, o, N: tl.constexpr):
    """Each program waits for the one before it, and takes over its sum."""
    pid = tl.program_id(0)
    flags = o.to(tl.pointer_type(tl.int32))
    total = tl.sum(tl.load(b + pid * N + tl.arange(0, N)), 0)
    if pid > 0:
        while tl.atomic_add(flags + pid - 1, 0) == 0:
            pass
        total += tl.load(a + pid - 1)
    tl.store(a + pid, total)
    tl.atomic_xchg(flags + pid, 1)


@triton.jit
def chain_by_volatile_loads_kernel(a, b, o, N: tl.constexpr):
    pid = tl.program_id(0)
    flags = o.to(tl.pointer_type(tl.int32))
    total = tl.sum(tl.load(b + pid * N + tl.arange(0, N)), 0)
    if pid > 0:
        while tl.load(flags + pid - 1, volatile=True) == 0:
            pass
        total += tl.load(a + pid - 1)
    tl.store(a + pid, total)
    tl.atomic_xchg(flags + pid, 1, sem="release")


@triton.jit
def last_to_arrive_finishes_the_sum_kernel(a, b, o, N: tl.constexpr):
    """Everybody adds to a tile; who comes last reads it plainly, and clears tile and counter for the next launch."""
    k = tl.arange(0, N)
    counter = o.to(tl.pointer_type(tl.int32))
    tl.atomic_add(a + k, tl.load(b + tl.program_id(0) * N + k), sem="relaxed")
    if tl.atomic_add(counter, 1) == tl.num_programs(0) - 1:
        tl.store(o + 16 + k, tl.load(a + k))
        tl.store(a + k, 0.0)
        tl.store(counter, 0)


HONEST = [
    lock_kernel, chain_kernel, chain_by_volatile_loads_kernel, last_to_arrive_finishes_the_sum_kernel,
    halo_kernel, histogram_kernel, own_slots_kernel, last_to_arrive_kernel, neighbouring_bytes_kernel,
    masked_off_kernel,
]  # fmt: skip


def _findings(kernel: triton.JITFunction, programs: int = 2, order: Order = IN_ORDER) -> list:
    size = max(64, 16 * programs)
    a, b, o = torch.zeros(size), torch.randn(size + 1), torch.zeros(size)
    with executing(Checks(uninitialized=True, race=True), order=order) as log:
        kernel[(programs,)](a, a[4:] if kernel is aliases_kernel else b, o, N=16)
    return log.findings


@pytest.mark.parametrize("kernel", RACES, ids=lambda kernel: kernel.__name__)
def test_a_race_is_found(kernel: triton.JITFunction) -> None:
    findings = _findings(kernel)
    assert {(finding.kind, finding.severity) for finding in findings} == {("race", "error")}
    assert all(finding.line for finding in findings)


@pytest.mark.parametrize("kernel", HONEST, ids=lambda kernel: kernel.__name__)
def test_an_honest_kernel_is_not_accused(kernel: triton.JITFunction) -> None:
    assert not _findings(kernel)
    assert not _findings(kernel, programs=40)


@pytest.mark.parametrize("kernel", HONEST, ids=lambda kernel: kernel.__name__)
@pytest.mark.parametrize("programs", [2, 40])
def test_an_honest_kernel_does_not_notice_the_order(kernel: triton.JITFunction, programs: int) -> None:
    for seed in range(4):
        assert not _findings(kernel, programs, draw_order(seed, programs))


@triton.jit
def lucky_ticket_kernel(a, b, o, N: tl.constexpr):
    """By number, the first program is over before the second acquires; nothing makes it so."""
    pid = tl.program_id(0)
    if pid == 0:
        tl.store(a, 3.0)
    ticket = tl.atomic_add(o, 1.0)
    tl.store(o + 2 + pid, ticket)
    if pid == 1:
        tl.store(o + 1, tl.load(a))


def test_an_order_that_nothing_enforces_is_found_in_another() -> None:
    assert not _findings(lucky_ticket_kernel)
    assert {f.kind for f in _findings(lucky_ticket_kernel, 2, Order(1, 1))} == {"race"}


@triton.jit
def lucky_ticket_behind_a_wait_kernel(a, b, o, N: tl.constexpr):
    """The loop never waits; it only looks as if the order mattered."""
    pid = tl.program_id(0)
    while tl.load(b + 63, volatile=True) == 12345.0:
        pass
    if pid == 0:
        tl.store(a, 3.0)
    ticket = tl.atomic_add(o, 1.0)
    tl.store(o + 2 + pid, ticket)
    if pid == 1:
        tl.store(o + 1, tl.load(a))


@triton.jit
def tickets_around_kernel(a, b, o, N: tl.constexpr):
    """A ticket before and one after: programs that run to their end are in order, and on a GPU they are not."""
    pid = tl.program_id(0)
    ticket = tl.atomic_add(o, 1.0)
    tl.store(a, tl.load(a) + tl.sum(tl.load(b + pid * N + tl.arange(0, N)), 0))
    tl.store(o + 2 + pid, ticket + tl.atomic_add(o, 1.0))


def test_programs_that_take_turns_show_what_tickets_around_a_race_hide() -> None:
    assert not _findings(tickets_around_kernel, 8)
    assert not _findings(tickets_around_kernel, 8, Order(7, 7))
    assert {f.kind for f in _findings(tickets_around_kernel, 8, Order(7, 7, turns=1))} == {"race"}


def test_a_program_may_wait_for_a_later_one_when_they_take_turns() -> None:
    """The chain runs backwards: by number alone it would never end."""
    x, sums, flags = torch.randn(12 * 16), torch.full((12,), float("nan")), torch.zeros(12, dtype=torch.int32)
    with executing(Checks(race=True), order=Order(5, 1, turns=5)) as log:
        backward_chain_kernel[(12,)](x, sums, flags, 12, N=16)
    assert not log.findings
    assert torch.allclose(sums, x.reshape(12, 16).sum(-1).flip(0).cumsum(0).flip(0), atol=1e-4)


@triton.jit
def backward_chain_kernel(x, sums, flags, programs, N: tl.constexpr):
    pid = tl.program_id(0)
    total = tl.sum(tl.load(x + pid * N + tl.arange(0, N)), 0)
    if pid < programs - 1:
        while tl.atomic_add(flags + pid + 1, 0) == 0:
            pass
        total += tl.load(sums + pid + 1)
    tl.store(sums + pid, total)
    tl.atomic_xchg(flags + pid, 1)


def test_a_loop_that_might_wait_does_not_hide_it() -> None:
    assert {f.kind for f in _findings(lucky_ticket_behind_a_wait_kernel, 2, Order(1, 1))} == {"race"}


def test_programs_that_wait_begin_anew_by_number_with_memory_as_it_was() -> None:
    x, sums, flags = torch.randn(20 * 16), torch.full((20,), float("nan")), torch.zeros(20, dtype=torch.int32)
    with executing(Checks(uninitialized=True, race=True), order=Order(19, 19)) as log:
        log.fresh.add(sums.data_ptr())
        chain_kernel[(20,)](sums, x, flags, N=16)
    assert not log.findings
    assert torch.allclose(sums, x.reshape(20, 16).sum(-1).cumsum(0), atol=1e-4)


@triton.jit
def edges_kernel(x, o, shift, N: tl.constexpr):
    """Every program also writes its neighbour's (or, by ``shift``, another's) first element."""
    pid, k = tl.program_id(0), tl.arange(0, N)
    tl.store(o + pid * N + k, tl.load(x + pid * N + k))
    other = (pid + shift) % tl.num_programs(0)
    tl.store(o + other * N, pid.to(tl.float32))


@pytest.mark.parametrize("shift", [1, 20_000])
def test_a_sample_of_a_large_grid_finds_what_is_systematic(shift: int) -> None:
    programs = 40_000
    x, o = torch.randn(programs * 16), torch.zeros(programs * 16)
    with executing(Checks(uninitialized=True, race=True, sample=4096, seed=3)) as log:
        edges_kernel[(programs,)](x, o, shift, N=16)
    assert {(f.kind, f.severity) for f in log.findings} == {("race", "error")}


@triton.jit
def plain_kernel(x, o, N: tl.constexpr):
    k = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(o + k, tl.load(x + k) * 2)


def test_a_sample_runs_every_program_and_counts_it_once() -> None:
    programs = 10_000
    results = []
    for sample in (None, 512):
        x, o = torch.randn(programs * 16), torch.full((programs * 16,), float("nan"))
        with executing(Checks(uninitialized=True, race=True, sample=sample)) as log:
            plain_kernel[(programs,)](x, o, N=16)
            plain_kernel[(programs,)](o, x, N=16)
        assert torch.equal(x, o * 2) and not log.findings
        results.append(
            [replace(r.stats, footprint=tuple(sorted(f[1:] for f in r.stats.footprint))) for r in log.results]
        )
    assert results[0] == results[1]


def test_what_the_rest_of_a_sample_wrote_counts_as_written() -> None:
    with sim.device("h200") as device:
        x = torch.randn(16 * 10_000, device="cuda")
        y = torch.empty_like(x)
        plain_kernel[(10_000,)](x, y, N=16)
        plain_kernel[(10_000,)](y, x, N=16)
        assert torch.isfinite(x).all()
        assert not device.engine.counters.findings


@pytest.mark.parametrize("programs", [65, 1000, 4096])
def test_samples_and_the_rest_are_all(programs: int) -> None:
    for seed in range(5):
        runs = sampled_runs(programs, 300, seed)
        head, tail = split_runs(runs, 100)
        rest = others(runs, programs)
        places = [k for start, stop in [*head, *tail, *rest] for k in range(start, stop)]
        assert sorted(places) == list(range(programs))
        assert sum(stop - start for start, stop in head) == min(100, sum(stop - start for start, stop in runs))


@pytest.mark.parametrize("programs", [1, 2, 3, 7, 64, 1000])
def test_a_drawn_order_has_every_program_once(programs: int) -> None:
    orders = {draw_order(seed, programs) for seed in range(20)}
    for order in orders:
        assert sorted((k * order.factor + order.shift) % programs for k in range(programs)) == list(range(programs))
    assert len(orders) > 1 or programs < 3
    if programs > 1:
        assert Order(programs - 1, programs - 1) in orders


def _known_by_vector_clocks(syncs: list[tuple[int, int, int, int]], last: int) -> dict[int, dict[int, int]]:
    """What each segment knows of other programs (first segment -> last known segment), by brute force."""
    at_address: dict[int, dict[int, int]] = {}
    known: dict[int, dict[int, int]] = {}
    mine: dict[int, dict[int, int]] = {}
    ends = {segment: (address, first, flags) for address, segment, first, flags in syncs}
    first = 0
    for segment in range(1, last + 1):
        first = segment if segment - 1 not in ends else ends[segment - 1][1]
        clock = mine.setdefault(first, {})
        known[segment] = dict(clock)
        if segment not in ends:
            continue
        address, first, flags = ends[segment]
        if flags & ACQUIRE:
            for program, until in at_address.get(address, {}).items():
                clock[program] = max(clock.get(program, 0), until)
        if flags & RELEASE:
            shared = at_address.setdefault(address, {})
            for program, until in {**clock, first: segment}.items():
                shared[program] = max(shared.get(program, 0), until)
    return known


@pytest.mark.parametrize("seed", range(30))
def test_what_is_ordered_agrees_with_vector_clocks(seed: int) -> None:
    rng = random.Random(seed)
    syncs, segment, program_of = [], 0, {}
    for _ in range(rng.randrange(2, 9)):
        segment += 1
        first = segment
        program_of[segment] = first
        for _ in range(rng.randrange(4)):
            syncs.append((rng.randrange(3), segment, first, rng.choice((ACQUIRE, RELEASE, ACQUIRE | RELEASE))))
            segment += 1
            program_of[segment] = first
    known = _known_by_vector_clocks(syncs, segment)
    ordered = Ordered(np.array(syncs, np.int64).reshape(-1, 4))
    pairs = [(a, b) for a in program_of for b in program_of if program_of[a] < program_of[b]]
    rng.shuffle(pairs)
    for earlier, later in pairs:
        expected = known[later].get(program_of[earlier], 0) >= earlier
        assert ordered.before(earlier, later, program_of[later]) == expected, (syncs, earlier, later)


@triton.jit
def far_kernel(x, o, stride, offset, N: tl.constexpr):
    k = tl.arange(0, N)
    tl.store(o + k, tl.load(x + k * stride + offset))


@pytest.mark.parametrize(
    ("stride", "offset"),
    [(1, 1), (1, -1), (1, 2**31 - 1), (1, 2**40), (1, -(2**40)), (1, 2**61), (2**27, 0), (2**26, 0), (-1, 0)],
)
def test_addresses_out_of_bounds(stride: int, offset: int) -> None:
    """One off, before the start, past the address space, and products that wrap in 32 bits."""
    with executing() as log:
        far_kernel[(1,)](torch.zeros(64), torch.zeros(64), stride, offset, N=64)
    assert log.kinds() == ["out_of_bounds"]
