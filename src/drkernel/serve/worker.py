"""Workers of a service on other machines: one process, or one on every machine of a Ray cluster."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import platform
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx
from pydantic import ValidationError

from drkernel.config import ConfigError
from drkernel.gym.request import EvalRequest, Pool
from drkernel.serve.client import AsyncClient, ServiceError
from drkernel.serve.protocol import CompleteAnswer, LeaseAnswer, not_evaluated
from drkernel.verdict import Verdict

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
        named = (str(task.get("id", "?")), str(settings.get("device", "?")))
        verdict = not_evaluated("infra_error", *named, "RequestNotUnderstood", why)
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


# ---- Workers of a service on the machines of a Ray cluster
#
# Ray only places and starts them. They lease from the service's queue as ``drkernel worker`` does, so attempts, health
# and quarantine are the service's, and Ray never retries anything (``max_restarts=0``, ``max_task_retries=0``). Nodes
# may join and leave at any time. A worker that ends is restarted after a growing pause, and the service is notified, so
# that its jobs are requeued at once.


ray_log = logging.getLogger("drkernel.ray")

LOOK_S = 2.0
"""seconds between two looks at the cluster"""
FIRST_REST_S, LONGEST_REST_S = 1.0, 60.0
"""seconds before a worker is restarted, growing with every consecutive failure"""

MakePool = Callable[[int], Pool]
"""makes the pool of a worker with this many slots"""


class RayMissing(ConfigError):
    """Ray is not installed, or the cluster cannot be reached; the message says what to do."""


@dataclass(frozen=True)
class Lending:
    """The configuration of every worker of a cluster. It is sent to the nodes, including the token."""

    url: str
    """address of the service, as seen from the nodes"""
    token: str | None = None
    prefix: str = "ray"
    """prefix of the names under which the service shows the workers"""
    slots: int | None = None
    """CPU slots per node; None: all its cores minus one per GPU"""
    memory_bytes: int | None = None
    """bytes that one evaluation may take, see :class:`~drkernel.gym.pools.local.LocalPool`"""
    total_bytes: int | None = None
    """bytes that all evaluations of a worker may hold together"""
    make_pool: MakePool | None = None
    """None: a :class:`~drkernel.gym.pools.local.LocalPool`"""

    @contextlib.asynccontextmanager
    async def worker(self, name: str | None, slots: int, kinds: Sequence[str]) -> AsyncIterator[Worker]:
        """A worker of the service on this machine, and its pool while the block runs."""
        from drkernel.gym.pools.local import LocalPool

        # the service counts the attempts
        bounds: dict[str, Any] = {"attempts": 1, "memory_bytes": self.memory_bytes, "total_bytes": self.total_bytes}
        pool = LocalPool(slots=slots, **bounds) if self.make_pool is None else self.make_pool(slots)
        try:
            async with AsyncClient(self.url, token=self.token, name=name) as client:
                yield Worker(client, pool, slots=slots, name=name, kinds=list(kinds))
        finally:
            await pool.close()


class Lender:
    """The actor: a worker of the service on its node."""

    def __init__(self, lending: Lending):
        self._lending = lending
        self._worker: Any = None

    async def work(self, name: str, slots: int, kind: str) -> int:
        """Work until :meth:`stop`; return the number of evaluations done."""
        async with self._lending.worker(name, slots, [kind]) as self._worker:
            await self._worker.run()
        return int(self._worker.done)

    async def stop(self) -> None:
        """Finish running jobs and take no new ones."""
        if self._worker is not None:
            self._worker.stop()


@dataclass(eq=False)
class WorkerPlace:
    """One GPU, or the CPU slots of one node."""

    name: str
    kind: str
    """kind of device: ``sim`` or ``cuda``"""
    node: str
    slots: int
    actor: Any = None
    work: Any = None
    """future of the worker's end"""
    begun: float = 0.0
    """when the worker was started, by the monotonic clock"""
    rest_s: float = 0.0
    """seconds of pause before the next start"""
    due: float = 0.0
    """when it may be started again"""


class RayWorkers:
    """Keeps a worker in every place of a cluster until it is closed.

    ``address``: "local" starts a Ray of one node managed by this process, "auto" joins the one on this machine,
    otherwise the address of a cluster's head. ``kinds``: the kinds of device to lend; both by default.

    Raises:
        RayMissing: at construction, when Ray is missing.
    """

    def __init__(self, address: str, lending: Lending, *, kinds: tuple[str, ...] = ("sim", "cuda")):
        self._ray = _connect(address)
        self._lending, self._kinds = lending, kinds
        self.places: dict[str, WorkerPlace] = {}
        self._closed = threading.Event()
        self._watch = threading.Thread(target=self._look, name="drkernel-ray", daemon=True)
        self._watch.start()

    @classmethod
    def beside(cls, address: str, host: str, port: int, lending: Lending) -> RayWorkers:
        """Create workers for a service of this process that listens on ``host``. Their names say that they end with
        it."""
        ray = _connect(address)
        if host in ("0.0.0.0", "::"):
            host = ray.util.get_node_ip_address()
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        return cls(address, replace(lending, url=url, prefix="local-ray"))

    def close(self, grace_s: float = 0.0) -> None:
        """End the workers, killing those still busy after ``grace_s`` seconds, and a local Ray with them."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._watch.join(30)
        running = [place for place in self.places.values() if place.actor is not None]
        with contextlib.suppress(self._ray.exceptions.RayError):
            for place in running if grace_s else []:
                place.actor.stop.remote()
            if running and grace_s:
                self._ray.wait([place.work for place in running], num_returns=len(running), timeout=grace_s)
        for place in running:
            self._kill(place)
        self._ray.shutdown()

    # ---- the cluster

    def _look(self) -> None:
        while True:
            try:
                self.follow(self._ray.nodes())
            except Exception:  # the head may be away for a moment; the next look tells
                ray_log.exception("cannot see the cluster")
            if self._closed.wait(LOOK_S):
                return

    def follow(self, nodes: list[dict[str, Any]]) -> None:
        """Start workers on new nodes and for those that ended; forget nodes that are gone."""
        alive = {node["NodeID"]: node for node in nodes if node["Alive"]}
        known = {place.node for place in self.places.values()}
        for node_id in alive.keys() - known:
            for place in self._places_of(node_id, alive[node_id]):
                self.places[place.name] = place
        for place in list(self.places.values()):
            if place.node not in alive:
                del self.places[place.name]
                self._tell(place, "its node left the cluster")
            elif place.work is not None:
                if self._ray.wait([place.work], timeout=0)[0]:
                    self._ended(place)
            elif time.monotonic() >= place.due:
                self._start(place)

    def _places_of(self, node_id: str, node: dict[str, Any]) -> list[WorkerPlace]:
        gpus, cores = (int(node["Resources"].get(what, 0)) for what in ("GPU", "CPU"))
        slots = max(0, cores - gpus) if self._lending.slots is None else min(self._lending.slots, cores)
        label = f"{self._lending.prefix}-{node['NodeManagerAddress']}-{node_id[:6]}".replace(":", ".")
        places = [WorkerPlace(f"{label}-cpu", "sim", node_id, slots)] if slots else []
        places += [WorkerPlace(f"{label}-gpu{index}", "cuda", node_id, 1) for index in range(gpus)]
        return [place for place in places if place.kind in self._kinds]

    def _start(self, place: WorkerPlace) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        remote = self._ray.remote(Lender).options(
            num_cpus=place.slots if place.kind == "sim" else 1,
            num_gpus=1 if place.kind == "cuda" else 0,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(place.node, soft=False),
        )
        place.actor = remote.remote(self._lending)
        place.work = place.actor.work.remote(place.name, place.slots, place.kind)
        place.begun = time.monotonic()

    def _ended(self, place: WorkerPlace) -> None:
        """Record why a worker ended, and schedule a replacement after a pause."""
        try:
            self._ray.get(place.work)
            trouble = ""
        except Exception as error:  # what the worker raised comes back as an error of its own class too
            trouble = str(error).strip().splitlines()[-1][:300]
        ray_log.warning("%s ended: %s", place.name, trouble or "it left")
        self._kill(place)
        now = time.monotonic()
        lasted = now - place.begun > 2 * LONGEST_REST_S
        place.rest_s = FIRST_REST_S if lasted or not place.rest_s else min(LONGEST_REST_S, 2 * place.rest_s)
        place.due = now + place.rest_s
        self._tell(place, trouble or "its worker ended")

    def _kill(self, place: WorkerPlace) -> None:
        with contextlib.suppress(Exception):  # it may be gone already
            self._ray.kill(place.actor)
        place.actor = place.work = None

    def _tell(self, place: WorkerPlace, trouble: str) -> None:
        """Notify the service that a worker is lost; otherwise its leases would have to run out."""
        token = self._lending.token
        try:
            httpx.post(
                f"{self._lending.url.rstrip('/')}/v1/worker/leave",
                json={"worker": place.name, "trouble": trouble},
                headers={"authorization": f"Bearer {token}"} if token else {},
                timeout=10.0,
            )
        except httpx.HTTPError as error:
            ray_log.warning("cannot tell the service that %s is lost: %s", place.name, error)


def _connect(address: str) -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise RayMissing("Ray is not installed: pip install 'drkernel[ray]'") from error
    if ray.is_initialized():
        return ray
    try:
        ray.init(
            address=address, namespace="drkernel", include_dashboard=False if address == "local" else None,
            log_to_driver=False, logging_level=logging.ERROR,
        )  # fmt: skip
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise RayMissing(f"cannot join Ray at {address!r}: {error}") from error
    ray.put(0)  # Ray completes its imports here, not in a thread beside those of somebody else
    return ray
