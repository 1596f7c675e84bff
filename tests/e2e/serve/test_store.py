"""The durable queue: accepted means on disk, leased once, completed once."""

import contextlib
import sqlite3
import subprocess
import threading

import pytest

import farm
from drkernel.serve.protocol import JobResult, StoreError
from drkernel.serve.store import SCHEMA_VERSION, Store
from drkernel.verdict import Sizes, Speedup
from service_kit import make_request, make_verdict


def test_accepted_jobs_survive_and_come_out_in_order(tmp_path):
    with Store(tmp_path / "s.sqlite") as store:
        ids = store.submit([make_request(k) for k in range(5)])
    with Store(tmp_path / "s.sqlite") as store:
        leased = [store.lease("w", 60) for _ in range(6)]
    assert [pair[0].id for pair in leased[:5]] == ids and leased[5] is None
    assert [pair[1].candidate for pair in leased[:5]] == [make_request(k).candidate for k in range(5)]


def test_equal_requests_are_one_job_unless_asked_anew(store):
    first, again = store.submit([make_request(1), make_request(1)])
    assert first == again
    job, request = store.lease("w", 60)
    assert store.submit([make_request(1)]) == [first]  # while it runs
    assert store.complete(job.id, "w", make_verdict(request))
    assert store.submit([make_request(1)]) == [first]  # and when it is done
    assert store.submit([make_request(1)], fresh=True) != [first]


def test_an_infrastructure_error_is_no_answer_for_an_equal_request(store):
    (first,) = store.submit([make_request(1)])
    job, request = store.lease("w", 60)
    store.complete(job.id, "w", make_verdict(request, "infra_error"))
    assert store.submit([make_request(1)]) != [first]


def test_priority_then_fair_share_then_age(store):
    greedy = store.submit([make_request(k) for k in range(4)], client="greedy")
    modest = store.submit([make_request(10)], client="modest")
    urgent = store.submit([make_request(11)], client="greedy", priority=5)
    order = [store.lease("w", 60)[0].id for _ in range(6)]
    assert order[0] == urgent[0]
    assert order[1] == modest[0]  # greedy already has one running
    assert order[2:] == greedy


def test_only_the_present_holder_completes_and_only_once(store):
    (job_id,) = store.submit([make_request(1)])
    job, request = store.lease("first", 0.0)
    assert store.expire() == 1
    taken, _ = store.lease("second", 60)
    assert taken.id == job_id and taken.attempts == 2
    assert not store.complete(job.id, "first", make_verdict(request, "incorrect"))
    assert store.complete(job.id, "second", make_verdict(request))
    assert not store.complete(job.id, "second", make_verdict(request, "incorrect"))
    assert store.verdict(job_id).status == "correct"
    assert [j.id for j in store.finished_after(0)] == [job_id]


def test_heartbeats_keep_leases(store):
    store.submit([make_request(1), make_request(2)])
    first, _ = store.lease("w", 0.0)
    second, _ = store.lease("w", 0.0)
    assert store.heartbeat("w", [first.id, "unknown"], 60) == [first.id]
    assert store.expire() == 1
    assert store.get(first.id).state == "leased" and store.get(second.id).state == "queued"


def test_concurrent_workers_never_share_a_job(store):
    ids = store.submit([make_request(k) for k in range(60)])
    taken, lock = [], threading.Lock()

    def work(name):
        while (pair := store.lease(name, 60)) is not None:
            with lock:
                taken.append(pair[0].id)
            assert store.complete(pair[0].id, name, make_verdict(pair[1]))

    threads = [threading.Thread(target=work, args=(f"w{k}",)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == sorted(ids)
    assert sorted(job.sequence for job in store.find(state="done", limit=100)) == list(range(1, 61))


def test_cancel_find_prune(store):
    first, second = store.submit([make_request(1), make_request(2)])
    assert store.cancel(second) and not store.cancel(second)
    job, request = store.lease("w", 60)
    assert not store.cancel(job.id)
    store.complete(job.id, "w", make_verdict(request, "hack"))
    assert [j.id for j in store.find(status="hack")] == [first]
    assert [j.id for j in store.find(task="t/1", state="done")] == [first]
    assert store.find(task="%") == []
    assert store.prune(3600) == 0 and store.prune(-1) == 2
    assert store.counts() == {"state": {}, "status": {}}


def test_what_is_no_store_is_refused_clearly(tmp_path):
    (tmp_path / "broken.sqlite").write_text("this is no database, but long enough to be looked at " * 20)
    with pytest.raises(StoreError, match="cannot open"):
        Store(tmp_path / "broken.sqlite")


def test_a_list_says_how_fast_and_at_which_sizes(store):
    (job_id,) = store.submit([make_request(1)], client="a")
    store.lease("w", 60)
    fast = make_verdict(make_request(1)).model_copy(
        update={
            "speedup": Speedup(value=1.5, low=1.2, high=1.9, kind="modelled"),
            "checked_at": Sizes(changed={"N": (4096, 16)}, inputs=("x float32[16, 8]",)),
            "timed_at": Sizes(inputs=("x float32[4096, 8]",)),
        }
    )
    assert store.complete(job_id, "w", fast)
    found = store.find()[0].result
    assert (found.speedup, found.timing_kind) == (1.5, "modelled")
    assert (found.checked_at, found.timed_at) == ("x float32[16, 8]", "x float32[4096, 8]")
    assert JobResult.of(make_verdict(make_request(1), "incorrect")).speedup is None


def test_a_store_of_another_version_is_refused_by_name_and_left_alone(tmp_path):
    path = tmp_path / "s.sqlite"
    Store(path).close()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE meta SET version = 99")
        db.commit()
        before = list(db.iterdump())
    with pytest.raises(StoreError, match=f"version 99; this program reads {SCHEMA_VERSION}"):
        Store(path)
    command = [farm.PYTHON, "-m", "drkernel", "store", "export", str(path), str(tmp_path / "out.jsonl")]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 2 and "version 99" in refused.stderr and "Traceback" not in refused.stderr
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert list(db.iterdump()) == before
