"""Rollouts: many multi-turn episodes, sampled and graded concurrently.

Trajectories are played in *waves*. While the answers of one wave are graded, the next wave is sampled; within a wave,
each answer is sent to the pool the moment it ends. Which trajectories are sampled together depends only on the plan,
never on how long a grade took, so a run with the same seeds gives the same trajectories whatever the machine's load.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from drkernel.episode.episode import Episode
from drkernel.episode.records import End, ModelCall, Reply, Trajectory, Turn
from drkernel.rl.model.sampler import Conversation, SamplerAnswerer
from drkernel.task import Task


@dataclass(frozen=True)
class RolloutJob:
    """One trajectory to play."""

    task: Task
    group: int
    """Index of the task in its batch; equal for samples that are compared with each other."""
    sample: int
    seed: int
    """Seed of the sampler's draws."""
    known: float = dataclasses.field(default=0.0, kw_only=True)
    """The task's best speedup before this batch."""


@dataclass
class RolloutStats:
    """Costs of a rollout."""

    seconds: float = 0.0
    """wall seconds of the whole rollout"""
    waiting: float = 0.0
    """the part of ``seconds`` in which nothing was sampled because grades were missing"""
    tokens: int = 0
    """tokens sampled"""
    graded: int = 0
    """answers sent to the environment"""
    grading: float = 0.0
    """sum over answers of the seconds from submission to grade"""
    pruned_mass: float = 0.0
    """mean probability mass (0..1) removed by truncating the distribution"""

    def __add__(self, other: RolloutStats) -> RolloutStats:
        """The costs of both."""
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        both = RolloutStats(*(mine + theirs for mine, theirs in pairs))
        mass = self.pruned_mass * self.graded + other.pruned_mass * other.graded
        return dataclasses.replace(both, pruned_mass=mass / max(1, both.graded))


@dataclass
class RolloutPlay:
    """The state of a trajectory while it is played."""

    job: RolloutJob
    episode: Episode
    conversation: Conversation
    grading: asyncio.Task[None] | None = None
    full: bool = False
    """No room was left in the context for another answer."""

    @property
    def live(self) -> bool:
        """Whether another turn will be sampled once the last one is graded."""
        return self.episode.end is None and not self.full

    @property
    def end(self) -> End | None:
        """Why it is over, where the episode does not say it."""
        return "context" if self.full else None


def plan_jobs(
    tasks: Sequence[Task], samples: int, seed: int, first: int = 0, known: Mapping[str, float] | None = None
) -> list[RolloutJob]:
    """Plan ``samples`` trajectories of every task, with sampler seeds derived from ``seed``; groups count from
    ``first``. ``known``: the best speedups so far, by task id."""
    best = known or {}
    return [
        RolloutJob(task, group, sample, seed * 1_000_003 + group * samples + sample, known=best.get(task.id, 0.0))
        for group, task in enumerate(tasks, first)
        for sample in range(samples)
    ]


class Rollout:
    """Plays jobs with one model; ``make_episode`` returns a fresh environment on each call."""

    def __init__(
        self,
        answerer: SamplerAnswerer,
        make_episode: Callable[[], Episode],
        *,
        waves: int = 2,
        judge_seed: int | None = None,
        version: int = 0,
    ):
        self.answerer, self.make_episode = answerer, make_episode
        self.waves, self.judge_seed, self.version = waves, judge_seed, version
        self.stats = RolloutStats()

    async def play(
        self, jobs: Sequence[RolloutJob], on_graded: Callable[[Turn], None] | None = None
    ) -> list[Trajectory]:
        """Play every job to its end, in the order of ``jobs``.

        A trajectory whose prompt does not fit the context is left out. An exception in an environment ends the rollout.
        """
        started = time.perf_counter()
        stats = self.stats = RolloutStats()
        before = self.answerer.sampler.tokens
        waves = list(_split([await self._begin(job) for job in jobs], self.waves))
        try:
            active = True
            while active:
                active = False
                for wave in waves:
                    await self._settle(wave)
                    if live := [play for play in wave if play.live]:
                        await self._sample(live, on_graded)
                        active = True
        finally:
            for play in itertools.chain(*waves):
                play.conversation.forget()
                if play.grading is not None:
                    play.grading.cancel()
        stats.seconds = time.perf_counter() - started
        stats.tokens = self.answerer.sampler.tokens - before
        stats.pruned_mass /= max(1, stats.graded)
        return [self._trajectory(play) for play in itertools.chain(*waves) if play.episode.path]

    async def _begin(self, job: RolloutJob) -> RolloutPlay:
        play = RolloutPlay(job, self.make_episode(), Conversation(job.seed))
        await play.episode.reset(job.task, self.judge_seed, known=job.known)
        return play

    async def _settle(self, wave: Sequence[RolloutPlay]) -> None:
        """Wait until every answer of the wave is graded."""
        pending = [play.grading for play in wave if play.grading is not None]
        if not pending:
            return
        started = time.perf_counter()
        await asyncio.gather(*pending)
        self.stats.waiting += time.perf_counter() - started
        for play in wave:
            play.grading = None

    async def _sample(self, live: Sequence[RolloutPlay], on_graded: Callable[[Turn], None] | None) -> None:
        """Sample the next turn of some trajectories and submit the answers as they end."""
        calls = [self._call(play) for play in live]
        async for index, reply in self.answerer.stream(calls, [play.conversation for play in live]):
            play = live[index]
            if reply.sampled is None or not reply.sampled.token_ids:
                play.full = True  # the trajectory ends without this turn
                continue
            play.grading = asyncio.create_task(self._grade(play, reply, on_graded))

    def _call(self, play: RolloutPlay) -> ModelCall:
        """Build the request for the next turn; a context policy that may leave turns out makes room for a whole
        answer."""
        room = self.answerer.capacity - self.answerer.sampler.config.max_tokens
        while True:
            call = play.episode.call(sample=play.job.sample)
            if len(self.answerer.context_ids(call)) <= room or not play.episode.show_less():
                return call

    async def _grade(self, play: RolloutPlay, reply: Reply, on_graded: Callable[[Turn], None] | None) -> None:
        """Submit one answer to the environment and record the result."""
        assert reply.sampled is not None
        started = time.perf_counter()
        result = await play.episode.step(reply)
        self.stats.grading += time.perf_counter() - started
        self.stats.graded += 1
        self.stats.pruned_mass += reply.sampled.pruned_mass
        if result.done:
            play.conversation.forget()
        if on_graded is not None:
            on_graded(result.turn)

    def _trajectory(self, play: RolloutPlay) -> Trajectory:
        """The record of one conversation."""
        job = play.job
        facts: dict[str, object] = {"group": job.group, "sample": job.sample, "seed": job.seed, "version": self.version}
        if play.end is not None:
            facts["end"] = play.end
        return play.episode.trajectory(**facts)


def _split(plays: Sequence[RolloutPlay], parts: int) -> Iterator[list[RolloutPlay]]:
    """Split into at most ``parts`` runs of similar size, never dividing a group, so that each prompt is read once."""
    groups: dict[int, list[RolloutPlay]] = {}
    for play in plays:
        groups.setdefault(play.job.group, []).append(play)
    members = list(groups.values())
    count = max(1, min(parts, len(members)))
    for part in range(count):
        chunk = members[part * len(members) // count : (part + 1) * len(members) // count]
        yield [play for group in chunk for play in group]
