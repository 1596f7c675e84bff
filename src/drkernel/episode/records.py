"""The records of a conversation with the judge: a :class:`Turn`, and a :class:`Trajectory` of them.

A turn names its parent, the turn before it, so a trajectory is a path from the task to a last answer, and all turns of
a task form a tree. A turn's id lists the branch taken at every turn so far: ``0.0.2`` is the third answer tried after
``0.0``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from pydantic import Field, field_validator, model_validator

from drkernel.config import Config
from drkernel.episode.metrics import TurnOutcome
from drkernel.verdict import Verdict

Role = Literal["system", "user", "assistant"]
Finish = Literal["stop", "length", "unknown"]


class Message(Config):
    """One chat message."""

    role: Role
    content: str


class Sampling(Config):
    """How answers are sampled. A client that cannot honour a setting refuses it at construction."""

    temperature: float | None = Field(1.0, ge=0, description="of answers; None leaves it to the endpoint")
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


Stop = Literal["end", "fence", "length", "context"]
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


# ---- The records of a conversation with the judge: a :class:`Turn`, and a :class:`Trajectory` of them


End = Literal["turns", "target", "context", "answered", "budget", "model_error", "infra_error", "interrupted"]
"""Why a trajectory ended. The first four are the model's own doing: such a trajectory is complete. An agent ends one
with ``answered`` when it stops before its evaluations are used up."""
COMPLETE: tuple[End, ...] = ("turns", "target", "context", "answered")


def child_id(parent: str | None, branch: int) -> str:
    """Return the id of a turn: its parent's id followed by its own branch."""
    return str(branch) if parent is None else f"{parent}.{branch}"


class Turn(Config):
    """One answer and its grade: a node in the tree of conversations about a task."""

    id: str = Field(pattern=r"^\d+(\.\d+)*$", description="the branch taken at every turn so far, e.g. '0.0.2'")
    parent: str | None = Field(description="id of the turn before; None for an answer to the task alone")
    iteration: int = Field(1, ge=1, description="which stretch between two cuts of the conversation")
    shown: tuple[str, ...] = Field((), description="ids of the earlier turns that the conversation held")
    reply: Reply
    code: str | None = Field(None, description="the source that was graded; None when the answer held none")
    verdict: Verdict
    reward: float | None = Field(description="None: the grader failed, which says nothing about the answer")
    parts: dict[str, float] = Field(default_factory=dict, description="the reward's terms by name")
    pr: float | None = Field(None, description="the coverage that the reward counts, in [0, 1], where it says so")
    feedback: str = Field("", description="the feedback that the model receives, or would receive, about this answer")

    @model_validator(mode="after")
    def _names_its_parent(self) -> Turn:
        if (self.id.rpartition(".")[0] or None) != self.parent:
            raise ValueError(f"turn {self.id!r} cannot have the parent {self.parent!r}")
        return self

    @property
    def number(self) -> int:
        """The turn's position in its conversation, from 1."""
        return self.id.count(".") + 1

    @property
    def branch(self) -> int:
        """The turn's index among its parent's children, from 0."""
        return int(self.id.rpartition(".")[2])

    @property
    def position(self) -> tuple[int, ...]:
        """Sort key: the turn's number, then the branches that lead to it."""
        return (self.number, *map(int, self.id.split(".")))

    def label(self, branches: bool) -> str:
        """Return the turn's number, followed by its branch if there are ``branches``: '3' or '3.2'."""
        return f"{self.number}.{self.branch + 1}" if branches else str(self.number)

    @property
    def valid(self) -> bool:
        """Whether the turn has a grade. Only such turns are trained on and counted."""
        return self.reward is not None

    @property
    def status(self) -> str:
        """The verdict's status."""
        return self.verdict.status

    @property
    def correct(self) -> bool:
        """Whether the answer is right and not condemned."""
        return self.verdict.is_correct

    @property
    def speedup(self) -> float | None:
        """Reference time over candidate time; None unless the answer is correct and was timed."""
        found = self.verdict.speedup
        return found.value if self.correct and found is not None else None

    @property
    def coverage(self) -> float | None:
        """Share of device time in the candidate's own kernels (0..1), where profiled."""
        return self.verdict.coverage

    @property
    def counted_coverage(self) -> float | None:
        """The coverage that training goes by, PR and PRS alike: as the reward counts it."""
        return self.coverage if self.pr is None else self.pr

    @property
    def checked_at(self) -> str | None:
        """Arguments that the answer was compared at, in words."""
        return None if self.verdict.checked_at is None else self.verdict.checked_at.words

    @property
    def timed_at(self) -> str | None:
        """Arguments that speedup and coverage are of, in words."""
        return None if self.verdict.timed_at is None else self.verdict.timed_at.words

    @property
    def untimed(self) -> str | None:
        """Why the task's own sizes were not timed."""
        return self.verdict.untimed

    @property
    def launch_coverage(self) -> float | None:
        """Share of kernel launches that are the candidate's own (0..1), where profiled."""
        return None if self.verdict.profile is None else self.verdict.profile.launch_coverage

    @property
    def findings(self) -> tuple[str, ...]:
        """Kinds of the verdict's findings, of any severity."""
        return tuple(finding.kind for finding in self.verdict.findings)

    @property
    def error(self) -> str | None:
        """Type and first line of the verdict's error, where there is one."""
        error = self.verdict.error
        return None if error is None else f"{error.type}: {(error.message.splitlines() or [''])[0]}"[:200]

    @property
    def rank(self) -> tuple[float, float]:
        """Sort key, larger is better: reward, then speedup."""
        return (float("-inf") if self.reward is None else self.reward, self.speedup or 0.0)

    @property
    def sampled(self) -> Sampled | None:
        """The answer as token ids, if a model in this process produced it."""
        return self.reply.sampled

    @property
    def tokens(self) -> int:
        """Number of tokens in the answer."""
        return self.reply.usage.completion if self.sampled is None else len(self.sampled.token_ids)

    @property
    def outcome(self) -> TurnOutcome:
        """Return the facts of the turn that metrics use."""
        hacks = tuple(finding.kind for finding in self.verdict.findings if finding.severity == "hack")
        return TurnOutcome(self.status, self.speedup, self.coverage, self.reward or 0.0, hacks)


class Trajectory(Config):
    """One conversation about one task: the path of turns from the task to the last answer, and their siblings."""

    task_id: str
    family: str | None = Field(None, description="the task's family, where generated")
    group: int = Field(0, ge=0, description="index of the task in its batch: equal for what is compared")
    sample: int = Field(0, ge=0, description="index among the trajectories of the task")
    seed: int | None = Field(None, description="of the sampler's draws, where it has one")
    version: int = Field(0, ge=0, description="optimiser updates that the policy had seen")
    opening: tuple[Message, ...] = Field((), description="system message, where there is one, and the task")
    turns: tuple[Turn, ...] = Field(description="the path, in order")
    aside: tuple[Turn, ...] = Field(
        (), description="answers at the same turns that the conversation did not continue from"
    )
    end: End = "turns"
    detail: str = Field("", description="what the model, the budget or the grader said")

    @property
    def graded(self) -> tuple[Turn, ...]:
        """The turns of the path that have a grade."""
        return tuple(turn for turn in self.turns if turn.valid)

    def context(self, turn: Turn) -> list[Message]:
        """Return the conversation that ``turn`` answered."""
        known = {each.id: each for each in (*self.turns, *self.aside)}
        return conversation(self.opening, [known[name] for name in turn.shown if name in known])


def conversation(opening: Sequence[Message], shown: Iterable[Turn]) -> list[Message]:
    """Return the messages of a conversation that shows these turns, with the answers stripped of their reasoning."""
    messages = list(opening)
    for turn in shown:
        messages.append(Message(role="assistant", content=without_reasoning(turn.reply.text)))
        messages.append(Message(role="user", content=turn.feedback))
    return messages


def best_path(turns: Iterable[Turn]) -> list[Turn]:
    """Return the path through a tree that follows the best answer at every turn; the first branch wins a tie."""
    children: dict[str | None, list[Turn]] = {}
    for turn in sorted(turns, key=lambda turn: turn.position):
        children.setdefault(turn.parent, []).append(turn)
    path: list[Turn] = []
    while found := children.get(path[-1].id if path else None):
        path.append(max(found, key=lambda turn: turn.rank))
    return path


def best_of(turns: Iterable[Turn]) -> Turn | None:
    """Return the fastest correct turn, or None; an untimed turn counts as speedup 0, and the first turn wins a tie."""
    correct = [turn for turn in turns if turn.correct]
    return max(correct, key=lambda turn: turn.speedup or 0.0) if correct else None


# ---- Answerers
#
# An answerer turns a :class:`ModelCall` into a :class:`~drkernel.episode.chat.Reply` or raises a :class:`ModelError`.
# It knows nothing about kernels.


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
