"""LocalPool: slots, retries, sharing, the cache, and leaving nothing behind."""

import asyncio
import gc
import threading
import time

import psutil
import pytest

import farm
from drkernel.gym.pools.judge_process import infra_verdict
from drkernel.gym.pools.local import LocalPool, PoolClosed
from drkernel.gym.request import EvalRequest, EvalSettings
from drkernel.gym.session.factory import SessionFactory
from drkernel.gym.session.protocol import SessionError
from drkernel.task import Task
from verdicts import verdict_of

TASK = Task(id="t", reference="class Model: pass")


def request(text: str = "x") -> EvalRequest:
    return EvalRequest(task=TASK, candidate=text)


class Judge:
    """A judge that answers what it is told to, and counts."""

    def __init__(self, *statuses: str, seconds: float = 0.0):
        self.statuses = list(statuses)
        self.seconds = seconds
        self.calls = self.running = self.most = 0
        self.lock = threading.Lock()

    def __call__(self, request, factory):
        with self.lock:
            self.calls += 1
            self.running += 1
            self.most = max(self.most, self.running)
            status = self.statuses.pop(0) if self.statuses else "correct"
        time.sleep(self.seconds)
        with self.lock:
            self.running -= 1
        if status == "raise":
            raise RuntimeError("the judge is broken")
        return verdict_of(status)


async def test_no_more_at_once_than_slots():
    judge = Judge(seconds=0.05)
    async with LocalPool(3, judge=judge) as pool:
        verdicts = await asyncio.gather(*(pool.evaluate(request(str(i))) for i in range(12)))
    assert all(v.status == "correct" for v in verdicts) and judge.most == 3


@pytest.mark.parametrize(
    "statuses, final, calls",
    [
        (["infra_error", "correct"], "correct", 2),
        (["raise", "raise", "incorrect"], "incorrect", 3),
        (["infra_error"] * 5, "infra_error", 3),
        (["timeout", "correct"], "timeout", 1),
        (["hack"], "hack", 1),
    ],
)
async def test_only_infrastructure_trouble_is_tried_again(statuses, final, calls):
    judge = Judge(*statuses)
    async with LocalPool(1, judge=judge) as pool:
        result = await pool.evaluate(request())
        assert (result.status, result.attempts, judge.calls) == (final, calls, calls)
        assert pool.health()["evaluated"] == {final: 1} and pool.health()["retries"] == calls - 1


async def test_a_broken_judge_is_told_as_infrastructure_trouble():
    async with LocalPool(1, judge=Judge("raise", "raise", "raise")) as pool:
        result = await pool.evaluate(request())
    assert result.status == "infra_error" and "the judge is broken" in result.error.message


async def test_equal_requests_in_flight_are_evaluated_once():
    judge = Judge(seconds=0.1)
    async with LocalPool(4, judge=judge) as pool:
        await asyncio.gather(*(pool.evaluate(request("same")) for _ in range(5)), pool.evaluate(request("other")))
        assert judge.calls == 2 and pool.health()["shared"] == 4
        await pool.evaluate(request("same"))
        assert judge.calls == 3, "without a cache, a later request is evaluated anew"


async def test_the_cache_keeps_the_latest_and_never_infrastructure_trouble():
    judge = Judge("infra_error", "infra_error", "infra_error")
    async with LocalPool(1, judge=judge, cache=2) as pool:
        await pool.evaluate(request("a"))
        for text in ("a", "b", "a", "c", "b"):
            await pool.evaluate(request(text))
        # a: 3 tries, then a, b evaluated, a hit, c evaluated (b dropped), b evaluated
        assert judge.calls == 3 + 4 and pool.health()["cache_hits"] == 1


async def test_giving_up_on_a_request_does_not_spoil_it_for_others():
    judge = Judge(seconds=0.2)
    async with LocalPool(1, judge=judge) as pool:
        first = asyncio.create_task(pool.evaluate(request()))
        second = asyncio.create_task(pool.evaluate(request()))
        await asyncio.sleep(0.05)
        first.cancel()
        assert (await second).status == "correct" and judge.calls == 1


async def test_what_nobody_waits_for_any_more_is_closed_in_silence():
    complaints = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context["message"]))
    pool = LocalPool(1, judge=Judge(seconds=0.2))
    jobs = [asyncio.create_task(pool.evaluate(request(name))) for name in "abc"]
    await asyncio.sleep(0.05)
    for job in jobs:
        job.cancel()
    await pool.close()
    await asyncio.gather(*jobs, return_exceptions=True)
    del jobs
    gc.collect()
    assert complaints == []


async def test_closing_answers_those_who_wait():
    pool = LocalPool(1, judge=Judge(seconds=0.3))
    running = asyncio.create_task(pool.evaluate(request("a")))
    waiting = asyncio.create_task(pool.evaluate(request("b")))
    await asyncio.sleep(0.05)
    await pool.close()
    assert (await running).status == "correct"
    with pytest.raises(PoolClosed):
        await waiting
    with pytest.raises(PoolClosed):
        await pool.evaluate(request("c"))
    await pool.close()


def test_closing_ends_real_sessions_at_once():
    factory = SessionFactory().warm()
    started = threading.Event()

    def judge(request, factory):
        with factory.open(EvalSettings()) as session:
            session.load("class ModelNew:\n    def __call__(self):\n        while True: pass", [], {}, seed=0)
            started.set()
            try:
                session.call([])
            except SessionError as error:
                return infra_verdict(request, error, 0.0)

    pool = LocalPool(1, judge=judge, factory=factory)
    future = pool.submit(request())
    assert started.wait(120)
    zygote = psutil.Process(factory._launcher.pid)
    family = [zygote, *zygote.children(recursive=True)]
    assert len(family) >= 3, "the zygote, runner and device (and a spare pair under way)"
    start = time.monotonic()
    pool.close_now()
    assert time.monotonic() - start < 20
    assert future.result(30).status == "infra_error"
    assert not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in family)


def test_a_spare_that_died_is_not_handed_out():
    with SessionFactory(spares=1, launcher=farm.launcher()) as factory:
        with factory.open(EvalSettings()):
            pass
        spare = factory._ready[0]
        while "runner" not in spare.pids:
            time.sleep(0.01)
        psutil.Process(spare.pids["runner"]).kill()
        assert spare.wait_for_exit(5)
        with factory.open(EvalSettings()) as session:
            assert session.job is not spare
            session.load("class ModelNew:\n    def __call__(self):\n        return 7", [], {}, seed=0)
            assert session.call([]).outputs[0].value == 7
        with factory.open(EvalSettings(memory_bytes=1 << 30)) as session:
            assert session.job.terms.limits.memory_bytes == 1 << 30, "a spare on other terms is not used"


@pytest.mark.parametrize("wrong", [{"slots": 0}, {"attempts": 0}])
def test_senseless_settings_are_refused(wrong):
    with pytest.raises(ValueError, match="at least"):
        LocalPool(judge=Judge(), **wrong)
