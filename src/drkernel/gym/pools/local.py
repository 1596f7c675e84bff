"""LocalPool: evaluations on this machine, with a judge process for each slot and a zygote that forks; no services.

A candidate's crash is a verdict. A judge that is killed costs one attempt of one evaluation. Only ``infra_error`` is
retried, a bounded number of times. Identical concurrent requests are evaluated once. However the program ends (close,
Ctrl-C, interpreter exit, ``kill -9``), no process is left: judges end with the thread that started them, the zygote
with its socket to the judge, and everything else with the zygote.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
import time
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from drkernel.gym.judge.memory import default_budget, machine_bytes
from drkernel.gym.pools.judge_process import START_S, JudgeLost, JudgeOverMemory, JudgeProcess
from drkernel.gym.pools.memory_watch import MemoryWatch
from drkernel.gym.pools.shared_zygote import JUDGES, SharedZygote
from drkernel.gym.pools.waiting_line import WaitingLine, WaitingRequest, WarmUp
from drkernel.gym.pools.without_judge import infra_verdict, too_large_verdict
from drkernel.gym.request import EvalRequest
from drkernel.verdict import Verdict

if TYPE_CHECKING:
    from drkernel.gym.session.factory import SessionFactory

Evaluate = Callable[[EvalRequest, "SessionFactory"], Verdict]
"""a judging function: never raises, whatever a candidate does"""


class PoolClosed(RuntimeError):
    """The pool accepts no more requests."""


class LocalPool:
    """Evaluates up to ``slots`` candidates at once. Thread-safe; an (async) context manager.

    ``slots``: concurrent evaluations, by default one per core. ``attempts``: total tries for infrastructure errors.
    ``cache``: number of finished verdicts kept for equal requests; 0 evaluates every request anew. ``memory_bytes``:
    memory that one evaluation may take in its judge, by default a quarter of the machine's. ``total_bytes``: memory
    that all slots may hold with all that they have started, by default three quarters of it. ``judge`` and ``factory``:
    evaluate in this process's own threads with that function; for tests and experiments.
    """

    def __init__(
        self,
        slots: int | None = None,
        *,
        judge: Evaluate | None = None,
        factory: SessionFactory | None = None,
        attempts: int = 3,
        cache: int = 0,
        memory_bytes: int | None = None,
        total_bytes: int | None = None,
    ):
        if slots is not None and slots < 1:
            raise ValueError(f"a pool needs at least one slot, not {slots}")
        if attempts < 1:
            raise ValueError(f"attempts counts every try, so it is at least 1, not {attempts}")
        self.slots = slots or os.cpu_count() or 1
        self._judge, self._factory = judge, factory
        self._budget = 0
        self._seats: list[JudgeProcess] = []
        self._zygotes: list[SharedZygote] = []
        self._watch: MemoryWatch | None = None
        if judge is None:
            self._budget = budget = default_budget() if memory_bytes is None else memory_bytes
            self._zygotes = [SharedZygote() for _ in range(-(-self.slots // JUDGES))]
            self._seats = [
                JudgeProcess(threads=_share_of_cores(self.slots), budget=budget, zygote=self._zygotes[slot // JUDGES])
                for slot in range(self.slots)
            ]
            most = machine_bytes() * 3 // 4 if total_bytes is None else total_bytes
            self._watch = MemoryWatch(most, budget, self._seats, self._zygotes)
        elif factory is None:
            from drkernel.gym.session.factory import SessionFactory

            self._factory = SessionFactory(spares=min(self.slots, 4))
        self._attempts = attempts
        self._cache_size = cache
        self._cache: OrderedDict[str, Verdict] = OrderedDict()
        self._line = WaitingLine()
        self._in_flight: dict[str, Future[Verdict]] = {}
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._busy = self._retries = self._shared = self._hits = 0
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, args=(slot,), name=f"drkernel-judge-{slot}", daemon=True)
            for slot in range(self.slots)
        ]
        for thread in self._threads:
            thread.start()
        _OPEN.add(self)

    def warm(self) -> LocalPool:
        """Start the judges now (a few seconds) rather than each at its first request."""
        if self._factory is not None:
            self._factory.warm()
        if self._seats:
            wait = WarmUp(self.slots)
            for _ in self._seats:
                self._line.put(wait)
            with contextlib.suppress(threading.BrokenBarrierError):  # those who failed try again with a request
                wait.together.wait(START_S)
        return self

    async def evaluate(self, request: EvalRequest) -> Verdict:
        """Evaluate once. Never raises for what a candidate does; infrastructure trouble is a verdict of that status."""
        asked = asyncio.wrap_future(self.submit(request))
        asked.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may be waiting any more
        return await asyncio.shield(asked)

    def submit(self, request: EvalRequest) -> Future[Verdict]:
        """Submit a request without an event loop. Raises :class:`PoolClosed`."""
        key = request.key
        with self._lock:
            if self._closed:
                raise PoolClosed("the pool is closed")
            if key in self._cache:
                self._hits += 1
                self._cache.move_to_end(key)
                done: Future[Verdict] = Future()
                done.set_result(self._cache[key])
                return done
            if key in self._in_flight:
                self._shared += 1
                return self._in_flight[key]
            work = WaitingRequest(request)
            self._in_flight[key] = work.future
            self._line.put(work)
        return work.future

    def health(self) -> dict[str, Any]:
        """Return slots, busy slots, queue length and counts by status; for every judge its process and its zygote's
        health."""
        with self._lock:
            return {
                "slots": self.slots,
                "busy": self._busy,
                "queued": len(self._line),
                "evaluated": dict(self._counts),
                "retries": self._retries,
                "shared": self._shared,
                "cache_hits": self._hits,
                "closed": self._closed,
                "judges_lost": sum(seat.lost for seat in self._seats),
                "ended_for_memory": 0 if self._watch is None else self._watch.ended,
                "zygotes_started": sum(zygote.started for zygote in self._zygotes),
                "judges": [{"pid": seat.pid, **seat.state} for seat in self._seats if seat.pid is not None],
                **(self._factory.health() if self._factory is not None else {}),
            }

    async def close(self) -> None:
        """Stop: cancel queued requests, kill running ones, and leave no process behind."""
        await asyncio.to_thread(self.close_now)

    def close_now(self) -> None:
        """Close without an event loop."""
        with self._lock:
            already, self._closed = self._closed, True
        if already:
            return
        _OPEN.discard(self)
        self._cancel_waiting()
        if self._factory is not None:
            self._factory.close()  # running sessions lose their processes, and their judges return
        if self._watch is not None:
            self._watch.close()
        for seat in self._seats:
            seat.kill()
        for _ in self._threads:
            self._line.put(None)
        for thread in self._threads:
            thread.join(30)
        for seat in self._seats:
            seat.close()
        for zygote in self._zygotes:
            zygote.close()

    async def __aenter__(self) -> LocalPool:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __enter__(self) -> LocalPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_now()

    # ---- the threads

    def _work(self, slot: int) -> None:
        while (work := self._line.take(slot)) is not None:
            if isinstance(work, WarmUp):
                with contextlib.suppress(JudgeLost, threading.BrokenBarrierError):
                    self._seats[slot].start()
                    work.together.wait(START_S)
                continue
            if not work.future.set_running_or_notify_cancel():
                self._line.done(work)
                continue
            with self._lock:
                self._busy += 1
            verdict = self._evaluate(slot, work.request)
            self._line.done(work)
            with self._lock:
                self._busy -= 1
                self._counts[verdict.status] += 1
                self._in_flight.pop(work.request.key, None)
                if self._cache_size and verdict.is_of_candidate:
                    self._cache[work.request.key] = verdict
                    while len(self._cache) > self._cache_size:
                        self._cache.popitem(last=False)
            work.future.set_result(verdict)

    def _evaluate(self, slot: int, request: EvalRequest) -> Verdict:
        """Evaluate, retrying infrastructure errors until tries are used up."""
        start = time.monotonic()
        for attempt in range(1, self._attempts + 1):
            try:
                verdict = self._judge_once(slot, request)
            except JudgeOverMemory as error:
                verdict = too_large_verdict(request, error, self._budget, time.monotonic() - start)
            except Exception as error:  # a judge's own mistake must not look like the candidate's
                verdict = infra_verdict(request, error, time.monotonic() - start)
            if verdict.status != "infra_error" or self._closed:
                break
            with self._lock:
                self._retries += attempt < self._attempts
        return verdict.model_copy(update={"attempts": attempt})

    def _judge_once(self, slot: int, request: EvalRequest) -> Verdict:
        if self._judge is None:
            return self._seats[slot].evaluate(request)
        assert self._factory is not None
        return self._judge(request, self._factory)

    def _cancel_waiting(self) -> None:
        for work in self._line.clear():
            with self._lock:
                self._in_flight.pop(work.request.key, None)
            if work.future.set_running_or_notify_cancel():
                work.future.set_exception(PoolClosed("the pool was closed before this request's turn"))


def _share_of_cores(slots: int) -> int:
    return max(1, (os.cpu_count() or 1) // slots)


_OPEN: weakref.WeakSet[LocalPool] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for pool in list(_OPEN):
        pool.close_now()
