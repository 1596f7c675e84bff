"""The HTTP face of the service: FastAPI routes under ``/v1``, health, metrics and the page to watch."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from drkernel import __version__
from drkernel.serve import pages
from drkernel.serve.guard import Guard
from drkernel.serve.kernelgym import add_kernelgym
from drkernel.serve.metrics import exposition
from drkernel.serve.protocol import (
    BeatAnswer,
    BeatBody,
    CompleteAnswer,
    CompleteBody,
    JobView,
    LeaseAnswer,
    LeaseBody,
    SubmitAnswer,
    SubmitBody,
)
from drkernel.serve.service import Service
from drkernel.serve.store import Job, StoreError

log = logging.getLogger("drkernel.serve")

JobId = Annotated[str, "24 hexadecimal digits"]


def make_app(
    service: Service,
    *,
    token: str | None = None,
    max_queue: int = 100_000,
    max_body: int = 64 << 20,
    rate: float = 0.0,
    grace_s: float = 60.0,
    verdict_page: pages.VerdictPage | None = None,
    device: str = "sim:h200",
) -> FastAPI:
    """The application over a service; ``rate`` is requests a second and client (0: unlimited).

    ``device`` is where requests run that do not name one (those of KernelGYM's clients).
    """

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.stop(grace_s)

    app = FastAPI(
        title="drkernel",
        version=__version__,
        summary="Grades GPU kernels: durable, idempotent, hard to fool.",
        lifespan=life,
        docs_url=None,
        redoc_url=None,
    )
    app.add_middleware(Guard, token=token, max_body=max_body, rate=rate)
    app.state.service, app.state.token, app.state.verdict_page = service, token, verdict_page

    @app.exception_handler(StoreError)
    async def store_trouble(_: Request, error: Exception) -> JSONResponse:
        log.error("%s", error)
        return JSONResponse({"detail": str(error)}, status_code=503, headers={"retry-after": "5"})

    _job_routes(app, service, max_queue)
    _worker_routes(app, service)
    _watch_routes(app, service)
    add_kernelgym(app, service, device)
    pages.add_pages(app, service)
    return app


def view(service: Service, job: Job, *, with_verdict: bool = True) -> bytes:
    """A job as the wire has it (:class:`JobView`), as JSON; the stored verdict is passed on as it is."""
    fields = asdict(job)
    for hidden in ("key", "owner"):
        fields.pop(hidden)
    verdict = service.store.verdict_json(job.id) if with_verdict and job.state == "done" else None
    return json.dumps(fields).encode()[:-1] + b', "verdict": ' + (verdict or b"null") + b"}"


def answer(jobs: list[bytes]) -> Response:
    """Jobs as a :class:`SubmitAnswer`."""
    return Response(b'{"jobs": [' + b", ".join(jobs) + b"]}", media_type="application/json")


def _job_routes(app: FastAPI, service: Service, max_queue: int) -> None:
    @app.post("/v1/jobs", response_model=SubmitAnswer, status_code=200, tags=["jobs"])
    async def submit(body: SubmitBody, request: Request) -> Response:
        """Accept evaluations durably. With ``wait_s`` the answer comes when they are done, or after so long."""
        if service.draining:
            raise HTTPException(503, "the service is shutting down", {"retry-after": "10"})
        waiting = await asyncio.to_thread(service.store.waiting)
        if waiting + len(body.requests) > max_queue:
            seconds = max(1, round(waiting / max(service.throughput(), 1.0) / 4))
            raise HTTPException(429, f"{waiting} jobs are waiting", {"retry-after": str(min(seconds, 60))})
        client = request.headers.get("x-client", request.client.host if request.client else "?")[:80]
        ids = await service.submit(body.requests, client=client, priority=body.priority, fresh=body.fresh)
        loop = asyncio.get_running_loop()
        end = loop.time() + body.wait_s
        if body.wait_s:
            for job_id in ids:
                await service.wait(job_id, max(0.0, end - loop.time()))
        return answer(await asyncio.to_thread(_views, service, ids))

    @app.get("/v1/jobs/{job_id}", response_model=JobView, tags=["jobs"])
    async def get(job_id: JobId, wait_s: Annotated[float, Query(ge=0, le=300)] = 0.0) -> Response:
        """A job, and its verdict once it is done; ``wait_s`` waits for that."""
        job = await service.wait(job_id, wait_s)
        if job is None:
            raise HTTPException(404, "no such job")
        return Response(await asyncio.to_thread(view, service, job), media_type="application/json")

    @app.delete("/v1/jobs/{job_id}", tags=["jobs"])
    async def cancel(job_id: JobId) -> dict[str, bool]:
        """Cancel a job that waits; one that runs or is done stays as it is."""
        if await asyncio.to_thread(service.store.get, job_id) is None:
            raise HTTPException(404, "no such job")
        return {"cancelled": await service.cancel(job_id)}

    @app.get("/v1/jobs", response_model=SubmitAnswer, tags=["jobs"])
    async def find(
        state: str | None = None,
        status: str | None = None,
        task: str | None = None,
        client: str | None = None,
        before: float | None = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> Response:
        """Jobs that match, newest first, without their verdicts."""
        found = await asyncio.to_thread(
            lambda: service.store.find(state=state, status=status, task=task, client=client, limit=limit, before=before)
        )
        return answer([view(service, job, with_verdict=False) for job in found])

    @app.get("/v1/events", tags=["jobs"])
    async def events(request: Request, after: int | None = None) -> StreamingResponse:
        """Server-sent events: one per finished job, in order; ``after`` or Last-Event-ID resumes behind a number."""
        header = request.headers.get("last-event-id", "")
        last = after if after is not None else int(header) if header.isdigit() else None
        return StreamingResponse(_stream(service, request, last), media_type="text/event-stream")


def _views(service: Service, ids: list[str]) -> list[bytes]:
    jobs = [service.store.get(job_id) for job_id in ids]
    return [view(service, job) for job in jobs if job is not None]


async def _stream(service: Service, request: Request, after: int | None) -> AsyncIterator[str]:
    last = after if after is not None else await asyncio.to_thread(service.store.last_sequence)
    yield f": from {last}\n\n"
    while not service.draining and not await request.is_disconnected():
        jobs = await asyncio.to_thread(service.store.finished_after, last)
        for job in jobs:
            last = job.sequence or last
            data = view(service, job, with_verdict=False).decode()
            yield f"id: {last}\nevent: finished\ndata: {data}\n\n"
        if not jobs:
            await service.next_event(5.0)
            yield ": still here\n\n"


def _worker_routes(app: FastAPI, service: Service) -> None:
    @app.post("/v1/worker/lease", response_model=LeaseAnswer, tags=["workers"])
    async def lease(body: LeaseBody) -> LeaseAnswer:
        """Work for a remote worker; waits a while when there is none."""
        info = service.register(body.worker, body.slots)
        if info.quarantined:
            raise HTTPException(403, f"worker {body.worker} is quarantined: {info.in_a_row} failures in a row")
        loop = asyncio.get_running_loop()
        end = loop.time() + body.wait_s
        while True:
            taken = await service.lease(body.worker)
            if taken is not None:
                return LeaseAnswer(job_id=taken[0].id, request=taken[1], lease_s=service.lease_s)
            if loop.time() >= end or service.draining:
                return LeaseAnswer(lease_s=service.lease_s)
            await asyncio.sleep(0.05)

    @app.post("/v1/worker/heartbeat", response_model=BeatAnswer, tags=["workers"])
    async def heartbeat(body: BeatBody) -> BeatAnswer:
        """Lengthen leases."""
        if body.worker in service.workers:
            service.register(body.worker, service.workers[body.worker].slots)
        held = await asyncio.to_thread(service.store.heartbeat, body.worker, body.jobs, service.lease_s)
        return BeatAnswer(held=held)

    @app.post("/v1/worker/complete", response_model=CompleteAnswer, tags=["workers"])
    async def complete(body: CompleteBody) -> CompleteAnswer:
        """A verdict; recorded once, by the present holder of the lease."""
        job = await asyncio.to_thread(service.store.get, body.job_id)
        if job is None:
            raise HTTPException(404, "no such job")
        return CompleteAnswer(recorded=await service.finish(job, body.worker, body.verdict))


def _watch_routes(app: FastAPI, service: Service) -> None:
    @app.get("/health", tags=["watch"])
    async def health() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok", "version": __version__}

    @app.get("/ready", tags=["watch"])
    async def ready() -> JSONResponse:
        """Jobs can be accepted and there is somebody to do them."""
        able = any(not w.quarantined for w in service.workers.values())
        good = able and not service.draining
        reason = "draining" if service.draining else "ready" if able else "no worker has joined"
        return JSONResponse({"ready": good, "reason": reason}, status_code=200 if good else 503)

    @app.get("/metrics", response_class=PlainTextResponse, tags=["watch"])
    async def metrics() -> str:
        """Prometheus text format."""
        return await asyncio.to_thread(exposition, service)

    @app.get("/v1/state", tags=["watch"])
    async def state() -> dict[str, Any]:
        """What the page to watch shows."""
        counts = await asyncio.to_thread(service.store.counts)
        return {
            "counts": counts,
            "throughput": service.throughput(),
            "latency": service.latency(),
            "workers": [asdict(worker) for worker in service.workers.values()],
            "draining": service.draining,
            "recent": [
                [round(at, 2), round(seconds, 3), status] for at, seconds, status in list(service.recent)[-500:]
            ],
        }


def openapi_text(app: FastAPI) -> str:
    """The OpenAPI document."""
    return json.dumps(app.openapi(), indent=1)
