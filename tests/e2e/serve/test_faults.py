"""Networks that cut, disks that fill, files that are locked, processes that are killed: nothing lost, nothing doubled.

The slow tests are small runs of ``benchmarks/serve_faults.py``, whose full figures are in docs/results/faults.md.
"""

import asyncio
import importlib.util
import random
import sys
import threading
import time

import httpx
import pytest

from drkernel.serve.client import AsyncClient, ServiceError
from drkernel.serve.protocol import StoreError
from drkernel.serve.service import Writer
from drkernel.serve.store import Store
from places import BENCHMARKS
from service_kit import CountingPool, body, make_request, make_verdict


@pytest.fixture
def faults(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import serve_faults

    return serve_faults


@pytest.fixture
def kit(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import serve_fault_kit

    return serve_fault_kit


def test_connections_cut_in_the_middle_lose_and_double_nothing(serving, store, kit):
    pool = CountingPool(delay=0.005)
    server = serving(pool, slots=4)
    port = int(server.url.rpartition(":")[2])

    async def run():
        async with kit.Proxy(0, port, random.Random(3)) as proxy:
            async with AsyncClient(f"http://127.0.0.1:{proxy.port}", retries=40) as client:
                verdicts = await asyncio.gather(*(client.evaluate(make_request(k)) for k in range(60)))
            return verdicts, proxy.cuts

    verdicts, cuts = asyncio.run(asyncio.wait_for(run(), 60))
    assert [v.task_id for v in verdicts] == [make_request(k).task.id for k in range(60)]
    assert cuts["request"] and cuts["response"]
    assert sorted(pool.calls.values()) == [1] * 60
    assert len(store.find(limit=1000)) == 60


def test_a_full_disk_is_a_507_and_passes(serving, store):
    server = serving(CountingPool(), slots=2)
    assert httpx.post(server.url + "/v1/jobs", json=body(1, wait_s=10)).json()["jobs"][0]["state"] == "done"
    with store._lock:
        pages = store._db.execute("PRAGMA page_count").fetchone()[0]
        store._db.execute(f"PRAGMA max_page_count={pages}")
    many = body(*range(100, 400))
    refused = httpx.post(server.url + "/v1/jobs", json=many, timeout=30)
    assert refused.status_code == 507 and "full" in refused.json()["detail"]
    assert refused.headers["retry-after"] == "5"
    ready = httpx.get(server.url + "/ready")
    assert ready.status_code == 503 and "full" in ready.json()["reason"]
    assert store.counts()["state"] == {"done": 1}  # nothing of it was accepted
    with store._lock:
        store._db.execute("PRAGMA max_page_count=1000000")
    answer = httpx.post(server.url + "/v1/jobs", json={**many, "wait_s": 30}, timeout=60)
    assert {job["state"] for job in answer.json()["jobs"]} == {"done"}
    assert httpx.get(server.url + "/ready").status_code == 200


def test_a_locked_store_is_a_503_and_passes(serving, store, kit):
    server = serving(CountingPool(), slots=2)
    with store._lock:
        store._db.execute("PRAGMA busy_timeout=100")
    with kit.locked(store.path):
        refused = httpx.post(server.url + "/v1/jobs", json=body(1), timeout=30)
        assert refused.status_code == 503 and "locked" in refused.json()["detail"]
        assert httpx.get(server.url + "/v1/jobs").json() == {"jobs": []}  # reading goes on
    answer = httpx.post(server.url + "/v1/jobs", json=body(1, wait_s=20), timeout=30)
    assert answer.json()["jobs"][0]["state"] == "done"


def test_a_refused_group_leaves_the_others_alone(tmp_path):
    """Of operations that share a commit only the one that is too large for the disk is refused."""
    with Store(tmp_path / "s.sqlite") as store:
        store._db.execute(f"PRAGMA max_page_count={store._db.execute('PRAGMA page_count').fetchone()[0] + 8}")

        async def run():
            writer = Writer(store)
            gate = threading.Event()
            writer.start()
            held = asyncio.create_task(writer.do(gate.wait))  # so that the following share a group
            await asyncio.sleep(0.05)
            large = [make_request(k) for k in range(300)]
            both = asyncio.gather(
                writer.do(lambda: store.submit(large)),
                writer.do(lambda: store.submit([make_request(999)])),
                writer.do(lambda: 1 / 0),
                return_exceptions=True,
            )
            await asyncio.sleep(0.05)
            gate.set()
            outcome = await both
            await held
            await writer.close()
            with pytest.raises(StoreError, match="stopped"):
                await writer.do(lambda: None)
            return outcome

        large, small, wrong = asyncio.run(run())
        assert isinstance(large, StoreError) and large.full
        assert isinstance(wrong, ZeroDivisionError)
        assert [job.id for job in store.find()] == small


def test_who_waits_for_work_is_served_once_and_in_order(tmp_path):
    with Store(tmp_path / "s.sqlite") as store:

        async def run():
            writer = Writer(store)
            writer.start()

            def waits(name, seconds):
                return writer.wait_for("work", lambda: store.lease(name, 60), seconds)

            first, second = asyncio.create_task(waits("a", 10)), asyncio.create_task(waits("b", 10))
            late = await waits("c", 0.1)
            await writer.do(lambda: store.submit([make_request(1)]))
            job, _ = await first
            assert not second.done()
            writer.let_go()
            assert await second is None
            await writer.close()
            return late, store.heartbeat("a", [job.id], 60) == [job.id]

        assert asyncio.run(asyncio.wait_for(run(), 10)) == (None, True)


def test_numbers_of_finishing_are_never_given_again(store):
    store.submit([make_request(1)])
    for number in (1, 2):
        job, request = store.lease("w", 60)
        store.complete(job.id, "w", make_verdict(request))
        assert store.last_sequence() == number
        assert store.prune(-1) == 1 and store.last_sequence() == number
        store.submit([make_request(number + 1)])


def test_a_client_says_why_it_gave_up(serving, store, kit):
    server = serving(CountingPool(), slots=1)
    with store._lock:
        store._db.execute("PRAGMA busy_timeout=10")

    async def run():
        async with AsyncClient(server.url, retries=0) as client:
            await client.evaluate(make_request(1))

    with kit.locked(store.path), pytest.raises(ServiceError, match=r"503.*locked"):
        asyncio.run(run())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["server", "workers", "network", "disk", "lock"])
def test_a_small_run_of_the_fault_benchmark(faults, name):
    begun = time.monotonic()
    try:
        outcome = asyncio.run(faults.PARTS[name](80, 4, 1))
    except faults.SmallDiskError as error:
        pytest.skip(str(error))
    assert outcome.good, outcome
    assert outcome.evaluations >= 80 and time.monotonic() - begun < 120
    if name in ("disk", "lock"):
        assert outcome.refusals


@pytest.mark.slow
def test_a_ray_node_killed_under_a_service(faults):
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'drkernel[ray]'")
    outcome = asyncio.run(faults.kill_ray_node(60, 1, 1))
    assert outcome.good and "1 nodes" in outcome.faults, outcome
    assert "ray" in sys.modules
