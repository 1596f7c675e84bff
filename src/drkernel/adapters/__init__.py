"""The multi-turn environment for other RL engines, one file and one extra each (docs/adapters.md). Here is what they
share: tasks by name, one pool per process, and an event loop for synchronous engines.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import os
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from drkernel.episode.episode import EpisodeConfig
from drkernel.episode.records import Turn
from drkernel.gym.request import Pool
from drkernel.task import Task
from drkernel.tasks.loaders import load_tasks

T = TypeVar("T")


class InfraError(RuntimeError):
    """The grader failed and says nothing about the answer. An engine must drop the sample, not score it as 0."""


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Import what the extra ``name`` installs; where that is missing, the error says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{error.msg}: pip install 'drkernel[{name}]'", name=error.name) from None


_POOLS: dict[str, Pool] = {}
_LOCK = threading.Lock()


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """The one event loop, in its own thread."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="drkernel-adapter", daemon=True).start()
    return loop


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine for a caller without an event loop, on one shared loop; from any thread but the loop's."""
    with _LOCK:
        loop = _loop()
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result()


def shared_pool(url: str | None = None) -> Pool:
    """Return the process's pool: local, or a drkernel service (``url`` or the variable DRKERNEL_URL)."""
    address = url or os.environ.get("DRKERNEL_URL") or ""
    with _LOCK:
        if address not in _POOLS:
            if address:
                from drkernel.serve.client import HttpPool

                _POOLS[address] = HttpPool(address, token=os.environ.get("DRKERNEL_TOKEN"))
            else:
                from drkernel.gym.pools.local import LocalPool

                _POOLS[address] = LocalPool(cache=256)
        return _POOLS[address]


@atexit.register
def _close() -> None:
    for pool in _POOLS.values():
        close = getattr(pool, "close_now", None)
        if close is not None:
            close()


def tasks_of(spec: str | list[Task]) -> list[Task]:
    """Return the tasks of a spec such as 'builtin/level2' or 'kernelbench:DIR/level1', or the given list."""
    return load_tasks(spec) if isinstance(spec, str) else list(spec)


def opening(task: Task, config: EpisodeConfig) -> str:
    """Return the user message that opens an episode about ``task``."""
    return config.texts().opening(task, config.settings)[-1].content


def figures_of(turn: Turn) -> dict[str, float]:
    """Return the metrics of a graded turn that engines log."""
    return {
        "correct": float(turn.correct),
        "hack": float(turn.verdict.is_hack),
        "speedup": turn.speedup or 0.0,
        "coverage": turn.coverage or 0.0,
    }


def episode_config(settings: EpisodeConfig | dict[str, Any] | None) -> EpisodeConfig:
    """Build a config from an engine's own configuration; unknown keys are errors.

    Raises ``ValueError`` for a context policy that leaves turns out: engines manage the conversation themselves, and
    keep all of it.
    """
    config = settings if isinstance(settings, EpisodeConfig) else EpisodeConfig.model_validate(dict(settings or {}))
    if config.context.name != "full":
        raise ValueError(f"episode.context {config.context.name!r}: an engine keeps the whole conversation ('full')")
    return config
