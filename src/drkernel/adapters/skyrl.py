"""SkyRL-Gym: the environment as a ``BaseTextEnv``. Extra: ``drkernel[skyrl]``.

``register()`` makes ``env_class="drkernel"`` known; :func:`rows` makes the dataset rows that name it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drkernel.adapters import (
    InfraError,
    episode_config,
    extra,
    figures_of,
    opening,
    run_sync,
    shared_pool,
    tasks_of,
)
from drkernel.episode.episode import Episode, EpisodeConfig
from drkernel.gym.request import Pool
from drkernel.task import Task

with extra("skyrl"):
    from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

ENV_ID = "drkernel"


class SkyRLKernelEnv(BaseTextEnv):
    """One trajectory.

    ``extras`` is a dataset row made by :func:`rows`; ``env_config`` holds EpisodeConfig's keys and optionally the
    ``url`` of a drkernel service. Raises :class:`InfraError` when the grader fails, because SkyRL has no masked turns
    and a reward of 0 would be false.
    """

    def __init__(
        self,
        env_config: Mapping[str, Any] | None = None,
        extras: Mapping[str, Any] | None = None,
        *,
        pool: Pool | None = None,
    ):
        super().__init__()
        terms = {key: value for key, value in dict(env_config or {}).items() if key != "url"}
        row = dict(extras or {})
        if "max_turns" in row:
            terms["turns"] = int(row["max_turns"])
        config = episode_config(terms)
        self.task = Task.model_validate_json(row["reward_spec"]["ground_truth"])
        self.max_turns = config.turns
        self._episode = Episode(pool or shared_pool(dict(env_config or {}).get("url")), config)
        self._metrics: dict[str, Any] = {}

    def init(self, prompt: list[dict[str, str]]) -> tuple[list[dict[str, str]], dict[str, Any]]:
        """Return the opening conversation: the system message of ``prompt``, if any, and the task's own prompt."""
        observation = run_sync(self._episode.reset(self.task))
        system = [message for message in prompt or [] if message["role"] == "system"]
        return [*system, {"role": "user", "content": observation.text}], {"task_id": self.task.id}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Grade an answer."""
        self.turns += 1
        result = run_sync(self._episode.step(action))
        if result.reward is None:
            error = result.verdict.error
            raise InfraError(f"{self.task.id}: {error.type}: {error.message}" if error else f"{self.task.id}: no grade")
        self._metrics = figures_of(result.turn)
        observations = [] if result.observation is None else [{"role": "user", "content": result.observation.text}]
        return BaseTextEnvStepOutput(
            observations=observations,
            reward=result.reward,
            done=result.done,
            metadata={**self._metrics, "status": result.turn.status},
        )

    def get_metrics(self) -> dict[str, Any]:
        """Return the metrics of the last turn, which SkyRL averages over episodes."""
        return dict(self._metrics)


def register() -> None:
    """Register the environment for ``skyrl_gym.make("drkernel", ...)``; call once per process."""
    import skyrl_gym

    if ENV_ID not in skyrl_gym.registry:
        skyrl_gym.register(id=ENV_ID, entry_point="drkernel.adapters.skyrl:SkyRLKernelEnv")


def rows(tasks: str | list[Task], config: EpisodeConfig = EpisodeConfig()) -> list[dict[str, Any]]:
    """Return dataset rows for SkyRL's trainer: prompt, environment and the task itself."""
    return [
        {
            "data_source": "drkernel",
            "prompt": [{"role": "user", "content": opening(task, config)}],
            "env_class": ENV_ID,
            "reward_spec": {"method": "rule", "ground_truth": task.model_dump_json()},
            "extra_info": {"task_id": task.id, "index": index},
        }
        for index, task in enumerate(tasks_of(tasks))
    ]
