"""Facts of a call at own sizes, from its journal."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

from drkernel.gym.judge.held_against import _growth_of
from drkernel.gym.judge.modelled_timing import ReferenceWork
from drkernel.gym.judge.seen import Launched, _parts
from drkernel.gym.session.protocol import Choice
from drkernel.sim.gpu.pricing import LOADED, STORED, WRITTEN, BlockWork


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
