"""Slots that share a zygote, and what all of them together may hold of the machine's memory."""

import os
import signal
import textwrap
import time

import pytest

from drkernel.gym.pools.local import LocalPool
from drkernel.gym.request import EvalRequest, EvalSettings
from drkernel.task import Task

pytestmark = pytest.mark.own_zygote


MIB = 1 << 20
REFERENCE = """
import mmap, time, torch
class Model(torch.nn.Module):
    def forward(self, x):
        if not x.is_meta:
            pass
            {reference}
        return x * 2.0
def get_inputs():
    return [torch.randn(512)]
"""
CANDIDATE = """
import mmap, os, time, torch, triton
import triton.language as tl

@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) * 2.0, at < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        {candidate}
        out = torch.empty_like(x)
        double[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out
"""
HOLD = "held = bytearray(b'x') * ({mib} << 20); time.sleep(1)"
SHARED = "held = mmap.mmap(-1, {mib} << 20); held.write(bytes({mib} << 20)); time.sleep(1)"


def request(candidate: str = "pass", reference: str = "pass", tag: str = "") -> EvalRequest:
    task = Task(
        id=f"test/double{tag}", reference=REFERENCE.format(reference=textwrap.indent(reference, " " * 12).strip())
    )
    settings = EvalSettings(profile=None, memory_bytes=3 << 30, deadline_s=40.0)
    source = CANDIDATE.format(candidate=textwrap.indent(candidate, " " * 8).strip())
    return EvalRequest(task=task, candidate=f"{source}# {tag}\n", settings=settings)


@pytest.fixture(scope="module")
def pool():
    with LocalPool(2, memory_bytes=1024 * MIB, attempts=2).warm() as pool:
        yield pool


@pytest.fixture
def room(pool):
    """Lets all slots together grow by so many MiB."""
    usual = pool._watch.most_bytes

    def grant(mib: int) -> None:
        pool._watch.most_bytes = pool._watch._measure()[0] + mib * MIB

    yield grant
    pool._watch.most_bytes = usual


def test_slots_share_a_zygote(pool):
    judges = pool.health()["judges"]
    assert len({judge["pid"] for judge in judges}) == 2
    assert len({judge["zygote_pid"] for judge in judges}) == len({judge["nursery_pid"] for judge in judges}) == 1
    together = [pool.submit(request("time.sleep(0.2)", tag=str(n))) for n in range(4)]
    assert [future.result(300).status for future in together] == ["correct"] * 4
    assert pool.health()["zygotes_started"] == 1


def test_a_judge_that_is_killed_takes_its_own_jobs_along_and_no_others(pool):
    spoilt, other = pool.submit(request("time.sleep(0.5)", tag="a")), pool.submit(request("time.sleep(0.5)", tag="b"))
    time.sleep(0.7)
    os.kill(pool._seats[0].pid, signal.SIGKILL)
    verdicts = [spoilt.result(300), other.result(300)]
    assert {verdict.status for verdict in verdicts} == {"correct"}, verdicts
    assert sorted(verdict.attempts for verdict in verdicts) == [1, 2]


def test_a_zygote_that_is_killed_is_replaced_for_all(pool):
    before = pool.health()
    os.kill(before["judges"][0]["zygote_pid"], signal.SIGKILL)
    together = [pool.submit(request(tag=f"z{n}")) for n in range(2)]
    assert [future.result(300).status for future in together] == ["correct"] * 2
    assert [pool.submit(request(tag=f"y{n}")).result(300).status for n in range(2)] == ["correct"] * 2
    assert pool.health()["zygotes_started"] == before["zygotes_started"] + 1


def test_a_task_that_holds_most_of_what_there_is_for_all_is_too_large(pool, room):
    room(500)
    ended = pool.health()["ended_for_memory"]
    large = pool.submit(request(reference=HOLD.format(mib=800)))
    other = pool.submit(request("time.sleep(0.3)", tag="beside"))
    verdict = large.result(300)
    assert (verdict.status, verdict.attempts) == ("invalid_request", 1), verdict.error
    assert verdict.error.type == "TaskTooLarge" and "all slots together" in verdict.error.message
    assert other.result(300).status == "correct"
    assert pool.health()["ended_for_memory"] == ended + 1
    assert pool.submit(request(tag="after")).result(300).status == "correct"


def test_a_candidate_that_holds_most_of_what_there_is_for_all_is_out_of_memory(pool, room):
    room(500)
    large = pool.submit(request(HOLD.format(mib=1200)))
    other = pool.submit(request("time.sleep(0.3)", tag="beside it"))
    verdict = large.result(300)
    assert (verdict.status, verdict.attempts) == ("out_of_memory", 1), verdict.error
    assert "most of all" in verdict.error.message
    assert other.result(300).status == "correct"


def test_a_judge_beyond_its_budget_is_ended_whatever_kind_of_memory_it_is(pool):
    verdict = pool.submit(request(reference=SHARED.format(mib=1300))).result(300)
    assert (verdict.status, verdict.error.type) == ("invalid_request", "TaskTooLarge"), verdict.error
    assert pool.submit(request(tag="then")).result(300).status == "correct"


def test_memory_that_processes_of_a_candidate_share_counts(pool):
    """In files of its scratch. Without a file it is refused: mapped, filled and dropped, no process would hold it."""
    many = """
files = [open(str(n), "w+b") for n in range(4)]
for file in files: file.truncate(60 << 20)
for _ in range(16):
    if os.fork() == 0: break
held = [mmap.mmap(file.fileno(), 60 << 20) for file in files]
for one in held: one.write(bytes(60 << 20))
time.sleep(20)
"""
    verdict = pool.submit(request(many)).result(300)
    assert verdict.status == "out_of_memory", verdict.error
    verdict = pool.submit(request(SHARED.format(mib=1))).result(300)
    assert (verdict.status, verdict.error.type) == ("runtime_error", "PermissionError"), verdict.error
