"""Rollouts: many multi-turn episodes sampled and graded at the same time.

Trajectories are played in *waves*. While the answers of one wave are graded, the next wave is sampled; within a wave an
answer is handed to the pool the moment it ends. Which trajectories are sampled together depends on the plan alone and
never on how long a grade took, so a run with the same seeds gives the same trajectories, whatever the machine's load.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from drkernel.episode.episode import Observation, StepResult
from drkernel.rl.model.sampler import Conversation, SampledTurn, Sampler
from drkernel.rl.model.tokenizer import ChatTokenizer
from drkernel.rl.run.records import Trajectory, Turn
from drkernel.task import Task


class Environment(Protocol):
    """What a trajectory is played in; :class:`drkernel.episode.episode.Episode` is one."""

    async def reset(self, task: Task, seed: int | None = None) -> Observation: ...
    async def step(self, text: str) -> StepResult: ...


@dataclass(frozen=True)
class Job:
    """One trajectory to play."""

    task: Task
    group: int
    """Index of the task in its batch; equal for the samples that are compared."""
    sample: int
    seed: int
    """Of the sampler's draws."""


@dataclass
class RolloutStats:
    """What a rollout cost."""

    seconds: float = 0.0
    """wall seconds of the whole"""
    waiting: float = 0.0
    """of them, seconds in which nothing was sampled because grades were missing"""
    tokens: int = 0
    """tokens sampled"""
    graded: int = 0
    """answers handed to the environment"""
    grading: float = 0.0
    """sum over answers of the seconds from hand-over to grade"""
    pruned_mass: float = 0.0
    """mean probability mass that cuts of the distribution took away"""


@dataclass
class _Play:
    """A trajectory under way."""

    job: Job
    episode: Environment
    conversation: Conversation
    observation: Observation | None = None
    turns: list[Turn] = field(default_factory=list)
    grading: asyncio.Task[None] | None = None
    last: SampledTurn | None = None


def plan_jobs(tasks: Sequence[Task], samples: int, seed: int) -> list[Job]:
    """``samples`` trajectories of every task, samplers seeded from ``seed``."""
    return [
        Job(task, group, sample, seed * 1_000_003 + group * samples + sample)
        for group, task in enumerate(tasks)
        for sample in range(samples)
    ]


class Rollout:
    """Plays jobs with one sampler; ``make_episode`` gives a fresh environment each time it is called."""

    def __init__(
        self,
        sampler: Sampler,
        tokenizer: ChatTokenizer,
        make_episode: Callable[[], Environment],
        *,
        waves: int = 2,
        judge_seed: int | None = None,
        version: int = 0,
    ):
        self.sampler, self.tokenizer, self.make_episode = sampler, tokenizer, make_episode
        self.waves, self.judge_seed, self.version = waves, judge_seed, version
        self.stats = RolloutStats()

    async def play(self, jobs: Sequence[Job], on_graded: Callable[[Turn], None] | None = None) -> list[Trajectory]:
        """Play every job to its end, in the order of ``jobs``.

        A trajectory whose prompt does not fit the context is left out. An exception in an environment ends the rollout.
        """
        started = time.perf_counter()
        stats = self.stats = RolloutStats()
        before = self.sampler.tokens
        plays = [_Play(job, self.make_episode(), Conversation(job.seed)) for job in jobs]
        for play in plays:
            play.observation = await play.episode.reset(play.job.task, self.judge_seed)
        waves = list(_split(plays, self.waves))
        try:
            active = True
            while active:
                active = False
                for wave in waves:
                    await self._settle(wave)
                    if any(play.observation is not None for play in wave):
                        await self._sample(wave, on_graded)
                        active = True
        finally:
            for play in plays:
                play.conversation.forget()
                if play.grading is not None:
                    play.grading.cancel()
        stats.seconds = time.perf_counter() - started
        stats.tokens = self.sampler.tokens - before
        stats.pruned_mass /= max(1, stats.graded)
        return [self._trajectory(play) for play in plays if play.turns]

    async def _settle(self, wave: Sequence[_Play]) -> None:
        """Wait until every answer of the wave is graded."""
        pending = [play.grading for play in wave if play.grading is not None]
        if not pending:
            return
        started = time.perf_counter()
        await asyncio.gather(*pending)
        self.stats.waiting += time.perf_counter() - started
        for play in wave:
            play.grading = None

    async def _sample(self, wave: Sequence[_Play], on_graded: Callable[[Turn], None] | None) -> None:
        """Sample the next turn of every unfinished trajectory of the wave and hand answers over as they end."""
        live = [play for play in wave if play.observation is not None]
        contexts = [self._context(play) for play in live]
        async for index, sampled in self.sampler.stream([play.conversation for play in live], contexts):
            play = live[index]
            observation, play.observation, play.last = play.observation, None, sampled
            if not sampled.token_ids:
                continue  # no room left in the context: the trajectory ends without this turn
            assert observation is not None
            grade = self._grade(play, observation, tuple(contexts[index]), sampled, on_graded)
            play.grading = asyncio.create_task(grade)

    def _context(self, play: _Play) -> list[int]:
        """Ids to append before the next turn: the prompt, or what follows the last answer."""
        assert play.observation is not None
        if play.last is None:
            return self.tokenizer.prompt_ids(play.observation.text)
        return self.tokenizer.feedback_ids(play.observation.text, ended=play.last.stop == "end")

    async def _grade(
        self,
        play: _Play,
        observation: Observation,
        context: tuple[int, ...],
        sampled: SampledTurn,
        on_graded: Callable[[Turn], None] | None,
    ) -> None:
        """Send one answer to the environment and record what came back."""
        text = self.tokenizer.decode(sampled.token_ids)
        started = time.perf_counter()
        result = await play.episode.step(text)
        self.stats.grading += time.perf_counter() - started
        self.stats.graded += 1
        self.stats.pruned_mass += sampled.pruned_mass
        turn = make_turn(len(play.turns), observation.text, context, sampled, text, result)
        play.turns.append(turn)
        play.observation = None if result.done else result.observation
        if play.observation is None:
            play.conversation.forget()
        if on_graded is not None:
            on_graded(turn)

    def _trajectory(self, play: _Play) -> Trajectory:
        job = play.job
        return Trajectory(
            task_id=job.task.id,
            family=job.task.family,
            group=job.group,
            sample=job.sample,
            seed=job.seed,
            turns=tuple(play.turns),
            version=self.version,
        )


def make_turn(
    index: int, prompt: str, context: tuple[int, ...], sampled: SampledTurn, text: str, result: StepResult
) -> Turn:
    """The record of a sampled and graded turn."""
    verdict, breakdown = result.verdict, result.breakdown
    parts = {name: getattr(breakdown, name) for name in ("correctness", "speedup", "coverage", "penalty")}
    error = verdict.error
    return Turn(
        index=index,
        context_ids=context,
        token_ids=sampled.token_ids,
        logprobs=sampled.logprobs,
        stop=sampled.stop,
        text=text,
        prompt=prompt,
        reward=result.reward,
        parts=parts,
        status=verdict.status,
        speedup=None if verdict.speedup is None else verdict.speedup.value,
        coverage=verdict.coverage,
        launch_coverage=None if verdict.profile is None else verdict.profile.launch_coverage,
        findings=tuple(finding.kind for finding in verdict.findings),
        error=None if error is None else f"{error.type}: {(error.message.splitlines() or [''])[0]}"[:200],
    )


def _split(plays: Sequence[_Play], parts: int) -> Iterator[Sequence[_Play]]:
    """At most ``parts`` runs of about equal size that never divide a group, so that prompts are read once."""
    groups: dict[int, list[_Play]] = {}
    for play in plays:
        groups.setdefault(play.job.group, []).append(play)
    members = list(groups.values())
    count = max(1, min(parts, len(members)))
    for part in range(count):
        chunk = members[part * len(members) // count : (part + 1) * len(members) // count]
        yield [play for group in chunk for play in group]
