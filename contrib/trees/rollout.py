"""Rollouts of trees: conversations that fork after a turn, or within an answer, and share what came before.

The shared part is sampled once, all forks reuse its cache, and every answer is graded once. A tree grows in steps of
one turn (or one segment) of all its paths together. Which paths fork depends on grades but never on how long they took,
so the same seeds give the same trees on any machine, loaded or not.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from contrib.trees.forks import TreeConfig, copies, repeats
from drkernel.episode.episode import Episode
from drkernel.episode.records import End, Reply, Sampled, Stop, Trajectory, Turn
from drkernel.rl.model.answerer import SamplerAnswerer, unread
from drkernel.rl.model.sampler import Conversation, SampledTurn
from drkernel.rl.run.rollout import Rollout, RolloutJob, RolloutPlay


@dataclass(frozen=True)
class Piece:
    """Part of an answer that was sampled in one go."""

    name: int
    """Its number in the tree."""
    drawn: SampledTurn


@dataclass(frozen=True)
class InPieces(Sampled):
    """An answer that was drawn in pieces. Those of one tree that hold a piece of the same name share it."""

    pieces: tuple[tuple[int, int], ...] = ()
    """The name of each piece, and where in ``token_ids`` it ends."""


@dataclass
class Path(RolloutPlay):
    """The state of a path of a tree while it grows."""

    pieces: tuple[Piece, ...] = ()
    """Pieces of the answer that is not complete yet."""
    drawn: SampledTurn | None = None
    """The last complete answer."""
    repeated: bool = False
    """Its last answer went round in circles, and it was given up."""

    @property
    def live(self) -> bool:
        """Whether another turn will be sampled once the last one is graded."""
        return super().live and not self.repeated

    @property
    def end(self) -> End | None:
        """Why it is over, where the episode does not say it."""
        return "repetition" if self.repeated and not self.full and self.episode.end is None else super().end


@dataclass
class Growth:
    """The state that a tree keeps between two steps."""

    step: int = 0
    """Steps taken."""
    finished: int = 0
    """Paths that were complete before the last one."""
    pieces: int = 0
    """Pieces of answers drawn."""


class TreeRollout(Rollout):
    """Plays one tree per job; the trajectories are its paths from the task to the last turns."""

    def __init__(
        self,
        answerer: SamplerAnswerer,
        make_episode: Callable[[], Episode],
        tree: TreeConfig,
        *,
        waves: int = 2,
        judge_seed: int | None = None,
        version: int = 0,
    ):
        super().__init__(answerer, make_episode, waves=waves, judge_seed=judge_seed, version=version)
        self.tree = tree
        self._trees: dict[int, Growth] = {}

    async def begin(self, job: RolloutJob) -> list[RolloutPlay]:
        episode = self.make_episode()
        await episode.reset(job.task, self.judge_seed, known=job.known)
        self._trees[job.group] = Growth()
        forks = (episode.fork() for _ in range(self.tree.first - 1))
        return [Path(job, one, Conversation(derived_seed(job, one.next_id, 0))) for one in (episode, *forks)]

    def going_on(self, wave: list[RolloutPlay]) -> list[RolloutPlay]:
        groups: dict[int, list[Path]] = {}
        for play in wave:
            assert isinstance(play, Path)
            groups.setdefault(play.job.group, []).append(play)
        for group, paths in groups.items():
            wave += self._grow(self._trees[group], paths)
        return [play for play in wave if play.live]

    def _grow(self, tree: Growth, paths: Sequence[Path]) -> list[Path]:
        """Return the paths that fork off those of a tree before its next step."""
        tree.step += 1
        active = [path for path in paths if path.live]
        finished = len(paths) - len(active)
        ended, tree.finished = finished - tree.finished, finished
        if tree.step == 1:
            return []
        times = copies(len(active), finished, ended, tree.step - 1, self.tree)
        return [self._fork(path) for path, count in zip(active, times, strict=True) for _ in range(count - 1)]

    def _fork(self, path: Path) -> Path:
        """Return another path that continues from here, even in the middle of an answer."""
        episode = path.episode.fork()
        seed = derived_seed(path.job, episode.next_id, len(path.pieces))
        return Path(path.job, episode, path.conversation.fork(seed), pieces=path.pieces)

    async def sample(self, live: Sequence[RolloutPlay], on_graded: Callable[[Turn], None] | None) -> None:
        paths = [play for play in live if isinstance(play, Path)]
        most = self.answerer.sampler.config.max_tokens
        for path in paths:
            done = path.conversation.answer = tuple(i for piece in path.pieces for i in piece.drawn.token_ids)
            path.conversation.budget = most - len(done)
            if self.tree.at == "segment":
                path.conversation.budget = min(self.tree.segment, most - len(done))
            path.conversation.seed = derived_seed(path.job, path.episode.next_id, len(path.pieces))
        conversations = [path.conversation for path in paths]
        contexts = [self.answerer.context_ids(self.call(path)) for path in paths]
        fresh = [
            [] if conversation.answer else unread(context, conversation)
            for context, conversation in zip(contexts, conversations, strict=True)
        ]
        async for index, drawn in self.answerer.sampler.stream(conversations, fresh):
            path, context = paths[index], contexts[index]
            if drawn.token_ids:
                tree = self._trees[path.job.group]
                path.pieces = (*path.pieces, Piece(tree.pieces, drawn))
                tree.pieces += 1
            if not path.pieces:
                path.full = True  # no room for a token: the path ends without this turn
            elif (reply := self._complete(path, context, drawn.stop)) is not None:
                path.pieces = ()
                path.grading = asyncio.create_task(self.grade(path, reply, on_graded))

    def _complete(self, path: Path, context: list[int], stop: Stop) -> Reply | None:
        """Return the answer that the path's pieces make; None when it continues."""
        whole = SampledTurn(
            token_ids=tuple(i for piece in path.pieces for i in piece.drawn.token_ids),
            logprobs=tuple(x for piece in path.pieces for x in piece.drawn.logprobs),
            stop=stop,
            pruned_mass=sum(piece.drawn.pruned_mass for piece in path.pieces) / len(path.pieces),
            entropies=tuple(x for piece in path.pieces for x in piece.drawn.entropies),
        )
        path.drawn = whole
        ends, end = [], 0
        for piece in path.pieces:
            end += len(piece.drawn.token_ids)
            ends.append((piece.name, end))
        reply = self._reply(context, whole, ends)
        rule = self.tree.repetition
        if rule is not None and repeats(reply.text, rule):
            path.repeated = True
            return self._reply(context, dataclasses.replace(whole, stop="repetition"), ends)
        goes_on = stop == "length" and len(whole.token_ids) < self.answerer.sampler.config.max_tokens
        return None if goes_on else reply

    def _reply(self, context: list[int], whole: SampledTurn, ends: Sequence[tuple[int, int]]) -> Reply:
        reply = self.answerer.reply(context, whole)
        assert reply.sampled is not None
        drawn = {part.name: getattr(reply.sampled, part.name) for part in dataclasses.fields(reply.sampled)}
        return reply.model_copy(update={"sampled": InPieces(**drawn, pieces=tuple(ends))})

    def trajectories(self, plays: Sequence[RolloutPlay]) -> list[Trajectory]:
        """Return the paths, numbered within their trees; of forks without room for another turn, one is kept."""
        found: list[Trajectory] = []
        seen: set[tuple[int, str]] = set()  # turns: paths share their first ones, which count for the first path
        inner = {(play.job.group, turn.id) for play in plays for turn in play.episode.path[:-1]}
        samples: dict[int, int] = {}
        for play in sorted((play for play in plays if play.episode.path), key=_place):
            group, last = play.job.group, (play.job.group, play.episode.path[-1].id)
            if last in seen or last in inner:
                continue
            samples[group] = samples.get(group, -1) + 1
            own = sum((group, turn.id) in seen for turn in play.episode.path)
            seen |= {(group, turn.id) for turn in play.episode.path}
            found.append(self.trajectory(play, sample=samples[group], own=own))
        return found


def _place(play: RolloutPlay) -> tuple[int, ...]:
    """Sort key: the paths of a batch by task, then by the branches they took."""
    return (play.job.group, *map(int, play.episode.path[-1].id.split(".")))


def derived_seed(job: RolloutJob, turn: str, piece: int) -> int:
    """Return the seed for one piece of one turn: a function of the tree's seed and the place in it."""
    text = f"{job.seed}\0{turn}\0{piece}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
