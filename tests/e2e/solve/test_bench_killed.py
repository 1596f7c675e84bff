"""The command itself, the real judge and a real endpoint with faults: killed twice, resumed, the same table."""

import hashlib
import json
import os
import signal
import subprocess
import time

import pytest

from drkernel.tasks.builtin import builtin_tasks
from drkernel.tasks.loaders import save_tasks
from farm import PYTHON
from solve_endpoint import FAULTS, Endpoint, asked_ids, kept_ids
from stts_writer import KERNELS, source

KEY = "sk-this-key-is-nowhere-to-be-found"
CONCURRENCY = 4


def chosen_tasks():
    """The 14 built-in tasks that there are real kernels for, and 6 others."""
    tasks = builtin_tasks()
    known = [task for task in tasks if task.id in KERNELS]
    return known + [task for task in tasks if task.id not in KERNELS][:6]


TASKS = chosen_tasks()


def reply_of(messages, seed):
    """A real kernel of some rung, a cheat or prose: decided by the conversation and the seed alone."""
    digest = hashlib.sha256(json.dumps([messages, seed]).encode()).hexdigest()
    name = next(name for name, text in REFERENCES.items() if text in messages[0]["content"])
    rung = int(digest[:8], 16) % 6
    if name in KERNELS:
        code = source(name, rung) if rung else None
    else:  # a cheat: PyTorch under another name
        code = f"{REFERENCES[name]}\n\n\nclass ModelNew(Model):\n    pass\n" if rung > 3 else None
    return f"id {digest}\n" + ("Let me think." if code is None else f"```python\n{code}```")


def fault_of(digest, attempt):
    number = int(digest[:8], 16)
    return FAULTS[number % len(FAULTS)] if attempt == 0 and number % 7 == 0 else None


def prompts_of(tasks):
    """task id -> the text by which a prompt is told apart."""
    from drkernel.task import sized_reference

    return {task.id: sized_reference(task, "tiny").strip() for task in tasks}


REFERENCES = prompts_of(TASKS)


def start(endpoint, tasks, out):
    command = [PYTHON, "-m", "drkernel", "bench", "--model", "openai:m", "--base-url", endpoint.url]
    command += ["--tasks", f"jsonl:{tasks}", "--turns", "3", "--out", str(out), "--seed", "1", "--judge-seed", "7"]
    command += ["--concurrency", str(CONCURRENCY), "--timeout", "2", "--tries", "20", "--checks", "1", "--json"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENAI_API_KEY": KEY}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(child):
    out, err = child.communicate(timeout=200)
    assert child.returncode == 0, err
    assert KEY not in out + err
    return json.loads(out)


def kill_after(endpoint, child, served):
    deadline = time.monotonic() + 120
    while len(endpoint.served) < served:
        assert time.monotonic() < deadline and child.poll() is None, child.communicate()
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    out, err = child.communicate(timeout=60)  # ends when the last process that holds its output has died
    assert KEY not in out + err


def without_clock(summary):
    return {name: value for name, value in summary.items() if name != "grading_seconds"}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_command_killed_twice_and_resumed_gives_the_table_of_an_uninterrupted_run(tmp_path):
    save_tasks(TASKS, tmp_path / "tasks.jsonl")
    with Endpoint(reply_of, key=KEY) as endpoint:
        address = endpoint.url
        whole = finish(start(endpoint, tmp_path / "tasks.jsonl", tmp_path / "whole"))
        assert len(endpoint.served) == 60
    port = int(address.removesuffix("/v1").rpartition(":")[2])  # the address is a term of the run
    with Endpoint(reply_of, fault_of, key=KEY, delay=0.05, stall=10.0, port=port) as endpoint:
        cut, paid = tmp_path / "cut", []
        for served in (15, 38):
            kill_after(endpoint, start(endpoint, tmp_path / "tasks.jsonl", cut), served)
            paid.append((kept_ids(cut), len(endpoint.bodies)))
        resumed = finish(start(endpoint, tmp_path / "tasks.jsonl", cut))
        assert sum(endpoint.faults[fault] for fault in FAULTS) > 0
        for kept, before in paid:
            assert len(kept) > 5 and not kept & set(asked_ids(endpoint.bodies[before:]))
        # what was on the wire when the process died can be charged twice, nothing else
        assert len(endpoint.served) <= 60 + 2 * CONCURRENCY
    assert without_clock(resumed) == without_clock(whole)
    assert whole["answers"] == 60 and whole["incomplete"] == 0 and whole["best"]["fast_0"]["value"] > 0.2
    assert {"correct", "incorrect", "compile_error", "hack"} <= set(whole["status_all"])
    left = [path for path in tmp_path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert left == []
