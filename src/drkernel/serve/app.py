"""The HTTP interface of the service: FastAPI routes under ``/v1``, health, metrics and the live page."""

import asyncio
import hashlib
import json
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, HTTPException, Path, Query, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from drkernel import __version__
from drkernel.base.files import Recent
from drkernel.gym.request import EvalRequest, objection
from drkernel.serve import pages
from drkernel.serve.guard import Guard
from drkernel.serve.kernelgym import add_kernelgym
from drkernel.serve.protocol import (
    BeatAnswer,
    BeatBody,
    CompleteAnswer,
    CompleteBody,
    JobView,
    LeaseAnswer,
    LeaseBody,
    LeaveBody,
    QueueFull,
    ReleaseBody,
    State,
    StoreError,
    SubmitAnswer,
    SubmitBody,
)
from drkernel.serve.service import Draining, Service
from drkernel.verdict import Status

JobId = Annotated[str, Path(pattern="^[0-9a-f]{1,64}$", description="24 hexadecimal digits")]

REMEMBERED = 4096
"""bodies of submissions whose jobs are known by the body's hash"""

GENERAL: dict[int | str, dict[str, Any]] = {
    400: {"description": "the body cannot be read"},
    401: {"description": "the bearer token is missing or wrong"},
    403: {"description": "asked for by a page of another site"},
    408: {"description": "the body did not arrive in time"},
    413: {"description": "the body is too large"},
    429: {"description": "too many requests: ask again after Retry-After seconds"},
    503: {"description": "the store is locked: ask again after Retry-After seconds"},
}
MISSING: dict[int | str, dict[str, Any]] = {404: {"description": "no such job"}}
REFUSALS: dict[int | str, dict[str, Any]] = {
    409: {
        "description": "a request that could never be evaluated: a profile that its task lacks, a reference that is "
        "no Python, a baseline that the device does not have"
    },
    429: {"description": "the queue is full, or too many requests: ask again after Retry-After seconds"},
    503: {"description": "shutting down, or the store is locked: nothing was accepted"},
    507: {"description": "the disk is full: nothing was accepted"},
}


def make_app(service: Service, *, token: str | None = None, verdict_page: pages.VerdictPage | None = None) -> FastAPI:
    """Build the application over a service, on its terms."""
    terms = service.terms

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.stop(terms.grace_s)

    app = FastAPI(
        title="drkernel",
        version=__version__,
        summary="Grades GPU kernels: durable and idempotent.",
        lifespan=life,
        responses=GENERAL,
        docs_url=None,
        redoc_url=None,
    )
    most = int(terms.max_body_mb * 2**20)
    app.add_middleware(Guard, token=token, max_body=most, rate=terms.rate, body_s=terms.body_s)
    app.state.service, app.state.token, app.state.verdict_page = service, token, verdict_page

    _refusals(app, service)
    _job_routes(app, service)
    _worker_routes(app, service)
    _watch_routes(app, service)
    add_kernelgym(app, service, terms.device)
    pages.add_pages(app, service)
    return app


def _refusals(app: FastAPI, service: Service) -> None:
    """Register the error responses; each says when to retry."""

    def refusal(error: Exception, status: int, seconds: float) -> JSONResponse:
        return JSONResponse(
            {"detail": str(error)}, status_code=status, headers={"retry-after": str(max(1, round(seconds)))}
        )

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: Exception) -> Response:
        # the error echoes the request, which may hold values that neither UTF-8 nor JSON can represent
        assert isinstance(error, RequestValidationError)
        return Response(
            json.dumps({"detail": _writable(jsonable_encoder(error.errors()))}), 422, media_type="application/json"
        )

    @app.exception_handler(StoreError)
    async def store_trouble(_: Request, error: Exception) -> JSONResponse:
        return refusal(error, 507 if isinstance(error, StoreError) and error.full else 503, 5)

    @app.exception_handler(Draining)
    async def draining(_: Request, error: Exception) -> JSONResponse:
        return refusal(error, 503, 10)

    @app.exception_handler(QueueFull)
    async def queue_full(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, QueueFull)
        return refusal(error, 429, min(60.0, error.waiting / max(service.history.throughput(), 1.0) / 4))


def _writable(value: Any) -> Any:
    """Return ``value`` with non-finite numbers and invalid Unicode replaced by plain text."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_writable(key): _writable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_writable(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def view(service: Service, job: JobView, *, with_verdict: bool = True) -> bytes:
    """Return a job as JSON (:class:`JobView`); the stored verdict is passed through unchanged."""
    verdict = service.store.stored("verdict", job.id) if with_verdict and job.state == "done" else None
    return job.model_dump_json(exclude={"verdict"}).encode()[:-1] + b', "verdict": ' + (verdict or b"null") + b"}"


def answer(jobs: list[bytes]) -> Response:
    """Return jobs as a :class:`SubmitAnswer`."""
    return Response(b'{"jobs": [' + b", ".join(jobs) + b"]}", media_type="application/json")


def _job_routes(app: FastAPI, service: Service) -> None:
    router = APIRouter(route_class=_remembering(service))

    @router.post("/v1/jobs", response_model=SubmitAnswer, status_code=200, tags=["jobs"], responses=REFUSALS)
    async def submit(body: Annotated[SubmitBody, pages.SUBMIT], request: Request) -> Response:
        """Accept evaluations durably. With ``wait_s`` the answer comes when they are done, or after that many
        seconds."""
        _admit(body.requests)
        client = request.headers.get("x-client", request.client.host if request.client else "?")[:80]
        ids = await service.submit(body.requests, client=client, priority=body.priority, fresh=body.fresh)
        end = asyncio.get_running_loop().time() + body.wait_s
        jobs = []
        for job_id in ids:
            jobs.append(await service.wait(job_id, max(0.0, end - asyncio.get_running_loop().time())))
        request.state.ids = None if body.fresh else tuple(ids)
        return answer([view(service, job) for job in jobs if job is not None])

    app.include_router(router)

    @app.get("/v1/jobs/{job_id}", response_model=JobView, tags=["jobs"], responses=MISSING)
    async def get(job_id: JobId, wait_s: Annotated[float, Query(ge=0, le=300)] = 0.0) -> Response:
        """Return a job, with its verdict once it is done; ``wait_s`` waits for that."""
        job = await service.wait(job_id, wait_s)
        if job is None:
            raise HTTPException(404, "no such job")
        return Response(view(service, job), media_type="application/json")

    @app.delete("/v1/jobs/{job_id}", tags=["jobs"], responses=MISSING)
    async def cancel(job_id: JobId) -> dict[str, bool]:
        """Cancel a queued job; a running or finished job is not affected."""
        if service.store.get(job_id) is None:
            raise HTTPException(404, "no such job")
        return {"cancelled": await service.cancel(job_id)}

    @app.get("/v1/jobs", response_model=SubmitAnswer, tags=["jobs"])
    async def find(
        state: State | None = None,
        status: Status | None = None,
        task: str | None = None,
        client: str | None = None,
        before: float | None = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> Response:
        """Return matching jobs, newest first, without their verdicts."""
        found = await asyncio.to_thread(
            lambda: service.store.find(state=state, status=status, task=task, client=client, limit=limit, before=before)
        )
        return answer([view(service, job, with_verdict=False) for job in found])

    @app.get("/v1/events", tags=["jobs"])
    async def events(
        request: Request, after: Annotated[int | None, Query(ge=0, lt=1 << 63)] = None
    ) -> StreamingResponse:
        """Stream server-sent events, one per finished job, in order; ``after`` or Last-Event-ID resumes behind a
        number."""
        header = request.headers.get("last-event-id", "")
        told = int(header) if header.isdecimal() and len(header) < 19 else None
        last = after if after is not None else told
        return StreamingResponse(_stream(service, request, last), media_type="text/event-stream")


def _admit(requests: Sequence[EvalRequest]) -> None:
    """Refuse requests that can never be evaluated, however often they are retried. Raises ``HTTPException``."""
    for index, request in enumerate(requests):
        reason = objection(request)
        if reason is not None:
            raise HTTPException(409, f"requests[{index}]: {reason}")


def _remembering(service: Service) -> type[APIRoute]:
    """Return a route that answers a repeated body, whose jobs are done, without parsing it again.

    The body's hash stands only for the jobs' ids; the answer itself is read from the store.
    """
    seen: Recent[bytes, tuple[str, ...]] = Recent(REMEMBERED)

    class Remembering(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            usual = super().get_route_handler()

            async def handle(request: Request) -> Response:
                digest = hashlib.sha256(await request.body()).digest()
                jobs = [service.store.get(job_id) for job_id in seen.get(digest) or ()]
                if jobs and all(
                    job is not None and job.state == "done" and job.status not in ("infra_error", "invalid_request")
                    for job in jobs
                ):
                    return answer([view(service, job) for job in jobs if job is not None])
                given = await usual(request)
                ids = getattr(request.state, "ids", None)
                if ids is not None:
                    seen[digest] = ids
                return given

            return handle

    return Remembering


async def _stream(service: Service, request: Request, after: int | None) -> AsyncIterator[str]:
    last = after if after is not None else await asyncio.to_thread(service.store.last_sequence)
    yield f": from {last}\n\n"
    while not service.draining and not await request.is_disconnected():
        jobs = service.store.finished_after(last)
        for job in jobs:
            last = job.sequence or last
            data = view(service, job, with_verdict=False).decode()
            yield f"id: {last}\nevent: finished\ndata: {data}\n\n"
        if not jobs:
            await service.next_event(5.0)
            yield ": still here\n\n"


def _worker_routes(app: FastAPI, service: Service) -> None:
    @app.post("/v1/worker/lease", response_model=LeaseAnswer, tags=["workers"])
    async def lease(body: Annotated[LeaseBody, pages.LEASE], request: Request) -> LeaseAnswer:
        """Lease a job to a remote worker; waits a while when there is none."""
        info = service.register(body.worker, body.slots, body.kinds)
        if info.quarantined:
            raise HTTPException(403, f"worker {body.worker} is quarantined: {info.in_a_row} failures in a row")
        taken = await service.lease(body.worker, body.wait_s, body.kinds)
        if taken is None:
            return LeaseAnswer(lease_s=service.terms.lease_s)
        if await request.is_disconnected():  # else the job would wait until the lease ends
            await service.give_back(taken[0].id, body.worker)
            return LeaseAnswer(lease_s=service.terms.lease_s)
        return LeaseAnswer(job_id=taken[0].id, request=taken[1], lease_s=service.terms.lease_s)

    @app.post("/v1/worker/heartbeat", response_model=BeatAnswer, tags=["workers"])
    async def heartbeat(body: Annotated[BeatBody, pages.BEAT]) -> BeatAnswer:
        """Extend leases."""
        if body.worker in service.workers:
            service.workers[body.worker].seen = time.time()
        return BeatAnswer(held=await service.heartbeat(body.worker, body.jobs))

    @app.post("/v1/worker/complete", response_model=CompleteAnswer, tags=["workers"], responses=MISSING)
    async def complete(body: Annotated[CompleteBody, pages.COMPLETE]) -> CompleteAnswer:
        """Record a verdict, once, from the current holder of the lease."""
        job = service.store.get(body.job_id)
        if job is None:
            raise HTTPException(404, "no such job")
        return CompleteAnswer(recorded=await service.finish(job, body.worker, body.verdict))

    @app.post("/v1/worker/leave", tags=["workers"])
    async def leave(body: Annotated[LeaveBody, pages.LEAVE]) -> dict[str, int]:
        """Remove a worker that is gone: its jobs are requeued at once, not when the lease ends."""
        return {"queued_again": await service.leave(body.worker, body.trouble)}

    @app.post("/v1/worker/release", tags=["workers"], responses={404: {"description": "no such worker"}})
    async def release(body: Annotated[ReleaseBody, pages.RELEASE]) -> dict[str, bool]:
        """Release a quarantined worker, once its machine has been repaired."""
        if not service.release(body.worker):
            raise HTTPException(404, "no such worker")
        return {"released": True}


def _watch_routes(app: FastAPI, service: Service) -> None:
    @app.get("/health", tags=["watch"])
    async def health() -> dict[str, Any]:
        """Report that the process is alive, and how many workers there are, quarantined or lost."""
        workers = list(service.workers.values())
        return {
            "status": "ok",
            "version": __version__,
            "workers": len(workers),
            "quarantined": sum(worker.quarantined for worker in workers),
            "lost": sum(worker.lost for worker in workers),
        }

    @app.get("/ready", tags=["watch"])
    async def ready() -> JSONResponse:
        """Report whether jobs can be accepted and a worker is available."""
        reason = service.not_ready()
        return JSONResponse(
            {"ready": reason is None, "reason": reason or "ready"}, status_code=503 if reason is not None else 200
        )

    @app.get("/metrics", response_class=PlainTextResponse, tags=["watch"])
    async def metrics() -> str:
        """Return the metrics in Prometheus text format."""
        return exposition(service)

    @app.get("/v1/state", tags=["watch"])
    async def state() -> dict[str, Any]:
        """Return the data of the live page."""
        return {
            "counts": service.store.counts(),
            "throughput": service.history.throughput(),
            "latency": service.history.latency(),
            "workers": [asdict(worker) for worker in service.workers.values()],
            "draining": service.draining,
            "trouble": await asyncio.to_thread(service.trouble),
            "queue": await service.queue(),
            "history": service.history.rows(),
            "now": time.time(),
            "lease_s": service.terms.lease_s,
        }


# ---- metrics for Prometheus


def exposition(service: Service) -> str:
    """Return all metrics in Prometheus text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures(service))
    return generate_latest(registry).decode()


class _Figures:
    """Collects the metrics of one service."""

    def __init__(self, service: Service):
        self.service = service

    def collect(self) -> Iterable[Metric]:
        """Yield every metric with its current samples."""
        counts, workers = self.service.store.counts(), list(self.service.workers.values())
        jobs = GaugeMetricFamily("drkernel_jobs", "Jobs by state.", labels=["state"])
        for state, number in {"queued": 0, "leased": 0, "done": 0, "cancelled": 0, **counts["state"]}.items():
            jobs.add_metric([state], number)
        verdicts = GaugeMetricFamily("drkernel_verdicts", "Kept verdicts by status.", labels=["status"])
        for status, number in counts["status"].items():
            verdicts.add_metric([status], number)
        throughput = GaugeMetricFamily("drkernel_throughput", "Verdicts a second over the last minute.")
        throughput.add_metric([], self.service.history.throughput())
        latency = GaugeMetricFamily(
            "drkernel_latency_seconds", "Seconds from submission to verdict, latest verdicts.", labels=["quantile"]
        )
        for quantile, seconds in self.service.history.latency().items():
            latency.add_metric([quantile.replace("p", "0.")], seconds)
        slots = GaugeMetricFamily("drkernel_worker_slots", "Slots by worker.", labels=["worker", "kind"])
        done = CounterMetricFamily("drkernel_worker_done", "Evaluations by worker.", labels=["worker"])
        failed = CounterMetricFamily("drkernel_worker_failed", "Infrastructure errors by worker.", labels=["worker"])
        shut_out = GaugeMetricFamily("drkernel_worker_quarantined", "1 when shut out.", labels=["worker"])
        for worker in workers:
            slots.add_metric([worker.name, worker.kind], worker.slots)
            done.add_metric([worker.name], worker.done)
            failed.add_metric([worker.name], worker.failed)
            shut_out.add_metric([worker.name], worker.quarantined)
        return [jobs, verdicts, throughput, latency, slots, done, failed, shut_out]
