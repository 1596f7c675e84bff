"""The records of a chat that all answerers share: messages, replies, sampling settings and token counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, field_validator

from drkernel.config import Config

Role = Literal["system", "user", "assistant"]
Finish = Literal["stop", "length", "unknown"]


class Message(Config):
    """One chat message."""

    role: Role
    content: str


class Sampling(Config):
    """How answers are sampled. A client that cannot honour a setting refuses it at construction."""

    temperature: float | None = Field(1.0, ge=0, description="None leaves it to the endpoint")
    top_p: float | None = Field(None, gt=0, le=1, description="None leaves it to the endpoint")
    max_tokens: int = Field(8192, ge=1, description="token budget of one answer")
    seed: int | None = Field(None, description="base of the seeds sent along; None sends none")
    extra: dict[str, Any] = Field(default_factory=dict, description="further fields of the request, as they are")


class Usage(Config):
    """Token counts of one answer."""

    prompt: int = Field(0, ge=0)
    completion: int = Field(0, ge=0)
    cached: int = Field(0, ge=0, description="of the prompt, tokens that the endpoint read from its cache")
    estimated: bool = Field(False, description="the endpoint reported nothing: counted as a token per 4 characters")

    @property
    def total(self) -> int:
        """Prompt plus completion tokens."""
        return self.prompt + self.completion

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            prompt=self.prompt + other.prompt,
            completion=self.completion + other.completion,
            cached=self.cached + other.cached,
            estimated=self.estimated or other.estimated,
        )


Stop = Literal["end", "fence", "length", "context", "repetition"]
"""Why sampling stopped: end token, closing fence, token budget, no room left in the context, or given up because it
repeated itself."""


@dataclass(frozen=True)
class Sampled:
    """One answer as token ids, exactly as the sampler read and drew them, so that training never re-tokenises."""

    context_ids: tuple[int, ...]
    """The ids that the model read before it answered."""
    token_ids: tuple[int, ...]
    """The ids drawn, including the end token if one was drawn."""
    logprobs: tuple[float, ...]
    """Log-probability of each drawn id under the distribution it was drawn from (nats)."""
    stop: Stop
    """Why sampling stopped."""
    pruned_mass: float = 0.0
    """Mean probability mass (0..1) removed by truncating the distribution."""


class Reply(Config):
    """One answer."""

    text: str
    finish: Finish = Field("stop", description="'length': cut off by the token budget")
    usage: Usage = Usage()
    model: str = Field("", description="the model's name as the endpoint gives it")
    seconds: float = Field(0.0, ge=0, description="wall seconds of the successful try")
    tries: int = Field(1, ge=1, description="requests made, failed ones included")
    plan: str = Field("", description="what the answer was meant to be, where who answers says so: fused, lazy, ...")
    sampled: Sampled | None = Field(
        None, exclude=True, repr=False, description="token ids and log-probabilities; kept in memory alone"
    )

    @field_validator("text")
    @classmethod
    def _encodable(cls, text: str) -> str:
        """The text such that files can hold it: JSON of an endpoint may have lone surrogates."""
        return text.encode("utf-8", "backslashreplace").decode()


def estimate_tokens(text: str) -> int:
    """Estimate a token count when no tokenizer is known: one token per four characters, at least one."""
    return max(1, len(text) // 4)


def count_tokens(messages: Sequence[Message]) -> int:
    """Estimate the tokens of a conversation."""
    return sum(estimate_tokens(message.content) for message in messages)


def without_reasoning(text: str) -> str:
    """Return the part of an answer after a closing ``</think>``, which is what goes back into the conversation."""
    return text.rpartition("</think>")[2].lstrip("\n")
