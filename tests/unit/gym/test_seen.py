"""Facts of a call at own sizes, from its journal."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

from drkernel.gym.judge.held_against import PYTORCH, Exercise, _growth_of, _of_lanes, _products_asked
from drkernel.gym.judge.modelled_timing import ReferenceWork
from drkernel.gym.judge.seen import UPDATES, Launched, _parts
from drkernel.gym.session.protocol import Choice
from drkernel.sim.gpu.pricing import LOADED, PRODUCTS, STORED, WRITTEN, BlockWork


def test_an_operator_that_reads_an_empty_result_has_no_part_of_it() -> None:
    def reads(label: str, *storages: int) -> Any:
        return SimpleNamespace(label=label, inputs=[SimpleNamespace(storage=one, nbytes=8 * one) for one in storages])

    made = {0: 0.0, 2: 32.0}
    assert _parts([reads("aten.cat", 0, 2), reads("aten.sum", 0), reads("aten.add", 1)], made) == {"aten.cat": 0.5}


def test_an_argument_of_which_a_checked_call_reads_nothing_has_no_growth() -> None:
    """Slices up to lengths of zero: an evaluation ended in a division by zero."""
    own, there = (ReferenceWork(8.0, 8, 64, 0, 64, elements={"input 0": read}) for read in (8.0, 0.0))
    call: Any = SimpleNamespace(seen=SimpleNamespace(sizes={"input 0": 64}), work=own)
    exercise: Any = SimpleNamespace(work=there, kept_rows=False)
    assert _growth_of(call, exercise, "input 0") == 1.0


def test_programs_beyond_the_end_of_a_length_are_not_busy() -> None:
    head = BlockWork(None, {LOADED: 4.0})
    body = BlockWork(0, {LOADED: 1024.0, WRITTEN: 64.0, STORED: 64.0, "fp32": 100.0})
    read = BlockWork(0, {LOADED: 1024.0})

    def launched(*alike: tuple[float, dict[int, float]]) -> Launched:
        entered = Counter[int]()
        for _, runs in alike:
            entered.update(runs)
        work = {"fp32": 100.0 * entered[1]}
        classes = tuple((count, tuple(runs.items())) for count, runs in alike)
        programs = int(sum(count for count, _ in alike))
        choice = Choice("k", {}, 4, 1)
        facts: list[Any] = ["k", 1, programs, work, choice, (programs, 1, 1), {}, {}, {}, {}, 0.0, False]
        return Launched(*facts, (head, body, read), dict(entered), classes)

    whole = launched((8.0, {0: 8.0, 1: 8.0}))
    beyond = launched((8.0, {0: 8.0, 1: 8.0}), (8.0, {0: 8.0}))
    assert beyond.per_program("fp32") == whole.per_program("fp32") == 100.0
    assert beyond.kept(whole, "fp32") == 1.0
    in_vain = launched((8.0, {0: 8.0, 1: 8.0}), (8.0, {0: 8.0, 2: 8.0}))  # these read as much, and make nothing
    assert in_vain.per_program("fp32") == 50.0
    assert in_vain.kept(whole, "fp32") == 0.5


def launched_of(work: dict[str, float], wrote: float, *blocks: tuple[float, dict[str, float]]) -> Launched:
    """A launch that did ``work``; ``blocks``: how often each, in the one before, was run, and what it asks for."""
    choice, programs = Choice("k", {}, 4, 1), int(blocks[0][0])
    facts: list[Any] = ["k", 1, programs, work, choice, (programs, 1, 1), {}, {}, {}, {"": wrote}, 0.0, False]
    places = (None, *range(len(blocks)))
    texts = tuple(BlockWork(place, lanes) for place, (_, lanes) in zip(places, blocks, strict=False))
    return Launched(*facts, texts, {number: runs for number, (runs, _) in enumerate(blocks)}, ())


def test_updates_of_a_counter_are_no_lanes_that_write() -> None:
    """Of 528 programs that take 8192 rows from a counter, as of 512 that take 16, none stores in vain."""

    def rows(count: int, programs: int, stored: float = 1.0) -> Launched:
        work = {LOADED: 64.0 * count * stored, STORED: 8.0 * count * stored, UPDATES: float(count + programs)}
        body = {LOADED: 64.0, STORED: 8.0, WRITTEN: 8.0}
        return launched_of(work, 8.0 * count * stored + 4, (count + programs, {WRITTEN: 4.0}), (count, body))

    assert not list(_of_lanes(rows(8192, 528), [rows(16, 512)]))
    (said,) = _of_lanes(rows(8192, 528), [rows(8192, 528, stored=0.5)])
    assert "writes with 100.0% of its lanes; 50.0%" in said


def test_a_product_of_few_rows_loads_more_for_each_lane_that_writes() -> None:
    """Of tiles of 64 x 64 where 4 rows are: nearly all that is loaded are columns."""
    lanes = {LOADED: 2 * 64.0, STORED: 64.0, WRITTEN: 64.0, PRODUCTS + "fp32_dot": 1.0}
    few = launched_of({LOADED: 64 + 4.0, STORED: 4.0}, 4.0, (1, lanes))
    whole = launched_of({LOADED: 2 * 64.0, STORED: 64.0}, 64.0, (1, lanes))
    assert not list(_of_lanes(whole, [few]))
    less = launched_of({LOADED: 0.2 * 64, STORED: 64.0}, 64.0, (1, lanes))
    (said,) = _of_lanes(less, [few])
    assert "loads 0.1 times its lanes" in said


def test_an_own_product_is_asked_for_what_pytorchs_operators_leave() -> None:
    """Its tiles were padded where it was checked, and seemed to be nearly all of the arithmetic."""
    padded: Any = SimpleNamespace(products={"fp32_dot": 950.0}, work={"fp32_dot": 950.0})
    seen: Any = SimpleNamespace(launched={"": padded}, library_flops=50.0)
    one = Exercise(seen, ReferenceWork(100.0, 8, 64, 0, 64), False)
    for unpadded, asked in ((1.0, 0.8 * 0.95), (0.5, 0.8 * 0.5), (0.0, 0.8 * 0.25)):
        assert abs(_products_asked(one, [one], 0.8, unpadded)["fp32_dot"] - asked) < 1e-9
    assert PYTORCH not in _products_asked(one, [one], 0.8, 1.0)
