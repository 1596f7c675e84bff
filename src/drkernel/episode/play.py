"""The loop that plays an episode: ask the model, grade the answer, give feedback, repeat.

With *breadth*, several answers are drawn per turn: the conversation is forked, and continues from the best answer.
Turns that an earlier process graded are replayed instead of being asked for and graded again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from drkernel.episode.answerer import Answerer, BudgetSpent, ContextFull, Finished, ModelError, SittingAnswerer
from drkernel.episode.chat import Sampling, count_tokens
from drkernel.episode.episode import Episode
from drkernel.episode.records import End, Trajectory, Turn

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


class _PlayLoop:
    """The state of one trajectory while it is played."""

    def __init__(
        self,
        episode: Episode,
        answerer: Answerer,
        sampling: Sampling,
        sample: int,
        breadth: int,
        context_tokens: int | None,
        done: Mapping[str, Turn],
        on_turn: OnTurn | None,
    ):
        self.episode, self.answerer, self.sampling, self.sample = episode, answerer, sampling, sample
        self.breadth, self.context_tokens, self.done, self.on_turn = breadth, context_tokens, done, on_turn
        self.end: End | None = None

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
