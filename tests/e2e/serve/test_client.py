"""The Python clients: waiting, streaming, timeouts, progress; priorities and draining as a client sees them."""

import asyncio
import io
import sys
import threading

import httpx
import pytest

from drkernel.serve.client import AsyncClient, Client, ServiceError
from drkernel.serve.protocol import StoreError
from drkernel.serve.service import Service
from service_kit import CountingPool, body, make_request, make_verdict
from waiting import until


def test_the_plain_client_does_all_that_the_other_does(serving):
    server = serving(CountingPool(delay=0.01), slots=2)
    with Client(server.url, name="plain") as client:
        jobs = client.submit([make_request(k) for k in range(3)], priority=7)
        assert [(job.client, job.priority) for job in jobs] == [("plain", 7)] * 3
        assert client.get(jobs[2].id, wait_s=10).verdict.status == "correct"
        told = []
        verdicts = client.evaluate_many([make_request(k) for k in range(6)], lambda *at: told.append(at))
        assert [v.task_id for v in verdicts] == [make_request(k).task.id for k in range(6)]
        assert sorted(told) == [(k, 6) for k in range(1, 7)]
        streamed = dict(client.stream([make_request(k) for k in range(10, 15)]))
        assert {k: v.task_id for k, v in streamed.items()} == {k: make_request(10 + k).task.id for k in range(5)}
        assert len(client.find(state="done", limit=50)) == 11
        assert client.find(task="t/3", status="correct", limit=1)[0].task_id == "t/3"
        assert client.cancel(jobs[0].id) is False
        events = client.events(after=0)
        assert [next(events).sequence for _ in range(11)] == list(range(1, 12))
    assert not any(thread.name == "drkernel-client" for thread in threading.enumerate())


def test_a_bar_shows_progress(serving, monkeypatch):
    server = serving(CountingPool(delay=0.05), slots=1)
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Client(server.url) as client:
        client.evaluate_many([make_request(k) for k in range(8)], progress=True)
    assert "evaluating" in shown.getvalue() and "/8" in shown.getvalue()


def test_a_timeout_leaves_the_job_which_is_found_again(serving):
    pool = CountingPool(delay=0.6)
    server = serving(pool)
    with Client(server.url) as client:
        with pytest.raises(TimeoutError):
            client.evaluate(make_request(1), timeout_s=0.1)
        with pytest.raises(TimeoutError):
            client.evaluate_many([make_request(1)], timeout_s=0.1)
        assert client.evaluate(make_request(1), timeout_s=20).status == "correct"
    assert list(pool.calls.values()) == [1]


def test_a_cancelled_job_is_an_error_for_who_waits(serving):
    server = serving(slots=0)
    with Client(server.url) as client, Client(server.url) as other:
        (job,) = client.submit([make_request(1)])
        threading.Timer(0.2, lambda: other.cancel(job.id)).start()
        with pytest.raises(ServiceError, match="cancelled"):
            client.evaluate(make_request(1), timeout_s=20)
        assert other.get(job.id).state == "cancelled"
        (again,) = client.submit([make_request(1)])
        assert again.id != job.id  # a cancelled job answers nothing


def test_backpressure_is_waited_for(serving):
    server = serving(CountingPool(delay=0.05), slots=1, max_queue=2)
    codes = []

    async def run():
        async def note(answer):
            codes.append(answer.status_code)

        async with AsyncClient(server.url) as client:
            client.on_response(note)
            return await asyncio.gather(*(client.evaluate(make_request(k)) for k in range(6)))

    verdicts = asyncio.run(asyncio.wait_for(run(), 40))
    assert [v.status for v in verdicts] == ["correct"] * 6
    assert 429 in codes


def test_draining_finishes_what_runs_and_keeps_what_waits(serving, store):
    server = serving(CountingPool(delay=0.4), slots=1)
    with Client(server.url) as client:
        running, waiting = client.submit([make_request(1), make_request(2)])
        until(lambda: store.get(running.id).state == "leased")
        server.stop()
    assert store.get(running.id).state == "done" and store.get(running.id).attempts == 1
    assert store.get(waiting.id).state == "queued" and store.get(waiting.id).attempts == 0
    again = serving(CountingPool())
    with Client(again.url) as client:
        assert client.get(waiting.id, wait_s=10).verdict.status == "correct"


def test_a_draining_service_refuses_and_says_when(serving):
    server = serving(CountingPool())
    server.service.draining = True
    answer = httpx.post(server.url + "/v1/jobs", json=body(1))
    assert answer.status_code == 503 and answer.headers["retry-after"] == "10"
    assert httpx.get(server.url + "/ready").json()["reason"] == "draining"
    server.service.draining = False


def test_quarantine_is_shown_and_can_be_lifted(serving):
    pool = CountingPool(fail_first=2)
    server = serving(pool, quarantine_after=2, max_attempts=5)
    with Client(server.url) as client:
        (job,) = client.submit([make_request(1)])
        until(lambda: httpx.get(server.url + "/health").json()["quarantined"])
        assert httpx.get(server.url + "/health").json() | {"version": ""} == {
            "status": "ok", "version": "", "workers": 1, "quarantined": 1, "lost": 0,
        }  # fmt: skip
        (worker,) = httpx.get(server.url + "/v1/state").json()["workers"]
        assert httpx.get(server.url + "/ready").status_code == 503
        assert "drkernel_worker_quarantined{" in httpx.get(server.url + "/metrics").text
        release = server.url + "/v1/worker/release"
        assert httpx.post(release, json={"worker": "nobody"}).status_code == 404
        assert httpx.post(release, json={"worker": worker["name"]}).json() == {"released": True}
        assert client.get(job.id, wait_s=20).verdict.status == "correct"


def test_the_last_hour_is_remembered_over_a_restart(serving):
    first = serving(CountingPool())
    with Client(first.url) as client:
        client.evaluate_many([make_request(k) for k in range(5)])
        first.stop()
    second = serving(CountingPool())
    state = httpx.get(second.url + "/v1/state").json()
    assert sum(row[1] for row in state["history"]) == 5
    assert 0 <= state["latency"]["p50"] <= state["latency"]["p95"] < 30


def test_one_service_a_store(store):
    async def run():
        first, second = Service(store, CountingPool(), slots=1), Service(store, CountingPool(), slots=1)
        await first.start()
        with pytest.raises(StoreError, match="another service"):
            await second.start()
        await first.stop(1.0)
        await second.start()
        await second.stop(1.0)

    asyncio.run(run())


def test_a_failing_remote_worker_is_shut_out_and_a_silent_one_forgotten(serving, store):
    server = serving(slots=0, quarantine_after=2, max_attempts=9)
    store.submit([make_request(1)])
    body = {"worker": "bad", "slots": 1, "wait_s": 0}
    with httpx.Client(base_url=server.url) as client:
        for _ in range(2):
            job_id = client.post("/v1/worker/lease", json=body).json()["job_id"]
            verdict = make_verdict(make_request(1), "infra_error", "the driver shut down").model_dump(mode="json")
            report = {"worker": "bad", "job_id": job_id, "verdict": verdict}
            assert client.post("/v1/worker/complete", json=report).json() == {"recorded": True}
        assert client.post("/v1/worker/lease", json=body).status_code == 403
        other = client.post("/v1/worker/lease", json={**body, "worker": "good"}).json()
        assert other["job_id"] == job_id  # the job goes on elsewhere
        assert client.post("/v1/worker/complete", json=report).json() == {"recorded": False}
        beat = client.post("/v1/worker/heartbeat", json={"worker": "good", "jobs": [job_id, "gone"]})
        assert beat.json() == {"held": [job_id]}
    workers = server.service.workers
    assert set(workers) == {"bad", "good"} and workers["bad"].note == "Test: the driver shut down"
    for worker in workers.values():
        worker.seen -= 7200
    server.service._forget_silent()
    assert set(workers) == {"bad"}
