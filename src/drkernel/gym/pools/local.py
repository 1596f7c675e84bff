"""LocalPool: evaluations on this machine, with a judge process for each slot and a zygote that forks; no services.

A candidate's crash is a verdict. A judge that is killed costs one attempt of one evaluation. Only ``infra_error`` is
retried, a bounded number of times. Identical concurrent requests are evaluated once. However the program ends (close,
Ctrl-C, interpreter exit, ``kill -9``), no process is left: the zygote ends with its socket to the pool, and everything
else with the zygote.

Every evaluation has limits of its own: its judge's budget, its runner's and its device's. Together they may be more
than the machine has, and some memory no limit of a process sees. So the pool looks at what is really held. A judge that
has grown beyond its budget is ended. When all of it together is more than the pool may take, the judge or the job that
has grown most is ended: at least one then holds more than its share. Either is a verdict of its own (the task is too
large, or the candidate is out of memory), where the system's choice of a victim might fall on anybody.

A judge computes much about a task for its first answer (the checked sizes, the reference's behaviour and times there)
and remembers it. So a free slot first takes a task that it knows, then one that no slot knows, and then the oldest
request. A request is overtaken a bounded number of times. Verdicts do not depend on the order. A real GPU is one
slot's at a time; requests for it wait without holding up others.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from drkernel.base.files import Recent
from drkernel.gym.judge.memory import default_budget, machine_bytes
from drkernel.gym.pools.judge_process import (
    JUDGES,
    JudgeOverMemory,
    JudgeProcess,
    SharedZygote,
    infra_verdict,
    too_large_verdict,
)
from drkernel.gym.request import EvalRequest
from drkernel.gym.runner.processes import children_of, job_bytes, private_bytes, tree_of
from drkernel.verdict import Verdict

if TYPE_CHECKING:
    from drkernel.gym.session.factory import SessionFactory


LOOK_SECONDS = 0.1
LEAST_BYTES = 128 << 20
"""a process that has grown by less is never ended: that would free next to nothing"""
KEPT_SHARE = 8
"""the part of what an evaluation may take, and of a slot's share of memory, that a judge keeps when it is freed"""
GONE_SECONDS = 5.0
"""seconds that memory may take to come back before another process is ended"""


@dataclass(frozen=True)
class Grown:
    """A judge, or a job's runner or device, that holds more memory than when it started."""

    pid: int
    nbytes: int
    seat: JudgeProcess | None
    """the slot whose judge it is; None for a job's process"""
    zygote: SharedZygote | None
    """the slot whose job it is; None for a judge"""
    evaluation: int = 0
    """its number among its judge's jobs"""


class MemoryWatch:
    """Watches while there is work; a thread of the pool. ``most_bytes`` limits all slots together, ``budget`` one
    judge."""

    def __init__(self, most_bytes: int, budget: int, seats: Sequence[JudgeProcess], zygotes: Sequence[SharedZygote]):
        self.most_bytes, self.budget = most_bytes, budget
        self.ended = 0
        """judges and jobs ended so far"""
        self._seats, self._zygotes = seats, zygotes
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="drkernel-memory", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._stop.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            if any(seat.busy for seat in self._seats):
                self.look()

    def look(self) -> None:
        """Look once, and end the process that must be ended, if any."""
        total, grown = self._measure()
        for judge in [one for one in grown if one.seat is not None and one.nbytes > self.budget + LEAST_BYTES]:
            self._end(judge, f"took {judge.nbytes} bytes")
            return
        largest = max(grown, key=lambda one: one.nbytes, default=None)
        if total > self.most_bytes and largest is not None and largest.nbytes >= LEAST_BYTES:
            self._end(largest, f"all slots together hold {total} bytes, and may hold {self.most_bytes}")

    def _measure(self) -> tuple[int, list[Grown]]:
        """Bytes held by every process of the pool, and what each judge and job has grown by."""
        total, grown = 0, []
        for seat in self._seats:
            evaluation, pid = seat.evaluation, seat.pid
            held = 0 if pid is None else private_bytes(pid)
            total += held
            if pid is not None and seat.busy:
                grown.append(Grown(pid, held - seat.idle_bytes, seat, None, evaluation))
        for zygote in self._zygotes:
            launcher = zygote.launcher
            if launcher is None or launcher.pid is None:
                continue
            own = [private_bytes(pid) for pid in (launcher.pid, launcher.nursery) if pid]
            total += sum(own)
            for root in set(children_of(launcher.pid)) - launcher.own:
                # a forked process counts what it shares with the one that it was forked from
                more = sum(max(0, job_bytes(pid) - max(own)) for pid in tree_of(root))
                total += more
                grown.append(Grown(root, more, None, zygote))
        return total, grown

    def _end(self, one: Grown, why: str) -> None:
        """End it and wait until its memory is back."""
        if one.seat is not None:
            if not one.seat.end_over_memory(one.evaluation, one.nbytes, why):
                return  # that evaluation is over
        elif one.zygote is not None and (launcher := one.zygote.launcher) is not None:
            launcher.end_over_memory(one.pid)
        self.ended += 1
        deadline = time.monotonic() + GONE_SECONDS
        while time.monotonic() < deadline and not self._stop.is_set() and private_bytes(one.pid):
            time.sleep(0.01)


PATIENCE = 16
"""most times that a request is overtaken"""
KNOWN = 512
"""most tasks whose latest judge is remembered; about as many as a judge remembers"""


@dataclass
class WaitingRequest:
    """A request and the future of its verdict."""

    request: EvalRequest
    future: Future[Verdict] = field(default_factory=Future)
    passed_over: int = 0
    task: str = ""
    """content hash of the task"""
    card: str | None = None
    """the real GPU that it needs"""

    def __post_init__(self) -> None:
        self.task = self.request.task.content_hash
        device = self.request.settings.device
        self.card = device if device.startswith("cuda:") else None


class WaitingLine:
    """Thread-safe. ``None`` asks the thread that takes it to end; it is not overtaken."""

    def __init__(self) -> None:
        self._line: deque[WaitingRequest | None] = deque()
        self._knows: Recent[str, int] = Recent(KNOWN)
        self._busy: set[str] = set()
        self._changed = threading.Condition()

    def put(self, item: WaitingRequest | None) -> None:
        """Append to the queue."""
        with self._changed:
            self._line.append(item)
            self._changed.notify()

    def take(self, slot: int) -> WaitingRequest | None:
        """Wait for an entry that this slot may take, and remove it."""
        with self._changed:
            while (place := self._chosen(slot)) is None:
                self._changed.wait()
            item = self._line[place]
            del self._line[place]
            if item is not None:
                if item.card is not None:
                    self._busy.add(item.card)
                self._knows[item.task] = slot
            return item

    def done(self, work: WaitingRequest) -> None:
        """Give the GPU of a request that was taken to the next."""
        if work.card is not None:
            with self._changed:
                self._busy.discard(work.card)
                self._changed.notify_all()

    def clear(self) -> list[WaitingRequest]:
        """Take everything out; return the requests."""
        with self._changed:
            found = [item for item in self._line if item is not None]
            self._line.clear()
            return found

    def __len__(self) -> int:
        return len(self._line)

    def _chosen(self, slot: int) -> int | None:
        """Return the position in the queue of the entry that the slot takes; None while there is none for it."""
        oldest: int | None = None
        chosen: int | None = None
        for place, item in enumerate(self._line):
            if item is not None and item.card in self._busy:
                continue
            oldest = place if oldest is None else oldest
            if item is None:
                break
            knows = self._knows.get(item.task)
            if knows == slot:
                chosen = place
                break
            if knows is None and chosen is None:
                chosen = place
            if item.passed_over >= PATIENCE:
                break
        if chosen is None:
            return oldest
        for item in list(self._line)[:chosen]:
            if item is not None and item.card not in self._busy:
                item.passed_over += 1
        return chosen


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
            threads = max(1, (os.cpu_count() or 1) // self.slots)
            most = machine_bytes() * 3 // 4 if total_bytes is None else total_bytes
            kept = max(LEAST_BYTES, min(budget, most // self.slots) // KEPT_SHARE)
            self._seats = [
                JudgeProcess(threads=threads, budget=budget, kept=kept, zygote=self._zygotes[slot // JUDGES])
                for slot in range(self.slots)
            ]
            self._watch = MemoryWatch(most, budget, self._seats, self._zygotes)
        elif factory is None:
            from drkernel.gym.session.factory import SessionFactory

            self._factory = SessionFactory(spares=min(self.slots, 4))
        self._attempts = attempts
        self._cache: Recent[str, Verdict] = Recent(cache)
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
        with ThreadPoolExecutor(self.slots) as starts:
            wait([starts.submit(seat.start) for seat in self._seats])  # one that fails is tried again with a request
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
            known = self._cache.get(key)
            if known is not None:
                self._hits += 1
                done: Future[Verdict] = Future()
                done.set_result(known)
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
        for work in self._line.clear():
            with self._lock:
                self._in_flight.pop(work.request.key, None)
            if work.future.set_running_or_notify_cancel():
                work.future.set_exception(PoolClosed("the pool was closed before this request's turn"))
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
                if verdict.is_of_candidate:
                    self._cache[work.request.key] = verdict
            work.future.set_result(verdict)

    def _evaluate(self, slot: int, request: EvalRequest) -> Verdict:
        """Evaluate, retrying infrastructure errors until tries are used up."""
        start = time.monotonic()
        for attempt in range(1, self._attempts + 1):
            try:
                factory, judge = self._factory, self._judge
                verdict = judge(request, factory) if judge and factory else self._seats[slot].evaluate(request)
            except JudgeOverMemory as error:
                verdict = too_large_verdict(request, error, self._budget, time.monotonic() - start)
            except Exception as error:  # a judge's own mistake must not look like the candidate's
                verdict = infra_verdict(request, error, time.monotonic() - start)
            if verdict.status != "infra_error" or self._closed:
                break
            with self._lock:
                self._retries += attempt < self._attempts
        return verdict.model_copy(update={"attempts": attempt})


_OPEN: weakref.WeakSet[LocalPool] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for pool in list(_OPEN):
        pool.close_now()
