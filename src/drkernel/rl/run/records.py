"""The records of reinforcement learning: what was sampled, what it earned, and where its tokens lie.

A :class:`Trajectory` is one conversation about one task; its ids are the prompt, then for each :class:`Turn` the ids
that were appended for it and the ids that the policy sampled. A :class:`Group` is the set of trajectories of one task
that were sampled together: the unit in which advantages are computed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from drkernel.rl.model.sampler import Stop


@dataclass(frozen=True)
class Turn:
    """One answer of the policy and its grade."""

    index: int
    """Position in the trajectory, from 0."""
    context_ids: tuple[int, ...]
    """Ids appended before this turn: the opening prompt, or the feedback to the turn before. Never trained on."""
    token_ids: tuple[int, ...]
    """Ids sampled in this turn, end token included where it was sampled."""
    logprobs: tuple[float, ...]
    """Log-probability of each sampled id under the distribution it was drawn from (nats)."""
    stop: Stop
    """Why sampling stopped."""
    text: str
    """Text of ``token_ids``, special tokens left out: what was graded."""
    prompt: str
    """Text of the observation that this turn answers."""
    reward: float | None = None
    """Reward of the turn; ``None`` when infrastructure failed and the turn must not train."""
    parts: dict[str, float] = field(default_factory=dict)
    """The reward's terms by name."""
    status: str = "infra_error"
    """The verdict's status."""
    speedup: float | None = None
    """Reference time over candidate time, where timed."""
    coverage: float | None = None
    """Share of device time in the candidate's own kernels (0..1), where profiled."""
    launch_coverage: float | None = None
    """Share of kernel launches that are the candidate's own (0..1), where profiled."""
    findings: tuple[str, ...] = ()
    """Kinds of the verdict's findings."""
    error: str | None = None
    """First line of the verdict's error, where there is one."""

    @property
    def valid(self) -> bool:
        """Whether the turn has a grade; only valid turns train and count in baselines."""
        return self.reward is not None

    @property
    def correct(self) -> bool:
        """Right answer, honestly made."""
        return self.status == "correct"


@dataclass(frozen=True)
class Trajectory:
    """One conversation: turns in order."""

    task_id: str
    """The task's id."""
    family: str | None
    """The task's family, where generated."""
    group: int
    """Index of the task within its batch: trajectories of equal ``group`` are compared with each other."""
    sample: int
    """Index within the group."""
    seed: int
    """Seed of the sampler's draws."""
    turns: tuple[Turn, ...]
    """The turns, at least one."""
    version: int = 0
    """Optimiser updates that the sampling policy had seen."""

    @property
    def ids(self) -> list[int]:
        """All token ids in order, exactly as the sampler saw them."""
        return [i for turn in self.turns for part in (turn.context_ids, turn.token_ids) for i in part]

    @property
    def spans(self) -> list[tuple[int, int]]:
        """For each turn the half-open range of its sampled tokens within :attr:`ids`."""
        spans, position = [], 0
        for turn in self.turns:
            start = position + len(turn.context_ids)
            position = start + len(turn.token_ids)
            spans.append((start, position))
        return spans

    def to_json(self) -> dict[str, Any]:
        """A JSON-able dict that :meth:`from_json` reads back to an equal record."""
        data = {name: getattr(self, name) for name in ("task_id", "family", "group", "sample", "seed", "version")}
        return {**data, "turns": [dict(vars(turn)) for turn in self.turns]}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Trajectory:
        """Inverse of :meth:`to_json`."""
        rows: list[dict[str, Any]] = data["turns"]
        turns = tuple(
            Turn(**{name: tuple(value) if isinstance(value, list) else value for name, value in row.items()})  # type: ignore[arg-type]
            for row in rows
        )
        return Trajectory(**{**data, "turns": turns})


@dataclass(frozen=True)
class Group:
    """Trajectories of one task sampled together."""

    task_id: str
    trajectories: tuple[Trajectory, ...]


def group_trajectories(trajectories: list[Trajectory]) -> list[Group]:
    """Trajectories by their ``group`` index, each group in order of ``sample``."""
    by_group: dict[int, list[Trajectory]] = {}
    for trajectory in trajectories:
        by_group.setdefault(trajectory.group, []).append(trajectory)
    return [
        Group(members[0].task_id, tuple(sorted(members, key=lambda t: t.sample)))
        for _, members in sorted(by_group.items())
    ]
