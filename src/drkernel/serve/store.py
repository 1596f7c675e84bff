"""The durable queue: every accepted job in SQLite before it is acknowledged, leases, results that are kept.

States: ``queued`` -> ``leased`` -> ``done``, or ``cancelled``. A lease has an owner and an end; when the end passes
without a heartbeat the job is queued again. Only the owner of the present lease can complete a job, so a result is
recorded once, whoever was killed when. All times are Unix seconds.
"""

from __future__ import annotations

import secrets
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from drkernel.gym.request import EvalRequest
from drkernel.verdict import Verdict

State = Literal["queued", "leased", "done", "cancelled"]

SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY,
    key TEXT NOT NULL,            -- content hash of the request
    client TEXT NOT NULL,
    priority INTEGER NOT NULL,    -- higher first
    state TEXT NOT NULL,
    task_id TEXT NOT NULL,
    device TEXT NOT NULL,
    request BLOB NOT NULL,        -- zlib of the request's JSON
    submitted REAL NOT NULL,
    started REAL,
    finished REAL,
    attempts INTEGER NOT NULL DEFAULT 0,
    owner TEXT,
    lease_until REAL,
    status TEXT,                  -- of the verdict
    verdict BLOB,                 -- zlib of the verdict's JSON
    sequence INTEGER              -- order of finishing, from 1
);
CREATE TABLE IF NOT EXISTS names (name TEXT PRIMARY KEY, job_id TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS jobs_queue ON jobs (state, priority DESC, submitted);
CREATE INDEX IF NOT EXISTS jobs_key ON jobs (key);
CREATE INDEX IF NOT EXISTS jobs_sequence ON jobs (sequence);
CREATE INDEX IF NOT EXISTS jobs_task ON jobs (task_id, status);
"""


_EQUAL = (
    "SELECT id FROM jobs WHERE key = ? AND state != 'cancelled' AND (status IS NULL OR status != 'infra_error') "
    "ORDER BY submitted LIMIT 1"
)


class StoreError(RuntimeError):
    """The store cannot take or give what was asked: disk full, file locked or damaged. Nothing was accepted."""


@dataclass(frozen=True)
class Job:
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


_COLUMNS = (
    "id, key, client, priority, state, task_id, device, submitted, started, finished, attempts, owner, status, sequence"
)


class Store:
    """One SQLite file in WAL mode. Thread-safe; a context manager."""

    def __init__(self, path: Path | str):
        """Open or make the store.

        Raises:
            StoreError: the file cannot be opened, or belongs to another version.
        """
        self.path = Path(path)
        self._lock = threading.RLock()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None, timeout=5.0)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_SCHEMA)
            found = self._db.execute("SELECT version FROM meta").fetchone()
            if found is None:
                self._db.execute("INSERT INTO meta VALUES (?)", (SCHEMA_VERSION,))
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"cannot open the store {self.path}: {error}") from error
        if found is not None and found[0] != SCHEMA_VERSION:
            raise StoreError(f"{self.path} is a store of version {found[0]}; this program writes {SCHEMA_VERSION}")

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; what was acknowledged is on the disk already."""
        with self._lock:
            self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    yield self._db
                except BaseException:
                    if self._db.in_transaction:  # a full disk ends the transaction by itself
                        self._db.execute("ROLLBACK")
                    raise
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise StoreError(f"the store {self.path} refused: {error}") from error

    # ---- accepting

    def submit(
        self, requests: Sequence[EvalRequest], *, client: str = "local", priority: int = 0, fresh: bool = False
    ) -> list[str]:
        """Accept requests, all or none; ids in order.

        A request equal to one that waits, runs or has a verdict (other than ``infra_error``) gets that job's id, unless
        ``fresh``. Raises :class:`StoreError` when they cannot be made durable.
        """
        now = time.time()
        keys = [request.key for request in requests]
        if not fresh and (known := self._known(keys)) is not None:
            return known
        ids = []
        with self._transaction() as db:
            for request, key in zip(requests, keys, strict=True):
                found = None
                if not fresh:
                    found = db.execute(_EQUAL, (key,)).fetchone()
                if found is not None:
                    ids.append(found[0])
                    continue
                job_id = secrets.token_hex(12)
                db.execute(
                    "INSERT INTO jobs (id, key, client, priority, state, task_id, device, request, submitted) "
                    "VALUES (?, ?, ?, ?, 'queued', ?, ?, ?, ?)",
                    (
                        job_id, key, client, priority, request.task.id, request.settings.device,
                        zlib.compress(request.model_dump_json().encode(), 1), now,
                    ),
                )  # fmt: skip
                ids.append(job_id)
        return ids

    def _known(self, keys: list[str]) -> list[str] | None:
        """Ids of jobs that all these keys have already, found without writing; None when one is new."""
        ids = []
        with self._lock:
            for key in keys:
                row = self._db.execute(_EQUAL, (key,)).fetchone()
                if row is None:
                    return None
                ids.append(row[0])
        return ids

    def cancel(self, job_id: str) -> bool:
        """Cancel a job that waits; False when it runs, is done or does not exist."""
        with self._transaction() as db:
            changed = db.execute(
                "UPDATE jobs SET state = 'cancelled', finished = ? WHERE id = ? AND state = 'queued'",
                (time.time(), job_id),
            )
            return changed.rowcount == 1

    def name(self, name: str, job_id: str) -> None:
        """Let a client's own name stand for a job; a name used again stands for the later one."""
        with self._transaction() as db:
            db.execute("INSERT OR REPLACE INTO names VALUES (?, ?)", (name, job_id))

    def alias(self, name: str) -> str | None:
        """The job that a client's name stands for."""
        with self._lock:
            row = self._db.execute("SELECT job_id FROM names WHERE name = ?", (name,)).fetchone()
        return str(row[0]) if row is not None else None

    # ---- working

    def lease(self, owner: str, seconds: float, *, device_prefix: str = "") -> tuple[Job, EvalRequest] | None:
        """Take the next job: highest priority, then the client with the fewest running, then the oldest."""
        now = time.time()
        with self._transaction() as db:
            row = db.execute(
                "SELECT j.id FROM jobs j LEFT JOIN (SELECT client, COUNT(*) AS running FROM jobs "
                "WHERE state = 'leased' GROUP BY client) r ON r.client = j.client "
                "WHERE j.state = 'queued' AND j.device LIKE ? || '%' "
                "ORDER BY j.priority DESC, COALESCE(r.running, 0), j.submitted LIMIT 1",
                (device_prefix,),
            ).fetchone()
            if row is None:
                return None
            db.execute(
                "UPDATE jobs SET state = 'leased', owner = ?, lease_until = ?, started = ?, attempts = attempts + 1 "
                "WHERE id = ?",
                (owner, now + seconds, now, row[0]),
            )
            job = self._job(db, row[0])
            blob = db.execute("SELECT request FROM jobs WHERE id = ?", (row[0],)).fetchone()[0]
        assert job is not None
        return job, EvalRequest.model_validate_json(zlib.decompress(blob))

    def heartbeat(self, owner: str, job_ids: Iterable[str], seconds: float) -> list[str]:
        """Lengthen leases; the ids that ``owner`` still holds."""
        held = []
        with self._transaction() as db:
            for job_id in job_ids:
                changed = db.execute(
                    "UPDATE jobs SET lease_until = ? WHERE id = ? AND state = 'leased' AND owner = ?",
                    (time.time() + seconds, job_id, owner),
                )
                if changed.rowcount:
                    held.append(job_id)
        return held

    def complete(self, job_id: str, owner: str, verdict: Verdict) -> bool:
        """Record a verdict; False (and nothing changes) when ``owner`` no longer holds the job."""
        with self._transaction() as db:
            following = db.execute("SELECT COALESCE(MAX(sequence), 0) + 1 FROM jobs").fetchone()[0]
            changed = db.execute(
                "UPDATE jobs SET state = 'done', finished = ?, status = ?, verdict = ?, sequence = ?, "
                "lease_until = NULL WHERE id = ? AND state = 'leased' AND owner = ?",
                (
                    time.time(), verdict.status, zlib.compress(verdict.model_dump_json().encode(), 1), following,
                    job_id, owner,
                ),
            )  # fmt: skip
            return changed.rowcount == 1

    def give_back(self, job_id: str, owner: str) -> bool:
        """Queue a leased job again (the worker could not do it)."""
        with self._transaction() as db:
            changed = db.execute(
                "UPDATE jobs SET state = 'queued', owner = NULL, lease_until = NULL "
                "WHERE id = ? AND state = 'leased' AND owner = ?",
                (job_id, owner),
            )
            return changed.rowcount == 1

    def expire(self, owners_gone: str | None = None) -> int:
        """Queue again what was leased too long, or by owners whose names begin with ``owners_gone``; how many."""
        with self._transaction() as db:
            changed = db.execute(
                "UPDATE jobs SET state = 'queued', owner = NULL, lease_until = NULL "
                "WHERE state = 'leased' AND (lease_until < ? OR owner LIKE ? || '%')",
                (time.time(), owners_gone if owners_gone is not None else "\0"),
            )
            return changed.rowcount

    # ---- asking

    def get(self, job_id: str) -> Job | None:
        """A job by id."""
        with self._lock:
            return self._job(self._db, job_id)

    def verdict(self, job_id: str) -> Verdict | None:
        """The verdict of a job that is done."""
        blob = self._blob("verdict", job_id)
        return Verdict.model_validate_json(blob) if blob is not None else None

    def verdict_json(self, job_id: str) -> bytes | None:
        """The same as the JSON that was stored."""
        return self._blob("verdict", job_id)

    def request(self, job_id: str) -> EvalRequest | None:
        """The request of a job."""
        blob = self._blob("request", job_id)
        return EvalRequest.model_validate_json(blob) if blob is not None else None

    def _blob(self, column: Literal["request", "verdict"], job_id: str) -> bytes | None:
        with self._lock:
            row = self._db.execute(f"SELECT {column} FROM jobs WHERE id = ?", (job_id,)).fetchone()
        return zlib.decompress(row[0]) if row is not None and row[0] is not None else None

    @staticmethod
    def _job(db: sqlite3.Connection, job_id: str) -> Job | None:
        row = db.execute(f"SELECT {_COLUMNS} FROM jobs WHERE id = ?", (job_id,)).fetchone()
        return Job(*row) if row is not None else None

    def find(
        self,
        *,
        state: str | None = None,
        status: str | None = None,
        task: str | None = None,
        client: str | None = None,
        limit: int = 100,
        before: float | None = None,
    ) -> list[Job]:
        """Jobs that match, newest first; ``task`` matches part of the id."""
        wanted: list[tuple[str, Any]] = [
            ("state = ?", state), ("status = ?", status), ("client = ?", client), ("submitted < ?", before),
            ("instr(task_id, ?) > 0", task),
        ]  # fmt: skip
        clauses = [(clause, value) for clause, value in wanted if value is not None]
        where = " WHERE " + " AND ".join(clause for clause, _ in clauses) if clauses else ""
        query = f"SELECT {_COLUMNS} FROM jobs{where} ORDER BY submitted DESC, id LIMIT ?"
        with self._lock:
            rows = self._db.execute(query, (*(value for _, value in clauses), limit)).fetchall()
        return [Job(*row) for row in rows]

    def finished_after(self, sequence: int, limit: int = 200) -> list[Job]:
        """Jobs done after a sequence number, in the order in which they finished."""
        query = f"SELECT {_COLUMNS} FROM jobs WHERE sequence > ? ORDER BY sequence LIMIT ?"
        with self._lock:
            return [Job(*row) for row in self._db.execute(query, (sequence, limit)).fetchall()]

    def last_sequence(self) -> int:
        """The number of the job that finished last; 0 when none did."""
        with self._lock:
            return int(self._db.execute("SELECT COALESCE(MAX(sequence), 0) FROM jobs").fetchone()[0])

    def counts(self) -> dict[str, dict[str, int]]:
        """Jobs by state, and verdicts by status."""
        with self._lock:
            states = self._db.execute("SELECT state, COUNT(*) FROM jobs GROUP BY state").fetchall()
            statuses = self._db.execute(
                "SELECT status, COUNT(*) FROM jobs WHERE status IS NOT NULL GROUP BY status"
            ).fetchall()
        return {"state": dict(states), "status": dict(statuses)}

    def waiting(self, client: str | None = None) -> int:
        """Queued jobs, of one client or of all."""
        with self._lock:
            if client is None:
                row = self._db.execute("SELECT COUNT(*) FROM jobs WHERE state = 'queued'").fetchone()
            else:
                row = self._db.execute(
                    "SELECT COUNT(*) FROM jobs WHERE state = 'queued' AND client = ?", (client,)
                ).fetchone()
        return int(row[0])

    def prune(self, older_than_s: float) -> int:
        """Delete finished and cancelled jobs of that age; how many."""
        with self._transaction() as db:
            changed = db.execute(
                "DELETE FROM jobs WHERE state IN ('done', 'cancelled') AND finished < ?", (time.time() - older_than_s,)
            )
            db.execute("DELETE FROM names WHERE job_id NOT IN (SELECT id FROM jobs)")
            return changed.rowcount
