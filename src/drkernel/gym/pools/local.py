"""LocalPool: evaluations on this machine. Threads that judge, a zygote that forks; no services.

A candidate's crash is a verdict. Only ``infra_error`` is tried again, a bounded number of times. Identical requests in
flight at once are evaluated once. However the program ends (close, Ctrl-C, interpreter exit, ``kill -9``), no
process is left: the zygote ends with its socket to the judge, and everything else with the zygote.
"""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import os
import queue
import threading
import time
import traceback
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from drkernel.gym.request import EvalRequest
from drkernel.gym.session.factory import SessionFactory
from drkernel.verdict import CandidateError, Verdict

Evaluate = Callable[[EvalRequest, SessionFactory], Verdict]
"""a judge: never raises for what a candidate does"""


class PoolClosed(RuntimeError):
    """The pool takes no more requests."""


@dataclass
class _Work:
    request: EvalRequest
    future: Future[Verdict] = field(default_factory=Future)


class LocalPool:
    """Evaluates up to ``slots`` candidates at once. Thread-safe; an (async) context manager.

    ``slots``: evaluations at once, by default one a core. ``attempts``: tries in all for infrastructure trouble.
    ``cache``: finished verdicts kept and given again for an equal request; 0 evaluates every request anew.
    ``judge``: how to evaluate; by default :func:`drkernel.gym.judge.judge.evaluate`.
    """

    def __init__(
        self,
        slots: int | None = None,
        *,
        judge: Evaluate | None = None,
        factory: SessionFactory | None = None,
        attempts: int = 3,
        cache: int = 0,
    ):
        if slots is not None and slots < 1:
            raise ValueError(f"a pool needs at least one slot, not {slots}")
        if attempts < 1:
            raise ValueError(f"attempts counts every try, so it is at least 1, not {attempts}")
        self.slots = slots or os.cpu_count() or 1
        self._judge = judge or _default_judge()
        self._factory = factory or SessionFactory(spares=min(self.slots, 4))
        self._attempts = attempts
        self._cache_size = cache
        self._cache: OrderedDict[str, Verdict] = OrderedDict()
        self._queue: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._in_flight: dict[str, Future[Verdict]] = {}
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._busy = self._retries = self._shared = self._hits = 0
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"drkernel-judge-{slot}", daemon=True)
            for slot in range(self.slots)
        ]
        self._share = _share_of_cores(self.slots) if judge is None else None
        self._start()
        _OPEN.add(self)

    def warm(self) -> LocalPool:
        """Start the zygote now (about two seconds) rather than at the first request."""
        self._factory.warm()
        return self

    async def evaluate(self, request: EvalRequest) -> Verdict:
        """Evaluate once. Never raises for what a candidate does; infrastructure trouble is a verdict of that status."""
        return await asyncio.shield(asyncio.wrap_future(self.submit(request)))

    def submit(self, request: EvalRequest) -> Future[Verdict]:
        """The same for callers without an event loop. Raises :class:`PoolClosed`."""
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
            work = _Work(request)
            self._in_flight[key] = work.future
            self._queue.put(work)
        return work.future

    def health(self) -> dict[str, Any]:
        """Slots, busy slots, queue length, counts by status, and the zygote's health."""
        with self._lock:
            return {
                "slots": self.slots,
                "busy": self._busy,
                "queued": self._queue.qsize(),
                "evaluated": dict(self._counts),
                "retries": self._retries,
                "shared": self._shared,
                "cache_hits": self._hits,
                "closed": self._closed,
                **self._factory.health(),
            }

    async def close(self) -> None:
        """Stop: what waits is cancelled, what runs is killed, no process is left."""
        await asyncio.to_thread(self.close_now)

    def close_now(self) -> None:
        """The same for callers without an event loop."""
        with self._lock:
            already, self._closed = self._closed, True
        if already:
            return
        _OPEN.discard(self)
        self._cancel_waiting()
        self._factory.close()  # running sessions lose their processes, and their judges return
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join(30)

    async def __aenter__(self) -> LocalPool:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __enter__(self) -> LocalPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_now()

    # ---- the threads

    def _start(self) -> None:
        """Start them. A judge's arithmetic takes its share of the cores, set here for each thread by itself.

        Left alone, every judging thread would keep a team of as many OpenMP threads as there are cores, and OpenMP lets
        the teams of the *other* threads (a trainer's) wait by sleeping instead of spinning once there are more threads
        than cores: training steps took 1.7 times as long.
        """
        self._started = threading.Barrier(self.slots + 1)
        before = _torch_threads(None) if self._share else None
        for thread in self._threads:
            thread.start()
        self._started.wait()
        if before:
            _torch_threads(before)  # what a thread sets is also what threads to come begin with

    def _work(self) -> None:
        if self._share:
            _torch_threads(self._share)
        self._started.wait()
        while (work := self._queue.get()) is not None:
            if not work.future.set_running_or_notify_cancel():
                continue
            with self._lock:
                self._busy += 1
            verdict = self._evaluate(work.request)
            with self._lock:
                self._busy -= 1
                self._counts[verdict.status] += 1
                self._in_flight.pop(work.request.key, None)
                if self._cache_size and verdict.is_of_candidate:
                    self._cache[work.request.key] = verdict
                    while len(self._cache) > self._cache_size:
                        self._cache.popitem(last=False)
            work.future.set_result(verdict)

    def _evaluate(self, request: EvalRequest) -> Verdict:
        """Until it is no infrastructure error, or tries are used up."""
        start = time.monotonic()
        for attempt in range(1, self._attempts + 1):
            try:
                verdict = self._judge(request, self._factory)
            except Exception as error:  # a judge's own mistake must not look like the candidate's
                verdict = infra_verdict(request, error, time.monotonic() - start)
            if verdict.status != "infra_error" or self._closed:
                break
            with self._lock:
                self._retries += attempt < self._attempts
        return verdict.model_copy(update={"attempts": attempt})

    def _cancel_waiting(self) -> None:
        while True:
            try:
                work = self._queue.get_nowait()
            except queue.Empty:
                return
            if work is not None:
                with self._lock:
                    self._in_flight.pop(work.request.key, None)
                if work.future.set_running_or_notify_cancel():
                    work.future.set_exception(PoolClosed("the pool was closed before this request's turn"))


def infra_verdict(request: EvalRequest, error: BaseException, seconds: float) -> Verdict:
    """The verdict for trouble that is not the candidate's."""
    frames = "".join(traceback.format_exception(error))[-8000:]
    return Verdict(
        status="infra_error",
        task_id=request.task.id,
        candidate_sha256=hashlib.sha256(request.candidate.encode("utf-8", "surrogatepass")).hexdigest(),
        device=request.settings.device,
        baseline=request.settings.baseline,
        error=CandidateError(type=type(error).__name__, message=str(error), traceback=frames),
        seconds=seconds,
    )


def _default_judge() -> Evaluate:
    from drkernel.gym.judge.judge import evaluate

    return evaluate


def _share_of_cores(slots: int) -> int:
    return max(1, (os.cpu_count() or 1) // slots)


def _torch_threads(count: int | None) -> int:
    """The threads that torch's operators take when called from the present thread; sets it first unless None."""
    import torch

    if count is not None:
        torch.set_num_threads(count)
    return torch.get_num_threads()


_OPEN: weakref.WeakSet[LocalPool] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for pool in list(_OPEN):
        pool.close_now()
