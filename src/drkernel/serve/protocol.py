"""The service's wire format, version 1, and the records of its durable queue."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, Field, model_validator

from drkernel.config import Config
from drkernel.gym.request import EvalRequest
from drkernel.verdict import CandidateError, Status, Verdict

MAX_BATCH = 1000
State = Literal["queued", "leased", "done", "cancelled"]


def unicode_only(value: Any) -> Any:
    """Return ``value`` unchanged; raise ``ValueError`` if any text in it holds a lone surrogate, which cannot be
    stored."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            try:
                item.encode()
            except UnicodeEncodeError:
                raise ValueError("text holds a lone surrogate, which is not valid Unicode") from None
        elif isinstance(item, dict):
            stack += [*item.keys(), *item.values()]
        elif isinstance(item, list):
            stack += item
    return value


class Body(Config):
    """Base of the bodies that clients send."""

    _unicode = model_validator(mode="before")(unicode_only)


class SubmitBody(Body):
    """``POST /v1/jobs``: one or many evaluations."""

    requests: list[EvalRequest] = Field(min_length=1, max_length=MAX_BATCH)
    priority: int = Field(0, ge=-100, le=100, description="higher is served first")
    fresh: bool = Field(False, description="evaluate again even if an equal request has a verdict")
    wait_s: float = Field(0.0, ge=0, le=300, description="hold the answer until all are done, at most so long")


class JobResult(Config):
    """A verdict in short, for lists."""

    speedup: float | None = Field(None, description="of a correct answer that was timed")
    timing_kind: Literal["measured", "modelled"] | None = None
    coverage: float | None = Field(None, description="share of device time in the candidate's own kernels")
    checked_at: str | None = Field(None, description="arguments that answers were compared at, in words")
    timed_at: str | None = Field(None, description="arguments that times are of, in words")
    untimed: str | None = Field(None, description="why the task's own sizes were not timed")
    hacks: tuple[str, ...] = Field((), description="kinds of the findings that condemn it")

    @classmethod
    def of(cls, verdict: Verdict) -> JobResult:
        """The short form of ``verdict``."""
        timed = verdict.speedup if verdict.is_correct else None
        return cls(
            speedup=None if timed is None else timed.value,
            timing_kind=None if timed is None else timed.kind,
            coverage=verdict.coverage,
            checked_at=None if verdict.checked_at is None else verdict.checked_at.words,
            timed_at=None if verdict.timed_at is None else verdict.timed_at.words,
            untimed=verdict.untimed,
            hacks=tuple(dict.fromkeys(one.kind for one in verdict.findings if one.severity == "hack")),
        )


class JobView(Config):
    """A job, in the service and as clients see it."""

    id: str
    state: State
    task_id: str
    device: str
    client: str
    priority: int
    submitted: float
    started: float | None = None
    finished: float | None = None
    attempts: int = 0
    status: str | None = None
    sequence: int | None = None
    result: JobResult | None = None
    verdict: Verdict | None = None


class SubmitAnswer(Config):
    """The jobs of a submission, in order."""

    jobs: list[JobView]


class LeaseBody(Body):
    """``POST /v1/worker/lease``: a remote worker asks for work."""

    worker: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,80}$")
    slots: int = Field(1, ge=1, le=1024)
    wait_s: float = Field(20.0, ge=0, le=60)
    kinds: list[str] | None = Field(
        None, max_length=8, description="kinds of device that it has: 'sim', 'cuda'; None takes any job"
    )


class ReleaseBody(Body):
    """``POST /v1/worker/release``: an operator releases a quarantined worker."""

    worker: str = Field(max_length=200)


class LeaveBody(Body):
    """``POST /v1/worker/leave``: a worker that ends, or whose end was seen by who started it."""

    worker: str = Field(max_length=200)
    trouble: str = Field("", max_length=1000, description="what ended it; empty for one that left in order")


class LeaseAnswer(Config):
    """A job to do, or nothing for now."""

    job_id: str | None = None
    request: EvalRequest | None = None
    lease_s: float = 60.0


class BeatBody(Body):
    """``POST /v1/worker/heartbeat``: the leases that a worker is still working on."""

    worker: str
    jobs: list[str] = Field(max_length=4096)


class BeatAnswer(Config):
    """The leases that the worker still holds; a missing one was given to another worker."""

    held: list[str]


class CompleteBody(Body):
    """``POST /v1/worker/complete``: a worker's verdict."""

    worker: str
    job_id: str
    verdict: Verdict


class CompleteAnswer(Config):
    """Whether the verdict was recorded; False when the lease had passed to another worker."""

    recorded: bool


def not_evaluated(status: Status, task_id: str, device: str, kind: str, message: str, **facts: Any) -> Verdict:
    """Return the verdict of a request that nobody evaluated, and why."""
    error = CandidateError(type=kind, message=message)
    return Verdict(status=status, task_id=task_id, candidate_sha256="0" * 64, device=device, error=error, **facts)


def unanswered(request: EvalRequest, status: Status, error: Exception) -> Verdict:
    """Return the verdict of a request that an error of ours left without one."""
    named = (request.task.id, request.settings.device)
    text = ascii(str(error))[1:-1]
    return not_evaluated(status, *named, type(error).__name__, text, baseline=request.settings.baseline)


# ---- The durable queue: a request in stored form, and its refusals


class StoreError(RuntimeError):
    """The store cannot write or read what was asked: disk full, file locked or damaged. Nothing was accepted."""

    full = False
    """whether the disk is full"""
    locked = False
    """whether another program holds the file"""


class QueueFull(RuntimeError):
    """The queue is full; no more jobs are accepted."""

    def __init__(self, waiting: int):
        super().__init__(f"{waiting} jobs are waiting")
        self.waiting = waiting


@dataclass(frozen=True)
class StoredRequest:
    """A request in stored form; built outside the transaction, because hashing and packing take time."""

    key: str
    task_id: str
    device: str
    kind: str
    """kind of the device: 'sim' or 'cuda'"""
    blob: bytes


def packed(record: BaseModel) -> bytes:
    """A record as it is stored: its JSON, compressed."""
    return zlib.compress(record.model_dump_json().encode("utf-8", "surrogatepass"), 1)


def pack(request: EvalRequest) -> StoredRequest:
    """Pack a request for storage."""
    settings = request.settings
    return StoredRequest(request.key, request.task.id, settings.device, settings.place.kind, packed(request))
