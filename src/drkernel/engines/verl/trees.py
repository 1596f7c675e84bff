"""Trees on verl: one session of a prompt plays the whole tree and returns its paths, one row each.

The paths repeat what they share, as verl's rows must; the numbers of turns and of their parents travel with them, and
:class:`~drkernel.rl.run.turn_rows.TurnRows` makes one row of what is shared. Nothing here needs verl or Ray.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from drkernel.episode.records import Trajectory
from drkernel.rl.model.sampler import SamplingConfig
from drkernel.rl.model.served import RequestSampler
from drkernel.rl.model.tokenizer import ChatTokenizer
from drkernel.rl.run.rows import Stretch, gradable, known, lay_out, overlong, sampled_of
from drkernel.rl.run.turn_rows import Facts

Ask = Callable[[list[int], int], Awaitable[tuple[tuple[int, ...], tuple[float, ...]]]]
"""(ids, room for tokens) -> sampled ids and their log-probabilities."""


class VerlSampler(RequestSampler):
    """verl's sampler in the place of ours; it draws with seeds of its own."""

    def __init__(self, ask: Ask, tokenizer: ChatTokenizer, config: SamplingConfig, capacity: int):
        super().__init__(tokenizer, config, capacity)
        self._ask = ask

    async def ask(self, ids: list[int], room: int, seed: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Return what verl's server draws."""
        return await self._ask(list(ids), room)


def path_facts(paths: Sequence[Trajectory]) -> list[list[Facts]]:
    """Return the facts of each path of one tree, shared ones repeated, their tokens counted from the first one after
    the prompt."""
    stretches, _ = lay_out(paths)
    ends = {part.turn.id: row for row, part in enumerate(stretches) if part.last}
    found = []
    for path in paths:
        prompt = len(sampled_of(path.turns[0]).context_ids)
        row, facts = ends[path.turns[-1].id], list[Facts]()
        while row >= 0:
            facts.append(_fact(stretches[row], row, prompt))
            row = stretches[row].parent
        found.append(facts[::-1])
    return found


def _fact(part: Stretch, row: int, prompt: int) -> Facts:
    turn, last = part.turn, part.last
    begin = len(sampled_of(turn).context_ids) - prompt
    return Facts(
        start=begin + part.start,
        end=begin + part.end,
        graded=part.trains,
        reward=float(turn.reward or 0.0) if last and gradable(turn) else 0.0,
        correct=last and turn.correct,
        coverage=known(turn.counted_coverage) if last else 0.0,
        launch_coverage=known(turn.launch_coverage) if last else 0.0,
        speedup=known(turn.speedup) if last else 0.0,
        turn=turn.number - 1,
        node=row,
        parent=part.parent,
        overlong=last and overlong(turn),
    )
