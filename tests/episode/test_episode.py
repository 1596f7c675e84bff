"""The multi-turn environment, over a pool whose verdict is a function of the text."""

import asyncio
from typing import Any

import pytest

from drkernel.episode.episode import Episode, EpisodeConfig, task_prompt
from drkernel.gym.request import EvalRequest, EvalSettings
from drkernel.gym.reward import RewardConfig
from drkernel.task import Task
from drkernel.verdict import Finding, Speedup, Verdict

REFERENCE = "import torch\n\nROWS = 4\n\nclass Model(torch.nn.Module):\n    pass\n"
TASK = Task(id="t/one", reference=REFERENCE, profiles={"tiny": {"ROWS": 2}, "full": {"ROWS": 4096}})
ANSWER = "Here:\n```python\nclass ModelNew: SPEED = {speed}\n```\n"


class TextPool:
    """Grades by what the candidate says of itself."""

    def __init__(self) -> None:
        self.requests: list[EvalRequest] = []

    async def evaluate(self, request: EvalRequest) -> Verdict:
        await asyncio.sleep(0)
        self.requests.append(request)
        base: dict[str, Any] = {"task_id": request.task.id, "candidate_sha256": "0" * 64, "device": "sim:h200"}
        if "CHEAT" in request.candidate:
            finding = Finding(kind="no_custom_kernel", severity="cheat", message="No kernel ran.")
            return Verdict(status="hack", findings=(finding,), **base)
        if "BROKEN_GRADER" in request.candidate:
            return Verdict(status="infra_error", **base)
        speed = float(request.candidate.partition("SPEED = ")[2].split()[0])
        return Verdict(
            status="correct", speedup=Speedup(value=speed, low=speed, high=speed, kind="modelled"), coverage=1.0, **base
        )

    def health(self) -> dict[str, Any]:
        return {}

    async def close(self) -> None: ...


async def test_three_turns_with_feedback_between():
    pool = TextPool()
    env = Episode(pool, EpisodeConfig(turns=3))
    first = await env.reset(TASK, seed=5)
    assert first.turn == 1 and "ROWS = 2" in first.text and "ModelNew" in first.text
    one = await env.step(ANSWER.format(speed=1.5))
    assert one.reward == pytest.approx(0.5 + 0.75 + 0.5) and not one.done
    assert one.breakdown.total == one.reward and one.candidate == "class ModelNew: SPEED = 1.5\n"
    assert one.observation is not None and "Correct." in one.observation.text and one.observation.turn == 2
    assert [m["role"] for m in one.observation.messages] == ["user", "assistant", "user"]
    two = await env.step("CHEAT\n```python\n# CHEAT\nclass ModelNew: pass\n```")
    assert two.reward == 0.0 and two.verdict.is_hack
    assert two.observation is not None and "no_custom_kernel" in two.observation.text
    three = await env.step(ANSWER.format(speed=9))
    assert three.done and three.observation is None and three.reward == pytest.approx(0.5 + 1.5 + 0.5)
    assert all(request.settings.seed == 5 for request in pool.requests)


async def test_an_answer_without_code_never_reaches_the_pool():
    pool = TextPool()
    env = Episode(pool, EpisodeConfig(reward=RewardConfig(penalty=-0.2)))
    await env.reset(TASK)
    result = await env.step("I cannot do that.")
    assert result.verdict.status == "compile_error" and result.verdict.error is not None
    assert result.verdict.error.type == "NoCode" and result.reward == -0.2 and result.candidate is None
    assert result.observation is not None and "no ```python code block" in result.observation.text
    assert pool.requests == []


async def test_an_infra_error_ends_the_episode_and_masks_the_turn():
    env = Episode(TextPool())
    await env.reset(TASK)
    result = await env.step("```python\n# BROKEN_GRADER\nclass ModelNew: pass\n```")
    assert result.done and result.reward is None and result.breakdown.masked and result.observation is None


async def test_steps_out_of_order_are_refused():
    env = Episode(TextPool(), EpisodeConfig(turns=1))
    with pytest.raises(RuntimeError, match="reset"):
        await env.step("x")
    await env.reset(TASK)
    assert (await env.step(ANSWER.format(speed=1))).done
    with pytest.raises(RuntimeError, match="over"):
        await env.step("x")
    again = await env.reset(TASK)
    assert again.turn == 1 and len(again.messages) == 1


async def test_a_task_without_the_profile_is_taken_as_it_is():
    pool = TextPool()
    env = Episode(pool)
    bare = TASK.model_copy(update={"profiles": {}})
    first = await env.reset(bare)
    assert "ROWS = 4" in first.text
    await env.step(ANSWER.format(speed=1))
    assert pool.requests[0].settings.profile is None


def test_compact_prompts_are_little_more_than_the_reference():
    text = task_prompt(TASK, EvalSettings(), "compact")
    assert "ROWS = 2" in text and len(text) < len(REFERENCE) + 60


async def test_compact_observations_are_short():
    env = Episode(TextPool(), EpisodeConfig(prompts="compact"))
    await env.reset(TASK)
    result = await env.step(ANSWER.format(speed=2))
    assert result.observation is not None
    assert result.observation.text == "correct 2.00x cover 100%\nImprove ModelNew."


def test_prompts_speak_of_the_declared_precision_and_the_gpu():
    half = TASK.model_copy(update={"precision": "fp16"})
    text = task_prompt(half, EvalSettings(device="sim:h200"), "full")
    assert "fp16" in text and "H200" in text and "sim:" not in text and "$" not in text
