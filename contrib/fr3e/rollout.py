"""FR3E's rollouts (arXiv 2507.07017): answer a task, find where the policy was least certain, and go on from there.

Base rollouts are played first. Of the ones kept, the least certain tokens are *anchors*; from the conversation up to
each anchor, and from the task itself, several partial rollouts are played to their end and graded. Only what they drew
themselves is trained; base rollouts are graded and not trained.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from contrib.trees.forks import TreeConfig
from contrib.trees.rollout import Growth, Path, Piece, TreeRollout, derived_seed
from drkernel.config import Config
from drkernel.episode.episode import Episode
from drkernel.episode.records import Reply, Trajectory, Turn
from drkernel.rl.model.answerer import SamplerAnswerer
from drkernel.rl.model.sampler import Conversation, SampledTurn
from drkernel.rl.run.rollout import RolloutJob, RolloutPlay


class Origin(Config):
    """The starting point of a partial rollout: a place within an earlier conversation about the same task."""

    base: int = Field(0, ge=0, description="which of the task's base rollouts it was taken from")
    order: int = Field(0, ge=0, description="0: the task itself; k: the base rollout's k-th anchor, by position")
    turn: int = Field(1, ge=1, description="first turn that is its own")
    token: int = Field(0, ge=0, description="tokens of that turn's answer that were there before")


class Partial(Trajectory):
    """A partial rollout: what before its origin is not its own."""

    origin: Origin


class AnchorConfig(Config):
    """Partial rollouts from the least certain places of a few answers."""

    bases: int = Field(4, ge=1, description="base rollouts a prompt: graded, not trained")
    keep: Literal["right_and_wrong", "all"] = Field(
        "right_and_wrong", description="base rollouts that get anchors: the first right and the first wrong one, or all"
    )
    count: int = Field(4, ge=0, description="anchors of a base rollout")
    by: Literal["logprob", "entropy"] = Field(
        "logprob", description="what an anchor is: the tokens of least log-probability (code) or most entropy (paper)"
    )
    samples: int = Field(16, ge=1, description="partial rollouts of each anchor, and of the task itself")

    def turns(self, longest: int) -> int:
        """Answers to grade a prompt, at most."""
        kept = min(self.bases, 2) if self.keep == "right_and_wrong" else self.bases
        return longest * (self.bases + self.samples * (1 + kept * self.count))


@dataclass(frozen=True)
class PartialJob(RolloutJob):
    """One partial rollout to play."""

    origin: Origin
    base: RolloutPlay | None
    """The rollout to go on from; None for the task itself."""


class AnchorRollout(TreeRollout):
    """Plays base rollouts, then partial ones; the trajectories are the partial ones. One job a prompt."""

    def __init__(
        self,
        answerer: SamplerAnswerer,
        make_episode: Callable[[], Episode],
        anchors: AnchorConfig,
        *,
        waves: int = 2,
        judge_seed: int | None = None,
        version: int = 0,
    ):
        alone = TreeConfig(width=1, branching=1)
        super().__init__(answerer, make_episode, alone, waves=waves, judge_seed=judge_seed, version=version)
        self.anchors = anchors
        answerer.sampler.entropies = anchors.by == "entropy"
        self._played: list[RolloutPlay] = []
        self._entropies: dict[tuple[int, int, str], tuple[float, ...]] = {}

    async def play(
        self, jobs: Sequence[RolloutJob], on_graded: Callable[[Turn], None] | None = None
    ) -> list[Trajectory]:
        """Play base rollouts of every job's task and the partial rollouts from their anchors; the latter."""
        count = self.anchors.bases
        bases = [
            RolloutJob(job.task, job.group, k, derived_seed(job, "base", k), known=job.known)
            for job in jobs
            for k in range(count)
        ]
        await super().play(bases, on_graded)
        first, played = self.stats, self._played
        partial = [
            each
            for job in jobs
            for each in self._partial(job, [play for play in played if play.job.group == job.group])
        ]
        found = await super().play(partial, on_graded)
        self.stats = first + self.stats
        return found

    def _partial(self, job: RolloutJob, bases: Sequence[RolloutPlay]) -> list[PartialJob]:
        """The partial rollouts of a task, from its states in order."""
        origins: list[tuple[Origin, RolloutPlay | None]] = [(Origin(), None)]
        for play in self._kept(bases):
            for order, (turn, token) in enumerate(self._anchors(play), 1):
                origins.append((Origin(base=play.job.sample, order=order, turn=turn, token=token), play))
        return [
            PartialJob(job.task, job.group, index, derived_seed(job, "partial", index), origin, base, known=job.known)
            for index, (origin, base) in enumerate(
                (each for each in origins for _ in range(self.anchors.samples)),
            )
        ]

    def _kept(self, bases: Sequence[RolloutPlay]) -> list[RolloutPlay]:
        """The base rollouts that get anchors; one without any grade gets none."""
        graded = [play for play in bases if any(turn.valid for turn in play.episode.path)]
        if self.anchors.keep == "all":
            return graded
        last = {id(play): [turn for turn in play.episode.path if turn.valid][-1] for play in graded}
        right = [play for play in graded if last[id(play)].correct]
        wrong = [play for play in graded if not last[id(play)].correct]
        return right[:1] + wrong[:1]

    def _anchors(self, play: RolloutPlay) -> list[tuple[int, int]]:
        """(turn from 1, token from 0) of the least certain tokens, by position; never the very first one, where the
        state would be the task itself."""
        doubts: list[tuple[float, int, int]] = []
        for turn in play.episode.path:
            if turn.sampled is None or not turn.valid:
                continue
            if self.anchors.by == "entropy":
                found = [-x for x in self._entropies[play.job.group, play.job.sample, turn.id]]
            else:
                found = list(turn.sampled.logprobs)
            doubts += [(x, turn.number, k) for k, x in enumerate(found) if (turn.number, k) != (1, 0)]
        return sorted((turn, token) for _, turn, token in sorted(doubts)[: self.anchors.count])

    async def begin(self, job: RolloutJob) -> list[RolloutPlay]:
        if not isinstance(job, PartialJob) or job.base is None:
            return await super().begin(job)
        origin, before = job.origin, job.base.episode
        answered = before.path[origin.turn - 1]
        drawn = answered.sampled
        assert drawn is not None
        episode = before.fork(after=origin.turn - 1)
        episode.show(answered.shown, answered.iteration)
        path = self._path(job, episode)
        self._trees.setdefault(job.group, Growth())
        if origin.token:
            head = SampledTurn(drawn.token_ids[: origin.token], drawn.logprobs[: origin.token], "length", 0.0)
            path.pieces = (Piece(-1, head),)
            ids = [*drawn.context_ids, *head.token_ids]
            path.conversation = Conversation(path.conversation.seed, ids)
        return [path]

    def _grow(self, tree: Growth, paths: Sequence[Path]) -> list[Path]:
        return []

    async def grade(self, play: RolloutPlay, reply: Reply, on_graded: Callable[[Turn], None] | None) -> None:
        """As always; the entropies of base rollouts, where the sampler gives them, are kept."""
        if isinstance(play, Path) and play.drawn is not None and not isinstance(play.job, PartialJob):
            self._entropies[play.job.group, play.job.sample, play.episode.next_id] = play.drawn.entropies
        await super().grade(play, reply, on_graded)

    def trajectories(self, plays: Sequence[RolloutPlay]) -> list[Trajectory]:
        self._played = list(plays)
        return [
            self._partial_of(play, play.job.origin)
            for play in plays
            if isinstance(play.job, PartialJob) and len(play.episode.path) >= play.job.origin.turn
        ]

    def _partial_of(self, play: RolloutPlay, origin: Origin) -> Partial:
        return Partial(**{**dict(self.trajectory(play)), "origin": origin, "own": origin.turn - 1})
