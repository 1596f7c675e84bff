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
from typing import TYPE_CHECKING, Any, ClassVar

from drkernel.config import Config
from drkernel.episode.episode import Episode
from drkernel.episode.records import End, ModelCall, Reply, Trajectory, Turn
from drkernel.registry import Method, Registry
from drkernel.rl.model.answerer import SamplerAnswerer
from drkernel.rl.model.sampler import Conversation
from drkernel.rl.run.registry import TurnBatch
from drkernel.rl.run.rows import Stretch, TokenSequence, TurnFacts, lay_out, sampled_of
from drkernel.task import Task

if TYPE_CHECKING:
    from drkernel.rl.run.learner import LearnerConfig


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
    """Plays jobs with one model; ``make_episode`` returns a fresh environment on each call.

    Rollouts of another shape override :meth:`begin`, :meth:`going_on`, :meth:`sample` and :meth:`trajectories`.
    """

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
        waves = list(_split([play for job in jobs for play in await self.begin(job)], self.waves))
        try:
            active = True
            while active:
                active = False
                for wave in waves:
                    await self._settle(wave)
                    if live := self.going_on(wave):
                        await self.sample(live, on_graded)
                        active = True
        finally:
            for play in itertools.chain(*waves):
                play.conversation.forget()
                if play.grading is not None:
                    play.grading.cancel()
        stats.seconds = time.perf_counter() - started
        stats.tokens = self.answerer.sampler.tokens - before
        stats.pruned_mass /= max(1, stats.graded)
        return self.trajectories(list(itertools.chain(*waves)))

    async def begin(self, job: RolloutJob) -> list[RolloutPlay]:
        """The conversations that a job starts with."""
        play = RolloutPlay(job, self.make_episode(), Conversation(job.seed))
        await play.episode.reset(job.task, self.judge_seed, known=job.known)
        return [play]

    def going_on(self, wave: list[RolloutPlay]) -> list[RolloutPlay]:
        """The conversations of a wave that are to be gone on with; every answer so far is graded."""
        return [play for play in wave if play.live]

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

    async def sample(self, live: Sequence[RolloutPlay], on_graded: Callable[[Turn], None] | None) -> None:
        """Sample the next turn of some trajectories and submit the answers as they end."""
        calls = [self.call(play) for play in live]
        async for index, reply in self.answerer.stream(calls, [play.conversation for play in live]):
            play = live[index]
            if reply.sampled is None or not reply.sampled.token_ids:
                play.full = True  # the trajectory ends without this turn
                continue
            play.grading = asyncio.create_task(self.grade(play, reply, on_graded))

    def call(self, play: RolloutPlay) -> ModelCall:
        """Build the request for the next turn; a context policy that may leave turns out makes room for a whole
        answer."""
        room = self.answerer.capacity - self.answerer.sampler.config.max_tokens
        while True:
            call = play.episode.call(sample=play.job.sample)
            if len(self.answerer.context_ids(call)) <= room or not play.episode.show_less():
                return call

    async def grade(self, play: RolloutPlay, reply: Reply, on_graded: Callable[[Turn], None] | None) -> None:
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

    def trajectories(self, plays: Sequence[RolloutPlay]) -> list[Trajectory]:
        """The conversations played; those without a turn are left out."""
        return [self.trajectory(play) for play in plays if play.episode.path]

    def trajectory(self, play: RolloutPlay, **facts: object) -> Trajectory:
        """The record of one conversation; ``facts`` are fields of it that differ."""
        job = play.job
        known: dict[str, object] = {"group": job.group, "sample": job.sample, "seed": job.seed, "version": self.version}
        if play.end is not None:
            known["end"] = play.end
        return play.episode.trajectory(**{**known, **facts})


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


# ---- The shape of a rollout, by name (``rollout.shape``)
#
# A plug-in registers a subclass of :class:`Shape` under a name of its own; contrib/trees is one.


shapes: Registry[Callable[..., Shape]] = Registry("rollout shape", makers=True)


@shapes.register("trajectories")
class Shape(Config):
    """Separate trajectories, ``rollout.samples`` of each prompt. What a subclass leaves alone is as here."""

    plays_on: ClassVar[tuple[str, ...]] = ("local", "served", "verl")
    """Who can sample it: our own sampler, a server (``rollout.backend``), the engine verl (needs :meth:`facts`)"""
    together: ClassVar[bool] = False
    """Whether one job plays all trajectories of its prompt."""

    def jobs(self, samples: int) -> int:
        """Return the jobs of a prompt."""
        return 1 if self.together else samples

    def answers(self, samples: int, turns: int) -> int:
        """Return how many answers a prompt has graded, at most."""
        return samples * turns

    def trajectories(self, samples: int, turns: int) -> int:
        """Return how many trajectories a prompt gives, at most."""
        return self.answers(samples, turns) // turns

    def check(self, learner: LearnerConfig) -> None:
        """Raise :class:`~drkernel.config.ConfigError` for methods that cannot take such trajectories."""

    def rollout(self, answerer: SamplerAnswerer, make_episode: Callable[[], Episode], **terms: Any) -> Rollout:
        """Return the rollout that plays it."""
        return Rollout(answerer, make_episode, **terms)

    def lay_out(self, trajectories: Sequence[Trajectory]) -> tuple[list[Stretch], list[TokenSequence]]:
        """Return the rows of a batch, and the sequences to run the model on."""
        return lay_out(trajectories)

    def batch(self, batch: TurnBatch, trajectories: Sequence[Trajectory] = ()) -> TurnBatch:
        """Return the batch as advantages take it: the class decides about returns, groups and weights.

        On verl there are no ``trajectories``: what it needs of them travels in :meth:`facts`."""
        del trajectories
        return batch

    def facts(self, trajectories: Sequence[Trajectory]) -> list[list[TurnFacts]]:
        """Return the facts of each trajectory of one prompt, for engines that keep one row a trajectory."""
        found = []
        for path in trajectories:
            starts = [len(sampled_of(turn).context_ids) for turn in path.turns]
            spans = [(start - starts[0], turn) for start, turn in zip(starts, path.turns, strict=True)]
            found.append([TurnFacts.of(turn, start, start + turn.tokens) for start, turn in spans])
        return found


def make_shape(method: Method) -> Shape:
    """Build the shape of a config. Raises :class:`ConfigError` for an unknown name or option, or an invalid value."""
    shape: Shape = shapes.make("rollout.shape", method)
    return shape
