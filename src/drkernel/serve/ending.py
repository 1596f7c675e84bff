"""Ends jobs that were never evaluated: out of attempts, or unreadable. They get a verdict like every other job."""

from __future__ import annotations

import sqlite3
import time
import zlib

from drkernel.serve.jobs import EvalJob
from drkernel.verdict import CandidateError, Status, Verdict


def end_without_trial(db: sqlite3.Connection, job: EvalJob, status: Status, kind: str, message: str) -> None:
    """Record, inside a transaction, a verdict that says why ``job`` was not evaluated."""
    verdict = Verdict(
        status=status,
        task_id=job.task_id,
        candidate_sha256="0" * 64,
        device=job.device,
        error=CandidateError(type=kind, message=message),
        attempts=max(1, job.attempts),
    )
    db.execute(
        "UPDATE jobs SET state = 'done', finished = ?, status = ?, verdict = ?, owner = NULL, lease_until = NULL, "
        "sequence = (SELECT n + 1 FROM tally WHERE what = 'sequence') WHERE id = ?",
        (time.time(), verdict.status, zlib.compress(verdict.model_dump_json().encode(), 1), job.id),
    )
    db.execute("UPDATE tally SET n = n + 1 WHERE what = 'sequence'")
