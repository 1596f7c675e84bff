"""What a chat model is asked and what it answers: the records that every client shares.

A client turns a :class:`Call` into a :class:`Reply` or raises a :class:`ModelError`. It knows nothing of kernels.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Literal, Protocol

from pydantic import Field

from drkernel.config import Config

Role = Literal["system", "user", "assistant"]
Finish = Literal["stop", "length", "unknown"]


class Message(Config):
    """One chat message."""

    role: Role
    content: str


class Sampling(Config):
    """How answers are drawn. What a client cannot honour it refuses when it is made."""

    temperature: float | None = Field(1.0, ge=0, description="None leaves it to the endpoint")
    top_p: float | None = Field(None, gt=0, le=1, description="None leaves it to the endpoint")
    max_tokens: int = Field(8192, ge=1, description="token budget of one answer")
    seed: int | None = Field(None, description="base of the seeds sent along; None sends none")
    extra: dict[str, Any] = Field(default_factory=dict, description="further fields of the request, as they are")


class Usage(Config):
    """Tokens of one answer."""

    prompt: int = Field(0, ge=0)
    completion: int = Field(0, ge=0)
    cached: int = Field(0, ge=0, description="of the prompt, tokens that the endpoint read from its cache")
    estimated: bool = Field(False, description="the endpoint reported nothing: counted as a token per 4 characters")

    @property
    def total(self) -> int:
        """Prompt and completion together."""
        return self.prompt + self.completion

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            prompt=self.prompt + other.prompt,
            completion=self.completion + other.completion,
            cached=self.cached + other.cached,
            estimated=self.estimated or other.estimated,
        )


class Reply(Config):
    """One answer."""

    text: str
    finish: Finish = Field("stop", description="'length': cut off by the token budget")
    usage: Usage = Usage()
    model: str = Field("", description="the model's name as the endpoint gives it")
    seconds: float = Field(0.0, ge=0, description="wall seconds of the successful try")
    tries: int = Field(1, ge=1, description="requests made, failed ones included")


class Call(Config):
    """One request: the conversation, how to sample, and which attempt of which task it is for."""

    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    task_id: str = ""
    sample: int = Field(0, ge=0, description="index of the trajectory, and of the breadth within a turn")
    turn: int = Field(1, ge=1)

    @property
    def seed(self) -> int | None:
        """The seed of this very answer: of the base seed, the task, the sample and the turn."""
        if self.sampling.seed is None:
            return None
        text = f"{self.sampling.seed}\0{self.task_id}\0{self.sample}\0{self.turn}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little") >> 1

    def key(self, model: str) -> str:
        """Content hash under which the reply of ``model`` may be kept.

        The position (task, sample, turn) is part of it: two samples of one prompt are two answers.
        """
        text = json.dumps([model, self.model_dump(mode="json")], sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class ModelError(RuntimeError):
    """A model that gave no answer. ``retry``: the same request may succeed later. ``final``: no other will either."""

    def __init__(self, message: str, *, retry: bool = False, wait: float | None = None, final: bool = False):
        super().__init__(message)
        self.retry = retry
        self.final = final
        self.wait = wait
        """seconds that the endpoint asked to wait"""


class ContextFull(ModelError):
    """The conversation no longer fits the model's context."""


class ChatModel(Protocol):
    """Something that answers a conversation."""

    name: str
    """What is recorded, and what replies are cached under: kind, model and address; never a key."""

    async def complete(self, call: Call) -> Reply:
        """One answer. Raises :class:`ModelError`."""
        ...

    async def close(self) -> None:
        """Give connections and processes back."""
        ...


def estimate_tokens(text: str) -> int:
    """A rough count where nothing better is known: a token per four characters, at least one."""
    return max(1, len(text) // 4)


def count_tokens(messages: Sequence[Message]) -> int:
    """A rough count of a conversation's tokens."""
    return sum(estimate_tokens(message.content) for message in messages)


def estimated_usage(call: Call, text: str) -> Usage:
    """The usage of a reply whose endpoint reported none."""
    return Usage(prompt=count_tokens(call.messages), completion=estimate_tokens(text), estimated=True)


def without_reasoning(text: str) -> str:
    """An answer as it goes back into a conversation: what follows a closing ``</think>``."""
    return text.rpartition("</think>")[2].lstrip("\n")
