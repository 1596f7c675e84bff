"""A remote worker: joins a service by URL and token, leases jobs, evaluates them here, and reports verdicts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import platform
import secrets
from typing import Any

from pydantic import ValidationError

from drkernel.gym.request import EvalRequest, Pool
from drkernel.serve.client import AsyncClient, ServiceError
from drkernel.serve.protocol import CompleteAnswer, LeaseAnswer
from drkernel.verdict import CandidateError, Verdict

log = logging.getLogger("drkernel.worker")

QUARANTINE_S = 30.0
"""seconds between two requests of a quarantined worker"""


class Worker:
    """Takes up to ``slots`` jobs at once. Another worker redoes a job that this one loses; no verdict is reported
    twice."""

    def __init__(
        self, client: AsyncClient, pool: Pool, *, slots: int, name: str | None = None, kinds: list[str] | None = None
    ):
        """Create a worker. ``kinds`` are the kinds of devices available here ("sim", "cuda"); None takes any job."""
        self.kinds = kinds
        self.client, self.pool, self.slots = client, pool, slots
        self.name = name or f"{platform.node() or 'worker'}-{os.getpid()}-{secrets.token_hex(2)}"
        self.done = 0
        self._running: set[str] = set()
        self._lease_s = 60.0
        self._stopping = False
        self._asking: set[asyncio.Future[Any]] = set()

    async def run(self) -> None:
        """Work until :meth:`stop`. Raises :class:`ServiceError` when the service refuses this worker for good."""
        beat = asyncio.create_task(self._beat())
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.slots):
                    group.create_task(self._slot())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            beat.cancel()
        with contextlib.suppress(ServiceError, TimeoutError):  # a courtesy: it would be forgotten in an hour
            await asyncio.wait_for(self.client.call("POST", "/v1/worker/leave", json={"worker": self.name}), 5.0)

    def stop(self) -> None:
        """Finish running jobs and take no new ones. Call it in the event loop of :meth:`run`."""
        self._stopping = True
        for call in self._asking:  # a lease that this loses is given back by the service
            call.cancel()

    async def _slot(self) -> None:
        while not self._stopping:
            body = {"worker": self.name, "slots": self.slots, "wait_s": 10.0, "kinds": self.kinds}
            call = asyncio.ensure_future(self.client.call("POST", "/v1/worker/lease", json=body))
            self._asking.add(call)
            try:
                told = await call
            except asyncio.CancelledError:
                if self._stopping:
                    return
                raise
            except ServiceError as error:
                if "is quarantined" not in str(error):
                    raise
                log.warning("%s; waiting until somebody releases it", error)
                await asyncio.sleep(QUARANTINE_S)
                continue
            finally:
                self._asking.discard(call)
            try:
                answer = LeaseAnswer.model_validate(told)
            except ValidationError as error:
                await self._refuse(told, error)
                continue
            self._lease_s = answer.lease_s
            if answer.job_id is None or answer.request is None:
                continue
            await self._do(answer.job_id, answer.request)

    async def _refuse(self, told: dict[str, Any], error: ValidationError) -> None:
        """Return a request that this version does not understand to the queue; another worker may."""
        task, settings = told["request"].get("task", {}), told["request"].get("settings", {})
        why = f"worker {self.name} cannot read the request: {error.errors()[0]['msg']}"
        verdict = Verdict(
            status="infra_error",
            task_id=str(task.get("id", "?")),
            candidate_sha256="0" * 64,
            device=str(settings.get("device", "?")),
            error=CandidateError(type="RequestNotUnderstood", message=why),
        )
        await self._report(str(told["job_id"]), verdict)

    async def _do(self, job_id: str, request: EvalRequest) -> None:
        self._running.add(job_id)
        try:
            await self._report(job_id, await self.pool.evaluate(request))
        finally:
            self._running.discard(job_id)

    async def _report(self, job_id: str, verdict: Verdict) -> None:
        body = {"worker": self.name, "job_id": job_id, "verdict": json.loads(verdict.model_dump_json())}
        answer = CompleteAnswer.model_validate(await self.client.call("POST", "/v1/worker/complete", json=body))
        self.done += answer.recorded
        if not answer.recorded:
            log.warning("job %s had passed to another worker", job_id)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 4)
            if not self._running:
                continue
            try:
                body = {"worker": self.name, "jobs": sorted(self._running)}
                await self.client.call("POST", "/v1/worker/heartbeat", json=body)
            except ServiceError as error:
                log.warning("heartbeat failed: %s", error)
