"""OpenEnv: the environment as a server, and its client. Extra: ``drkernel[openenv]``.

    python -m drkernel.adapters.openenv --tasks builtin/level1 --port 8000

Every WebSocket session is an episode of its own; all share the process's grading pool.
"""

from __future__ import annotations

import argparse
import random
import uuid
from typing import Any

from pydantic import Field

from drkernel.adapters import episode_config, extra, run_sync, shared_pool, tasks_of
from drkernel.episode.episode import Episode, EpisodeConfig
from drkernel.gym.device import parse_device
from drkernel.gym.request import Pool
from drkernel.task import Task

with extra("openenv"):
    from openenv.core.client_types import StepResult
    from openenv.core.env_client import EnvClient
    from openenv.core.env_server.http_server import create_fastapi_app
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import Action, Observation, State


class KernelAction(Action):
    """A model's answer."""

    text: str = Field(description="the whole answer, with the module in a ```python block")


class KernelObservation(Observation):
    """The model's next input, and the judge's findings. A reward of None must be masked: the grader failed."""

    text: str = Field("", description="the next user message; empty when the episode is over")
    turn: int = Field(1, description="turn that the model is asked for")
    task_id: str = ""
    status: str | None = Field(None, description="the verdict's status; None after a reset")
    speedup: float | None = None
    coverage: float | None = None
    findings: list[str] = Field(default_factory=list)


class KernelEnvironment(Environment[KernelAction, KernelObservation, State]):
    """One session's environment, with one episode at a time."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(
        self, tasks: str | list[Task] = "builtin", config: EpisodeConfig = EpisodeConfig(), pool: Pool | None = None
    ):
        super().__init__()
        self._tasks = tasks_of(tasks)
        self._episode = Episode(pool or shared_pool(), config)
        self._task = self._tasks[0]
        self._state = State(episode_id=None, step_count=0)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **options: Any) -> KernelObservation:
        """Start an episode with ``task_id`` if given, else with a task chosen by ``seed``."""
        return run_sync(self.reset_async(seed, episode_id, **options))

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, **options: Any
    ) -> KernelObservation:
        """:meth:`reset`, for servers with an event loop. Raises ``ValueError`` for an unknown task."""
        wanted = options.get("task_id")
        if wanted is None:
            self._task = random.Random(seed).choice(self._tasks)
        else:
            known = {task.id: task for task in self._tasks}
            if wanted not in known:
                raise ValueError(f"no task {wanted!r} here; there are {len(known)}, such as {next(iter(known))}")
            self._task = known[wanted]
        self._state = State(episode_id=episode_id or str(uuid.uuid4()), step_count=0)
        observation = await self._episode.reset(self._task)
        return KernelObservation(text=observation.text, turn=observation.turn, task_id=self._task.id)

    def step(self, action: KernelAction, timeout_s: float | None = None, **options: Any) -> KernelObservation:
        """Grade an answer."""
        return run_sync(self.step_async(action, timeout_s, **options))

    async def step_async(
        self, action: KernelAction, timeout_s: float | None = None, **options: Any
    ) -> KernelObservation:
        """:meth:`step`, for servers with an event loop."""
        result = await self._episode.step(action.text)
        self._state.step_count += 1
        turn, following = result.turn, result.observation
        return KernelObservation(
            text="" if following is None else following.text,
            turn=self._state.step_count + 1 if following is None else following.turn,
            task_id=self._task.id,
            status=turn.status,
            speedup=turn.speedup,
            coverage=turn.coverage,
            findings=list(turn.findings),
            reward=result.reward,
            done=result.done,
        )

    @property
    def state(self) -> State:
        """Episode and steps taken."""
        return self._state


class KernelClient(EnvClient[KernelAction, KernelObservation, State]):
    """The client's side of a session."""

    def _step_payload(self, action: KernelAction) -> dict[str, Any]:
        return {"text": action.text}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[KernelObservation]:
        reward, done = payload.get("reward"), payload.get("done", False)
        observation = KernelObservation(**{**payload.get("observation", {}), "reward": reward, "done": done})
        return StepResult(observation=observation, reward=reward, done=done)

    def _parse_state(self, payload: dict[str, Any]) -> State:
        return State(**payload)


def make_app(
    tasks: str | list[Task] = "builtin",
    config: EpisodeConfig | dict[str, Any] | None = None,
    pool: Pool | None = None,
    sessions: int = 64,
) -> Any:
    """Build the FastAPI application, with at most ``sessions`` concurrent episodes."""
    chosen, terms = tasks_of(tasks), episode_config(config)
    return create_fastapi_app(
        lambda: KernelEnvironment(chosen, terms, pool), KernelAction, KernelObservation, max_concurrent_envs=sessions
    )


def main() -> None:
    """Serve until stopped."""
    import uvicorn

    parser = argparse.ArgumentParser(description="Serve the kernel-writing environment over OpenEnv.")
    parser.add_argument("--tasks", default="builtin", help="task spec, e.g. builtin/level1 or kernelbench:DIR/level2")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--device", default="sim:h200")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    profile = "tiny" if parse_device(arguments.device).simulated else "full"
    config = {"turns": arguments.turns, "settings": {"device": arguments.device, "profile": profile}}
    uvicorn.run(make_app(arguments.tasks, config), host=arguments.host, port=arguments.port)


if __name__ == "__main__":
    main()
