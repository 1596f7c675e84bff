"""The grading service without HTTP: takes jobs from the store, has them evaluated, tells who waits.

Local workers are tasks over a :class:`~drkernel.gym.request.Pool`; remote ones lease over HTTP (``app.py``). Both hold
leases with heartbeats, so whatever dies, the job is taken up again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import time
from collections import deque
from dataclasses import dataclass, field

from drkernel.gym.request import EvalRequest, Pool
from drkernel.serve.store import Job, Store, StoreError
from drkernel.verdict import CandidateError, Verdict

log = logging.getLogger("drkernel.serve")


@dataclass
class WorkerInfo:
    """A worker as people see it."""

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


class Service:
    """Queue, workers and waiters. All methods run in one event loop; the store is reached through threads."""

    def __init__(
        self,
        store: Store,
        pool: Pool | None,
        *,
        slots: int = 0,
        lease_s: float = 60.0,
        max_attempts: int = 3,
        quarantine_after: int = 5,
    ):
        self.store = store
        self.pool = pool
        self.slots = slots if pool is not None else 0
        self.lease_s = lease_s
        self.max_attempts = max_attempts
        self.quarantine_after = quarantine_after
        self.name = f"local-{os.getpid()}-{secrets.token_hex(3)}"
        self.workers: dict[str, WorkerInfo] = {}
        self.draining = False
        self.recent: deque[tuple[float, float, str]] = deque(maxlen=2000)
        """(finished at, seconds from submission, status) of the latest verdicts"""
        self._work = asyncio.Event()
        self._finished = asyncio.Condition()
        self._waiters: dict[str, asyncio.Event] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._running: set[str] = set()

    # ---- life

    async def start(self) -> None:
        """Take up what an earlier process left behind, and begin."""
        # leases of local workers of earlier processes are void: those processes are gone
        back = await asyncio.to_thread(self.store.expire, "local-")
        if back:
            log.info("took up %d jobs that were running when the service stopped", back)
        if self.slots:
            self.workers[self.name] = WorkerInfo(self.name, "local", self.slots)
        self._tasks = [asyncio.create_task(self._local_worker()) for _ in range(self.slots)]
        self._tasks.append(asyncio.create_task(self._keep_leases()))
        self._work.set()

    async def stop(self, grace_s: float = 60.0) -> None:
        """Drain: nothing new is started, what runs may finish for ``grace_s`` seconds; the rest stays queued."""
        self.draining = True
        end = time.monotonic() + grace_s
        while self._running and time.monotonic() < end:
            await asyncio.sleep(0.05)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for job_id in list(self._running):
            await asyncio.to_thread(self.store.give_back, job_id, self.name)
        if self.pool is not None:
            await self.pool.close()

    # ---- submitting and waiting

    async def submit(
        self, requests: list[EvalRequest], *, client: str, priority: int = 0, fresh: bool = False
    ) -> list[str]:
        """Accept durably; raises :class:`StoreError` when that cannot be done."""
        ids = await asyncio.to_thread(
            lambda: self.store.submit(requests, client=client, priority=priority, fresh=fresh)
        )
        self._work.set()
        return ids

    async def wait(self, job_id: str, seconds: float) -> Job | None:
        """The job once it is done or cancelled, or as it is after ``seconds``."""
        event = self._waiters.setdefault(job_id, asyncio.Event())
        try:
            job = self.store.get(job_id)  # a look-up by primary key: cheaper than a hop to a thread
            if job is None or job.state in ("done", "cancelled") or seconds <= 0:
                return job
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), seconds)
            return await asyncio.to_thread(self.store.get, job_id)
        finally:
            if self._waiters.get(job_id) is event and event.is_set():
                self._waiters.pop(job_id, None)

    async def cancel(self, job_id: str) -> bool:
        """Cancel a waiting job."""
        done = await asyncio.to_thread(self.store.cancel, job_id)
        if done:
            await self._tell(job_id)
        return done

    async def next_event(self, seconds: float) -> None:
        """Return when something finished, or after ``seconds``."""
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

    async def lease(self, worker: str, seconds: float | None = None) -> tuple[Job, EvalRequest] | None:
        """The next job for a worker that is in good standing."""
        info = self.workers.get(worker)
        if self.draining or (info is not None and info.quarantined):
            return None
        return await asyncio.to_thread(self.store.lease, worker, seconds or self.lease_s)

    async def finish(self, job: Job, worker: str, verdict: Verdict) -> bool:
        """Record a worker's verdict; infrastructure errors go back to the queue until attempts are used up."""
        info = self.workers.get(worker)
        infra = verdict.status == "infra_error"
        if info is not None:
            info.seen = time.time()
            info.failed += infra
            info.done += not infra
            info.in_a_row = info.in_a_row + 1 if infra else 0
            info.quarantined = info.quarantined or info.in_a_row >= self.quarantine_after
        if infra and job.attempts < self.max_attempts:
            back = await asyncio.to_thread(self.store.give_back, job.id, worker)
            self._work.set()
            return back
        recorded = await asyncio.to_thread(self.store.complete, job.id, worker, verdict)
        if recorded:
            now = time.time()
            self.recent.append((now, now - job.submitted, verdict.status))
            await self._tell(job.id)
        return recorded

    async def _local_worker(self) -> None:
        assert self.pool is not None
        while not self.draining:
            try:
                taken = await self.lease(self.name)
            except StoreError as error:
                log.error("%s", error)
                await asyncio.sleep(1.0)
                continue
            if taken is None:
                self._work.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._work.wait(), 1.0)
                continue
            job, request = taken
            self._running.add(job.id)
            try:
                verdict = await self._evaluate(request)
                await self._finish_surely(job, verdict)
            finally:
                self._running.discard(job.id)

    async def _evaluate(self, request: EvalRequest) -> Verdict:
        assert self.pool is not None
        try:
            return await self.pool.evaluate(request)
        except Exception as error:  # a pool never raises for a candidate: this is our own trouble, and must not end us
            log.exception("evaluation failed")
            return Verdict(
                status="infra_error",
                task_id=request.task.id,
                candidate_sha256="0" * 64,
                device=request.settings.device,
                baseline=request.settings.baseline,
                error=CandidateError(type=type(error).__name__, message=str(error)),
            )

    async def _finish_surely(self, job: Job, verdict: Verdict) -> None:
        """Record, trying again while the disk refuses; the lease is kept meanwhile."""
        while True:
            try:
                await self.finish(job, self.name, verdict)
                return
            except StoreError as error:
                log.error("cannot record a verdict yet: %s", error)
                await asyncio.sleep(1.0)

    async def _keep_leases(self) -> None:
        """Heartbeats for local jobs; jobs of workers that fell silent are queued again."""
        while True:
            await asyncio.sleep(min(self.lease_s / 4, 5.0))
            try:
                await asyncio.to_thread(self.store.heartbeat, self.name, list(self._running), self.lease_s)
                if await asyncio.to_thread(self.store.expire):
                    self._work.set()
            except StoreError as error:
                log.error("%s", error)

    # ---- figures

    def register(self, name: str, slots: int) -> WorkerInfo:
        """A remote worker that joins (again)."""
        info = self.workers.setdefault(name, WorkerInfo(name, "remote", slots))
        info.seen, info.slots = time.time(), slots
        return info

    def throughput(self, seconds: float = 60.0) -> float:
        """Verdicts a second over the last ``seconds``."""
        since = time.time() - seconds
        return sum(at >= since for at, _, _ in self.recent) / seconds

    def latency(self) -> dict[str, float]:
        """Median and 95th percentile of the latest verdicts, from submission, in seconds."""
        values = sorted(seconds for _, seconds, _ in self.recent)
        if not values:
            return {}
        return {"p50": values[len(values) // 2], "p95": values[min(len(values) - 1, int(0.95 * len(values)))]}
