"""Workers on a Ray cluster: they lease from the service's queue; a killed node loses nothing and costs no lease's time.

What Ray is asked for is tested on a fake; the slow tests run Ray itself (ten seconds to start). Without Ray all are
skipped and say so.
"""

import contextlib
import json
import os
import signal
from collections import Counter

import httpx
import pytest

from drkernel.serve import worker as ray_workers
from drkernel.serve.worker import Lender, Lending, RayWorkers
from places import EXAMPLES
from service_kit import CountingPool, make_request
from waiting import until

pytest.importorskip("ray", reason="Ray is not installed: pip install 'drkernel[ray]'")

NODE = "ab" * 28


class Promise:
    """What a method of an actor gives: kept once ``done`` is set, by raising ``error`` if there is one."""

    def __init__(self, name):
        self.name, self.done, self.error = name, False, None


class FakeRay:
    """What :class:`RayWorkers` asks of Ray, answered at once."""

    class exceptions:
        RayError = RuntimeError

    def __init__(self):
        self.options_given, self.promises, self.killed = [], [], 0
        self.cluster = []

    def nodes(self):
        return self.cluster

    def remote(self, actor):
        assert actor is Lender
        return self

    def options(self, **options):
        self.options_given.append(options)
        outer = self

        class Method:
            @staticmethod
            def remote(*arguments):
                outer.promises.append(Promise(arguments[0] if arguments else "stop"))
                return outer.promises[-1]

        class Actor:
            work = stop = Method

            @staticmethod
            def remote(lending):
                return Actor

        return Actor

    def wait(self, promises, num_returns=1, timeout=None):
        return [one for one in promises if one.done], []

    def get(self, promise):
        if promise.error:
            raise promise.error

    def kill(self, actor):
        self.killed += 1

    def shutdown(self):
        pass


def node(name, **resources):
    return {"NodeID": name, "Alive": True, "NodeManagerAddress": "10.0.0.1", "Resources": resources}


@pytest.fixture
def lend(monkeypatch):
    """``lend(url, **lending)`` gives workers on a fake cluster that only the test moves."""
    made = []

    def start(url="http://127.0.0.1:9", kinds=("sim", "cuda"), **lending):
        ray = FakeRay()
        monkeypatch.setattr(ray_workers, "_connect", lambda address: ray)
        monkeypatch.setattr(RayWorkers, "_look", lambda self: None)
        made.append(RayWorkers("fake", Lending(url, **lending), kinds=kinds))
        return made[-1], ray

    yield start
    for workers in made:
        workers.close()


def test_one_worker_a_gpu_and_one_for_the_rest_of_the_cores(lend):
    workers, ray = lend()
    for _ in range(2):
        workers.follow([node(NODE, CPU=16.0, GPU=2.0)])
    assert [promise.name for promise in ray.promises] == [
        "ray-10.0.0.1-ababab-cpu", "ray-10.0.0.1-ababab-gpu0", "ray-10.0.0.1-ababab-gpu1",
    ]  # fmt: skip
    assert [(o["num_cpus"], o["num_gpus"]) for o in ray.options_given] == [(14, 0), (1, 1), (1, 1)]
    assert all(o["max_restarts"] == o["max_task_retries"] == 0 for o in ray.options_given)
    limited, _ = lend(kinds=("sim",), slots=4, prefix="lab")
    limited.follow([node(NODE, CPU=16.0, GPU=2.0), node("cd" * 28, CPU=2.0)])
    assert {(place.name, place.slots) for place in limited.places.values()} == {
        ("lab-10.0.0.1-ababab-cpu", 4), ("lab-10.0.0.1-cdcdcd-cpu", 2),
    }  # fmt: skip


def test_a_worker_that_ends_is_started_again_after_rests_that_grow(lend):
    workers, ray = lend()
    here = [node(NODE, CPU=4.0)]
    for number in range(1, 9):
        workers.follow(here)
        assert len(ray.promises) == number
        ray.promises[-1].done, ray.promises[-1].error = True, RuntimeError("the actor died\nout of memory")
        workers.follow(here)
        (place,) = workers.places.values()
        assert place.work is None and ray.killed == number
        assert place.rest_s == min(60.0, 2.0 ** (number - 1))
        workers.follow(here)
        assert len(ray.promises) == number  # it rests
        place.due = 0.0


def test_the_service_queues_again_at_once_what_a_lost_worker_held_and_shuts_out_who_is_lost_too_often(
    lend, serving, store
):
    server = serving(slots=0, lease_s=3600.0, quarantine_after=3, token="secret")
    workers, _ = lend(server.url, token="secret")
    workers.follow([node(NODE, CPU=2.0)])
    (place,) = workers.places.values()
    auth = {"authorization": "Bearer secret"}
    store.submit([make_request(number) for number in range(2)])

    def take():
        body = {"worker": place.name, "slots": 2, "wait_s": 0}
        return httpx.post(server.url + "/v1/worker/lease", json=body, headers=auth)

    assert take().json()["job_id"] and take().json()["job_id"]
    workers.follow([])
    assert workers.places == {} and store.counts()["state"] == {"queued": 2}
    (row,) = httpx.get(server.url + "/v1/state", headers=auth).json()["workers"]
    assert row["lost"] and row["failed"] == 2 and row["note"] == "its node left the cluster" and not row["quarantined"]
    workers.follow([node(NODE, CPU=2.0)])
    (place,) = workers.places.values()
    assert take().json()["job_id"]
    (row,) = httpx.get(server.url + "/v1/state", headers=auth).json()["workers"]
    assert not row["lost"]
    workers.follow([])
    (row,) = httpx.get(server.url + "/v1/state", headers=auth).json()["workers"]
    assert row["quarantined"] and take().status_code == 403


def test_who_leaves_in_order_is_not_shown_as_lost_and_nobody_takes_jobs_from_the_service_itself(serving):
    server = serving(CountingPool(), slots=1)
    lease = {"worker": "guest", "slots": 1, "wait_s": 0}
    httpx.post(server.url + "/v1/worker/lease", json=lease)
    assert httpx.post(server.url + "/v1/worker/leave", json={"worker": "guest"}).json() == {"queued_again": 0}
    (own,) = httpx.get(server.url + "/v1/state").json()["workers"]
    httpx.post(server.url + "/v1/worker/leave", json={"worker": own["name"], "trouble": "not true"})
    assert httpx.get(server.url + "/v1/state").json()["workers"][0]["lost"] is False


# ---- Ray itself


@pytest.fixture(scope="module")
def cluster():
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    yield made
    made.shutdown()


def pool_of(seconds, log):
    """Makes pools that write down what they evaluate; sent to Ray's processes by value."""

    def make(slots):
        import asyncio
        import os

        from drkernel.verdict import Verdict

        class Pool:
            async def evaluate(self, request):
                with open(log, "a") as file:
                    file.write(request.key + "\n")
                await asyncio.sleep(seconds)
                if "666" in request.candidate:
                    os.kill(os.getpid(), 9)
                return Verdict(status="correct", task_id=request.task.id, candidate_sha256="0" * 64, device="sim:h200")

            async def close(self):
                pass

        return Pool()

    return make


@pytest.mark.slow
def test_a_killed_node_loses_nothing_and_doubles_nothing(cluster, serving, store, tmp_path):
    log = tmp_path / "evaluated"
    log.touch()
    nodes = [cluster.add_node(num_cpus=2), cluster.add_node(num_cpus=2)]
    server = serving(slots=0, lease_s=600.0)  # no lease runs out within the test
    workers = RayWorkers(cluster.address, Lending(server.url, make_pool=pool_of(0.2, str(log))))
    try:
        until(lambda: len(server.service.workers) == 2, 90)
        requests = [make_request(number) for number in range(60)]
        store.submit(requests)
        until(lambda: store.counts()["state"].get("done", 0) >= 15, 90)
        cluster.remove_node(nodes[0], allow_graceful=False)
        until(lambda: store.counts()["state"] == {"done": 60}, 90)
        evaluated = Counter(log.read_text().split())
        assert set(evaluated) == {request.key for request in requests}
        assert sum(evaluated.values()) <= 62  # at most what ran on the killed node was begun again
        until(lambda: sorted(worker.lost for worker in server.service.workers.values()) == [False, True], 90)
    finally:
        workers.close()
        cluster.remove_node(nodes[1])


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced_and_a_job_that_kills_three_is_given_up(cluster, serving, store, tmp_path):
    added = cluster.add_node(num_cpus=1)
    server = serving(slots=0, lease_s=600.0)
    workers = RayWorkers(cluster.address, Lending(server.url, make_pool=pool_of(0.0, str(tmp_path / "log"))))
    try:
        ids = store.submit([make_request(1), make_request(666), make_request(2)])
        until(lambda: store.counts()["state"] == {"done": 3}, 150)
        assert [store.get(job).status for job in ids] == ["correct", "infra_error", "correct"]
        assert [store.get(job).attempts for job in ids] == [1, 3, 1]
    finally:
        workers.close()
        cluster.remove_node(added)


EXAMPLE = EXAMPLES / "layer_norm"


@pytest.mark.slow
@pytest.mark.parametrize("command", ["serve", "worker"])
def test_the_commands_grade_for_real_on_a_local_ray(tmp_path, command):
    from test_serve_commands import command as run
    from test_serve_commands import finish

    options = ("--ray", "local", "--slots", "1")
    started = [
        run(
            "serve",
            "--port",
            "0",
            "--store",
            tmp_path / "s.sqlite",
            *(options if command == "serve" else ("--slots", "0")),
        )
    ]
    try:
        line = started[0].stdout.readline()
        url = line.split()[-1]
        assert url.startswith("http://127.0.0.1:"), line
        if command == "worker":
            started.append(run("worker", url, *options, "--name", "lab"))
        code, out = finish(
            run("eval", EXAMPLE / "reference.py", EXAMPLE / "candidate.py", "--pool", url, "--json"), 240
        )
        verdict = json.loads(out)
        assert code == 0 and verdict["status"] == "correct" and verdict["speedup"]["value"] > 1
        assert verdict["sandbox"]["layers"]
        (row,) = httpx.get(url + "/v1/state").json()["workers"]
        assert row["name"].startswith("lab-" if command == "worker" else "local-ray-") and row["done"] == 1
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
            code, out = finish(process, 90)
            assert code == 0, out
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
