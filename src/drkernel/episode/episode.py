"""A multi-turn episode: a task, a model's answers, the judge's verdicts, as an environment to learn in.

``obs = await env.reset(task, seed)``, then ``result = await env.step(text)`` until ``result.done``. The pool that
grades is handed in, so the same episode runs on a laptop, on Ray or against a server.
"""

from __future__ import annotations

import hashlib
from importlib import resources
from string import Template
from typing import Literal

from pydantic import Field

from drkernel.config import Config
from drkernel.gym.device import gpu_name
from drkernel.gym.extract import ExtractError, extract_code
from drkernel.gym.feedback import feedback
from drkernel.gym.request import EvalRequest, EvalSettings, Pool
from drkernel.gym.reward import Reward, RewardConfig, reward
from drkernel.task import Task, sized_reference
from drkernel.verdict import CandidateError, Verdict

PromptSet = Literal["full", "compact"]
FEEDBACK_CHARS: dict[PromptSet, int] = {"full": 3000, "compact": 240}


class EpisodeConfig(Config):
    """The terms of an episode."""

    turns: int = Field(3, ge=1, description="answers that the model may give")
    prompts: PromptSet = Field("full", description="'full' as in METHODS, 'compact' for a small model")
    feedback_chars: int | None = Field(None, ge=40, description="budget of the feedback; None takes the prompt set's")
    settings: EvalSettings = EvalSettings()
    reward: RewardConfig = RewardConfig()


class Observation(Config):
    """What the model reads before a turn."""

    text: str = Field(description="the next user message: the task at first, then feedback")
    turn: int = Field(ge=1, description="turn that the model is asked for, from 1")
    messages: tuple[dict[str, str], ...] = Field(description="the whole conversation so far, as chat messages")


class StepResult(Config):
    """What one answer gave."""

    observation: Observation | None = Field(description="None when the episode is over")
    reward: float | None = Field(description="reward of this turn; None must be masked (infra error)")
    breakdown: Reward
    done: bool
    verdict: Verdict
    candidate: str | None = Field(description="the source that was graded; None when the answer held none")


class Episode:
    """One trajectory's environment. Use one object per trajectory at a time; the pool may be shared."""

    def __init__(self, pool: Pool, config: EpisodeConfig = EpisodeConfig()):
        self.pool = pool
        self.config = config
        self._task: Task | None = None
        self._messages: list[dict[str, str]] = []
        self._turn = 0
        self._done = True
        self._settings = config.settings

    async def reset(self, task: Task, seed: int | None = None) -> Observation:
        """Start over with ``task``. ``seed`` makes the judge's draws repeatable; None keeps the settings' own."""
        self._task = task
        self._settings = (
            self.config.settings if seed is None else self.config.settings.model_copy(update={"seed": seed})
        )
        if self._settings.profile is not None and self._settings.profile not in task.profiles:
            self._settings = self._settings.model_copy(update={"profile": None})
        self._turn, self._done = 1, False
        text = task_prompt(task, self._settings, self.config.prompts)
        self._messages = [{"role": "user", "content": text}]
        return Observation(text=text, turn=1, messages=tuple(self._messages))

    async def step(self, text: str) -> StepResult:
        """Grade the model's answer ``text``. Raises ``RuntimeError`` before :meth:`reset` and after the last turn."""
        if self._task is None or self._done:
            raise RuntimeError("the episode is over or was never started: call reset(task, seed) first")
        self._messages.append({"role": "assistant", "content": text})
        source: str | None = None
        try:
            source = extract_code(text)
        except ExtractError as error:
            verdict = no_code_verdict(self._task, self._settings, text, str(error))
        else:
            request = EvalRequest(task=self._task, candidate=source, settings=self._settings)
            verdict = await self.pool.evaluate(request)
        breakdown = reward(verdict, self.config.reward)
        # a grader that broke has nothing true to say to the model: the trajectory ends there and the turn is masked
        self._done = self._turn >= self.config.turns or not verdict.is_of_candidate
        observation = None if self._done else self._next_observation(verdict, source)
        return StepResult(
            observation=observation,
            reward=breakdown.total,
            breakdown=breakdown,
            done=self._done,
            verdict=verdict,
            candidate=source,
        )

    def _next_observation(self, verdict: Verdict, source: str | None) -> Observation:
        text = feedback_prompt(verdict, self.config, self._turn, source)
        self._turn += 1
        self._messages.append({"role": "user", "content": text})
        return Observation(text=text, turn=self._turn, messages=tuple(self._messages))


def task_prompt(task: Task, settings: EvalSettings, prompts: PromptSet) -> str:
    """The first user message of ``task``, its sizes those of the settings' profile."""
    return _template(f"{prompts}_task").substitute(
        reference=sized_reference(task, settings.profile).strip(),
        precision=task.precision,
        device=gpu_name(settings.place),
    )


def feedback_prompt(verdict: Verdict, config: EpisodeConfig, turn: int, source: str | None = None) -> str:
    """The user message after turn ``turn``."""
    budget = config.feedback_chars or FEEDBACK_CHARS[config.prompts]
    body = feedback(verdict, budget, style=config.prompts, source=source)
    return _template(f"{config.prompts}_feedback").substitute(feedback=body, turn=turn, turns=config.turns)


def no_code_verdict(task: Task, settings: EvalSettings, text: str, message: str) -> Verdict:
    """The verdict of an answer without code: it never reaches a runner."""
    return Verdict(
        status="compile_error",
        task_id=task.id,
        candidate_sha256=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
        device=settings.device,
        baseline=settings.baseline,
        error=CandidateError(type="NoCode", message=message),
    )


def _template(name: str) -> Template:
    path = resources.files("drkernel.episode") / "prompts" / f"{name}.txt"
    return Template(path.read_text(encoding="utf-8").rstrip("\n"))
