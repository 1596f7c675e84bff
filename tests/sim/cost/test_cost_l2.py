"""The L2 state: against a brute-force cache of small lines, and by its own promises."""

import random
from collections import OrderedDict

import pytest

from drkernel.sim.cost.roofline import LEFT_DIRTY, L2State
from drkernel.sim.spec import get_spec

SPEC = get_spec("h100")


class LineCache:
    """Fully associative LRU cache of lines, fed line by line: what the state by parts abstracts."""

    def __init__(self, capacity_lines: int):
        self.capacity = capacity_lines
        self.lines: OrderedDict[tuple[int, int], None] = OrderedDict()

    def touch(self, storage: int, lines: range) -> int:
        """Lines that had to be fetched."""
        misses = 0
        for line in lines:
            key = (storage, line)
            misses += key not in self.lines
            self.lines[key] = None
            self.lines.move_to_end(key)
            if len(self.lines) > self.capacity:
                self.lines.popitem(last=False)
        return misses


def test_it_agrees_with_a_line_cache_on_streams_of_pieces() -> None:
    rng = random.Random(0)
    state = L2State(SPEC)
    lines = 1000
    size = state.capacity / lines
    cache = LineCache(lines)
    exact = modelled = written = 0.0
    for _ in range(1600):
        storage, write = rng.randrange(8), rng.random() < 0.4
        most = 40 + 60 * storage  # the largest are about half the cache
        first = rng.randrange(most) if rng.random() < 0.7 else 0
        count = rng.randint(1, most - first) if rng.random() < 0.7 else most - first
        misses = cache.touch(storage, range(first, first + count))
        part = (first * size, (first + count) * size)
        if write:
            state.write(storage, count * size, part)
            written += count
        else:
            exact += misses
            modelled += state.read(storage, count * size, part) / size
    assert modelled == pytest.approx(exact, rel=0.15)
    pushed = LEFT_DIRTY / size * (modelled / (modelled + written)) ** 2  # as far as reads push them out
    assert state.take_writeback() / size == pytest.approx(written + pushed)


def test_what_was_just_written_is_read_for_free_when_it_fits() -> None:
    state = L2State(SPEC)
    state.write(1, 1e6)
    assert state.read(1, 1e6) == 0


def test_what_is_written_goes_to_device_memory_however_little_it_is() -> None:
    state = L2State(SPEC)
    state.write(1, 100.0)
    state.write(2, 4 * state.capacity)
    assert state.take_writeback() == 100.0 + 4 * state.capacity
    assert state.take_writeback() == 0


def test_a_storage_larger_than_the_cache_is_read_mostly_again() -> None:
    state = L2State(SPEC)
    big = 4 * SPEC.l2_bytes
    assert state.read(1, big) == big
    assert state.read(1, big) > 0.8 * big


def test_others_push_out_what_is_oldest() -> None:
    state = L2State(SPEC)
    state.write(1, 0.5 * state.capacity)
    state.read(2, state.capacity)
    assert state.read(1, 1e6) == 1e6


def test_freed_memory_is_gone() -> None:
    state = L2State(SPEC)
    state.read(1, 1e6)
    state.forget(1)
    assert state.read(1, 1e6) == 1e6


def test_what_only_reads_pushes_out_the_dirty_lines_of_a_flush_once() -> None:
    state = L2State(get_spec("a100"))
    some = state.capacity / 4
    state.read(1, some)
    assert state.take_writeback() == some
    state.read(2, 3 * some)
    state.write(3, some)
    assert state.take_writeback() == 3 * some  # what is written has pushed as much
    state.read(4, 8 * some)
    assert state.take_writeback() == some  # what was written took the place of as many, and goes out once as well
    state.read(5, 8 * some)
    assert state.take_writeback() == 0
    state = L2State(get_spec("a100"))
    state.write(6, 1e12)
    assert state.take_writeback() == 1e12  # a fill of one's own leaves as many dirty lines as the flush
    for storage in (7, 8):
        state.read(storage, 1e12)
        assert state.take_writeback() == state.capacity * (storage == 7)
    state.write(9, 1e12)  # so does the next one, whatever was read before
    assert state.take_writeback() == 1e12
    state.read(10, 1e12)
    assert state.take_writeback() == state.capacity


@pytest.mark.parametrize("card", ["a100", "h100", "rtx4090", "rtx5090", "t4"])
def test_a_larger_cache_holds_no_more_dirty_lines_of_a_flush_than_an_a100s(card: str) -> None:
    state = L2State(get_spec(card))
    state.read(1, 1e12)
    assert state.take_writeback() == min(state.capacity, LEFT_DIRTY)


def test_more_written_bytes_never_mean_fewer_of_the_bus() -> None:
    def moved(read: float, written: float) -> float:
        state = L2State(SPEC)
        fetched = state.read(1, read)
        state.write(2, written)
        return fetched + state.take_writeback()

    steps = [state * 4e6 for state in range(16)]
    for read in steps:
        totals = [moved(read, written) for written in steps]
        assert totals == sorted(totals) and totals[0] <= 2 * read


def test_pieces_of_one_storage_read_in_turns_all_come_from_memory() -> None:
    state = L2State(SPEC)
    size = state.capacity / 2
    for start in range(6):  # rows: one piece behind another
        assert state.read(1, size, (start * size, (start + 1) * size)) == size
    assert state.read(1, size, (5 * size, 6 * size)) == 0
    for start in range(6):  # columns: each piece has gaps, and spans nearly all; a load more makes the spans equal
        assert state.read(2, size, (32.0 * start, 6 * size)) == size
        assert state.read(3, size, (0.0, 6 * size)) == size


def test_what_is_resident_is_read_for_free_in_pieces_and_pieces_of_it_as_a_whole() -> None:
    state = L2State(SPEC)
    state.write(1, 1e6)
    assert state.read(1, 1e5, (3e5, 4e5)) == state.read(1, 3e5, (32.0, 9e5)) == state.read(1, 1e6) == 0
    for column in range(4):
        state.write(2, 256e3, (64.0 * column, 1_024_000.0 - 64.0 * (3 - column)))
    assert state.read(2, 1_024_000.0) == pytest.approx(0, abs=100)


def test_weights_stay_where_pieces_of_something_longer_go_by() -> None:
    state = L2State(SPEC)
    piece = state.capacity / 10
    for row in range(40):
        state.read(1, piece, (row * piece, (row + 1) * piece))
        assert state.read(2, 2 * piece) == (0 if row else 2 * piece)
