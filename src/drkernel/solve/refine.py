"""The refinement loop: ask, grade, tell, ask again. One trajectory of one task, with or without context management.

*Vanilla* keeps every turn in the conversation until its context is full. *Context-managed* (sequential test-time
scaling, arXiv 2602.05885) works in iterations: before each, the conversation is cut to the task and the best ``keep``
earlier turns by reward, in the order they were made; one that would not fit the context is cut before its time.
*Breadth* draws several answers a turn; the best goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from pydantic import Field

from drkernel.config import Config
from drkernel.episode.chat import (
    Call,
    ContextFull,
    Message,
    ModelError,
    Reply,
    Sampling,
    count_tokens,
    without_reasoning,
)
from drkernel.episode.episode import no_code_verdict
from drkernel.episode.meter import BudgetSpent
from drkernel.episode.renderer import Prompts
from drkernel.gym.extract import ExtractError, extract_code
from drkernel.gym.request import EvalRequest, EvalSettings, Pool
from drkernel.gym.reward import RewardConfig, reward
from drkernel.task import Task
from drkernel.verdict import Verdict

End = Literal["turns", "target", "context", "budget", "model_error", "infra_error", "interrupted"]
"""Why a trajectory ended. The first three are the model's own doing: such a trajectory is complete."""
COMPLETE: tuple[End, ...] = ("turns", "target", "context")


class ContextConfig(Config):
    """What of the past stays in the conversation."""

    keep: int | None = Field(
        None, ge=0, description="best earlier turns kept before an iteration; None keeps all turns"
    )
    turns_per_iteration: int = Field(5, ge=1, description="turns between two cuts; only with `keep`")
    max_tokens: int | None = Field(
        None,
        ge=1,
        description="conversation and answer may not exceed this: without `keep` the trajectory ends there, with it "
        "the conversation is cut before its time; None asks until the model refuses",
    )


class RefineConfig(Config):
    """The terms of a trajectory."""

    turns: int = Field(3, ge=1)
    breadth: int = Field(1, ge=1, description="answers drawn a turn; the best by reward goes on")
    context: ContextConfig = ContextConfig()
    target: float | None = Field(None, gt=0, description="stop at a correct answer of this speedup")
    settings: EvalSettings = EvalSettings()
    reward: RewardConfig = RewardConfig()
    sampling: Sampling = Sampling()
    infra: Literal["stop", "skip"] = Field(
        "stop", description="a turn that the grader failed ends the trajectory, or is left out of the conversation"
    )


class Attempt(Config):
    """One answer and its grade."""

    task_id: str
    sample: int = Field(ge=0, description="index of the trajectory")
    turn: int = Field(ge=1)
    branch: int = Field(0, ge=0, description="index among the answers of this turn")
    iteration: int = Field(1, ge=1, description="which stretch between two cuts of the conversation")
    shown: tuple[tuple[int, int], ...] = Field((), description="(turn, branch) of the earlier attempts it was shown")
    reply: Reply
    code: str | None = Field(None, description="the source that was graded; None when the answer held none")
    verdict: Verdict
    reward: float | None = Field(description="None: the grader failed, which says nothing about the answer")
    feedback: str = Field("", description="what the model was or would be told")

    @property
    def position(self) -> tuple[int, int]:
        """(turn, branch)."""
        return self.turn, self.branch

    @property
    def speedup(self) -> float | None:
        """Of a correct answer; None otherwise, or when it was not timed."""
        found = self.verdict.speedup
        return found.value if self.verdict.is_correct and found is not None else None

    @property
    def rank(self) -> tuple[float, float]:
        """Larger is better: by reward, then by speedup."""
        return (float("-inf") if self.reward is None else self.reward, self.speedup or 0.0)


class Trajectory(Config):
    """All attempts of one trajectory and why it ended."""

    task_id: str
    sample: int
    attempts: tuple[Attempt, ...]
    end: End
    detail: str = Field("", description="what the model, the budget or the grader said")


class Answers(Protocol):
    """What the loop needs of a model: :class:`drkernel.episode.meter.Meter`, or a bare client."""

    async def complete(self, call: Call) -> Reply: ...


def best_of(attempts: Sequence[Attempt]) -> Attempt | None:
    """The fastest correct attempt (an untimed one counts as 0), the earliest of equals; None when none is correct."""
    correct = [attempt for attempt in attempts if attempt.verdict.is_correct]
    return max(correct, key=lambda attempt: attempt.speedup or 0.0) if correct else None


def kept_turns(attempts: Sequence[Attempt], keep: int) -> list[Attempt]:
    """The best ``keep`` graded attempts by reward (the later of equals), in the order they were made."""
    graded = [attempt for attempt in attempts if attempt.reward is not None]
    best = sorted(graded, key=lambda attempt: (attempt.rank, attempt.position), reverse=True)[:keep]
    return sorted(best, key=lambda attempt: attempt.position)


class Refinement:
    """One trajectory. ``done``: attempts of an earlier process, taken up in order instead of being made again."""

    def __init__(
        self,
        task: Task,
        model: Answers,
        pool: Pool,
        prompts: Prompts,
        config: RefineConfig = RefineConfig(),
        *,
        sample: int = 0,
        done: Sequence[Attempt] = (),
        on_attempt: Callable[[Attempt], None] | None = None,
    ):
        self.task, self.model, self.pool, self.prompts, self.config = task, model, pool, prompts, config
        self.sample = sample
        self.attempts: list[Attempt] = []
        """Every attempt so far; whole also when :meth:`run` is cancelled."""
        self._done = {attempt.position: attempt for attempt in done}
        self._on_attempt = on_attempt
        self._shown: list[Attempt] = []
        self._iteration, self._since_cut = 1, 0
        self._opening = prompts.opening(task, config.settings)
        settings = config.settings
        unsized = settings.profile is not None and settings.profile not in task.profiles
        self._settings = settings.model_copy(update={"profile": None}) if unsized else settings

    async def run(self) -> Trajectory:
        """Play to the end. What goes wrong is in the trajectory's ``end``; only cancellation comes through."""
        try:
            for turn in range(1, self.config.turns + 1):
                end = await self._turn(turn)
                if end is not None:
                    return self._trajectory(end)
        except ContextFull as error:
            return self._trajectory("context", str(error))
        except BudgetSpent as error:
            return self._trajectory("budget", str(error))
        except ModelError as error:
            return self._trajectory("model_error", str(error))
        return self._trajectory("turns")

    async def _turn(self, turn: int) -> End | None:
        """One turn; why the trajectory ends with it, if it does."""
        self._choose_shown(turn)
        while True:
            try:
                made = await self._branches(turn, tuple(self.conversation()))
                break
            except ContextFull:
                if not self._drop_one():
                    raise
        graded = [attempt for attempt in made if attempt.reward is not None]
        if not graded:
            return "infra_error" if self.config.infra == "stop" else None
        self._shown.append(max(graded, key=lambda attempt: attempt.rank))
        target = self.config.target
        if target is not None and any((attempt.speedup or 0.0) >= target for attempt in graded):
            return "target"
        return None

    def conversation(self) -> list[Message]:
        """The messages of the next call."""
        messages = list(self._opening)
        for attempt in self._shown:
            messages.append(Message(role="assistant", content=without_reasoning(attempt.reply.text)))
            messages.append(Message(role="user", content=attempt.feedback))
        return messages

    def _choose_shown(self, turn: int) -> None:
        """Which earlier attempts this turn is shown. Raises :class:`ContextFull` when not even the task fits."""
        context, iteration = self.config.context, self._iteration
        taken_up = self._done.get((turn, 0))
        if taken_up is not None:  # as it was, also where the model itself had refused more
            made = {attempt.position: attempt for attempt in self.attempts}
            self._shown = [made[position] for position in taken_up.shown if position in made]
            iteration = taken_up.iteration
        elif context.keep is not None and self._since_cut >= context.turns_per_iteration:
            self._shown = kept_turns(self.attempts, context.keep)
            iteration += 1
        self._since_cut = 1 if iteration != self._iteration else self._since_cut + 1
        self._iteration = iteration
        while taken_up is None and self._too_long(messages := self.conversation()):
            if not self._drop_one():
                needed = count_tokens(messages) + self.config.sampling.max_tokens
                raise ContextFull(f"about {needed:,} tokens are over the context of {context.max_tokens:,}")

    def _drop_one(self) -> bool:
        """Cut a conversation that is too long before its time, or to one turn less; False when that is not to be."""
        keep = self.config.context.keep
        if keep is None or not self._shown:
            return False
        if self._since_cut > 1:
            self._iteration += 1
            self._since_cut = 1
        self._shown = kept_turns(self.attempts, min(keep, len(self._shown) - 1))
        return True

    def _too_long(self, messages: list[Message]) -> bool:
        limit = self.config.context.max_tokens
        return limit is not None and count_tokens(messages) + self.config.sampling.max_tokens > limit

    async def _branches(self, turn: int, messages: tuple[Message, ...]) -> list[Attempt]:
        """All answers of a turn. One that fails ends the others, after those that came were graded and recorded."""
        shown = tuple(attempt.position for attempt in self._shown)
        jobs = [
            asyncio.ensure_future(self._attempt(turn, branch, shown, messages)) for branch in range(self.config.breadth)
        ]
        try:
            results = await asyncio.gather(*jobs, return_exceptions=True)
        finally:
            for job in jobs:
                job.cancel()
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [result for result in results if isinstance(result, Attempt)]

    async def _attempt(
        self, turn: int, branch: int, shown: tuple[tuple[int, int], ...], messages: tuple[Message, ...]
    ) -> Attempt:
        if (kept := self._done.get((turn, branch))) is not None:
            self.attempts.append(kept)
            return kept
        index = self.sample * self.config.breadth + branch
        call = Call(messages=messages, sampling=self.config.sampling, task_id=self.task.id, sample=index, turn=turn)
        reply = await self.model.complete(call)
        code, verdict = await self._grade(reply)
        attempt = Attempt(
            task_id=self.task.id,
            sample=self.sample,
            turn=turn,
            branch=branch,
            iteration=self._iteration,
            shown=shown,
            reply=reply,
            code=code,
            verdict=verdict,
            reward=reward(verdict, self.config.reward).total,
            feedback=self.prompts.after(verdict, code, turn, self.config.turns),
        )
        self.attempts.append(attempt)
        if self._on_attempt is not None:
            self._on_attempt(attempt)
        return attempt

    async def _grade(self, reply: Reply) -> tuple[str | None, Verdict]:
        try:
            code = extract_code(reply.text)
        except ExtractError as error:
            return None, no_code_verdict(self.task, self._settings, reply.text, str(error))
        request = EvalRequest(task=self.task, candidate=code, settings=self._settings)
        return code, await self.pool.evaluate(request)

    def _trajectory(self, end: End, detail: str = "") -> Trajectory:
        ordered = tuple(sorted(self.attempts, key=lambda attempt: attempt.position))
        return Trajectory(task_id=self.task.id, sample=self.sample, attempts=ordered, end=end, detail=detail)
