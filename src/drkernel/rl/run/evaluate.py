"""Held-out evaluation: fast_p, coverage and hack rate, turn by turn, with intervals."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from drkernel.config import Config
from drkernel.rl.run.records import Trajectory, Turn

THRESHOLDS = (0.0, 1.0, 1.2, 1.5, 2.0)


class EvaluationConfig(Config):
    """How a policy is evaluated during and after training."""

    every: int = Field(10, ge=1, description="RL steps between evaluations on held-out tasks")
    tasks: int = Field(40, ge=1, description="held-out tasks of an evaluation during training")
    samples: int = Field(1, ge=1, description="trajectories a task")
    final_tasks: int = Field(100, ge=1, description="held-out tasks before and after RL")
    final_samples: int = Field(2, ge=1, description="trajectories a task before and after RL")
    temperature: float = Field(1.0, ge=0)
    seed: int = Field(7, description="of the draws: equal for every evaluation of a run, so that they compare")


def is_fast(turn: Turn, threshold: float) -> bool:
    """Correct, and (above threshold 0) more than ``threshold`` times as fast as the reference."""
    return turn.correct and (threshold == 0.0 or (turn.speedup or 0.0) > threshold)


def best_turn(turns: Sequence[Turn]) -> Turn:
    """The fastest correct turn, else the last one."""
    correct = [turn for turn in turns if turn.correct]
    return max(correct, key=lambda turn: turn.speedup or 0.0) if correct else turns[-1]


def evaluation_metrics(trajectories: Sequence[Trajectory], turns: int, seed: int = 0) -> dict[str, Any]:
    """Metrics of evaluated trajectories.

    The row's own figures are those of the *last* graded turn of each trajectory; ``per_turn[k]`` those after turn k + 1
    (a trajectory that ended keeps its last), ``best`` those of the best turn so far (best-of-history).
    Turns that infrastructure failed are left out and counted. Intervals are 95% bootstrap intervals over tasks.
    """
    graded = [[turn for turn in t.turns if turn.valid] for t in trajectories]
    infra = sum(not turn.valid for t in trajectories for turn in t.turns)
    rows = [(t.task_id, t.family, kept) for t, kept in zip(trajectories, graded, strict=True) if kept]
    last = [(task, family, kept[-1]) for task, family, kept in rows]
    result: dict[str, Any] = turn_metrics([turn for _, _, turn in last])
    result["reward"] = _mean([turn.reward or 0.0 for _, _, turn in last])
    for threshold in (0.0, 1.0, 1.2):
        by_task: dict[str, list[float]] = {}
        for task, _, turn in last:
            by_task.setdefault(task, []).append(float(is_fast(turn, threshold)))
        result[f"{fast_name(threshold)}_interval"] = bootstrap([sum(v) / len(v) for v in by_task.values()], seed)
    result["per_turn"] = [turn_metrics([kept[: k + 1][-1] for _, _, kept in rows]) for k in range(turns)]
    result["best"] = [turn_metrics([best_turn(kept[: k + 1]) for _, _, kept in rows]) for k in range(turns)]
    families = sorted({family for _, family, _ in last if family})
    result["families"] = {name: turn_metrics([turn for _, f, turn in last if f == name]) for name in families}
    result["status"] = dict(Counter(turn.status for _, _, turn in last))
    result |= {"trajectories": len(rows), "tasks": len({task for task, _, _ in rows}), "infra_errors": infra}
    return result


def turn_metrics(turns: Sequence[Turn]) -> dict[str, Any]:
    """fast_p, mean coverage and mean speedup of the correct ones, and the hack rate, of some turns."""
    correct = [turn for turn in turns if turn.correct]
    metrics: dict[str, Any] = {
        fast_name(threshold): _mean([float(is_fast(turn, threshold)) for turn in turns]) for threshold in THRESHOLDS
    }
    metrics["coverage"] = _mean([turn.coverage for turn in correct if turn.coverage is not None])
    metrics["speedup"] = _mean([turn.speedup for turn in correct if turn.speedup is not None])
    metrics["hack_rate"] = _mean([float(turn.status == "hack") for turn in turns])
    return metrics


def fast_name(threshold: float) -> str:
    """'fast_0', 'fast_1', 'fast_1.2', ..."""
    return f"fast_{threshold:g}"


def bootstrap(values: Sequence[float], seed: int, draws: int = 1000, confidence: float = 0.95) -> list[float]:
    """Percentile interval of the mean of ``values``; empty when there are none."""
    if not values:
        return []
    rng = random.Random(seed)
    means = sorted(_mean(rng.choices(values, k=len(values))) or 0.0 for _ in range(draws))
    tail = (1 - confidence) / 2
    return [means[int(tail * draws)], means[min(draws - 1, int((1 - tail) * draws))]]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
