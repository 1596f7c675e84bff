"""A bench against a real endpoint with faults: killed twice, resumed, the same table. Graded by what answers say of
themselves, and as the command itself with the real judge."""

import hashlib
import json
import os
import signal
import subprocess
import time

import pytest

from drkernel.episode.renderer import shown_reference
from drkernel.gym.request import EvalSettings
from drkernel.tasks.loaders import builtin_tasks, save_tasks
from farm import PYTHON
from places import KIT
from solve_endpoint import FAULTS, Endpoint, asked_ids, kept_ids
from solve_fakes import answer
from stts_writer import KERNELS, source

KEY = "sk-this-key-is-nowhere-to-be-found"
CONCURRENCY = 4


def chosen_tasks():
    """The 14 built-in tasks that there are real kernels for, and 6 others."""
    tasks = builtin_tasks()
    known = [task for task in tasks if task.id in KERNELS]
    return known + [task for task in tasks if task.id not in KERNELS][:6]


TASKS = chosen_tasks()


def digest_of(messages, seed):
    return hashlib.sha256(json.dumps([messages, seed]).encode()).hexdigest()


def words_of(messages, seed):
    """A text that depends on the conversation alone, with an id that says which request it answers."""
    digest = digest_of(messages, seed)
    says = ["SPEED = 1.1", "SPEED = 1.4", "SPEED = 2.6", "WRONG", "HACK", "BROKEN"][int(digest[:8], 16) % 6]
    return f"id {digest}\n" + (answer(says) if digest[8] != "0" else "No code today.")


def kernel_of(messages, seed):
    """A real kernel of some rung, a cheat or prose: decided by the conversation and the seed alone."""
    digest = digest_of(messages, seed)
    name = next(name for name, text in REFERENCES.items() if any(text in m["content"] for m in messages[:2]))
    rung = int(digest[:8], 16) % 6
    if name in KERNELS:
        code = source(name, rung) if rung else None
    else:  # a cheat: PyTorch under another name
        code = f"{REFERENCES[name]}\n\n\nclass ModelNew(Model):\n    pass\n" if rung > 3 else None
    return f"id {digest}\n" + ("Let me think." if code is None else f"```python\n{code}```")


def fault_of(digest, attempt):
    """The first request for some answers fails, each in its way; later ones do not."""
    number = int(digest[:8], 16)
    return FAULTS[number % len(FAULTS)] if attempt == 0 and number % 7 == 0 else None


REFERENCES = {task.id: shown_reference(task, EvalSettings(profile="tiny")) for task in TASKS}
"""task id -> the text by which a prompt is told apart"""


def child(endpoint, out):
    """The bench of :mod:`bench_child`, without a judge."""
    return [PYTHON, str(KIT / "bench_child.py"), endpoint.url, str(out)]


def command(endpoint, out):
    save_tasks(TASKS, out.parent / "tasks.jsonl")
    command = [PYTHON, "-m", "drkernel", "bench", "--model", "openai:m", "--base-url", endpoint.url]
    command += ["--tasks", f"jsonl:{out.parent / 'tasks.jsonl'}", "--turns", "3", "--out", str(out)]
    command += ["--sampling.seed", "1", "--judge-seed", "7", "--concurrency", str(CONCURRENCY)]
    command += ["--timeout", "2", "--tries", "20"]
    return [*command, "--checks", "1", "--json"]


def start(command):
    env = {**os.environ, "PYTHONPATH": str(KIT), "OMP_NUM_THREADS": "1", "OPENAI_API_KEY": KEY}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(child):
    out, err = child.communicate(timeout=600)
    assert child.returncode == 0, err
    assert KEY not in out + err


def kill_after(endpoint, child, served):
    deadline = time.monotonic() + 120
    while len(endpoint.served) < served:
        assert time.monotonic() < deadline and child.poll() is None, child.communicate()
        time.sleep(0.005)
    child.send_signal(signal.SIGKILL)
    out, err = child.communicate(timeout=60)  # ends when the last process that holds its output has died
    assert KEY not in out + err


def summary_of(out):
    summary = json.loads((out / "summary.json").read_text())
    return {name: value for name, value in summary.items() if name != "grading_seconds"}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "run, reply_of, delay, stall",
    [(child, words_of, 0.02, 5.0), pytest.param(command, kernel_of, 0.05, 10.0, marks=pytest.mark.slow)],
)
def test_killed_twice_and_resumed_gives_the_table_of_an_uninterrupted_run(tmp_path, run, reply_of, delay, stall):
    key = KEY if run is command else None
    with Endpoint(reply_of, key=key) as endpoint:
        address = endpoint.url
        finish(start(run(endpoint, tmp_path / "whole")))
        assert len(endpoint.served) == 60
    port = int(address.removesuffix("/v1").rpartition(":")[2])  # the address is a term of the run
    with Endpoint(reply_of, fault_of, key=key, delay=delay, stall=stall, port=port) as endpoint:
        cut, paid = tmp_path / "cut", []
        for served in (15, 38):
            kill_after(endpoint, start(run(endpoint, cut)), served)
            paid.append((kept_ids(cut), len(endpoint.bodies)))
        finish(start(run(endpoint, cut)))
        assert sum(endpoint.faults[fault] for fault in FAULTS) > 0
        for kept, before in paid:
            assert len(kept) > 5 and not kept & set(asked_ids(endpoint.bodies[before:]))
        # what was on the wire when the process died can be charged twice, nothing else
        assert len(endpoint.served) <= 60 + 2 * CONCURRENCY
    whole = summary_of(tmp_path / "whole")
    assert summary_of(cut) == whole and whole["answers"] == 60 and whole["incomplete"] == 0
    assert 0 < whole["answers_without_code"] < 20 and whole["best"]["fast_0"]["value"] > 0.2
    assert {"correct", "incorrect", "compile_error", "hack"} <= set(whole["status_all"])
    left = [path for path in tmp_path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert left == []
