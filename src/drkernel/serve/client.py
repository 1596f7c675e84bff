"""Clients of the service: :class:`Client`, :class:`AsyncClient`, and :class:`HttpPool` that training and bench use."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import httpx

from drkernel.gym.request import EvalRequest
from drkernel.serve.protocol import MAX_BATCH, JobView, SubmitAnswer, SubmitBody
from drkernel.verdict import CandidateError, Verdict

_JSON = {"content-type": "application/json"}
_PASSING = (408, 429, 502, 503, 504, 507)
"""refusals that may pass: worth another try"""


class ServiceError(RuntimeError):
    """The service refused or could not be reached; says why and what to do."""


def _token(given: str | None) -> str | None:
    return given or os.environ.get("DRKERNEL_TOKEN") or None


class AsyncClient:
    """Talks to one service. Safe to repeat whatever fails: equal requests are evaluated once."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout_s: float = 60.0,
        retries: int = 8,
        name: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ):
        """``token`` defaults to the environment's DRKERNEL_TOKEN; ``retries`` are for lost connections and 429/503."""
        headers = {"x-client": name or f"client-{os.getpid()}"}
        secret = _token(token)
        if secret:
            headers["authorization"] = f"Bearer {secret}"
        self.url = url.rstrip("/")
        self.retries = retries
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers=headers,
            timeout=httpx.Timeout(timeout_s, connect=10.0),
            limits=httpx.Limits(max_connections=256, max_keepalive_connections=64),
            transport=transport,
        )

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close connections."""
        await self._http.aclose()

    def on_response(self, hook: Callable[[httpx.Response], Awaitable[None]]) -> None:
        """Call ``hook`` with every answer, refusals too: for logs and figures."""
        self._http.event_hooks["response"].append(hook)

    async def call(self, method: str, path: str, **arguments: Any) -> Any:
        """One request, its answer as JSON; retried with backoff where that may help.

        Raises:
            ServiceError: refused, or not reachable after all retries.
        """
        return (await self._send(method, path, **arguments)).json()

    async def _send(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        trouble = ""
        for attempt in range(self.retries + 1):
            wait = min(10.0, 0.2 * 2**attempt) * (0.5 + random.random())
            try:
                answer = await self._http.request(method, path, **arguments)
            except httpx.TransportError as error:
                trouble = f"{type(error).__name__}: {error}"
            else:
                if answer.status_code < 400:
                    return answer
                trouble = f"{answer.status_code}: {_detail(answer)}"
                if answer.status_code not in _PASSING:
                    raise ServiceError(f"{self.url}{path} answered {trouble}{_hint(answer.status_code)}")
                told = answer.headers.get("retry-after", "")
                wait = min(30.0, float(told)) if told.isdigit() else wait
            if attempt < self.retries:
                await asyncio.sleep(wait)
        raise ServiceError(f"{self.url} could not be reached after {self.retries + 1} tries ({trouble})")

    async def submit(
        self, requests: Sequence[EvalRequest], *, priority: int = 0, fresh: bool = False, wait_s: float = 0.0
    ) -> list[JobView]:
        """Submit any number of requests; jobs in order."""
        jobs: list[JobView] = []
        for start in range(0, len(requests), MAX_BATCH):
            body = SubmitBody(
                requests=list(requests[start : start + MAX_BATCH]), priority=priority, fresh=fresh, wait_s=wait_s
            )
            answer = await self._send("POST", "/v1/jobs", content=body.model_dump_json().encode(), headers=_JSON)
            jobs += SubmitAnswer.model_validate_json(answer.content).jobs
        return jobs

    async def get(self, job_id: str, wait_s: float = 0.0) -> JobView:
        """A job; waits up to ``wait_s`` seconds for its end."""
        answer = await self._send("GET", f"/v1/jobs/{job_id}", params={"wait_s": wait_s})
        return JobView.model_validate_json(answer.content)

    async def cancel(self, job_id: str) -> bool:
        """Cancel a waiting job."""
        return bool((await self.call("DELETE", f"/v1/jobs/{job_id}"))["cancelled"])

    async def evaluate(self, request: EvalRequest, *, priority: int = 0, fresh: bool = False) -> Verdict:
        """Submit and wait for the verdict, however long it takes."""
        (job,) = await self.submit([request], priority=priority, fresh=fresh, wait_s=20.0)
        while job.verdict is None:
            if job.state == "cancelled":
                raise ServiceError(f"job {job.id} was cancelled")
            job = await self.get(job.id, wait_s=20.0)
        return job.verdict

    async def evaluate_many(
        self,
        requests: Sequence[EvalRequest],
        *,
        priority: int = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Verdict]:
        """Verdicts of many requests, in order; ``progress`` is told (done, all)."""
        jobs = await self.submit(requests, priority=priority)
        done = 0
        gate = asyncio.Semaphore(64)

        async def one(job: JobView) -> Verdict:
            nonlocal done
            async with gate:
                while job.verdict is None:
                    if job.state == "cancelled":
                        raise ServiceError(f"job {job.id} was cancelled")
                    job = await self.get(job.id, wait_s=20.0)
            done += 1
            if progress is not None:
                progress(done, len(jobs))
            return job.verdict

        return list(await asyncio.gather(*(one(job) for job in jobs)))

    async def events(self, after: int | None = None) -> AsyncIterator[JobView]:
        """Finished jobs as they finish, resuming by itself after a lost connection."""
        last = after
        while True:
            params = {"after": last} if last is not None else {}
            try:
                async with self._http.stream("GET", "/v1/events", params=params, timeout=None) as answer:
                    if answer.status_code >= 400:
                        await answer.aread()
                        raise ServiceError(f"{self.url}/v1/events answered {answer.status_code}: {_detail(answer)}")
                    async for line in answer.aiter_lines():
                        if line.startswith("data: "):
                            job = JobView.model_validate_json(line[6:])
                            last = job.sequence
                            yield job
            except httpx.TransportError:
                await asyncio.sleep(0.5)


class Client:
    """The same for code that is not asynchronous."""

    def __init__(self, url: str, **options: Any):
        self._url, self._options = url, options

    def _run(self, use: Callable[[AsyncClient], Any]) -> Any:
        async def inner() -> Any:
            async with AsyncClient(self._url, **self._options) as client:
                return await use(client)

        return asyncio.run(inner())

    def evaluate(self, request: EvalRequest) -> Verdict:
        """Submit and wait."""
        verdict = self._run(lambda client: client.evaluate(request))
        assert isinstance(verdict, Verdict)
        return verdict

    def evaluate_many(
        self, requests: Sequence[EvalRequest], progress: Callable[[int, int], None] | None = None
    ) -> list[Verdict]:
        """Verdicts of many requests, in order."""
        return list(self._run(lambda client: client.evaluate_many(requests, progress=progress)))

    def get(self, job_id: str) -> JobView:
        """A job by id."""
        job = self._run(lambda client: client.get(job_id))
        assert isinstance(job, JobView)
        return job


class HttpPool:
    """A :class:`~drkernel.gym.request.Pool` that is a service somewhere else."""

    def __init__(self, url: str, *, token: str | None = None, client: AsyncClient | None = None, priority: int = 0):
        self._client = client or AsyncClient(url, token=token)
        self._priority = priority
        self._counts: dict[str, int] = {}

    async def evaluate(self, request: EvalRequest) -> Verdict:
        """A verdict; trouble of the network or the service is an ``infra_error``, never an exception."""
        try:
            verdict = await self._client.evaluate(request, priority=self._priority)
        except ServiceError as error:
            verdict = Verdict(
                status="infra_error",
                task_id=request.task.id,
                candidate_sha256="0" * 64,
                device=request.settings.device,
                baseline=request.settings.baseline,
                error=CandidateError(type="ServiceError", message=str(error)),
            )
        self._counts[verdict.status] = self._counts.get(verdict.status, 0) + 1
        return verdict

    def health(self) -> dict[str, Any]:
        """What this client has seen."""
        return {"url": self._client.url, "statuses": dict(self._counts)}

    async def close(self) -> None:
        """Close connections; the service goes on."""
        await self._client.close()


def _detail(answer: httpx.Response) -> str:
    try:
        detail = answer.json().get("detail", "")
    except ValueError:
        detail = answer.text
    return str(detail)[:500]


def _hint(status: int) -> str:
    return "; set DRKERNEL_TOKEN to the service's token" if status == 401 else ""
