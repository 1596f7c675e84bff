"""RayPool on a local cluster of two nodes: a killed node loses nothing, what fails again and again is shut out.

Slow (Ray takes ten seconds to start); without Ray the tests are skipped and say so.
"""

import asyncio
import os
import time
from pathlib import Path

import pytest

from drkernel.gym.pools.local import infra_verdict
from drkernel.gym.pools.ray_places import Place, Places
from drkernel.gym.request import EvalRequest, EvalSettings
from drkernel.task import Provenance, Task
from drkernel.verdict import Verdict

NODE = "ab" * 28
REFERENCE = "class Model: ...\ndef get_inputs(): return []\ndef get_init_inputs(): return []\n"


def make_request(number, device="sim:h200"):
    return EvalRequest(
        task=Task(id=f"ray/{number}", reference=REFERENCE, provenance=Provenance(source="test")),
        candidate=f"class ModelNew:\n    number = {number}\n",
        settings=EvalSettings(device=device, profile=None),
    )


def good(request):
    return Verdict(status="correct", task_id=request.task.id, candidate_sha256="0" * 64, device="sim:h200")


class FakeRay:
    """What :class:`Places` asks of Ray, answered at once."""

    class exceptions:
        RayError = RuntimeError

    def __init__(self):
        self.started = []

    def remote(self, _):
        return self

    def options(self, **options):
        self.started.append(options)
        outer = self

        class Actor:
            @staticmethod
            def remote(*_):
                actor = Actor()
                actor.ready = actor
                actor.made = len(outer.started)
                return actor

        return Actor

    def wait(self, refs, timeout):
        return refs, []

    def get(self, ref):
        return []

    def kill(self, actor):
        pass


def node(name, **resources):
    return {"NodeID": name, "Alive": True, "NodeManagerAddress": "10.0.0.1", "Resources": resources}


@pytest.fixture
def places():
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'drkernel[ray]'")
    return Places(FakeRay(), object, None, 3, None)


def test_one_actor_a_gpu_and_one_for_the_rest_of_the_cores(places):
    places.follow([node(NODE, CPU=16.0, GPU=2.0)])
    places.follow([node(NODE, CPU=16.0, GPU=2.0)])
    rows = {name.rpartition("/")[2]: place for name, place in places.all.items()}
    assert {name: (p.device, p.slots) for name, p in rows.items()} == {
        "cpu": ("sim", 14), "gpu0": ("cuda", 1), "gpu1": ("cuda", 1),
    }  # fmt: skip
    for options in places._ray.started:
        assert options["max_restarts"] == options["max_task_retries"] == 0
    assert [options["num_gpus"] for options in places._ray.started] == [0, 1, 1]
    assert places.free("cuda", frozenset()).device == "cuda"
    elsewhere = places.free("cuda", frozenset({rows["gpu0"].name}))
    assert elsewhere is rows["gpu1"]
    elsewhere.busy = 1
    assert places.free("cuda", frozenset({rows["gpu0"].name})) is None  # waits for the other one
    elsewhere.lost_at = time.time()
    assert places.free("cuda", frozenset({rows["gpu0"].name})) is rows["gpu0"]  # there is no other


def test_failures_in_a_row_shut_a_place_out_and_a_good_one_forgives(places):
    places.follow([node(NODE, CPU=2.0)])
    (place,) = places.all.values()
    assert isinstance(place, Place)
    bad = infra_verdict(make_request(1), OSError("the bus fell off"), 0.1)
    for _ in range(5):
        places.note(place, place.actor, bad, lost=False)
    assert not place.quarantined
    places.note(place, place.actor, good(make_request(1)), lost=False)
    for _ in range(6):
        places.note(place, place.actor, bad, lost=False)
    assert place.quarantined and places.free("sim", frozenset()) is None and "bus fell off" in place.note


def test_a_lost_actor_counts_once_and_is_started_again_after_a_rest(places):
    places.follow([node(NODE, CPU=4.0)])
    (place,) = places.all.values()
    actor = place.actor
    bad = infra_verdict(make_request(1), RuntimeError("died"), 0.1)
    places.follow([node(NODE, CPU=4.0)])
    assert place.able
    for _ in range(4):  # four evaluations ran on it
        places.note(place, actor, bad, lost=True)
    assert place.strikes == 4 and not place.quarantined and not place.able
    place.rest_until = 0.0
    for _ in range(2):
        places.follow([node(NODE, CPU=4.0)])
    assert place.able and place.actor is not actor
    places.follow([])
    assert place.row()["lost"] and places.free("sim", frozenset()) is None


@pytest.fixture(scope="module")
def cluster():
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'drkernel[ray]'")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    yield made
    made.shutdown()


def make_pool(cluster, judge, **options):
    from drkernel.gym.pools.ray import RayPool

    return RayPool(cluster.address, judge=judge, **options)


def alive(pool, slots):
    pool.wait_ready(slots)
    return pool


@pytest.mark.slow
def test_a_killed_node_loses_nothing_and_doubles_nothing(cluster, tmp_path):
    log = str(tmp_path / "evaluated")
    nodes = [cluster.add_node(num_cpus=2), cluster.add_node(num_cpus=2)]

    def judge(request, _):
        import time

        time.sleep(0.1)
        with open(log, "a") as file:
            file.write(request.task.id + "\n")
        return Verdict(status="correct", task_id=request.task.id, candidate_sha256="0" * 64, device="sim:h200")

    pool = alive(make_pool(cluster, judge), 4)

    async def run():
        asked = [asyncio.create_task(pool.evaluate(make_request(number))) for number in range(60)]
        while sum(task.done() for task in asked) < 15:
            await asyncio.sleep(0.05)
        await asyncio.to_thread(cluster.remove_node, nodes[0], allow_graceful=False)
        return await asyncio.gather(*asked)

    try:
        verdicts = asyncio.run(asyncio.wait_for(run(), 120))
        assert [v.status for v in verdicts] == ["correct"] * 60
        assert [v.task_id for v in verdicts] == [f"ray/{number}" for number in range(60)]
        evaluated = Path(log).read_text().split()
        assert set(evaluated) == {f"ray/{number}" for number in range(60)}
        assert len(evaluated) <= 62  # at most what ran on the killed node was begun again
        rows = {row["name"]: row for row in pool.places()}
        deadline = time.time() + 40
        while not any(row["lost"] for row in pool.places()) and time.time() < deadline:
            time.sleep(0.2)
        rows = pool.places()
        assert sorted(row["lost"] for row in rows) == [False, True]
        assert pool.health()["slots"] == 2
    finally:
        pool.close_now()
        cluster.remove_node(nodes[1])


@pytest.mark.slow
def test_an_actor_that_dies_is_replaced_and_one_that_keeps_failing_is_quarantined(cluster):
    added = cluster.add_node(num_cpus=1)

    def judge(request, _):
        import os

        if "666" in request.task.id:
            os.kill(os.getpid(), 9)
        return Verdict(status="correct", task_id=request.task.id, candidate_sha256="0" * 64, device="sim:h200")

    pool = alive(make_pool(cluster, judge, attempts=2), 1)

    async def run():
        fine = await pool.evaluate(make_request(1))
        bad = await pool.evaluate(make_request(666))
        again = await pool.evaluate(make_request(2))
        return fine, bad, again

    try:
        fine, bad, again = asyncio.run(asyncio.wait_for(run(), 120))
        assert (fine.status, bad.status, again.status) == ("correct", "infra_error", "correct")
        assert bad.attempts == 2
        (row,) = pool.places()
        assert (row["done"], row["failed"], row["quarantined"]) == (2, 2, False)
    finally:
        pool.close_now()
        cluster.remove_node(added)


EXAMPLE = Path(__file__).parents[2] / "examples" / "layer_norm"


@pytest.mark.slow
def test_a_real_evaluation_runs_in_the_sandbox_of_an_actor(cluster):
    added = cluster.add_node(num_cpus=1)
    pool = alive(make_pool(cluster, None), 1)
    reference, candidate = ((EXAMPLE / f"{name}.py").read_text() for name in ("reference", "candidate"))
    task = Task(id="real", reference=reference, provenance=Provenance(source="test"))
    request = EvalRequest(task=task, candidate=candidate, settings=EvalSettings(profile=None))
    try:
        verdict = asyncio.run(asyncio.wait_for(pool.evaluate(request), 120))
        assert verdict.status == "correct", verdict
        assert verdict.speedup.value > 1.0 and verdict.sandbox.layers
    finally:
        pool.close_now()
        cluster.remove_node(added)
