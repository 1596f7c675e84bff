"""The commands together, as people type them: serve, worker, eval, bench and train with --pool, store."""

import json
import os
import signal
import subprocess
import time

import httpx
import pytest

from commands import invoke
from drkernel.serve.store import Store
from farm import PYTHON
from places import EXAMPLES, RECIPES
from service_kit import make_request, make_verdict
from waiting import until


@pytest.fixture
def filled(tmp_path):
    path = tmp_path / "s.sqlite"
    with Store(path) as store:
        store.submit([make_request(k) for k in range(5)])
        for status in ("correct", "hack", "correct"):
            job, request = store.lease("w", 60)
            store.complete(job.id, "w", make_verdict(request, status))
    return path


def test_a_store_is_shown_exported_and_pruned(filled, tmp_path):
    assert json.loads(invoke("store", "show", str(filled), "--json").stdout) == {
        "state": {"done": 3, "queued": 2}, "status": {"correct": 2, "hack": 1},
    }  # fmt: skip
    lines = tmp_path / "out.jsonl"
    assert "3 jobs" in invoke("store", "export", str(filled), str(lines)).stdout
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [row["status"] for row in rows] == ["correct", "hack", "correct"]
    assert rows[0]["candidate"] == make_request(0).candidate
    assert json.loads(rows[1]["verdict"])["status"] == "hack"
    parquet = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "out.parquet"
    assert "2 jobs" in invoke("store", "export", str(filled), str(out), "--status", "correct").stdout
    table = parquet.read_table(out).to_pylist()
    assert [row["task_id"] for row in table] == [rows[0]["task_id"], rows[2]["task_id"]]
    assert "1 jobs" in invoke("store", "export", str(filled), str(out), "--task", "t/1").stdout
    assert invoke("store", "export", str(filled), "out.csv").exit_code == 2
    assert "0 jobs deleted" in invoke("store", "prune", str(filled), "--days", "1").stdout
    time.sleep(0.01)
    assert "3 jobs deleted" in invoke("store", "prune", str(filled), "--days", "0").stdout
    assert "queued 2" in invoke("store", "show", str(filled)).stdout


def command(*arguments, **options):
    env = {key: value for key, value in os.environ.items() if key != "DRKERNEL_TOKEN"} | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [PYTHON, "-m", "drkernel", *map(str, arguments)], env=env, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, **options,
    )  # fmt: skip


def finish(process, seconds=200):
    out, _ = process.communicate(timeout=seconds)
    return process.returncode, out


@pytest.fixture
def serve(tmp_path):
    started = []

    def start(*arguments):
        process = command("serve", "--port", "0", "--store", tmp_path / "s.sqlite", *arguments)
        started.append(process)
        return process, process.stdout.readline().split()[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_eval_bench_solve_and_a_worker_use_a_service(serve, tmp_path):
    process, url = serve("--slots", "0")
    worker = command("worker", url, "--slots", "1", "--name", "helper", "--takes", "sim")
    try:
        folder, faster = EXAMPLES / "softmax", EXAMPLES / "bias_gelu"
        evaluate = ("eval", faster / "reference.py", faster / "candidate.py", "--pool", url, "--json")
        code, out = finish(command(*evaluate))
        verdict = json.loads(out)
        assert code == 0 and verdict["status"] == "correct" and verdict["speedup"]["value"] > 1
        assert json.loads(finish(command(*evaluate))[1]) == verdict  # the same verdict, not another evaluation
        script = tmp_path / "replies.jsonl"
        script.write_text(json.dumps({"reply": f"```python\n{(folder / 'candidate.py').read_text()}\n```"}) + "\n")
        bench = ("bench", "--model", f"script:{script}", "--tasks", "builtin", "--match", "softmax", "--limit", "1")
        code, out = finish(command(*bench, "--turns", "1", "--out", tmp_path / "run", "--pool", url, "--json"))
        assert code == 0, out
        assert httpx.get(url + "/v1/state").json()["counts"]["state"] == {"done": 2}
        for name, done in (("first", 4), ("second", 5)):  # the attempt is known by then, the verification is not
            solve = ("solve", folder / "reference.py", "--model", f"script:{script}", "--turns", "1", "--json")
            code, out = finish(command(*solve, "--out", tmp_path / name, "--pool", url))
            assert code == 0 and json.loads(out.splitlines()[-1])["verified"], out
            counts = httpx.get(url + "/v1/state").json()
            assert counts["counts"]["state"] == {"done": done}
        (row,) = [w for w in counts["workers"] if w["name"] == "helper"]
        assert row["done"] == 5
        assert finish(command("eval", folder / "reference.py", folder / "candidate.py", "--pool", "nowhere"))[0] == 2
    finally:
        worker.send_signal(signal.SIGTERM)
        code, out = finish(worker, 60)
    assert code == 0 and "5 evaluations done" in out
    process.send_signal(signal.SIGTERM)
    assert finish(process, 60)[0] == 0


@pytest.mark.slow
def test_sigterm_lets_a_running_evaluation_finish(serve, tmp_path):
    process, url = serve("--slots", "1")
    code, out = finish(command("serve", "--port", "0", "--store", tmp_path / "s.sqlite"))
    assert code == 2 and "another service" in out
    folder = EXAMPLES / "matmul_epilogue"
    asking = command("eval", folder / "reference.py", folder / "candidate.py", "--pool", url, "--json")
    until(lambda: httpx.get(url + "/v1/state").json()["counts"]["state"].get("leased"), 90)
    process.send_signal(signal.SIGTERM)
    assert finish(process, 90)[0] == 0
    asking.kill()
    asking.wait()
    with Store(tmp_path / "s.sqlite") as store:
        (job,) = store.find()
        assert job.state == "done" and job.attempts == 1 and job.status == "correct"


@pytest.mark.slow
def test_training_asks_a_service(serve, tmp_path):
    process, url = serve("--slots", "1")
    small = (
        *("coldstart.tasks=6", "copying.tasks=12", "sft.epochs=1", "train_tasks.count=4", "heldout_tasks.count=2"),
        *("rollout.tasks=1", "rollout.samples=2", "rl.steps=1", "evaluation.tasks=1", "evaluation.every=1"),
        *("evaluation.final_tasks=1", "evaluation.final_samples=1", "policy.pocket.layers=1"),
    )
    code, out = finish(command("train", RECIPES / "quickstart.yaml", *small, f"runs={tmp_path}", "--pool", url))
    assert code == 0, out
    counts = httpx.get(url + "/v1/state").json()["counts"]
    assert (
        counts["status"]["correct"] >= 6 and counts["state"]["done"] > 6
    )  # the cold start, then answers of the policy
    process.send_signal(signal.SIGTERM)
    assert finish(process, 60)[0] == 0
