"""The records of the durable queue: a job, a request in stored form, and the queue's refusals."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

from drkernel.gym.request import EvalRequest

State = Literal["queued", "leased", "done", "cancelled"]


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
class EvalJob:
    """One accepted evaluation."""

    id: str
    key: str
    client: str
    priority: int
    state: State
    task_id: str
    device: str
    submitted: float
    started: float | None
    finished: float | None
    attempts: int
    owner: str | None
    status: str | None
    sequence: int | None
    result: str | None = None
    """for a finished job: the verdict in short, JSON of :class:`~drkernel.serve.protocol.JobResult`"""


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
