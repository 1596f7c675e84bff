"""Judges in processes of their own: killed, starved of memory, owned by a program that is killed."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

import drkernel.gym.pools.local as local
from drkernel.gym.judge.memory import default_budget, machine_bytes, needed_bytes, require_memory
from drkernel.gym.pools.local import LocalPool
from drkernel.gym.request import EvalRequest, EvalSettings
from drkernel.task import Task, TaskError

CANDIDATE = """
import torch, triton
import triton.language as tl

@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) * 2.0, at < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        double[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out
"""
REFERENCE = """
import os, signal, time, torch
{top}
class Model(torch.nn.Module):
    def forward(self, x):
        {body}
        return x * 2.0

def get_inputs():
    return [torch.randn({size})]

def get_init_inputs():
    return []
"""


def request(body: str = "pass", *, top: str = "", size: str = "512", **settings) -> EvalRequest:
    reference = REFERENCE.format(top=top, body=textwrap.indent(body, " " * 8).strip(), size=size)
    terms = EvalSettings(profile=None, **settings)
    return EvalRequest(task=Task(id="test/double", reference=reference), candidate=CANDIDATE, settings=terms)


def kills_itself(marker, times: int) -> str:
    """A reference that ends its judge by SIGKILL, as the kernel does for want of memory, the first ``times`` calls."""
    return f"""
if not x.is_meta:
    with open({str(marker)!r}, "a") as file:
        file.write("x")
    if os.path.getsize({str(marker)!r}) <= {times}:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def pool():
    with LocalPool(1, memory_bytes=1 << 30) as pool:
        yield pool


def test_a_judge_that_is_killed_costs_one_attempt_of_one_evaluation(pool, tmp_path):
    lost = pool.health()["judges_lost"]
    verdict = pool.submit(request(kills_itself(tmp_path / "calls", 1))).result(300)
    assert (verdict.status, verdict.attempts) == ("correct", 2), verdict.error
    assert pool.health()["judges_lost"] == lost + 1


def test_a_judge_that_is_killed_each_time_is_given_up_and_the_pool_goes_on(pool, tmp_path):
    verdict = pool.submit(request(kills_itself(tmp_path / "calls", 99))).result(300)
    assert (verdict.status, verdict.attempts) == ("infra_error", 3)
    assert "ended by SIGKILL" in verdict.error.message and os.path.getsize(tmp_path / "calls") == 3
    assert pool.submit(request()).result(300).status == "correct"


def test_a_judge_killed_from_outside_while_it_waits_is_replaced(pool):
    assert pool.submit(request("x + 0")).result(300).status == "correct"
    (judge,) = pool.health()["judges"]
    os.kill(judge["pid"], signal.SIGKILL)
    psutil.Process(judge["pid"]).wait(10) if psutil.pid_exists(judge["pid"]) else None
    assert pool.submit(request("x + 1")).result(300).status == "correct"
    assert pool.health()["judges"][0]["pid"] != judge["pid"]


def test_a_task_that_is_too_large_is_refused_before_anything_is_allocated(pool):
    start = time.monotonic()
    verdict = pool.submit(request(size="1 << 32", checked_bytes=1 << 50)).result(300)
    assert (verdict.status, verdict.attempts, verdict.error.type) == ("invalid_request", 1, "TaskTooLarge")
    assert "96.0 GiB" in verdict.error.message and "1.0 GiB" in verdict.error.message
    assert "smaller size profile" in verdict.error.message and time.monotonic() - start < 120


def test_a_task_that_nobody_could_hold_is_checked_at_thin_sizes_and_timed_at_its_own(pool):
    verdict = pool.submit(request(size="1 << 30")).result(300)
    assert verdict.status == "correct" and verdict.speedup is not None, (verdict.error, verdict.findings)
    assert verdict.timed_at.inputs == ("x float32[1073741824]",) and not verdict.timed_at.changed
    assert verdict.checked_at.changed and verdict.untimed is None
    assert verdict.timing.seconds > 2 * (4 << 30) / 4.8e12, "what the bandwidth of the card allows at best"


def test_memory_that_no_estimate_sees_is_an_error_of_that_evaluation_alone(pool):
    assert pool.submit(request("x + 2")).result(300).status == "correct"
    (judge,) = pool.health()["judges"]
    verdict = pool.submit(request("held = None if x.is_meta else torch.ones(1 << 30)")).result(300)
    assert verdict.status == "invalid_request" and "budget of one evaluation is 1.0 GiB" in verdict.error.message
    assert pool.submit(request("x + 3")).result(300).status == "correct"
    assert pool.health()["judges"][0]["pid"] == judge["pid"], "the judge has lived through it"


def test_estimates():
    source = REFERENCE.format(top="", body="pass", size="1024")
    assert needed_bytes(source) == 2 * 1024 * (4 + 8)  # the input and the product, each in fp32 and fp64
    assert needed_bytes("not Python (") == 0  # said when it is loaded
    with pytest.raises(TaskError, match="at least"):
        require_memory(source, 1000)
    assert default_budget() == machine_bytes() // 4 <= psutil.virtual_memory().total // 4


def test_a_judge_keeps_nothing_of_a_large_evaluation(pool):
    assert pool.submit(request(size="3 << 19", checked_bytes=1 << 26)).result(300).status == "correct"
    judge = psutil.Process(pool._seats[0].pid)
    deadline = time.monotonic() + 20  # memory goes back after the answer
    while judge.memory_info().rss > pool._seats[0].idle_bytes + (400 << 20) and time.monotonic() < deadline:
        time.sleep(0.1)
    held = judge.memory_full_info().uss - pool._seats[0].idle_bytes
    assert held < 220 << 20, held >> 20  # 600 MB with the calls' tensors or the allocator's pages


def test_judges_share_the_cores(monkeypatch):
    monkeypatch.setattr(local.os, "cpu_count", lambda: 8)
    pools = [LocalPool(slots) for slots in (1, 4, 16)]
    assert [pool._seats[0]._terms["threads"] for pool in pools] == [8, 2, 1]
    for pool in pools:
        assert pool.health()["judges"] == []  # none is started before there is work
        pool.close_now()


def test_a_judge_has_another_layout_than_runners_and_nothing_is_left_of_a_program_that_is_killed():
    script = """
import sys, time
sys.path[:0] = {paths!r}
from drkernel.gym.pools.local import LocalPool
pool = LocalPool(1).warm()
print(*(pool.health()["judges"][0][name] for name in ("pid", "nursery_pid", "zygote_pid")), flush=True)
time.sleep(600)
"""
    program = subprocess.Popen([sys.executable, "-c", script.format(paths=sys.path)], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    family = [psutil.Process(int(pid)) for pid in program.stdout.readline().split()]
    judge, devices, runners = [
        next(
            line.split("-")[0]
            for line in Path(f"/proc/{one.pid}/maps").read_text().splitlines()
            if "libtorch_cpu" in line
        )
        for one in family
    ]
    assert judge == devices != runners, "the judge is forked where devices are, and not where candidates are"
    program.kill()
    program.wait()
    _, alive = psutil.wait_procs(family, timeout=20)
    assert not [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
