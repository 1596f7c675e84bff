"""The grading service without HTTP: takes jobs from the store, has them evaluated, and notifies waiting clients.

Local workers are tasks over a :class:`~drkernel.gym.request.Pool`; remote ones lease over HTTP (``app.py``). Both hold
leases with heartbeats, so a job is requeued whichever process dies.
"""

import asyncio
import contextlib
import logging
import os
import queue
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Generic, TypeVar

from pydantic import Field, field_validator

from drkernel.config import Config
from drkernel.gym.device import parse_device
from drkernel.gym.request import EvalRequest, Pool
from drkernel.serve.protocol import JobView, StoreError, pack, unanswered
from drkernel.serve.store import Store, claim
from drkernel.verdict import Verdict, printable

# ---- One writing thread: operations that arrive during a commit share the next one (group commit)
#
# Every operation is a function over the store's own transactions. Those of a group run as parts of one transaction and
# are answered after its commit. When the group fails (a full disk), each is retried alone, so that one that is too
# large does not take the others down. An operation that *waits* (a worker that wants a job) is retried after each group
# until it succeeds, so nothing polls.


log = logging.getLogger("drkernel.serve")
T = TypeVar("T")

_GROUP = 256
"""most operations of one commit"""


@dataclass(eq=False)
class _Operation(Generic[T]):
    work: Callable[[], T]
    answer: asyncio.Future[T]
    waits_for: str | None = None
    """what the operation waits for, retrying while the result is None; when one of several with the same key finds
    nothing, the others are skipped"""
    durable: bool = True


@dataclass
class _GiveUp:
    operation: _Operation[Any] | None
    """None: all waiting operations"""


_Outcome = tuple[_Operation[Any], Any, BaseException | None]


class Writer:
    """Writes to a store for one event loop."""

    def __init__(self, store: Store):
        self.store = store
        self.trouble: str | None = None
        """why the last commit was refused; None when it was not"""
        self._queue: queue.SimpleQueue[_Operation[Any] | _GiveUp | None] = queue.SimpleQueue()
        self._parked: list[_Operation[Any]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._work, name="drkernel-store", daemon=True)

    def start(self) -> None:
        """Start; call it in the event loop that will use the writer."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def close(self) -> None:
        """Finish the operations submitted so far, and stop."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    async def do(self, work: Callable[[], T], *, durable: bool = True) -> T:
        """Run an operation; return after its commit (with ``durable``, after it is on the disk).

        Raises :class:`StoreError` when it was refused.
        """
        return await asyncio.shield(self._put(work, durable=durable).answer)

    async def wait_for(self, what: str, work: Callable[[], T | None], seconds: float) -> T | None:
        """Return the first result that is not None, tried now and after every change of the store; None after
        ``seconds``.

        ``what`` is a key: when one operation finds nothing, others with the same key are skipped. A caller that is
        cancelled must expect that the operation may still succeed.
        """
        operation = self._put(work, what, durable=False)
        try:
            await asyncio.wait([operation.answer], timeout=seconds)
        finally:
            if not operation.answer.done():
                self._queue.put(_GiveUp(operation))
        return await asyncio.shield(operation.answer)

    def let_go(self) -> None:
        """Answer all waiting operations with None, now."""
        self._queue.put(_GiveUp(None))

    def _put(self, work: Callable[[], T], what: str | None = None, *, durable: bool) -> _Operation[T]:
        if not self._thread.is_alive():
            raise StoreError("the service has stopped writing")
        operation = _Operation(work, asyncio.get_running_loop().create_future(), what, durable)
        self._queue.put(operation)
        return operation

    # ---- the thread

    def _work(self) -> None:
        while True:
            group, given_up, last = self._take()
            outcomes = self._commit([*group, *self._parked]) if group else []
            outcomes += self._drop(self._parked if last or None in given_up else given_up)
            self._tell(outcomes)
            if last:
                return

    def _take(self) -> tuple[list[_Operation[Any]], list[_Operation[Any] | None], bool]:
        """Return the submitted operations, those given up (None: all), and whether the writer should stop."""
        group: list[_Operation[Any]] = []
        given_up: list[_Operation[Any] | None] = []
        item = self._queue.get()
        while True:
            if item is None:
                return group, given_up, True
            if isinstance(item, _GiveUp):
                given_up.append(item.operation)
            else:
                group.append(item)
            if len(group) >= _GROUP:
                break
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break
        return group, given_up, False

    def _commit(self, operations: list[_Operation[Any]]) -> list[_Outcome]:
        """Commit the operations; return the outcomes of all but those that keep waiting."""
        try:
            with self.store.transaction(any(operation.durable for operation in operations)):
                outcomes = self._attempt(operations)
            if self.trouble is not None:
                log.warning("the store %s takes writes again", self.store.path)
            self.trouble = None
        except StoreError as error:
            if self.trouble != str(error):  # once, not for every commit of a full disk
                log.error("%s", error)
            self.trouble = str(error)
            # a locked file refuses every one, each after the same long wait
            again = [] if error.locked else [outcome for operation in operations for outcome in self._alone(operation)]
            outcomes = [(operation, None, error) for operation in operations] if error.locked else again
        answered = {id(operation) for operation, _, _ in outcomes}
        self._parked = [operation for operation in operations if id(operation) not in answered]
        return outcomes

    def _attempt(self, operations: Iterable[_Operation[Any]]) -> list[_Outcome]:
        outcomes: list[_Outcome] = []
        nothing: set[str] = set()
        for operation in operations:
            if operation.waits_for in nothing:
                continue
            try:
                result = operation.work()
            except StoreError:
                raise  # the whole group is undone and each is tried by itself
            except Exception as error:  # a mistake of ours, for whoever asked
                outcomes.append((operation, None, error))
            else:
                if result is not None or operation.waits_for is None:
                    outcomes.append((operation, result, None))
                else:
                    nothing.add(operation.waits_for)
        return outcomes

    def _alone(self, operation: _Operation[Any]) -> list[_Outcome]:
        try:
            with self.store.transaction():
                return self._attempt([operation])
        except StoreError as error:
            return [(operation, None, error)]

    def _drop(self, operations: Iterable[_Operation[Any] | None]) -> list[_Outcome]:
        dropped = [operation for operation in self._parked if operation in list(operations)]
        self._parked = [operation for operation in self._parked if operation not in dropped]
        return [(operation, None, None) for operation in dropped]

    def _tell(self, outcomes: list[_Outcome]) -> None:
        assert self._loop is not None
        if outcomes and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_deliver, outcomes)


def _deliver(outcomes: list[_Outcome]) -> None:
    for operation, result, error in outcomes:
        if operation.answer.done():
            continue
        if error is not None:
            operation.answer.set_exception(error)
        else:
            operation.answer.set_result(result)


# ---- The grading service without HTTP


class ServiceTerms(Config):
    """What a service accepts, and how long it waits."""

    device: str = Field("sim:h200", description="device of requests that name none (KernelGYM's clients)")
    max_queue: int = Field(100_000, ge=1, description="waiting jobs from which on submissions are refused")
    max_body_mb: float = Field(64.0, gt=0, description="largest request in MiB")
    rate: float = Field(0.0, ge=0, description="requests a second and client address; 0: unlimited")
    lease_s: float = Field(60.0, ge=1, description="seconds without a heartbeat after which a job is taken back")
    grace_s: float = Field(60.0, ge=0, description="seconds that running jobs get at shutdown")
    body_s: float = Field(60.0, gt=0, description="seconds within which a request's body must arrive")
    max_attempts: int = Field(3, ge=1, description="evaluations of a job that the grader may fail")
    quarantine_after: int = Field(5, ge=1, description="failures in a row after which a worker gets no more jobs")

    @field_validator("device")
    @classmethod
    def _known(cls, name: str) -> str:
        parse_device(name)
        return name


class Draining(RuntimeError):
    """The service is shutting down and accepts nothing new."""


@dataclass
class WorkerInfo:
    """A worker's state, for display."""

    name: str
    kind: str
    """``local`` or ``remote``"""
    slots: int
    seen: float = field(default_factory=time.time)
    done: int = 0
    failed: int = 0
    """infrastructure errors"""
    in_a_row: int = 0
    """infrastructure errors since the last good evaluation"""
    quarantined: bool = False
    lost: bool = False
    """whether its process or machine is gone, as reported by whoever started it"""
    note: str = ""
    """the last problem, in a sentence"""
    kinds: Sequence[str] | None = None
    """kinds of devices that the worker has; None: it takes any job"""

    @property
    def able(self) -> bool:
        """Whether the worker can be given work."""
        return not self.quarantined and not self.lost


class Service:
    """Queue, workers and waiting clients. All methods run in one event loop; a separate thread writes to the store."""

    def __init__(self, store: Store, pool: Pool | None, *, slots: int = 0, terms: ServiceTerms = ServiceTerms()):
        """Create a service with ``slots`` concurrent evaluations in ``pool``; 0 without a pool: remote workers only."""
        self.store = store
        self.pool = pool
        self.slots = slots if pool is not None else 0
        self.kinds: Sequence[str] | None = None
        self.terms = terms
        self.name = f"local-{os.getpid()}-{secrets.token_hex(3)}"
        self.workers: dict[str, WorkerInfo] = {}
        self.draining = False
        self._claim: IO[bytes] | None = None
        self.history = History()
        self.writer = Writer(store)
        self._queue: list[dict[str, Any]] = []
        self._queue_at = -1e9
        self._finished = asyncio.Condition()
        self._waiters: dict[str, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: set[str] = set()

    # ---- life

    def use(self, pool: Pool, slots: int, kinds: Sequence[str] | None = None) -> None:
        """Evaluate jobs in ``pool``, for devices of these ``kinds`` (None: all). Call before :meth:`start`."""
        self.pool, self.slots, self.kinds = pool, slots, kinds

    def claim(self) -> None:
        """Take the exclusive right to serve the store; :meth:`start` does so too.

        Raises :class:`StoreError` when another service holds it.
        """
        if self._claim is None:
            self._claim = claim(self.store.path)

    async def start(self) -> None:
        """Requeue the jobs that an earlier process left, and start.

        Raises :class:`StoreError` when another service runs on the same store.
        """
        self.claim()
        self.writer.start()
        # leases of local workers of earlier processes are void: those processes are gone
        back = await self.writer.do(lambda: self.store.expire("local-"))
        if back:
            log.info("took up %d jobs that were running when the service stopped", back)
        await self._give_up()
        if self.slots:
            self.workers[self.name] = WorkerInfo(self.name, "local", self.slots, kinds=self.kinds)
        for finished, latency, status in await asyncio.to_thread(self.store.finished_since, time.time() - 3600):
            self.history.add(finished, latency, status)
        for _ in range(self.slots):
            self._task(self._local_worker())
        waiting = self.store.counts()["state"].get("queued", 0)
        log.info("store %s: %d jobs waiting; %d evaluations at once here", self.store.path, waiting, self.slots)
        self._task(self._keep_leases())

    def _task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self, grace_s: float = 60.0) -> None:
        """Drain: start nothing new and let running jobs finish for ``grace_s`` seconds; the rest stays queued."""
        self.draining = True
        self.writer.let_go()
        end = time.monotonic() + grace_s
        while self._running and time.monotonic() < end:
            await asyncio.sleep(0.05)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            await self.writer.do(lambda: self.store.take_back(self.name, tried=False))
        except StoreError as error:
            log.error("%s; what ran is taken up again at the next start", error)
        await self.writer.close()
        if self.pool is not None:
            await self.pool.close()
        if self._claim is not None:
            self._claim.close()
            self._claim = None

    # ---- submitting and waiting

    async def submit(
        self,
        requests: Sequence[EvalRequest],
        *,
        client: str,
        priority: int = 0,
        fresh: bool = False,
        names: Sequence[str] | None = None,
    ) -> list[str]:
        """Accept requests durably; return the jobs' ids.

        Raises :class:`Draining`, :class:`~drkernel.serve.store.QueueFull`, or :class:`StoreError` when they cannot be
        made durable.
        """
        if self.draining:
            raise Draining("the service is shutting down")
        if len(requests) > 16:  # packing takes about 0.1 ms a request: not in the event loop for many
            prepared = await asyncio.to_thread(lambda: [pack(request) for request in requests])
        else:
            prepared = [pack(request) for request in requests]
        if not fresh and names is None and (known := self.store.known([one.key for one in prepared])) is not None:
            return known
        return await self.writer.do(
            lambda: self.store.submit(
                prepared, client=client, priority=priority, fresh=fresh, names=names, max_queue=self.terms.max_queue
            )
        )

    async def wait(self, job_id: str, seconds: float) -> JobView | None:
        """Return the job once it is done or cancelled, or in its current state after ``seconds``."""
        event = self._waiters.setdefault(job_id, asyncio.Event())
        job = self.store.get(job_id)  # a look-up by primary key: cheaper than a hop to a thread
        if job is None or job.state in ("done", "cancelled"):
            self._waiters.pop(job_id, None)
            event.set()
            return job
        if seconds <= 0:
            return job
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), seconds)
        return self.store.get(job_id)

    async def cancel(self, job_id: str) -> bool:
        """Cancel a queued job; return whether it was cancelled."""
        done = await self.writer.do(lambda: self.store.cancel(job_id))
        if done:
            await self._tell(job_id)
        return done

    async def next_event(self, seconds: float) -> None:
        """Return when a job finished, or after ``seconds``."""
        async with self._finished:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._finished.wait(), seconds)

    async def _tell(self, job_id: str) -> None:
        event = self._waiters.pop(job_id, None)
        if event is not None:
            event.set()
        async with self._finished:
            self._finished.notify_all()

    # ---- working

    async def lease(
        self, worker: str, wait_s: float = 0.0, kinds: Sequence[str] | None = None
    ) -> tuple[JobView, EvalRequest] | None:
        """Lease the next job to a worker in good standing, waiting for one."""
        info = self.workers.get(worker)
        if self.draining or (info is not None and info.quarantined):
            return None
        return await self.writer.wait_for(
            f"work for {kinds}", lambda: self.store.lease(worker, self.terms.lease_s, kinds=kinds), wait_s
        )

    async def give_back(self, job_id: str, worker: str) -> bool:
        """Requeue a job that a worker could not take; this does not count as an attempt."""
        return await self.writer.do(lambda: self.store.give_back(job_id, worker, -1), durable=False)

    async def heartbeat(self, worker: str, job_ids: Sequence[str]) -> list[str]:
        """Extend leases; return those that the worker still holds."""
        return await self.writer.do(lambda: self.store.heartbeat(worker, job_ids, self.terms.lease_s), durable=False)

    async def finish(self, job: JobView, worker: str, verdict: Verdict) -> bool:
        """Record a worker's verdict; infrastructure errors return to the queue until attempts are used up.

        Attempts made by the worker's own pool count too, so that there are ``max_attempts`` in total.
        """
        infra = verdict.status == "infra_error"
        more = verdict.attempts - 1
        again = infra and job.attempts + more < self.terms.max_attempts
        if again:
            recorded = await self.writer.do(lambda: self.store.give_back(job.id, worker, more), durable=False)
        else:
            verdict = verdict.model_copy(update={"attempts": job.attempts + more})
            recorded = await self.writer.do(lambda: self.store.complete(job.id, worker, verdict))
        if not recorded:
            return False
        _log_job(job, worker, verdict, again)
        info = self.workers.get(worker)
        if info is not None:
            info.seen = time.time()
            info.failed += infra
            info.done += not infra
            if verdict.is_of_candidate:  # a request that cannot be granted says nothing of its worker
                info.in_a_row = 0
            self._strike(info, infra)
            if verdict.error is not None and infra:
                info.note = f"{verdict.error.type}: {verdict.error.message}"[:200]
        if not again:
            now = time.time()
            self.history.add(now, now - job.submitted, verdict.status)
            await self._tell(job.id)
        return True

    def _strike(self, info: WorkerInfo, failures: int) -> None:
        """Count consecutive infrastructure errors, and quarantine a worker with too many."""
        info.in_a_row += failures
        info.quarantined = info.quarantined or info.in_a_row >= self.terms.quarantine_after

    async def _local_worker(self) -> None:
        while not self.draining:
            try:
                taken = await self.lease(self.name, 30.0, self.kinds)
            except StoreError:
                await asyncio.sleep(1.0)
                continue
            if taken is None:
                if self.workers[self.name].quarantined:
                    await asyncio.sleep(1.0)  # until somebody releases it
                continue
            job, request = taken
            self._running.add(job.id)
            try:
                await self._finish_surely(job, await self._evaluate(request))
            finally:
                self._running.discard(job.id)

    async def _evaluate(self, request: EvalRequest) -> Verdict:
        assert self.pool is not None
        try:
            return await self.pool.evaluate(request)
        except Exception as error:  # a pool never raises for a candidate: this is our own trouble, and must not end us
            log.exception("evaluation failed")
            return unanswered(request, "infra_error", error)

    async def _finish_surely(self, job: JobView, verdict: Verdict) -> None:
        """Record a verdict, retrying while the disk refuses; the lease is kept meanwhile."""
        while True:
            try:
                await self.finish(job, self.name, verdict)
                return
            except StoreError:
                await asyncio.sleep(1.0)

    async def _keep_leases(self) -> None:
        """Send heartbeats for local jobs, and requeue jobs of silent workers."""
        while True:
            await asyncio.sleep(min(self.terms.lease_s / 4, 5.0))
            self._forget_silent()
            with contextlib.suppress(StoreError):  # the writer has logged it
                if self._running:
                    await self.heartbeat(self.name, list(self._running))
                await self.writer.do(self.store.expire, durable=False)
                await self._give_up()

    async def _give_up(self) -> None:
        """End jobs whose attempts are used up without a verdict."""
        for job in await self.writer.do(lambda: self.store.give_up(self.terms.max_attempts)):
            log.warning("gave up job %s of %s after %d attempts", job.id, job.task_id, job.attempts)
            await self._tell(job.id)

    def _forget_silent(self) -> None:
        """Forget remote workers silent for an hour; a quarantined one stays excluded under its name."""
        since = time.time() - 3600.0
        gone = [w.name for w in self.workers.values() if w.kind == "remote" and w.seen < since and not w.quarantined]
        for name in gone:
            del self.workers[name]

    # ---- figures

    def release(self, name: str) -> bool:
        """Release a quarantined worker; return False when there is none of that name."""
        info = self.workers.get(name)
        if info is None:
            return False
        info.quarantined, info.in_a_row = False, 0
        return True

    def not_ready(self) -> str | None:
        """Return why jobs cannot be accepted or evaluated now; None when they can."""
        if self.draining:
            return "draining"
        if self.writer.trouble is not None:
            return self.writer.trouble
        if any(worker.able for worker in self.workers.values()):
            return None
        return "every worker is quarantined or lost" if self.workers else "no worker has joined"

    def trouble(self) -> str | None:
        """Return what prevents jobs from being accepted or evaluated, in a sentence; None when nothing does."""
        if self.writer.trouble is not None:
            return self.writer.trouble
        able = [worker for worker in self.workers.values() if worker.able]
        unserved = [
            kind
            for kind in self.store.kinds_waiting()
            if not any(worker.kinds is None or kind in worker.kinds for worker in able)
        ]
        return f"jobs wait for devices of kind {', '.join(unserved)}: no worker offers them" if unserved else None

    def register(self, name: str, slots: int, kinds: Sequence[str] | None = None) -> WorkerInfo:
        """Register a remote worker that joins, for the first time or again."""
        info = self.workers.setdefault(name, WorkerInfo(name, "remote", slots))
        info.seen, info.slots, info.kinds, info.lost = time.time(), slots, kinds, False
        return info

    async def leave(self, name: str, trouble: str = "") -> int:
        """Record that a remote worker has left, or with ``trouble`` was lost; requeue its jobs and return how many.

        Losing a worker while it holds jobs counts as its failure: one that is lost repeatedly is quarantined.
        """
        if name == self.name:
            return 0
        held = await self.writer.do(lambda: self.store.take_back(name, tried=bool(trouble)))
        info = self.workers.get(name)
        if info is None:
            return held
        if trouble:
            info.lost, info.note = True, trouble[:200]
            info.failed += held
            self._strike(info, held)
        elif not info.quarantined:
            del self.workers[name]
        return held

    async def queue(self) -> list[dict[str, Any]]:
        """Return clients with queued or running jobs, the longest queue first; read at most every two seconds."""
        if time.monotonic() - self._queue_at > 2.0:
            self._queue_at = time.monotonic()
            self._queue = await asyncio.to_thread(self.store.queue)
        return self._queue


def _log_job(job: JobView, worker: str, verdict: Verdict, again: bool) -> None:
    """Write a line about a job's end: task, outcome, seconds since it was submitted, attempts, worker."""
    outcome: str = verdict.status
    if verdict.speedup is not None:
        outcome += f" {verdict.speedup.value:.2f}x"
    if verdict.error is not None:
        outcome += f" ({verdict.error.type})"
    if again:
        outcome += ", queued again"
    log.info(
        "job %s of %s for %s: %s after %.2f s, attempt %d, by %s",
        job.id, *(printable(text, lines=False) for text in (job.task_id, job.client, outcome)),
        time.time() - job.submitted, job.attempts, printable(worker, lines=False),
    )  # fmt: skip


# ---- history


BIN_S = 10
BINS = 360
_KEPT = 512
"""most latencies of a bin that are kept; a busier bin keeps its first ones"""


@dataclass
class Bin:
    """The verdicts of ten seconds."""

    start: int
    count: int = 0
    failed: int = 0
    """infrastructure errors among them"""
    latencies: list[float] = field(default_factory=list)
    """seconds from submission"""


class History:
    """Bins in order of time, without empty ones."""

    def __init__(self) -> None:
        self._bins: deque[Bin] = deque(maxlen=BINS)

    def add(self, finished: float, latency: float, status: str) -> None:
        """Add a verdict; times must be in order, up to the bin's width."""
        start = int(finished) // BIN_S * BIN_S
        if not self._bins or self._bins[-1].start < start:
            self._bins.append(Bin(start))
        latest = self._bins[-1]
        latest.count += 1
        latest.failed += status == "infra_error"
        if len(latest.latencies) < _KEPT:
            latest.latencies.append(latency)

    def rows(self) -> list[tuple[int, int, int, float, float]]:
        """Return (start, verdicts, infrastructure errors, median seconds, 95th percentile) of the last hour's bins."""
        since = time.time() - BIN_S * BINS
        return [
            (one.start, one.count, one.failed, round(quantile(one.latencies, 0.5), 4),
             round(quantile(one.latencies, 0.95), 4))
            for one in self._bins if one.start >= since
        ]  # fmt: skip

    def throughput(self) -> float:
        """Return the verdicts per second over the last minute."""
        return sum(one.count for one in self._bins if one.start >= time.time() - 60) / 60

    def latency(self) -> dict[str, float]:
        """Return median and 95th percentile of the seconds from submission to verdict over the last five minutes; empty
        when there was no verdict."""
        since = time.time() - 300
        values = [value for one in self._bins if one.start >= since - BIN_S for value in one.latencies]
        return {"p50": quantile(values, 0.5), "p95": quantile(values, 0.95)} if values else {}


def quantile(values: list[float], share: float) -> float:
    """Return the smallest value that at least ``share`` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
