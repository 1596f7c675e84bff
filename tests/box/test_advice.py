"""Advice on candidates: every change is graded, gains within the error are none, and models are told."""

import asyncio

import pytest

from drkernel.episode.episode import Episode, EpisodeConfig
from drkernel.gym.advice import with_advice
from drkernel.gym.pools.local import LocalPool
from drkernel.gym.request import EvalRequest, EvalSettings
from drkernel.sim.cost.confidence import CUSTOM
from drkernel.task import Provenance, Task
from drkernel.verdict import CandidateError, Profile, ProfileRow, Speedup, Timing, Verdict

SOURCE = """
import torch, triton, triton.language as tl
@triton.jit
def k(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, at < n) * 2, at < n)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        y, n = torch.empty_like(x), x.numel()
        BLOCK = 32
        k[(triton.cdiv(n, BLOCK),)](x, y, n, BLOCK=BLOCK)
        return y
"""
TASK = Task(
    id="double",
    reference="import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x * 2\n"
    "def get_inputs():\n    return [torch.randn(2048, 2048)]\ndef get_init_inputs():\n    return []\n",
    provenance=Provenance(source="file"),
)
WHOSE = {"task_id": "double", "candidate_sha256": "0" * 64, "device": "sim:h200"}
LIMIT = 2.718281828 ** -CUSTOM["memory"]


def verdict(seconds):
    if seconds is None:
        error = CandidateError(type="OutOfResources", message="shared memory\nRequired: 300000")
        return Verdict(
            status="runtime_error", task_id="double", candidate_sha256="0" * 64, device="sim:h200", error=error
        )
    row = ProfileRow(name="k", owner="custom", calls=1, seconds=seconds, share=1.0, bound="memory")
    profile = Profile(
        kind="modelled", device="sim:h200", rows=(row,), total_seconds=seconds, elapsed_seconds=seconds
    )  # fmt: skip
    return Verdict(
        status="correct", profile=profile, **WHOSE,
        timing=Timing(kind="modelled", device="sim:h200", seconds=seconds),
        reference_timing=Timing(kind="modelled", device="sim:h200", seconds=1e-3),
        speedup=Speedup(value=1e-3 / seconds, low=0.5, high=2.0, confidence=0.9, kind="modelled"),
    )  # fmt: skip


class Graded:
    """A pool that grades by the text alone."""

    def __init__(self):
        self.seen = []

    async def evaluate(self, request):
        self.seen.append(request)
        text = request.candidate
        if "num_stages" in text:
            return verdict(None)
        if "num_warps=8" in text:
            return verdict(1e-3 * LIMIT * 1.01)  # a gain just within the error
        return verdict(1e-3 * LIMIT * 0.99 if "BLOCK = 64" in text else 1e-3)


def test_only_graded_gains_above_the_error_are_advice_and_the_model_is_told():
    pool = Graded()
    request = EvalRequest(task=TASK, candidate=SOURCE, settings=EvalSettings(checks=3))
    found = asyncio.run(with_advice(pool, request, verdict(1e-3))).advised
    assert [(each.change, each.line, each.compared) for each in found.advice] == [("BLOCK 32 -> 64", 10, True)]
    tried = {each.change: each for each in found.tried}
    assert tried["num_warps 4 -> 8"].after == pytest.approx(1e-3 * LIMIT * 1.01)
    assert tried["num_stages 3 -> 4"].failed == "OutOfResources: Required: 300000"
    assert len(pool.seen) == 6 and all(each.settings.checks == 1 for each in pool.seen)
    assert asyncio.run(with_advice(pool, request, verdict(None))).advised is None

    async def turn(advice):
        episode = Episode(Graded(), EpisodeConfig(advice=advice))
        await episode.reset(TASK)
        return (await episode.step(f"```python\n{SOURCE}```")).turn.feedback

    assert "BLOCK 32 -> 64 (line 10): 1.00 ms -> " in asyncio.run(turn(True))
    assert "num_warps" not in asyncio.run(turn(False))


@pytest.mark.slow
def test_the_real_judge_says_that_larger_blocks_are_faster_and_where_the_time_goes():
    with LocalPool(slots=1) as pool:
        request = EvalRequest(task=TASK, candidate=SOURCE, settings=EvalSettings(lines=True).for_task(TASK))
        graded = pool.submit(request).result()
        found = asyncio.run(with_advice(pool, request, graded)).advised
    assert graded.is_correct and found.advice[0].change == "BLOCK 32 -> 64"
    detail = graded.profile.rows[0].detail
    assert detail.lines[0].file == "candidate.py" and "tl.store" in {line.text[:8] for line in detail.lines}
