"""Workers of a service on the machines of a Ray cluster: one per GPU, and one per node for its CPU slots.

Ray only places and starts them. They lease from the service's queue as ``drkernel worker`` does, so attempts, health
and quarantine are the service's, and Ray never retries anything (``max_restarts=0``, ``max_task_retries=0``). Nodes may
join and leave at any time. A worker that ends is restarted after a growing pause, and the service is notified, so that
its jobs are requeued at once.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import httpx

from drkernel.gym.request import Pool

log = logging.getLogger("drkernel.ray")

LOOK_S = 2.0
"""seconds between two looks at the cluster"""
FIRST_REST_S, LONGEST_REST_S = 1.0, 60.0
"""seconds before a worker is restarted, growing with every consecutive failure"""

MakePool = Callable[[int], Pool]
"""makes the pool of a worker with this many slots"""


class RayMissing(RuntimeError):
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


class Lender:
    """The actor: a worker of the service on its node."""

    def __init__(self, lending: Lending):
        self._lending = lending
        self._worker: Any = None

    async def work(self, name: str, slots: int, kind: str) -> int:
        """Work until :meth:`stop`; return the number of evaluations done."""
        from drkernel.gym.pools.local import LocalPool
        from drkernel.serve.client import AsyncClient
        from drkernel.serve.worker import Worker

        lending = self._lending
        if lending.make_pool is not None:
            pool: Pool = lending.make_pool(slots)
        else:
            memory, total = lending.memory_bytes, lending.total_bytes
            pool = LocalPool(slots=slots, attempts=1, memory_bytes=memory, total_bytes=total)
        async with AsyncClient(lending.url, token=lending.token, name=name) as client:
            self._worker = Worker(client, pool, slots=slots, name=name, kinds=[kind])
            try:
                await self._worker.run()
            finally:
                await pool.close()
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
                log.exception("cannot see the cluster")
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
        log.warning("%s ended: %s", place.name, trouble or "it left")
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
            log.warning("cannot tell the service that %s is lost: %s", place.name, error)


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
