"""Figures of a run: held-out evaluations (fast_p, coverage, hack rate, turn by turn), steps, samples, the summary."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import Field

from drkernel.config import Config
from drkernel.episode.metrics import (
    TurnOutcome,
    best_turn,
    fast_name,
    figures,
    is_fast,
    last_turn,
    mean,
    over_tasks,
    per_task,
    sizes_of,
    turn_figures,
)
from drkernel.episode.records import Trajectory


class EvaluationConfig(Config):
    """How a policy is evaluated during and after training."""

    every: int = Field(10, ge=1, description="RL steps between evaluations on held-out tasks")
    tasks: int = Field(40, ge=1, description="held-out tasks of an evaluation during training")
    samples: int = Field(1, ge=1, description="trajectories a task")
    final_tasks: int = Field(100, ge=0, description="held-out tasks before and after RL; 0: no evaluation then")
    final_samples: int = Field(2, ge=1, description="trajectories a task before and after RL")
    temperature: float = Field(1.0, ge=0)
    top_p: float | None = Field(None, gt=0, le=1, description="None takes that of rollout.sampling")
    seed: int = Field(
        7, description="seed of the draws, equal for every evaluation of a run so that they are comparable"
    )


def evaluation_metrics(trajectories: Sequence[Trajectory], turns: int) -> dict[str, Any]:
    """Compute metrics of evaluated trajectories with :mod:`drkernel.episode.metrics`.

    The row's own figures are those of the *last* graded turn of each trajectory. ``per_turn[k]`` holds those after turn
    k + 1 (a trajectory that ended keeps its last turn), ``best`` those of the best turn so far (best-of-history), and
    ``answers[k]`` those of the answers given at turn k + 1 alone, where earlier ones had not reached the target. Turns
    that failed for infrastructure reasons are left out and counted. Intervals are 95% bootstrap intervals over tasks.
    """
    samples: dict[str, list[list[TurnOutcome]]] = {}
    by_family: dict[str, dict[str, list[list[TurnOutcome]]]] = {}
    for trajectory in trajectories:
        play = [turn.outcome for turn in trajectory.graded]
        if play:
            samples.setdefault(trajectory.task_id, []).append(play)
            if trajectory.family:
                by_family.setdefault(trajectory.family, {}).setdefault(trajectory.task_id, []).append(play)
    plays = [play for found in samples.values() for play in found]
    result: dict[str, Any] = figures(samples, last_turn)
    result["reward"] = mean(per_task(samples, lambda play: last_turn(play).reward).values())
    for p in (0.0, 1.0, 1.2):
        result[f"{fast_name(p)}_interval"] = _interval(samples, p)
    result["per_turn"] = [figures(samples, last_turn, k + 1) for k in range(turns)]
    result["best"] = [figures(samples, best_turn, k + 1) for k in range(turns)]
    given = [[play[k] for play in plays if len(play) > k] for k in range(turns)]
    result["answers"] = [{"answers": len(rows), **turn_figures(rows)} for rows in given]
    result["families"] = {name: figures(by_family[name], last_turn) for name in sorted(by_family)}
    result["status"] = dict(Counter(last_turn(play).status for play in plays))
    sizes = sizes_of(turn.verdict for trajectory in trajectories for turn in trajectory.graded)
    result["sizes"] = {name: value for name, value in sizes.items() if name != "by_task"}
    infra = sum(not turn.valid for t in trajectories for turn in t.turns)
    return result | {"trajectories": len(plays), "tasks": len(samples), "infra_errors": infra}


def _interval(samples: Mapping[str, Sequence[Sequence[TurnOutcome]]], threshold: float) -> list[float]:
    """Return the ends of the interval of fast_p at the last turn; empty when there is no trajectory."""
    if not samples:
        return []
    found = over_tasks(samples, lambda play: float(is_fast(last_turn(play), threshold)))
    return [found.low, found.high]


# ---- The records that a run writes about itself


T = TypeVar("T")
HEADLINE = ("fast_0", "fast_1", "fast_1.2", "fast_1.5", "fast_2", "coverage", "speedup", "hack_rate", "reward")


def rl_metrics(trajectories: Sequence[Trajectory], turns: int) -> dict[str, Any]:
    """Compute metrics of a step's sampled trajectories: rewards and fast_p of training tasks, statuses, lengths."""
    every = [turn for trajectory in trajectories for turn in trajectory.turns]
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
