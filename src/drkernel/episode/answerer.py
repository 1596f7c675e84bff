"""Answerers: the protocol that every model implements, the request it receives, and the errors it may raise.

An answerer turns a :class:`ModelCall` into a :class:`~drkernel.episode.chat.Reply` or raises a :class:`ModelError`. It
knows nothing about kernels.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from pydantic import Field

from drkernel.config import Config
from drkernel.episode.chat import Message, Reply, Sampling, Usage, count_tokens, estimate_tokens
from drkernel.episode.records import Turn


class ModelCall(Config):
    """One request: the conversation, how to sample, and the task, sample and turn it belongs to."""

    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    task_id: str = ""
    sample: int = Field(0, ge=0, description="index of the trajectory, and of the breadth within a turn")
    turn: int = Field(1, ge=1)
    shown: tuple[Turn, ...] = Field(
        (), exclude=True, repr=False, description="the earlier turns that `messages` ends with, token ids included"
    )

    reference: Callable[[], str] | None = Field(
        None, exclude=True, repr=False, description="returns the task's module as prompts show it, for who wants a file"
    )
    turns: int | None = Field(None, exclude=True, description="turns that the trajectory may have")

    @property
    def opening(self) -> tuple[Message, ...]:
        """The messages that precede the first turn shown: system message and task."""
        return self.messages[: len(self.messages) - 2 * len(self.shown)]

    @property
    def seed(self) -> int | None:
        """The seed of this answer, derived from base seed, task, sample and turn; None without a base seed."""
        if self.sampling.seed is None:
            return None
        text = f"{self.sampling.seed}\0{self.task_id}\0{self.sample}\0{self.turn}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little") >> 1

    def key(self, model: str) -> str:
        """Return the content hash under which the reply of ``model`` is cached.

        The hash covers the position (task, sample, turn), because two samples of one prompt are two answers.
        """
        text = json.dumps([model, self.model_dump(mode="json")], sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class ModelError(RuntimeError):
    """The model gave no answer. ``retry``: the same request may succeed later. ``final``: every request will fail."""

    def __init__(self, message: str, *, retry: bool = False, wait: float | None = None, final: bool = False):
        super().__init__(message)
        self.retry = retry
        self.final = final
        self.wait = wait
        """seconds that the endpoint asked to wait"""


class ContextFull(ModelError):
    """The conversation no longer fits the model's context."""


class Finished(Exception):
    """The answerer makes no further attempt in this trajectory, by its own decision; the message says why."""


class BudgetSpent(Exception):
    """No further request may be made; the message says which limit was reached."""


class Answerer(Protocol):
    """Something that answers a conversation: a chat endpoint, a model in this process, a program, a script, a
    teacher, or any of them behind a :class:`drkernel.episode.meter.Meter`."""

    name: str
    """The name that is recorded and that replies are cached under: kind, model and address, never an API key."""

    async def complete(self, call: ModelCall) -> Reply:
        """Answer one request. Raises :class:`ModelError`."""
        ...

    async def close(self) -> None:
        """Release connections and processes."""
        ...


@runtime_checkable
class SittingAnswerer(Protocol):
    """An answerer that keeps something for each trajectory, and is told when one is over."""

    async def leave(self, task_id: str, sample: int) -> None:
        """Release what is kept for this trajectory."""
        ...


def estimated_usage(call: ModelCall, text: str) -> Usage:
    """Estimate the token usage of a reply whose endpoint reported none."""
    return Usage(prompt=count_tokens(call.messages), completion=estimate_tokens(text), estimated=True)
