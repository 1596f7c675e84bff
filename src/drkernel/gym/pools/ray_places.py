"""Where a RayPool evaluates: the actors of every node, their health, and who is shut out."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import Any

from drkernel.verdict import Verdict

REMEMBER_S = 3600.0
"""how long a lost place is shown"""
FIRST_REST_S, LONGEST_REST_S = 1.0, 60.0
"""before an actor is started again, growing with every failure in a row"""


@dataclass(eq=False)
class Place:
    """One GPU, or the CPU slots of one node."""

    name: str
    device: str
    """kind of device that it evaluates on: ``sim`` or ``cuda``"""
    node: str
    address: str
    slots: int
    actor: Any = None
    ready: Any = None
    """the promise of a starting actor; None once it is kept"""
    busy: int = 0
    done: int = 0
    failed: int = 0
    strikes: int = 0
    """failures since the last good evaluation; a lost actor counts once a slot"""
    quarantined: bool = False
    lost_at: float | None = None
    rest_until: float = 0.0
    note: str = ""
    seen: float = field(default_factory=time.time)

    @property
    def able(self) -> bool:
        """Whether it can be given work."""
        return self.actor is not None and self.ready is None and not self.quarantined and self.lost_at is None

    def row(self) -> dict[str, Any]:
        """What a service shows of it."""
        return {
            "name": self.name,
            "kind": "ray-cpu" if self.device == "sim" else "ray-gpu",
            "slots": self.slots,
            "seen": self.seen,
            "done": self.done,
            "failed": self.failed,
            "in_a_row": self.strikes,
            "quarantined": self.quarantined,
            "lost": self.lost_at is not None,
            "node": self.address,
            "note": self.note,
        }


class Places:
    """All places of a cluster. Not thread-safe: the pool holds its lock around every call."""

    def __init__(self, ray: Any, actor: type, sim_slots: int | None, quarantine_after: int, judge: Any):
        self._ray, self._class, self._sim_slots, self._judge = ray, actor, sim_slots, judge
        self._quarantine_after = quarantine_after
        self.all: dict[str, Place] = {}

    def follow(self, nodes: list[dict[str, Any]]) -> None:
        """Start actors on new nodes and for dead actors, mark the places of nodes that are gone."""
        alive = {node["NodeID"]: node for node in nodes if node["Alive"]}
        known = {place.node for place in self.all.values()}
        for node_id, node in alive.items():
            if node_id not in known:
                self._join(node_id, node)
        for name, place in list(self.all.items()):
            if place.node not in alive:
                place.lost_at = place.lost_at or time.time()
                place.note = place.note or "its node left the cluster"
                place.actor = place.ready = None
                if time.time() - place.lost_at > REMEMBER_S:
                    del self.all[name]
            else:
                place.seen = time.time()
                self._revive(place)

    def free(self, device: str, tried: frozenset[str]) -> Place | None:
        """The place with the most free slots; not one of ``tried`` unless no other is able."""
        able = [place for place in self.all.values() if place.device == device and place.able]
        fresh = [place for place in able if place.name not in tried]
        open_ = [place for place in fresh or able if place.busy < place.slots]
        return max(open_, key=lambda place: place.slots - place.busy, default=None)

    def note(self, place: Place, actor: Any, verdict: Verdict, lost: bool) -> None:
        """What came of an evaluation on ``actor``; ``lost`` when the actor itself is gone."""
        if verdict.status != "infra_error":
            place.done += 1
            place.strikes = 0 if verdict.is_of_candidate else place.strikes
            return
        place.failed += 1
        if verdict.error is not None:
            place.note = f"{verdict.error.type}: {verdict.error.message.strip().splitlines()[0][:200]}"
        if not lost:
            self._strike(place, 1)
        elif place.actor is actor:  # the first of its evaluations to hear of it
            self._bury(place)

    def end(self) -> None:
        """Kill every actor."""
        for place in self.all.values():
            if place.actor is not None:
                with contextlib.suppress(Exception):  # it may be gone already
                    self._ray.kill(place.actor)
                place.actor = None

    def _join(self, node_id: str, node: dict[str, Any]) -> None:
        resources, address = node["Resources"], node["NodeManagerAddress"]
        gpus, cores = int(resources.get("GPU", 0)), int(resources.get("CPU", 0))
        slots = max(0, cores - gpus) if self._sim_slots is None else min(self._sim_slots, cores)
        label = f"{address}-{node_id[:6]}"
        if slots:
            self._add(Place(f"{label}/cpu", "sim", node_id, address, slots))
        for index in range(gpus):
            self._add(Place(f"{label}/gpu{index}", "cuda", node_id, address, 1))

    def _add(self, place: Place) -> None:
        self.all[place.name] = place
        self._start(place)

    def _start(self, place: Place) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        remote = self._ray.remote(self._class).options(
            num_cpus=place.slots if place.device == "sim" else 1,
            num_gpus=1 if place.device == "cuda" else 0,
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=place.slots + 1,
            scheduling_strategy=NodeAffinitySchedulingStrategy(place.node, soft=False),
        )
        place.actor = remote.remote(place.slots, self._judge)
        place.ready = place.actor.ready.remote()

    def _revive(self, place: Place) -> None:
        """See whether a starting actor is ready, and start one where there is none."""
        if place.actor is None:
            if time.time() >= place.rest_until:
                self._start(place)
        elif place.ready is not None and self._ray.wait([place.ready], timeout=0)[0]:
            try:
                gpus = self._ray.get(place.ready)
            except self._ray.exceptions.RayError as error:
                place.failed += 1
                place.note = f"did not start: {str(error).strip().splitlines()[0][:200]}"
                self._bury(place)
            else:
                place.ready = None
                place.note = f"GPU {gpus[0]}" if gpus and not place.quarantined else place.note

    def _bury(self, place: Place) -> None:
        """The actor is gone, or must go; another one is started after a rest."""
        with contextlib.suppress(Exception):  # it may be gone already
            self._ray.kill(place.actor)
        place.actor = place.ready = None
        self._strike(place, place.slots)
        rest = FIRST_REST_S * 2 ** min(10, place.strikes // max(1, place.slots) - 1)
        place.rest_until = time.time() + min(LONGEST_REST_S, rest)

    def _strike(self, place: Place, weight: int) -> None:
        place.strikes += weight
        place.quarantined = place.quarantined or place.strikes >= self._quarantine_after * place.slots
