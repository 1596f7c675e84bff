"""What can never be evaluated is refused or ends once, is charged to nobody, and takes no worker down."""

import asyncio
import json

import httpx
import pytest

from drkernel.gym.pools.local import LocalPool
from drkernel.serve import pages as examples
from drkernel.serve import worker as worker_module
from drkernel.serve.client import AsyncClient, Client, HttpPool
from drkernel.serve.service import Service
from drkernel.serve.worker import Worker
from service_kit import CountingPool, body, make_request, make_verdict

JSON = {"content-type": "application/json"}


def submit(server, **changes):
    """The status and body of a submission of a good request with other parts."""
    body = make_request(1).model_dump(mode="json")
    for path, value in changes.items():
        part, _, name = path.partition("__")
        body[part] = {**body[part], name: value} if name else value
    return httpx.post(server.url + "/v1/jobs", content=json.dumps({"requests": [body]}), headers=JSON)


WRONG = {
    "unknown device": {"settings__device": "sim:h300"},
    "no device": {"settings__device": "cpu"},
    "missing profile": {"settings__profile": "enormous"},
    "a reference that is not Python": {"task__reference": "class Model(:"},
    "lone surrogate in the candidate": {"candidate": "x = '\ud800'"},
    "lone surrogate in a task's id": {"task__id": "t\udfff"},
    "lone surrogate as a key": {"settings__\ud800": 1},
    "NaN": {"settings__deadline_s": float("nan")},
    "infinity": {"settings__deadline_s": float("inf")},
    "a number beyond everything": {"settings__memory_bytes": 10**40},
    "NUL in the reference": {"task__reference": "class Model: pass\0"},
}
CONTRADICTIONS = ("missing profile", "a reference that is not Python")


@pytest.mark.parametrize("case", WRONG)
def test_what_can_never_be_evaluated_is_refused_at_submission(serving, case):
    server = serving(CountingPool())
    answer = submit(server, **WRONG[case])
    assert answer.status_code == (409 if case in CONTRADICTIONS else 422), answer.text
    assert "valid dictionary" not in answer.text and answer.json()["detail"]  # the value is what was wrong
    assert server.service.store.counts()["state"] == {}
    assert httpx.get(server.url + "/ready").status_code == 200


def test_bad_values_on_other_routes_are_refused(serving):
    server = serving(CountingPool())
    with httpx.Client(base_url=server.url) as client:
        assert client.get("/v1/events", params={"after": 10**30}).status_code == 422
        for route, body in {
            "/v1/worker/lease": {"worker": "w\ud800"},
            "/v1/worker/heartbeat": {"worker": "w", "jobs": ["\ud800"]},
            "/v1/worker/release": {"worker": "\ud800"},
            "/v1/worker/complete": {"worker": "w", "job_id": "1", "verdict": {"status": "\ud800"}},
            "/evaluate": {"task_id": "\ud800", "reference_code": "x" * 20, "kernel_code": "y" * 20},
        }.items():
            answer = client.post(route, content=json.dumps(body), headers=JSON)
            assert answer.status_code == 422 and answer.json()["detail"], (route, answer.text)


def test_a_client_does_not_send_what_no_file_can_hold(serving):
    server = serving(CountingPool())
    request = make_request(1).model_copy(update={"candidate": "x = '\ud800'"})

    async def ask():
        pool = HttpPool(server.url)
        try:
            return await pool.evaluate(request)
        finally:
            await pool.close()

    verdict = asyncio.run(ask())
    assert verdict.status == "compile_error" and "surrogates" in verdict.error.message
    assert server.service.store.counts()["state"] == {}


class RefusingPool(CountingPool):
    """Every request is found to be impossible, as one is whose reference raises when it is run."""

    async def evaluate(self, request):
        await super().evaluate(request)
        return make_verdict(request, "invalid_request", "the reference does not load")


def test_impossible_requests_are_tried_once_and_charged_to_nobody(serving):
    pool = RefusingPool()
    server = serving(pool, quarantine_after=2)
    with Client(server.url) as client:
        verdicts = client.evaluate_many([make_request(k) for k in range(8)])
    assert [verdict.status for verdict in verdicts] == ["invalid_request"] * 8
    assert set(pool.calls.values()) == {1}
    (worker,) = httpx.get(server.url + "/v1/state").json()["workers"]
    assert not worker["quarantined"] and worker["in_a_row"] == worker["failed"] == 0
    assert httpx.get(server.url + "/ready").status_code == 200


class TriesThree(CountingPool):
    """A pool that has tried three times by itself."""

    async def evaluate(self, request):
        return (await super().evaluate(request)).model_copy(update={"attempts": 3})


@pytest.mark.parametrize(("kind", "calls"), [(TriesThree, 1), (CountingPool, 3)])
def test_attempts_are_three_in_all_however_pools_are_stacked(serving, kind, calls):
    pool = kind(fail_first=99)
    verdict = Client(serving(pool).url).evaluate(make_request(1))
    assert (verdict.status, verdict.attempts, sum(pool.calls.values())) == ("infra_error", 3, calls)


def test_a_job_that_lost_its_worker_three_times_is_given_up_when_a_service_starts(serving, store):
    (poison,) = store.submit([make_request(1)])
    for _ in range(3):  # three services were killed with it
        assert store.lease("local-1-gone", 60) is not None
        store.expire("local-")
    (fine,) = store.submit([make_request(2)])
    pool = CountingPool()
    server = serving(pool)
    with Client(server.url) as client:
        assert client.get(fine, wait_s=20).verdict.status == "correct"
        verdict = client.get(poison, wait_s=20).verdict
    assert (verdict.status, verdict.error.type, verdict.attempts) == ("infra_error", "GivenUp", 3)
    assert sum(pool.calls.values()) == 1
    assert store.give_up(3) == []


def test_a_job_that_was_interrupted_by_a_stop_has_lost_no_attempt(store):
    async def stopped_while_it_runs() -> None:
        service = Service(store, CountingPool(delay=60.0), slots=1)
        await service.start()
        (job_id,) = await service.submit([make_request(1)], client="c")
        while store.get(job_id).state != "leased":
            await asyncio.sleep(0.01)
        await service.stop(0.1)
        assert (store.get(job_id).state, store.get(job_id).attempts) == ("queued", 0)

    for _ in range(5):
        asyncio.run(stopped_while_it_runs())


def test_a_stored_request_of_another_version_ends_and_the_next_is_leased(store):
    old, new = store.submit([make_request(1), make_request(2)])
    with store.transaction() as db:
        import zlib

        text = json.dumps({**make_request(1).model_dump(mode="json"), "from_the_future": 1})
        db.execute("UPDATE jobs SET request = ? WHERE id = ?", (zlib.compress(text.encode()), old))
    job, _ = store.lease("w", 60)
    assert job.id == new and store.verdict(old).status == "invalid_request"


def test_workers_take_jobs_of_their_kinds_and_of_those_that_nobody_has_it_is_said_that_they_wait(serving, store):
    server = serving(slots=0)
    with httpx.Client(base_url=server.url) as client:

        def leased(worker, **kinds):
            body = {"worker": worker, "slots": 1, "wait_s": 0, **kinds}
            return client.post("/v1/worker/lease", json=body).json()["job_id"]

        assert leased("cpu", kinds=["sim"]) is None
        (cuda,) = client.post("/v1/jobs", json=body(1, device="cuda:0")).json()["jobs"]
        assert "kind cuda: no worker offers them" in client.get("/v1/state").json()["trouble"]
        (sim,) = store.submit([make_request(2)])
        assert [leased("cpu", kinds=["sim"]) for _ in range(2)] == [sim, None]
        assert leased("gpu", kinds=["cuda"]) == cuda["id"] and client.get("/v1/state").json()["trouble"] is None
        (any_of,) = store.submit([make_request(3, device="cuda:0")])
        assert leased("either") == any_of


def test_a_quarantined_remote_worker_waits_to_be_released(serving, monkeypatch):
    monkeypatch.setattr(worker_module, "QUARANTINE_S", 0.05)
    server = serving(slots=0, quarantine_after=2, max_attempts=2)

    async def work() -> int:
        async with AsyncClient(server.url) as client:
            worker = Worker(client, CountingPool(fail_first=1), slots=1, name="remote-1")
            running = asyncio.create_task(worker.run())
            with Client(server.url) as asking:
                assert (await asyncio.to_thread(asking.evaluate, make_request(1))).status == "correct"
                server.service.workers["remote-1"].quarantined = True
                await asyncio.sleep(0.4)
                assert not running.done(), "it has not left"
                (job,) = await asyncio.to_thread(asking.submit, [make_request(3)])
                answer = await asyncio.to_thread(
                    httpx.post, server.url + "/v1/worker/release", json={"worker": "remote-1"}
                )
                assert answer.json() == {"released": True}
                assert (await asyncio.to_thread(asking.get, job.id, 20)).status == "correct"
            worker.stop()
            await asyncio.wait_for(running, 20)
            return worker.done

    assert asyncio.run(work()) == 4  # each job failed once before


def test_the_documents_own_examples_are_graded_as_correct(serving):
    """With the real judge: an example that quarantined its reader's worker would be a poor one."""
    pool = LocalPool(1, attempts=1)
    server = serving(pool)
    with httpx.Client(base_url=server.url, timeout=300) as client:
        shown = client.get("/openapi.json").json()["paths"]
        for route in ("/v1/jobs", "/evaluate"):
            described = shown[route]["post"]["requestBody"]["content"]["application/json"]["examples"]
            for example in described.values():
                body = example["value"] | ({"wait_s": 250} if route == "/v1/jobs" else {})
                answer = client.post(route, json=body)
                assert answer.status_code == 200, answer.text
                told = answer.json()
                verdict = told["jobs"][0]["verdict"] if "jobs" in told else told["metadata"]
                assert verdict.get("status", verdict.get("drkernel_status")) == "correct", told
    assert examples.REQUEST.settings.profile == "tiny"
