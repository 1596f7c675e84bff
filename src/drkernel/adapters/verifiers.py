"""verifiers v1: a taskset and the multi-turn environment that plays it. Extra: ``drkernel[verifiers]``.

verifiers finds an environment by module name; a file ``drkernel_env.py`` with the single line ``from
drkernel.adapters.verifiers import *`` provides ``drkernel-env``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import Field

from drkernel.adapters import InfraError, episode_config, extra, figures_of, opening, shared_pool, tasks_of
from drkernel.episode.episode import Episode
from drkernel.task import Task

with extra("verifiers"):
    import verifiers.v1 as vf

__all__ = ["KernelEnv", "KernelTaskset"]


class KernelTasksetConfig(vf.TasksetConfig):
    """The tasks, and the terms of an episode."""

    tasks: str = "builtin"
    """A task spec: 'builtin/level1', 'kernelbench:DIR/level2', 'jsonl:FILE', ..."""
    episode: dict[str, Any] = Field(default_factory=dict)
    """Keys of drkernel's EpisodeConfig: turns, prompts, settings, reward."""


class KernelData(vf.TaskData):
    """A task on the wire."""

    source: str = ""
    """The drkernel task as JSON."""
    episode: dict[str, Any] = Field(default_factory=dict)


class KernelTask(vf.Task[KernelData, vf.State, vf.TaskConfig]):
    """Rewards come from the environment's turns; the task itself scores nothing."""


class KernelTaskset(vf.Taskset[KernelTask, KernelTasksetConfig]):
    """All tasks of the spec, in its order."""

    def load(self) -> Iterable[KernelTask]:
        """Yield the tasks; a task's prompt is the episode's first message."""
        config = episode_config(self.config.episode)
        for task in tasks_of(self.config.tasks):
            data = KernelData(
                id=task.id,
                name=task.id,
                prompt=opening(task, config),
                source=task.model_dump_json(),
                episode=self.config.episode,
            )
            yield KernelTask(data, self.config.task)


class KernelEnvConfig(vf.EnvConfig):
    """The environment's only agent: the policy that writes kernels."""

    writer: vf.AgentConfig = vf.AgentConfig.model_validate(
        {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}
    )
    """A plain chat on this machine; the kernels run in drkernel's own sandbox, never in the agent's runtime."""


class KernelEnv(vf.Env[KernelEnvConfig]):
    """The judge plays the user: after every answer it reports its findings."""

    async def run(self, task: KernelTask, agents: Any) -> None:
        """Play one episode. Its reward is the sum over turns; each turn's reward is also a metric.

        Raises :class:`InfraError` when the grader fails, so that the episode is retried rather than scored.
        """
        async with agents.writer.interaction(task) as interaction:
            outcome = await play(task.data, interaction)
        trace = interaction.trace
        trace.record_reward("kernel", outcome.pop("reward"), 1.0)
        trace.record_metrics(outcome)


async def play(data: KernelData, interaction: Any, pool: Any = None) -> dict[str, float]:
    """Grade the agent's turns until the episode or the exchange is over; return the metrics of the episode."""
    episode = Episode(pool or shared_pool(), episode_config(data.episode))
    await episode.reset(Task.model_validate_json(data.source))
    figures: dict[str, float] = {"reward": 0.0, "turns": 0.0}
    segment = await interaction.turn()
    while not segment.terminated:
        result = await episode.step(segment.last_reply)
        if result.reward is None:
            raise InfraError(f"{data.id}: the grader failed")
        turn = figures_of(result.turn)
        figures["turns"] += 1
        figures["reward"] += result.reward
        figures[f"reward_turn_{figures['turns']:.0f}"] = result.reward
        figures |= {**turn, "hack": max(figures.get("hack", 0.0), turn["hack"])}
        if result.observation is None:
            break
        segment = await interaction.turn(result.observation.text)
    return figures
