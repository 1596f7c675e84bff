"""Programs that wait for later ones: grid barriers, fix-ups of split sums, locks that are handed backwards."""

import pytest
import torch
import triton
import triton.language as tl

from launches import launch
from ttir_executor.compiled import StepLimit


@triton.jit
def barrier(count, before, after, PROGRAMS: tl.constexpr):
    pid = tl.program_id(0)
    tl.store(before + pid, pid + 1)
    tl.atomic_add(count, 1)
    while tl.atomic_add(count, 0) < PROGRAMS:
        pass
    tl.store(after + pid, tl.load(before + (pid + 1) % PROGRAMS))


def counts(n: int) -> torch.Tensor:
    return torch.zeros(n, dtype=torch.int32)


@pytest.mark.parametrize("checks", ["auto", "full", "off"])
@pytest.mark.parametrize("programs", [2, 132])
def test_a_grid_barrier(programs: int, checks: str) -> None:
    (count, _, after), record = launch(
        barrier, (programs,), counts(1), counts(programs), counts(programs), programs, device={"checks": checks}
    )
    assert after.tolist() == [*range(2, programs + 1), 1]
    assert count.item() == programs
    assert not record.findings


@triton.jit
def broken_barrier(count, before, after, PROGRAMS: tl.constexpr):
    pid = tl.program_id(0)
    tl.atomic_add(count, 1)
    while tl.atomic_add(count, 0) < PROGRAMS:
        pass
    tl.store(before + pid, pid + 1)  # behind the barrier: nothing orders it and the read
    tl.store(after + pid, tl.load(before + (pid + 1) % PROGRAMS))


def test_a_race_behind_a_barrier_is_still_found() -> None:
    _, record = launch(broken_barrier, (8,), counts(1), counts(8), counts(8), 8)
    assert "race" in record.kinds


@triton.jit
def relaxed_barrier(count, before, after, PROGRAMS: tl.constexpr):
    pid = tl.program_id(0)
    tl.store(before + pid, pid + 1)
    tl.atomic_add(count, 1, sem="relaxed")
    while tl.atomic_add(count, 0, sem="relaxed") < PROGRAMS:
        pass
    tl.store(after + pid, tl.load(before + (pid + 1) % PROGRAMS))


def test_a_relaxed_barrier_ends_and_orders_nothing() -> None:
    (count, *_), record = launch(relaxed_barrier, (8,), counts(1), counts(8), counts(8), 8)
    assert count.item() == 8 and "race" in record.kinds


@triton.jit
def handed_backwards(turn, order, PROGRAMS: tl.constexpr):
    pid = tl.program_id(0)
    while tl.atomic_add(turn, 0) != PROGRAMS - 1 - pid:
        pass
    tl.store(order + pid, tl.load(turn))
    tl.atomic_add(turn, 1)


def test_a_turn_that_is_handed_backwards() -> None:
    (_, order), _ = launch(handed_backwards, (40,), counts(1), counts(40), 40)
    assert order.tolist() == list(range(39, -1, -1))


def test_what_waits_forever_is_stopped_and_memory_is_as_it_left_it() -> None:
    with pytest.raises(StepLimit, match="no program releases"):
        launch(barrier, (4,), counts(1), counts(4), counts(4), 5)


def test_results_do_not_depend_on_the_run() -> None:
    def once() -> list[int]:
        (_, tickets), _ = launch(take_tickets, (32,), counts(1), counts(32), 32)
        return tickets.tolist()

    assert once() == once()


@triton.jit
def take_tickets(count, tickets, PROGRAMS: tl.constexpr):
    pid = tl.program_id(0)
    tl.atomic_add(count, 1)
    while tl.atomic_add(count, 0) < PROGRAMS:
        pass
    tl.store(tickets + pid, tl.atomic_add(count, 1))
