"""The line of a pool's requests: who is served, and that nobody waits for ever."""

import threading

from drkernel.gym.pools.local import PATIENCE, WaitingLine, WaitingRequest
from drkernel.gym.request import EvalRequest, EvalSettings
from drkernel.task import Task


def work(task: str, text: str = "x", **settings: str) -> WaitingRequest:
    reference = Task(id=task, reference=f"# {task}\nclass Model: pass")
    return WaitingRequest(EvalRequest(task=reference, candidate=text, settings=EvalSettings(**settings)))


def taken(line: WaitingLine, slot: int) -> str:
    item = line.take(slot)
    assert isinstance(item, WaitingRequest)
    return item.request.task.id + item.request.candidate


def test_a_slot_takes_what_it_knows_then_what_nobody_knows_then_the_first():
    line = WaitingLine()
    for name, text in (("a", "1"), ("b", "1"), ("b", "2"), ("a", "2"), ("c", "1"), ("b", "3")):
        line.put(work(name, text))
    assert [taken(line, slot) for slot in (0, 1, 0, 1, 0)] == ["a1", "b1", "a2", "b2", "c1"]
    assert taken(line, 0) == "b3"  # another's, but better than to idle
    line.put(work("d", "1"))
    line.put(work("b", "4"))
    assert taken(line, 0) == "b4"  # who judged it last knows it best


def test_nobody_is_passed_over_for_ever_and_an_end_not_at_all():
    line = WaitingLine()
    line.put(work("mine"))
    assert taken(line, 0) == "minex"
    line.put(work("other"))
    assert taken(line, 1) == "otherx"
    line.put(work("other", "waits"))
    for number in range(PATIENCE + 1):
        line.put(work("mine", str(number)))
    order = [taken(line, 0) for _ in range(PATIENCE + 1)]
    assert order[-1] == "otherwaits" and order[0] == "mine0"
    line.put(None)
    line.put(work("mine", "late"))
    assert taken(line, 1) == f"mine{PATIENCE}" and line.take(0) is None
    assert [len(line), taken(line, 1)] == [1, "minelate"]


def test_a_slot_waits_for_work_and_clearing_gives_back_the_requests():
    line = WaitingLine()
    found: list[str] = []
    waiting = threading.Thread(target=lambda: found.append(taken(line, 0)))
    waiting.start()
    line.put(work("a"))
    waiting.join(5)
    for item in (work("b"), work("c"), None):
        line.put(item)
    assert found == ["ax"] and [one.request.task.id for one in line.clear()] == ["b", "c"] and len(line) == 0


def test_a_card_is_one_slots_at_a_time_and_holds_up_nobody_else():
    line = WaitingLine()
    works = [work("a", text, device="cuda:0") for text in "123"] + [work("b", device="cuda:1"), work("c")]
    for item in works:
        line.put(item)
    assert [taken(line, slot) for slot in (0, 1, 2)] == ["a1", "bx", "cx"] and len(line) == 2
    found: list[str] = []
    waiting = threading.Thread(target=lambda: found.append(taken(line, 1)))
    waiting.start()
    line.done(works[3])  # another card
    line.done(works[4])
    waiting.join(0.1)
    assert found == []
    line.done(works[0])
    waiting.join(5)
    assert found == ["a2"]
    assert line.clear() == [works[2]]
