"""The records that a run writes about itself: metrics of a step, rows of samples, and the final summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeVar

from drkernel.episode.metrics import mean, turn_figures
from drkernel.episode.records import Trajectory, distinct_turns

T = TypeVar("T")
HEADLINE = ("fast_0", "fast_1", "fast_1.2", "fast_1.5", "fast_2", "coverage", "speedup", "hack_rate", "reward")


def rl_metrics(trajectories: Sequence[Trajectory], turns: int) -> dict[str, Any]:
    """Compute metrics of a step's sampled trajectories: rewards and fast_p of training tasks, statuses, lengths."""
    every = distinct_turns(trajectories)
    graded = [turn for turn in every if turn.valid]
    finals = [t.graded[-1] for t in trajectories if t.graded]
    by_turn = [[turn for turn in graded if turn.number == k + 1] for k in range(turns)]
    return {
        "reward": mean([turn.reward or 0.0 for turn in graded]),
        "reward_turns": [mean([turn.reward or 0.0 for turn in rows]) for rows in by_turn],
        **turn_figures(turn.outcome for turn in finals),
        "per_turn": [turn_figures(turn.outcome for turn in rows) for rows in by_turn],
        "status": dict(Counter(turn.status for turn in every)),
        "stop": dict(Counter(turn.sampled.stop for turn in every if turn.sampled is not None)),
        "infra_errors": len(every) - len(graded),
        "response_tokens": mean([float(turn.tokens) for turn in every]),
        "trajectories": len(trajectories),
    }


def sample_row(stage: str, step: int, split: str, trajectory: Trajectory) -> dict[str, Any]:
    """Return a trajectory for people to read: texts and grades, no ids."""
    turns = [
        {
            "id": turn.id,
            "parent": turn.parent,
            "shown": list(turn.shown),
            "prompt": trajectory.context(turn)[-1].content,
            "text": turn.reply.text,
            "status": turn.status,
            "reward": turn.reward,
            "parts": turn.parts,
            "speedup": turn.speedup,
            "coverage": turn.coverage,
            "checked_at": turn.checked_at,
            "timed_at": turn.timed_at,
            "untimed": turn.verdict.untimed,
            "findings": list(turn.findings),
            "error": turn.error,
            "tokens": turn.tokens,
            "stop": None if turn.sampled is None else turn.sampled.stop,
        }
        for turn in trajectory.turns
    ]
    return {
        "stage": stage,
        "step": step,
        "split": split,
        "task_id": trajectory.task_id,
        "family": trajectory.family,
        "group": trajectory.group,
        "sample": trajectory.sample,
        "turns": turns,
    }


def spread_out(items: Sequence[T], count: int) -> list[T]:
    """Return at most ``count`` items at equal distances."""
    if count >= len(items):
        return list(items)
    return [items[index * len(items) // count] for index in range(count)]


def headline(evaluation: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the figures of an evaluation that a summary shows."""
    return None if evaluation is None else {name: evaluation.get(name) for name in HEADLINE}
