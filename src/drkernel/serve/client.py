"""Clients of the service: :class:`Client`, :class:`AsyncClient`, and :class:`HttpPool` that training and bench use."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import httpx

from drkernel.gym.request import EvalRequest
from drkernel.serve.protocol import MAX_BATCH, JobView, SubmitAnswer, SubmitBody, unanswered
from drkernel.verdict import Verdict

P = ParamSpec("P")
T = TypeVar("T")
Progress = Callable[[int, int], None] | bool | None
"""a function that is called with (done, all), True for a bar, or nothing"""

_JSON = {"content-type": "application/json"}
_PASSING = (408, 429, 502, 503, 504, 507)
"""refusals that may pass: worth another try"""


class ServiceError(RuntimeError):
    """The service refused or could not be reached; the message says why and what to do."""


def _token(given: str | None) -> str | None:
    return given or os.environ.get("DRKERNEL_TOKEN") or None


class AsyncClient:
    """Talks to one service. Every call may be repeated after a failure: equal requests are evaluated once."""

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
        """Create a client. ``token`` defaults to the environment's DRKERNEL_TOKEN; ``retries`` apply to lost
        connections and 429/503."""
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
        """Call ``hook`` with every response, including refusals, for logging and statistics."""
        self._http.event_hooks["response"].append(hook)

    async def call(self, method: str, path: str, **arguments: Any) -> Any:
        """Send one request and return its JSON; retried with backoff where that may help.

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
        """Submit any number of requests; return their jobs in order."""
        jobs: list[JobView] = []
        for start in range(0, len(requests), MAX_BATCH):
            body = SubmitBody(
                requests=list(requests[start : start + MAX_BATCH]), priority=priority, fresh=fresh, wait_s=wait_s
            )
            answer = await self._send("POST", "/v1/jobs", content=body.model_dump_json().encode(), headers=_JSON)
            jobs += SubmitAnswer.model_validate_json(answer.content).jobs
        return jobs

    async def get(self, job_id: str, wait_s: float = 0.0) -> JobView:
        """Return a job, waiting up to ``wait_s`` seconds for it to finish."""
        answer = await self._send("GET", f"/v1/jobs/{job_id}", params={"wait_s": wait_s})
        return JobView.model_validate_json(answer.content)

    async def cancel(self, job_id: str) -> bool:
        """Cancel a queued job; return whether it was cancelled."""
        return bool((await self.call("DELETE", f"/v1/jobs/{job_id}"))["cancelled"])

    async def evaluate(
        self, request: EvalRequest, *, priority: int = 0, fresh: bool = False, timeout_s: float | None = None
    ) -> Verdict:
        """Submit a request and wait for the verdict, indefinitely or up to ``timeout_s`` seconds.

        Raises:
            ServiceError: refused, not reachable, or cancelled.
            TimeoutError: not done in time; the job continues, and the same call later finds it.
        """
        async with asyncio.timeout(timeout_s):
            (job,) = await self.submit([request], priority=priority, fresh=fresh, wait_s=20.0)
            return await self._verdict(job)

    async def stream(
        self, requests: Sequence[EvalRequest], *, priority: int = 0, fresh: bool = False
    ) -> AsyncIterator[tuple[int, Verdict]]:
        """Yield (index, verdict) of many requests, each as soon as it is done."""
        jobs = await self.submit(requests, priority=priority, fresh=fresh)
        gate = asyncio.Semaphore(64)

        async def one(index: int, job: JobView) -> tuple[int, Verdict]:
            async with gate:
                return index, await self._verdict(job)

        tasks = [asyncio.create_task(one(index, job)) for index, job in enumerate(jobs)]
        try:
            for done in asyncio.as_completed(tasks):
                yield await done
        finally:
            for task in tasks:
                task.cancel()

    async def evaluate_many(
        self,
        requests: Sequence[EvalRequest],
        progress: Progress = None,
        *,
        priority: int = 0,
        fresh: bool = False,
        timeout_s: float | None = None,
    ) -> list[Verdict]:
        """Return the verdicts of many requests, in order; ``progress`` is called with (done, total), or True shows a
        bar on stderr.

        Raises the same errors as :meth:`evaluate`.
        """
        verdicts: dict[int, Verdict] = {}
        async with asyncio.timeout(timeout_s):
            with _progress(progress, len(requests)) as tell:
                async for index, verdict in self.stream(requests, priority=priority, fresh=fresh):
                    verdicts[index] = verdict
                    tell(len(verdicts), len(requests))
        return [verdicts[index] for index in range(len(requests))]

    async def _verdict(self, job: JobView) -> Verdict:
        while job.verdict is None:
            if job.state == "cancelled":
                raise ServiceError(f"job {job.id} was cancelled")
            job = await self.get(job.id, wait_s=20.0)
        return job.verdict

    async def find(self, **filters: Any) -> list[JobView]:
        """Return jobs, newest first, filtered by ``state``, ``status``, ``task`` (part of an id), ``client``,
        ``before``, ``limit``."""
        answer = await self._send("GET", "/v1/jobs", params=filters)
        return SubmitAnswer.model_validate_json(answer.content).jobs

    async def events(self, after: int | None = None) -> AsyncIterator[JobView]:
        """Yield jobs as they finish, resuming automatically after a lost connection."""
        last = after
        while True:
            params = {"after": last} if last is not None else {}
            try:
                async with self._http.stream("GET", "/v1/events", params=params, timeout=None) as answer:
                    if answer.status_code >= 400:
                        await answer.aread()
                        raise ServiceError(f"{self.url}/v1/events answered {answer.status_code}: {_detail(answer)}")
                    async for line in answer.aiter_lines():
                        if line.startswith(": from "):
                            last = int(line[7:])
                        elif line.startswith("data: "):
                            job = JobView.model_validate_json(line[6:])
                            last = job.sequence
                            yield job
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.5)


def _blocking(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    """Return a method of the synchronous client that waits for the asynchronous one's."""

    @functools.wraps(method)
    def call(client: Client, *args: P.args, **options: P.kwargs) -> T:
        return client._run(method(client._client, *args, **options))

    return call


def _pulling(
    method: Callable[Concatenate[AsyncClient, P], AsyncIterator[T]],
) -> Callable[Concatenate[Client, P], Iterator[T]]:
    """Return an iterator of the synchronous client over what the asynchronous one yields."""

    @functools.wraps(method)
    def call(client: Client, *args: P.args, **options: P.kwargs) -> Iterator[T]:
        return client._pull(method(client._client, *args, **options))

    return call


class Client:
    """The synchronous client: an event loop in a thread, with persistent connections.

    Thread-safe; a context manager. Options are those of :class:`AsyncClient`.
    """

    def __init__(self, url: str, **options: Any):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="drkernel-client", daemon=True)
        self._thread.start()
        self._client: AsyncClient = self._run(_made(url, options))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close connections and stop the thread."""
        if not self._loop.is_closed():
            self._run(self._client.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __del__(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:  # Ctrl-C too
            future.cancel()
            raise

    submit = _blocking(AsyncClient.submit)
    get = _blocking(AsyncClient.get)
    find = _blocking(AsyncClient.find)
    cancel = _blocking(AsyncClient.cancel)
    evaluate = _blocking(AsyncClient.evaluate)
    evaluate_many = _blocking(AsyncClient.evaluate_many)
    stream = _pulling(AsyncClient.stream)
    events = _pulling(AsyncClient.events)

    def _pull(self, source: AsyncIterator[T]) -> Iterator[T]:
        async def following() -> tuple[bool, T | None]:
            async for item in source:
                return True, item
            return False, None

        while True:
            more, item = self._run(following())
            if not more:
                return
            yield item  # type: ignore[misc]


async def _made(url: str, options: dict[str, Any]) -> AsyncClient:
    return AsyncClient(url, **options)


@contextlib.contextmanager
def _progress(wish: Progress, total: int) -> Iterator[Callable[[int, int], None]]:
    """Return the progress callback: a bar, the caller's function, or a no-op."""
    if wish is True:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("evaluating"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
            line = bar.add_task("", total=total)
            yield lambda done, _: bar.update(line, completed=done)
    else:
        yield wish or (lambda done, _: None)


class HttpPool:
    """A :class:`~drkernel.gym.request.Pool` backed by a remote service."""

    def __init__(self, url: str, *, token: str | None = None, client: AsyncClient | None = None):
        self._client = client or AsyncClient(url, token=token)
        self._counts: dict[str, int] = {}

    async def evaluate(self, request: EvalRequest) -> Verdict:
        """Return a verdict; failures of the network or the service become an ``infra_error``, never an exception."""
        try:
            request.candidate.encode()
            verdict = await self._client.evaluate(request)
        except UnicodeEncodeError as error:  # no file can hold such a source
            verdict = unanswered(request, "compile_error", error)
        except ServiceError as error:
            verdict = unanswered(request, "infra_error", error)
        self._counts[verdict.status] = self._counts.get(verdict.status, 0) + 1
        return verdict

    def health(self) -> dict[str, Any]:
        """Return this client's counters."""
        return {"url": self._client.url, "statuses": dict(self._counts)}

    async def close(self) -> None:
        """Close connections; the service keeps running."""
        await self._client.close()


def _detail(answer: httpx.Response) -> str:
    try:
        detail = answer.json().get("detail", "")
    except ValueError:
        detail = answer.text
    return str(detail)[:500]


def _hint(status: int) -> str:
    return "; set DRKERNEL_TOKEN to the service's token" if status == 401 else ""
