"""The service over HTTP: idempotent, fair, guarded, resumable; workers that die lose nothing."""

import asyncio
import threading

import httpx
import pytest

from drkernel.serve.client import AsyncClient, Client, HttpPool, ServiceError
from drkernel.serve.guard import GuardError, check_binding
from drkernel.serve.worker import Worker
from service_kit import REFERENCE, CountingPool, body, make_request
from waiting import until

TOKEN = "a-token-long-enough-for-tests"


def test_submit_wait_get_and_list(serving):
    server = serving()
    answer = httpx.post(server.url + "/v1/jobs", json=body(1, 2, 1, wait_s=20)).json()["jobs"]
    assert [job["state"] for job in answer] == ["done"] * 3 and answer[0]["id"] == answer[2]["id"]
    assert answer[0]["verdict"]["status"] == "correct"
    assert httpx.get(f"{server.url}/v1/jobs/{answer[1]['id']}").json()["verdict"]["task_id"] == "t/2"
    assert len(httpx.get(server.url + "/v1/jobs", params={"status": "correct"}).json()["jobs"]) == 2
    assert httpx.get(server.url + "/v1/jobs/0123").status_code == 404
    for wrong in ({"state": "blah"}, {"status": "blah"}):
        refused = httpx.get(server.url + "/v1/jobs", params=wrong)
        assert (refused.status_code == 422 and "'queued'" in refused.text) or "'correct'" in refused.text
    assert httpx.get(server.url + "/ready").status_code == 200
    assert 'drkernel_verdicts{status="correct"} 2.0' in httpx.get(server.url + "/metrics").text


def test_requests_and_jobs_are_logged_once_polls_and_secrets_never(serving, caplog):
    caplog.set_level("INFO")
    server = serving(token=TOKEN)
    with Client(server.url, token=TOKEN) as client:
        client.evaluate(make_request(1))
    polled = httpx.get(server.url + "/v1/state", headers={"authorization": f"Bearer {TOKEN}"})
    httpx.get(server.url + "/jobs/%0aforged%1b[2J", params={"secret": "s3"})
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("drkernel")]
    (job,) = [line for line in lines if line.startswith("job ")]
    assert " of t/1 for " in job and ": correct" in job and "attempt 1" in job
    assert any(line.startswith("127.0.0.1 POST /v1/jobs 200 ") for line in lines)
    assert any("/jobs/\\nforged\\x1b[2J 401" in line for line in lines)
    assert polled.status_code == 200 and not any("/v1/state" in line for line in lines)
    assert any(line.endswith("0 jobs waiting; 2 evaluations at once here") for line in lines)
    assert not any(TOKEN in line or "s3" in line or "\n" in line for line in lines)


def test_the_least_request_takes_the_defaults_of_the_command_line(serving):
    server = serving()
    for settings in ({}, {"settings": {"device": "sim:a100"}}):
        least = {"task": {"id": "mine", "reference": REFERENCE}, "candidate": "class ModelNew: ...", **settings}
        answer = httpx.post(server.url + "/v1/jobs", json={"requests": [least], "wait_s": 20})
        assert answer.status_code == 200, answer.text
        (job,) = answer.json()["jobs"]
        asked = server.service.store.request(job["id"])
        assert job["status"] == "correct" and asked.settings.profile is None
    least["settings"] = {"profile": "tiny"}
    refused = httpx.post(server.url + "/v1/jobs", json={"requests": [least]})
    assert refused.status_code == 409 and "no size profile 'tiny'" in refused.text
    least["task"]["profiles"] = {"tiny": {}}
    least["settings"] = {}
    (job,) = httpx.post(server.url + "/v1/jobs", json={"requests": [least]}).json()["jobs"]
    assert server.service.store.request(job["id"]).settings.profile == "tiny"


def test_a_thousand_submissions_of_ten_requests_are_ten_evaluations(serving):
    pool = CountingPool(delay=0.01)
    server = serving(pool)

    async def many():
        async with AsyncClient(server.url) as client:
            return await asyncio.gather(*(client.evaluate(make_request(k % 10)) for k in range(200)))

    verdicts = asyncio.run(many())
    assert len(verdicts) == 200 and all(v.status == "correct" for v in verdicts)
    assert sorted(pool.calls.values()) == [1] * 10


def test_infrastructure_errors_are_tried_again(serving):
    pool = CountingPool(fail_first=2)
    server = serving(pool)
    assert Client(server.url).evaluate(make_request(1)).status == "correct"
    assert list(pool.calls.values()) == [3]  # that it ends then: test_refusals.py


def test_events_resume_where_they_stopped(serving):
    server = serving()
    Client(server.url).evaluate_many([make_request(k) for k in range(5)])

    async def read(after, count):
        async with AsyncClient(server.url) as client:
            seen = []
            async for job in client.events(after):
                seen.append(job.sequence)
                if len(seen) == count:
                    return seen

    assert asyncio.run(asyncio.wait_for(read(0, 3), 20)) == [1, 2, 3]
    assert asyncio.run(asyncio.wait_for(read(3, 2), 20)) == [4, 5]


def test_a_wrong_token_is_told_so_and_a_login_lasts(serving):
    server = serving(token=TOKEN)
    with pytest.raises(ServiceError, match="DRKERNEL_TOKEN"):
        Client(server.url).evaluate(make_request(1))
    assert Client(server.url, token=TOKEN).evaluate(make_request(1)).status == "correct"
    with httpx.Client(base_url=server.url) as browser:
        assert browser.post("/login", data={"token": "wrong"}).status_code == 401
        assert browser.post("/login", data={"token": TOKEN}).status_code == 303
        assert browser.get("/v1/state").status_code == 200


def test_listening_beyond_this_machine_needs_a_token():
    for host in ("0.0.0.0", "::", "10.1.2.3", "example.org"):
        with pytest.raises(GuardError, match="DRKERNEL_TOKEN"):
            check_binding(host, None)
        check_binding(host, TOKEN)
    for host in ("127.0.0.1", "::1", "localhost"):
        check_binding(host, None)


def test_bodies_that_are_too_large_malformed_or_too_many(serving):
    server = serving(max_body_mb=20_000 / 2**20, max_queue=3, slots=0)
    url = server.url + "/v1/jobs"
    for text in (b"{", b"[]", b'{"requests": []}', b'{"requests": [1]}', b'{"requests": [{}], "x": 1}', b"\xff\xfe"):
        assert httpx.post(url, content=text, headers={"content-type": "application/json"}).status_code in (400, 422)
    assert httpx.post(url, json=body(1, 2, 3)).status_code == 200
    refused = httpx.post(url, json=body(4))
    assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1


def test_rates_are_bounded_per_client(serving):
    server = serving(rate=0.5)
    codes = [httpx.get(server.url + "/v1/state").status_code for _ in range(10)]
    assert codes[:2] == [200] * 2 and 429 in codes


def test_remote_workers_join_and_a_dead_one_loses_nothing(serving, store):
    server = serving(slots=0, lease_s=1.0)
    ids = store.submit([make_request(k) for k in range(6)])

    async def work(name, seconds, pool):
        async with AsyncClient(server.url) as client:
            worker = Worker(client, pool, slots=2, name=name)
            task = asyncio.create_task(worker.run())
            await asyncio.sleep(seconds)
            if pool.delay > 10:
                task.cancel()  # dies with two jobs in hand
                await asyncio.gather(task, return_exceptions=True)
            else:
                worker.stop()
                await task
            return worker.done

    assert asyncio.run(work("doomed", 1.0, CountingPool(delay=60))) == 0
    assert store.counts()["state"] == {"leased": 2, "queued": 4}
    done = {}
    thread = threading.Thread(target=lambda: done.update(n=asyncio.run(work("able", 3.0, CountingPool()))))
    thread.start()
    until(lambda: store.counts()["state"].get("done") == 6, 20)
    thread.join()
    assert done["n"] == 6 and all(store.get(i).state == "done" for i in ids)


def test_a_pool_over_the_network(serving):
    server = serving()

    async def use():
        pool = HttpPool(server.url)
        try:
            good = await pool.evaluate(make_request(1))
        finally:
            await pool.close()
        lost = HttpPool("http://127.0.0.1:9", client=AsyncClient("http://127.0.0.1:9", retries=1))
        bad = await lost.evaluate(make_request(1))
        await lost.close()
        return good, bad

    good, bad = asyncio.run(use())
    assert good.status == "correct" and bad.status == "infra_error" and "could not be reached" in bad.error.message
