"""RayPool: evaluations on the machines of a Ray cluster. One actor a GPU, one actor a node for its CPU slots.

Ray never repeats anything of ours (``max_restarts=0``, ``max_task_retries=0``): only this controller does, only for
infrastructure trouble, and elsewhere when there is an elsewhere. Nodes may join and leave at any time. A place whose
evaluations fail again and again is quarantined: it keeps its GPU, gets no work, and is shown, until it is released.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from drkernel.gym.pools.local import Evaluate, LocalPool, PoolClosed, infra_verdict
from drkernel.gym.pools.ray_places import Place, Places
from drkernel.gym.request import EvalRequest
from drkernel.verdict import Verdict

log = logging.getLogger("drkernel.ray")

LOOK_S = 2.0
"""seconds between two looks at the cluster's nodes"""


class RayMissing(RuntimeError):
    """Ray is not installed, or the cluster cannot be reached; says what to do."""


class Grader:
    """The actor: a :class:`LocalPool` on its node. Requests and verdicts travel as JSON."""

    def __init__(self, slots: int, judge: Evaluate | None):
        self._pool = LocalPool(slots=slots, attempts=1, judge=judge)

    async def ready(self) -> list[int]:
        """Ids of the GPUs that this actor owns; returns once it can work."""
        import ray

        return [int(number) for number in ray.get_gpu_ids()]

    async def evaluate(self, request: str) -> str:
        """One evaluation, as JSON."""
        verdict = await self._pool.evaluate(EvalRequest.model_validate_json(request))
        return verdict.model_dump_json()


class RayPool:
    """A :class:`~drkernel.gym.request.Pool` over a Ray cluster; to be used from one event loop at a time.

    ``address``: "local" starts a Ray of one node in this process's care, "auto" joins the one of this machine, else the
    address of a cluster's head. ``sim_slots``: CPU slots a node, by default all its cores but one a GPU. ``attempts``:
    tries in all for infrastructure trouble. ``quarantine_after``: failed rounds in a row that shut a place out (a lost
    actor is a round; of single failures it takes one a slot). ``patience_s``: how long a request waits while no place
    of its kind is alive.
    """

    def __init__(
        self,
        address: str = "local",
        *,
        sim_slots: int | None = None,
        attempts: int = 3,
        quarantine_after: int = 3,
        patience_s: float = 600.0,
        judge: Evaluate | None = None,
    ):
        self._ray = _connect(address)
        self._attempts = attempts
        self._patience_s = patience_s
        self._places = Places(self._ray, Grader, sim_slots, quarantine_after, judge)
        self._lock = threading.Lock()
        self._waiting: list[tuple[str, frozenset[str], Future[Place]]] = []
        self._counts: Counter[str] = Counter()
        self._retries = 0
        self._closed = threading.Event()
        self._watch = threading.Thread(target=self._look, name="drkernel-ray", daemon=True)
        self._watch.start()

    # ---- the protocol of pools

    async def evaluate(self, request: EvalRequest) -> Verdict:
        """Evaluate; infrastructure trouble (a lost node too) is tried again on another place where there is one."""
        kind = request.settings.place.kind
        begun = time.monotonic()
        tried: set[str] = set()
        for attempt in range(1, self._attempts + 1):
            try:
                place = await self._take(kind, tried)
            except TimeoutError:
                trouble = TimeoutError(f"no place for {kind} evaluations was alive for {self._patience_s:g} s")
                verdict = infra_verdict(request, trouble, time.monotonic() - begun)
                break
            verdict = await self._evaluate_on(place, request)
            if verdict.status != "infra_error":
                break
            tried.add(place.name)
            self._retries += attempt < self._attempts
        self._counts[verdict.status] += 1
        return verdict.model_copy(update={"attempts": attempt})

    def health(self) -> dict[str, Any]:
        """Slots and busy slots, counts by status, and every place."""
        with self._lock:
            places = list(self._places.all.values())
            return {
                "slots": sum(place.slots for place in places if place.able),
                "busy": sum(place.busy for place in places),
                "queued": len(self._waiting),
                "evaluated": dict(self._counts),
                "retries": self._retries,
                "places": [place.row() for place in places],
            }

    async def close(self) -> None:
        """End the actors, and a local Ray with them."""
        await asyncio.to_thread(self.close_now)

    def close_now(self) -> None:
        """The same for callers without an event loop."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._watch.join(30)
        with self._lock:
            waiting, self._waiting = self._waiting, []
            self._places.end()
        for _, _, future in waiting:
            with contextlib.suppress(Exception):
                future.set_exception(PoolClosed("the pool was closed before this request's turn"))
        self._ray.shutdown()

    # ---- for a service that shows its workers

    def slots_by_kind(self) -> dict[str, int]:
        """Evaluations at once by kind of device, of the places that are able."""
        slots = {"sim": 0, "cuda": 0}
        with self._lock:
            for place in self._places.all.values():
                if place.able:
                    slots[place.device] += place.slots
        return slots

    def places(self) -> list[dict[str, Any]]:
        """Every place with its health."""
        with self._lock:
            return [place.row() for place in self._places.all.values()]

    def release(self, name: str) -> bool:
        """Let a quarantined place work again; False when there is none of that name."""
        with self._lock:
            place = self._places.all.get(name)
            if place is None:
                return False
            place.quarantined, place.strikes = False, 0
            self._match()
        return True

    def wait_ready(self, slots: int = 1, seconds: float = 120.0) -> None:
        """Return when so many slots are able. Raises ``TimeoutError``."""
        end = time.monotonic() + seconds
        while sum(self.slots_by_kind().values()) < slots:
            if time.monotonic() > end:
                raise TimeoutError(f"Ray offered {self.slots_by_kind()} after {seconds:g} s; see 'ray status'")
            time.sleep(0.1)

    # ---- places

    async def _evaluate_on(self, place: Place, request: EvalRequest) -> Verdict:
        actor, begun = place.actor, time.monotonic()
        # far beyond what an evaluation takes: the judge itself keeps the deadline, unless its machine hangs
        limit = 300.0 + 4.0 * request.settings.deadline_s
        verdict, lost = None, False
        try:
            answer = await asyncio.wait_for(actor.evaluate.remote(request.model_dump_json()), limit)
            verdict = Verdict.model_validate_json(answer)
        except TimeoutError as error:
            verdict, lost = infra_verdict(request, error, time.monotonic() - begun), True
        except self._ray.exceptions.RayError as error:
            verdict, lost = infra_verdict(request, error, time.monotonic() - begun), True
            log.warning("%s: %s", place.name, str(error).strip().splitlines()[0])
        finally:
            with self._lock:
                place.busy -= 1
                if verdict is not None:  # else: cancelled
                    self._places.note(place, actor, verdict, lost)
                self._match()
        return verdict

    async def _take(self, kind: str, tried: Iterable[str]) -> Place:
        """A free slot, elsewhere than ``tried`` when another place is able. Raises ``TimeoutError``."""
        future: Future[Place] = Future()
        with self._lock:
            if self._closed.is_set():
                raise PoolClosed("the pool is closed")
            self._waiting.append((kind, frozenset(tried), future))
            self._match()
        waiting = asyncio.wrap_future(future)
        end = time.monotonic() + self._patience_s
        try:
            while True:
                done, _ = await asyncio.wait([waiting], timeout=5.0)
                if done:
                    return waiting.result()
                if self.slots_by_kind()[kind]:
                    end = time.monotonic() + self._patience_s  # there are places, they are busy
                elif time.monotonic() > end:
                    raise TimeoutError
        except BaseException:
            self._forget(future)
            raise

    def _forget(self, future: Future[Place]) -> None:
        with self._lock:
            self._waiting = [entry for entry in self._waiting if entry[2] is not future]
            if future.done() and not future.cancelled() and future.exception() is None:
                future.result().busy -= 1
                self._match()

    def _match(self) -> None:
        """Give free slots to those who wait, in order. Called with the lock held."""
        left = []
        for entry in self._waiting:
            kind, tried, future = entry
            place = self._places.free(kind, tried)
            if place is None:
                left.append(entry)
            elif future.set_running_or_notify_cancel():
                place.busy += 1
                future.set_result(place)
        self._waiting = left

    def _look(self) -> None:
        """Follow the cluster's nodes until the pool is closed."""
        while True:
            try:
                nodes = self._ray.nodes()
                with self._lock:
                    self._places.follow(nodes)
                    self._match()
            except Exception:  # the head may be away for a moment; the next look tells
                log.exception("cannot see the cluster")
            if self._closed.wait(LOOK_S):
                return


def _connect(address: str) -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise RayMissing("Ray is not installed: pip install 'drkernel[ray]'") from error
    try:
        ray.init(
            address=address, namespace="drkernel", include_dashboard=False if address == "local" else None,
            log_to_driver=False, logging_level=logging.ERROR,
        )  # fmt: skip
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise RayMissing(f"cannot join Ray at {address!r}: {error}") from error
    ray.put(0)  # Ray completes its imports here, not in a thread beside those of somebody else
    return ray
