"""The conversation with the judge as an environment: task, answers, verdicts, rewards and feedback.

Call ``observation = await episode.reset(task, seed)``, then ``result = await episode.step(answer)`` until
``result.done``. The grading pool is passed in, so the same episode runs on a laptop, on Ray or against a server.
Training, search, cold start, bench and the adapters all use it; :func:`drkernel.episode.episode.play` is the loop that
adds a model.

:meth:`Episode.fork` returns a second conversation that shares the turns so far and continues independently. Trees of
conversations are built this way.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from pydantic import Field

from drkernel.config import Config, ConfigError
from drkernel.episode.context import Past, make_policy
from drkernel.episode.records import (
    Answerer,
    BudgetSpent,
    ContextFull,
    End,
    Finished,
    Message,
    ModelCall,
    ModelError,
    Reply,
    Sampling,
    SittingAnswerer,
    Trajectory,
    Turn,
    child_id,
    conversation,
    count_tokens,
)
from drkernel.episode.renderer import Prompts, shown_reference
from drkernel.gym.languages import LANGUAGES, ExtractError, extract_code
from drkernel.gym.request import EvalRequest, EvalSettings, Pool
from drkernel.gym.reward import RewardConfig, check_reward, reward
from drkernel.registry import Method
from drkernel.task import Task
from drkernel.verdict import CandidateError, Verdict

PARTS = ("correctness", "speedup", "coverage", "penalty")
"""The reward's terms."""


class EpisodeConfig(Config):
    """The terms of an episode."""

    turns: int = Field(3, ge=1, description="answers that the model may give")
    prompts: str = Field(
        "full", description="'full', 'compact' for a small model, 'kernelgym', a directory or a file of prompts"
    )
    language: str = Field("triton", description="what kernels are asked for in: triton, cuda, ... (docs/gym.md)")
    feedback_chars: int | None = Field(None, ge=40, description="budget of the feedback; None takes the prompts' own")
    context: Method = Field(
        Method(name="full"), description="which earlier turns stay: full, best, best_window, last or afresh"
    )
    target: float | None = Field(
        None,
        gt=0,
        description="stop at a correct answer of this speedup; in training not with returns that sum at gamma 1",
    )
    infra: Literal["stop", "skip"] = Field(
        "stop", description="a turn that the grader failed ends the episode, or is left out of the conversation"
    )
    settings: EvalSettings = EvalSettings()
    reward: RewardConfig = RewardConfig()

    def texts(self) -> Prompts:
        """Load the prompts. Raises :class:`ConfigError` for prompts or a language that do not exist."""
        return Prompts.load(self.prompts, self.feedback_chars, self.language)

    def check(self) -> None:
        """Raise :class:`ConfigError` for an unknown prompt set, language, context policy or reward, and for a language
        that the simulated GPU cannot run."""
        make_policy(self.context)
        check_reward(self.reward)
        self.texts()
        place = self.settings.place
        if place.simulated and (refusal := LANGUAGES[self.language].refusal(place)) is not None:
            raise ConfigError(f"episode.language {self.language}: {refusal}")


class Observation(Config):
    """The model's input for one turn."""

    text: str = Field(description="the last user message: the task at first, then feedback")
    turn: int = Field(ge=1, description="turn that the model is asked for, from 1")
    messages: tuple[Message, ...] = Field(description="the whole conversation, as the context policy has it")


class StepResult(Config):
    """The outcome of one answer."""

    turn: Turn
    observation: Observation | None = Field(description="what comes next; None when the episode is over")
    end: End | None = Field(description="why the episode is over; None while it is not")

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return self.end is not None

    @property
    def reward(self) -> float | None:
        """The reward of this turn; None when the grader failed, and then to be masked."""
        return self.turn.reward

    @property
    def verdict(self) -> Verdict:
        """The verdict of this turn."""
        return self.turn.verdict


class Episode:
    """One conversation at a time. Conversations that run concurrently need an object each; they may share a pool.

    Raises:
        ConfigError: the config names prompts or a context policy that do not exist.
    """

    def __init__(self, pool: Pool, config: EpisodeConfig = EpisodeConfig(), prompts: Prompts | None = None):
        self.pool, self.config = pool, config
        self.prompts = prompts or config.texts()
        self.policy = make_policy(config.context)
        self.task: Task | None = None
        self.settings = config.settings
        self.known = 0.0
        """the task's best speedup so far, of other conversations"""
        self.opening: list[Message] = []
        self.path: list[Turn] = []
        """Turns so far, in order."""
        self.aside: list[Turn] = []
        """Answers of the same turns that did not go on, see :meth:`set_aside`."""
        self.shown: list[Turn] = []
        """Earlier turns that the conversation holds now."""
        self.iteration = 1
        self.end: End | None = None
        self._branch = 0
        self._children: dict[str | None, int] = {}

    async def reset(self, task: Task, seed: int | None = None, *, known: float = 0.0) -> Observation:
        """Start over with ``task``. ``seed`` makes the judge's draws repeatable; None keeps the settings' seed.

        What is faster than ``known`` and all before it is also compared exactly, if a share of the answers is.
        """
        settings = self.config.settings if seed is None else self.config.settings.model_copy(update={"seed": seed})
        self.task, self.settings, self.known = task, settings.for_task(task), known
        self.opening = self.prompts.opening(task, self.settings)
        self.path, self.aside, self.shown, self.iteration, self.end = [], [], [], 1, None
        self._children = {}
        self._branch = self._reserve(None)
        return self.observation

    async def step(self, answer: str | Reply) -> StepResult:
        """Grade the model's answer. Raises ``RuntimeError`` before :meth:`reset` and after the last turn."""
        task = self._running()
        reply = Reply(text=answer) if isinstance(answer, str) else answer
        code, verdict = await self._grade(task, reply.text)
        earned = reward(verdict, self.config.reward)
        module = shown_reference(task, self.settings)
        turn = Turn(
            id=self.next_id,
            parent=self.path[-1].id if self.path else None,
            iteration=self.iteration,
            shown=tuple(turn.id for turn in self.shown),
            reply=reply,
            code=code,
            verdict=verdict,
            reward=earned.total,
            parts={name: getattr(earned, name) for name in PARTS},
            pr=earned.counted_coverage,
            feedback=self.prompts.after(verdict, code, module, len(self.path) + 1, self.config.turns, earned.total),
        )
        self.take(turn)
        return StepResult(turn=turn, observation=None if self.end else self.observation, end=self.end)

    def take(self, turn: Turn) -> None:
        """Continue from a turn that is already graded, by this process or an earlier one.

        Raises ``RuntimeError`` after the last turn and ``ValueError`` for a turn that does not follow this path.
        """
        self._running()
        if turn.id != self.next_id:
            raise ValueError(f"turn {turn.id} does not follow here; the next one is {self.next_id}")
        self.path.append(turn)
        self._branch = self._reserve(turn.id)
        self.end = self._why_over(turn)
        self._choose()

    def fork(self, after: int | None = None) -> Episode:
        """Return another conversation that shares the first ``after`` turns and continues independently.

        ``after`` None shares all turns, 0 only the task. The fork's next turn is a sibling of the turn that this
        conversation makes, or has made, at that point.

        Raises ``RuntimeError`` before :meth:`reset` and ``ValueError`` when there are fewer turns than ``after``.
        """
        if self.task is None:
            raise RuntimeError("the episode was never started: call reset(task, seed) first")
        if after is not None and not 0 <= after <= len(self.path):
            raise ValueError(f"cannot fork after {after} turns: there are {len(self.path)}")
        twin = Episode(self.pool, self.config, self.prompts)
        twin.task, twin.settings, twin.opening, twin._children = self.task, self.settings, self.opening, self._children
        twin.known, twin.path = self.known, self.path[:after]
        twin.aside = [turn for turn in self.aside if turn.number <= len(twin.path)]
        twin._branch = twin._reserve(twin.path[-1].id if twin.path else None)
        if len(twin.path) == len(self.path):
            twin.shown, twin.iteration, twin.end = list(self.shown), self.iteration, self.end
        else:
            twin._choose()
        return twin

    def set_aside(self, turns: Iterable[Turn]) -> None:
        """Record sibling answers that this conversation did not continue from; the context policy may show them."""
        self.aside += turns
        if self.path:
            self._choose()

    def show(self, turns: Sequence[str], iteration: int) -> None:
        """Show the next turn exactly these earlier turns, by id, as when it was first played."""
        known = {turn.id: turn for turn in (*self.path, *self.aside)}
        self.shown, self.iteration = [known[name] for name in turns if name in known], iteration

    def show_less(self) -> bool:
        """Cut a conversation that exceeds the model's context; False when the policy can leave nothing out."""
        shown = self.policy.less(self.past, self.shown)
        if shown is None:
            return False
        if self.path:  # one that was cut for this very turn already is in a new iteration
            self.iteration = max(self.iteration, self.path[-1].iteration + 1)
        self.shown = list(shown)
        return True

    @property
    def next_id(self) -> str:
        """The id that the next turn will have."""
        return child_id(self.path[-1].id if self.path else None, self._branch)

    @property
    def past(self) -> Past:
        """The turns that the context policy may choose from."""
        return Past(tuple(self.path), tuple(self.aside))

    @property
    def messages(self) -> list[Message]:
        """The conversation that the next turn answers."""
        return conversation(self.opening, self.shown)

    @property
    def observation(self) -> Observation:
        """The model's input for the next turn."""
        messages = self.messages
        return Observation(text=messages[-1].content, turn=len(self.path) + 1, messages=tuple(messages))

    def call(self, sampling: Sampling = Sampling(), sample: int = 0) -> ModelCall:
        """Build the request for the next answer; ``sample`` numbers the trajectories of a task."""
        return ModelCall(
            messages=tuple(self.messages),
            sampling=sampling,
            task_id=self._running().id,
            reference=partial(shown_reference, self._running(), self.settings),
            sample=sample,
            turn=len(self.path) + 1,
            shown=tuple(self.shown),
            turns=self.config.turns,
        )

    def trajectory(self, **facts: object) -> Trajectory:
        """Return the record of the turns played so far; ``facts`` are further fields of :class:`Trajectory`."""
        if self.task is None:
            raise RuntimeError("the episode was never started: call reset(task, seed) first")
        known = {"task_id": self.task.id, "family": self.task.family, "end": self.end or "interrupted"}
        record = {"opening": tuple(self.opening), "turns": tuple(self.path), "aside": tuple(self.aside)}
        return Trajectory.model_validate({**known, **record, **facts})

    def _running(self) -> Task:
        if self.task is None or self.end is not None:
            raise RuntimeError("the episode is over or was never started: call reset(task, seed) first")
        return self.task

    def _reserve(self, parent: str | None) -> int:
        """Reserve the next free branch under a turn; forks share the count."""
        branch = self._children.get(parent, 0)
        self._children[parent] = branch + 1
        return branch

    def _why_over(self, turn: Turn) -> End | None:
        # A grader that failed has no true feedback to give: the turn is masked, and the episode ends here.
        if not turn.valid and self.config.infra == "stop":
            return "infra_error"
        target = self.config.target
        if target is not None and (turn.speedup or 0.0) >= target:
            return "target"
        return "turns" if len(self.path) >= self.config.turns else None

    def _choose(self) -> None:
        """Decide which earlier turns the next turn is shown."""
        past = self.past
        cut = self.policy.cut(past)
        self.shown = past.grown() if cut is None else list(cut)
        self.iteration = (self.path[-1].iteration if self.path else 1) + (cut is not None)

    async def _grade(self, task: Task, text: str) -> tuple[str | None, Verdict]:
        try:
            code = extract_code(text)
        except ExtractError as error:
            return None, no_code_verdict(task, self.settings, text, str(error))
        settings = self.settings
        if 0 < settings.exact < 1:
            best = max(self.known, *(turn.speedup or 0.0 for turn in (*self.path, *self.aside)), 0.0)
            settings = settings.model_copy(update={"exact_above": best})
        request = EvalRequest(task=task, candidate=code, settings=settings)
        return code, await self.pool.evaluate(request)


def no_code_verdict(task: Task, settings: EvalSettings, text: str, message: str) -> Verdict:
    """Return the verdict of an answer without code, which never reaches a runner."""
    return Verdict(
        status="compile_error",
        task_id=task.id,
        candidate_sha256=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
        device=settings.device,
        baseline=settings.baseline,
        error=CandidateError(type="NoCode", message=message),
    )


# ---- The loop that plays an episode: ask the model, grade the answer, give feedback, repeat
#
# With *breadth*, several answers are drawn per turn: the conversation is forked, and continues from the best answer.
# Turns that an earlier process graded are replayed instead of being asked for and graded again.


OnTurn = Callable[[Turn], None]
"""Told of every graded turn, of every branch, before anything else happens."""


async def play(
    episode: Episode,
    answerer: Answerer,
    *,
    sampling: Sampling = Sampling(),
    sample: int = 0,
    breadth: int = 1,
    context_tokens: int | None = None,
    done: Sequence[Turn] = (),
    on_turn: OnTurn | None = None,
) -> Trajectory:
    """Play ``episode``, which must have been reset, to its end.

    ``context_tokens`` bounds conversation plus answer; when it is exceeded, the context policy leaves turns out or ends
    the trajectory. ``done`` holds the turns of an earlier process. Failures of the model, the budget or the grader are
    reported in the trajectory's ``end``; cancellation and exceptions of ``on_turn`` propagate.
    """
    made = {turn.id: turn for turn in done}
    loop = _PlayLoop(episode, answerer, sampling, sample, breadth, context_tokens, made, on_turn)
    end, detail = None, ""
    try:
        while (end := loop.end) is None:
            await loop.turn()
    except ContextFull as error:
        end, detail = "context", str(error)
    except BudgetSpent as error:
        end, detail = "budget", str(error)
    except Finished as error:
        end, detail = "answered", str(error)
    except ModelError as error:
        end, detail = "model_error", str(error)
    finally:
        if isinstance(answerer, SittingAnswerer) and episode.task is not None:
            await answerer.leave(episode.task.id, sample)
    return loop.episode.trajectory(sample=sample, end=end, detail=detail)


@dataclass
class _PlayLoop:
    """The state of one trajectory while it is played."""

    episode: Episode
    answerer: Answerer
    sampling: Sampling
    sample: int
    breadth: int
    context_tokens: int | None
    done: Mapping[str, Turn]
    on_turn: OnTurn | None
    end: End | None = None

    async def turn(self) -> None:
        """Play one turn: ask and grade every branch, then continue from the best."""
        before = self.episode
        number = len(before.path) + 1
        branches = [before, *(before.fork() for _ in range(self.breadth - 1))]
        kept = next((turn for branch in branches if (turn := self.done.get(branch.next_id)) is not None), None)
        if kept is None:
            self._fit(before)
            shown, iteration = tuple(turn.id for turn in before.shown), before.iteration
        else:  # what was made before is shown what it was shown then, also where the model had refused more
            shown, iteration = kept.shown, kept.iteration
        for branch in branches:
            branch.show(shown, iteration)
        while waiting := [(index, branch) for index, branch in enumerate(branches) if len(branch.path) < number]:
            try:
                await self._ask(waiting)
            except ContextFull:
                if not all([branch.show_less() for _, branch in waiting if len(branch.path) < number]):
                    raise
        # of equals the first goes on; an answer without a grade only where there is no other
        best = max(branches, key=lambda branch: branch.path[-1].rank)
        best.set_aside(branch.path[-1] for branch in branches if branch is not best)
        self.episode = best
        self.end = "target" if any(branch.end == "target" for branch in branches) else best.end

    def _fit(self, episode: Episode) -> None:
        """Leave out turns until the conversation fits. Raises :class:`ContextFull` when the policy allows no more."""
        while self.context_tokens is not None:
            needed = count_tokens(episode.messages) + self.sampling.max_tokens
            if needed <= self.context_tokens:
                return
            if not episode.show_less():
                raise ContextFull(f"about {needed:,} tokens are over the context of {self.context_tokens:,}")

    async def _ask(self, branches: Sequence[tuple[int, Episode]]) -> None:
        """Request an answer for each branch. After a failure, grade and report the answers that arrived, then raise
        it."""
        jobs = [asyncio.ensure_future(self._answer(index, branch)) for index, branch in branches]
        try:
            results = await asyncio.gather(*jobs, return_exceptions=True)
        finally:
            for job in jobs:
                job.cancel()
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _answer(self, index: int, branch: Episode) -> None:
        if (kept := self.done.get(branch.next_id)) is not None:
            branch.take(kept)
            return
        reply = await self.answerer.complete(branch.call(self.sampling, self.sample * self.breadth + index))
        result = await branch.step(reply)
        if self.on_turn is not None:
            self.on_turn(result.turn)
