"""A pool whose verdict is a pure function of the text, and runs small enough for tests."""

import asyncio
import hashlib
import json
from pathlib import Path

from drkernel.rl.run.recipe import Recipe
from drkernel.verdict import Verdict
from tiny import POCKET
from verdicts import Judge, speedup_of, verdict_of

LAZY = "```python\nclass ModelNew:\n    kind = 'lazy'\n    cover = 'little'\n```"
FUSED = "```python\nclass ModelNew:\n    kind = 'fused'\n    cover = 'all'\n```"
BROKEN = "```python\nclass ModelNew:\n    kind = 'broken'\n```"


def make_verdict(request, status="correct", speedup=None, coverage=None) -> Verdict:
    ratio = None if speedup is None else speedup_of(speedup)
    digest = hashlib.sha256(request.candidate.encode()).hexdigest()
    return verdict_of(status, task_id=request.task.id, candidate_sha256=digest, speedup=ratio, coverage=coverage)


class FakePool(Judge):
    """'fused' is fast, 'lazy' is right but slow, anything else is wrong; ``broken_every``: infrastructure fails."""

    def __init__(self, delay: float = 0.0, broken_every: int = 0, verdict=None):
        self.delay, self.broken_every, self.calls = delay, broken_every, 0
        self.verdict = verdict

    async def evaluate(self, request):
        self.calls += 1
        call = self.calls
        # longer for some texts than for others: grades come back out of order
        await asyncio.sleep(self.delay * (1 + len(request.candidate) % 3))
        if self.broken_every and call % self.broken_every == 0:
            return make_verdict(request, "infra_error")
        if self.verdict is not None:
            return self.verdict(request)
        if "'fused'" in request.candidate:
            return make_verdict(request, "correct", 2.0, 1.0)
        if "'lazy'" in request.candidate:
            return make_verdict(request, "correct", 1.05, 0.2)
        return make_verdict(request, "incorrect")


def write_rows(path: Path, count: int = 60) -> Path:
    """Conversations whose first answers are lazy, fused or broken in equal parts."""
    from drkernel.episode.episode import EpisodeConfig
    from drkernel.episode.renderer import Prompts
    from drkernel.rl.data.problem import generate_tasks

    prompts, settings = Prompts.load("compact"), EpisodeConfig().settings.model_copy(update={"profile": None})
    with open(path, "w") as file:
        for index, task in enumerate(generate_tasks("train", count, 0)):
            first = (LAZY, FUSED, BROKEN)[index % 3]
            opening = prompts.opening(task, settings)[-1].content
            messages = [
                {"role": "user", "content": opening},
                {"role": "assistant", "content": first},
                {"role": "user", "content": opening.replace("Write ModelNew in Triton.", "Improve ModelNew.")},
                {"role": "assistant", "content": (FUSED, LAZY)[index % 2]},
            ]
            file.write(json.dumps({"messages": messages}) + "\n")
    return path


def tiny_recipe(directory: Path, **changes) -> Recipe:
    data = {
        "name": "tiny",
        "runs": str(directory / "runs"),
        "policy": {"pocket": {**POCKET.model_dump(), "layers": 1}, "tokenizer": {"vocab_size": 512}, "device": "cpu"},
        "train_tasks": {"count": 40},
        "heldout_tasks": {"count": 10, "seed": 1},
        "episode": {"turns": 2, "prompts": "compact"},
        "coldstart_file": str(write_rows(directory / "rows.jsonl")),
        "copying": {"tasks": 8, "kernels": 3, "batch_tokens": 600},
        "sft": {"epochs": 4, "lr": 0.01, "batch_tokens": 300},
        "rollout": {"tasks": 4, "samples": 4, "context": 350, "sampling": {"max_tokens": 40, "rows": 16}},
        "rl": {"steps": 3, "learner": {"lr": 0.003}},
        "evaluation": {"every": 2, "tasks": 5, "final_tasks": 10, "final_samples": 2},
        "checkpoint": {"seconds": 1e9},
        "judge_seed": 0,
        "report": False,
        "threads": 1,
    }
    for key, value in changes.items():
        data[key] = {**data[key], **value} if isinstance(value, dict) and isinstance(data.get(key), dict) else value
    return Recipe.model_validate(data)
