"""The durable queue: every accepted job is in SQLite before it is acknowledged; leases; stored results.

States: ``queued`` -> ``leased`` -> ``done``, or ``cancelled``. A lease has an owner and an end; when the end passes
without a heartbeat, the job is queued again. Only the owner of the current lease can complete a job, so a result is
recorded once, whichever process was killed when. All times are Unix seconds.

One connection writes (``synchronous=FULL``: a commit is on the disk, not only in the kernel's cache); two others read,
so that a look-up never waits for a disk.
"""

from __future__ import annotations

import fcntl
import secrets
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

from pydantic import ValidationError

from drkernel.gym.request import EvalRequest
from drkernel.serve.protocol import (
    JobResult,
    JobView,
    QueueFull,
    StoredRequest,
    StoreError,
    not_evaluated,
    pack,
    packed,
)
from drkernel.verdict import Status, Verdict

SCHEMA_VERSION = 4
"""of the tables, and of the requests and verdicts in them: it grows when the schema of any of these changes"""

TABLES = """
CREATE TABLE IF NOT EXISTS meta (version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY,
    key TEXT NOT NULL,            -- content hash of the request
    client TEXT NOT NULL,
    priority INTEGER NOT NULL,    -- higher first
    state TEXT NOT NULL,
    task_id TEXT NOT NULL,
    device TEXT NOT NULL,
    kind TEXT NOT NULL,           -- of the device: what stands before its colon
    request BLOB NOT NULL,        -- zlib of the request's JSON
    submitted REAL NOT NULL,
    started REAL,
    finished REAL,
    attempts INTEGER NOT NULL DEFAULT 0,
    owner TEXT,
    lease_until REAL,
    status TEXT,                  -- of the verdict
    verdict BLOB,                 -- zlib of the verdict's JSON
    result TEXT,                  -- the verdict in short, as JSON: protocol.JobResult
    sequence INTEGER              -- order of finishing, from 1
);
CREATE TABLE IF NOT EXISTS names (name TEXT PRIMARY KEY, job_id TEXT NOT NULL);
-- what would need a scan to count: jobs by state, verdicts by status, and the last number of finishing ever given
CREATE TABLE IF NOT EXISTS tally (what TEXT, name TEXT, n INTEGER NOT NULL, PRIMARY KEY (what, name)) WITHOUT ROWID;
"""

INDEXES = """
CREATE INDEX IF NOT EXISTS jobs_key ON jobs (key);
CREATE INDEX IF NOT EXISTS jobs_sequence ON jobs (sequence);
CREATE INDEX IF NOT EXISTS jobs_submitted ON jobs (submitted);
CREATE INDEX IF NOT EXISTS jobs_status ON jobs (status, submitted);
CREATE INDEX IF NOT EXISTS jobs_waiting ON jobs (kind, priority, client, submitted) WHERE state = 'queued';
CREATE INDEX IF NOT EXISTS jobs_running ON jobs (client) WHERE state = 'leased';

CREATE TRIGGER IF NOT EXISTS jobs_added AFTER INSERT ON jobs BEGIN
    INSERT INTO tally VALUES ('state', NEW.state, 1) ON CONFLICT (what, name) DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER IF NOT EXISTS jobs_moved AFTER UPDATE OF state ON jobs WHEN NEW.state != OLD.state BEGIN
    UPDATE tally SET n = n - 1 WHERE what = 'state' AND name = OLD.state;
    INSERT INTO tally VALUES ('state', NEW.state, 1) ON CONFLICT (what, name) DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER IF NOT EXISTS jobs_judged AFTER UPDATE OF status ON jobs WHEN OLD.status IS NULL BEGIN
    INSERT INTO tally VALUES ('status', NEW.status, 1) ON CONFLICT (what, name) DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER IF NOT EXISTS jobs_deleted AFTER DELETE ON jobs BEGIN
    UPDATE tally SET n = n - 1 WHERE what = 'state' AND name = OLD.state;
    UPDATE tally SET n = n - 1 WHERE what = 'status' AND name = OLD.status;
END;
"""


def claim(store: Path) -> IO[bytes]:
    """Take the exclusive right to serve a store, held until the file is closed or the process ends, in whatever way."""
    file = store.with_name(store.name + ".lock").open("wb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise StoreError(f"another service runs on {store}: stop it, or choose another --store") from error
    return file


def prepare(db: sqlite3.Connection, path: Path) -> None:
    """Create the tables, or raise :class:`StoreError` for those of another version."""
    known = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone()
    row = db.execute("SELECT version FROM meta").fetchone() if known else None
    if row is None:
        first = f"INSERT INTO meta VALUES ({SCHEMA_VERSION}); INSERT INTO tally VALUES ('sequence', '', 0);"
        db.executescript(f"BEGIN IMMEDIATE; {TABLES} {first} {INDEXES} COMMIT;")
    elif row[0] != SCHEMA_VERSION:
        raise StoreError(
            f"{path} is a store of version {row[0]}; this program reads {SCHEMA_VERSION}: choose another --store, and "
            "export this one with the drkernel that wrote it"
        )


# ---- The durable queue


_EQUAL = (
    "SELECT id FROM jobs WHERE key = ? AND state != 'cancelled' "
    "AND (status IS NULL OR status NOT IN ('infra_error', 'invalid_request')) "
    "ORDER BY submitted LIMIT 1"
)

# The kinds of device with queued jobs, each found by one step in the index.
_KINDS = """
WITH RECURSIVE waiting (kind) AS (
    SELECT MIN(kind) FROM jobs WHERE state = 'queued'
    UNION ALL
    SELECT (SELECT MIN(kind) FROM jobs WHERE state = 'queued' AND kind > waiting.kind)
    FROM waiting WHERE waiting.kind IS NOT NULL
)
SELECT kind FROM waiting WHERE kind IS NOT NULL
"""
# The clients with queued jobs of one kind and priority (each found by one step in the index), with their running jobs
# and the time of their oldest queued one: the fewest running first, then the oldest.
_NEXT_CLIENT = """
WITH RECURSIVE waiting (client) AS (
    SELECT (SELECT MIN(client) FROM jobs WHERE state = 'queued' AND kind = :kind AND priority = :priority)
    UNION ALL
    SELECT (SELECT MIN(client) FROM jobs WHERE state = 'queued' AND kind = :kind AND priority = :priority
            AND client > waiting.client) FROM waiting WHERE waiting.client IS NOT NULL
)
SELECT (SELECT COUNT(*) FROM jobs WHERE state = 'leased' AND client = waiting.client) AS running,
       (SELECT MIN(submitted) FROM jobs WHERE state = 'queued' AND kind = :kind AND priority = :priority
        AND client = waiting.client) AS oldest, client
FROM waiting WHERE client IS NOT NULL ORDER BY running, oldest LIMIT 1
"""


_FIELDS = tuple(name for name in JobView.model_fields if name not in ("result", "verdict"))
_COLUMNS = ", ".join((*_FIELDS, "result"))


def _job(row: Sequence[Any]) -> JobView:
    """A row of :data:`_COLUMNS` as a record; the verdict stays in the store."""
    *values, result = row
    short = None if result is None else JobResult.model_validate_json(result)
    return JobView.model_construct(None, **dict(zip(_FIELDS, values, strict=True)), result=short)


class Store:
    """One SQLite file in WAL mode. Thread-safe; a context manager."""

    def __init__(self, path: Path | str):
        """Open or create the store.

        Raises:
            StoreError: the file cannot be opened, or holds what this version cannot read.
        """
        self.path = Path(path)
        self._lock, self._read_lock, self._scan_lock = threading.RLock(), threading.Lock(), threading.Lock()
        self._depth, self._synced = 0, True
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._db = self._connect()
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute("PRAGMA journal_size_limit=67108864")
            prepare(self._db, self.path)
            self._reader, self._scanner = self._connect(), self._connect()
            for reading in (self._reader, self._scanner):
                reading.execute("PRAGMA query_only=ON")
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"cannot open the store {self.path}: {error}") from error

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, check_same_thread=False, isolation_level=None, timeout=5.0)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; acknowledged jobs are on the disk already."""
        with self._lock, self._read_lock, self._scan_lock:
            for connection in (self._reader, self._scanner, self._db):
                connection.close()

    @contextmanager
    def transaction(self, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """Run a transaction; nested in another one of the same thread, it is a savepoint that can fail alone.

        ``durable`` False leaves it to the next durable commit to bring this one to the disk. A killed process loses
        nothing by that; a power failure may lose a lease or a heartbeat, after which the job is queued again.

        Raises :class:`StoreError`.
        """
        with self._lock:
            nested = self._depth > 0
            if not nested and durable != self._synced:
                self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
                self._synced = durable
            begin, end, undo = ("SAVEPOINT part", "RELEASE part", "ROLLBACK TO part") if nested else _WHOLE
            try:
                self._db.execute(begin)
                self._depth += 1
                try:
                    yield self._db
                    self._db.execute(end)
                except BaseException:
                    if self._db.in_transaction:  # a full disk ends the transaction by itself
                        self._db.execute(undo)
                        if nested:
                            self._db.execute(end)
                    raise
                finally:
                    self._depth -= 1
            except sqlite3.Error as error:
                raise self._refusal(error) from error

    def _refusal(self, error: sqlite3.Error) -> StoreError:
        refusal = StoreError(f"the store {self.path} refused: {error}")
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        # a write-ahead log that cannot grow on a full disk reports an input/output error
        refusal.full = code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _no_room(self.path))
        refusal.locked = code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
        return refusal

    def _look(self, query: str, values: Sequence[Any] = (), *, scan: bool = False) -> list[Any]:
        """Return the rows of a read-only query, through the connection for look-ups or the one for scans."""
        lock, connection = (self._scan_lock, self._scanner) if scan else (self._read_lock, self._reader)
        with lock:
            try:
                return connection.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise self._refusal(error) from error

    # ---- accepting

    def submit(
        self,
        requests: Sequence[EvalRequest | StoredRequest],
        *,
        client: str = "local",
        priority: int = 0,
        fresh: bool = False,
        names: Sequence[str] | None = None,
        max_queue: int | None = None,
    ) -> list[str]:
        """Accept requests, all or none; return their ids in order. ``names`` are aliases of the jobs (one each).

        A request equal to one that is queued, running or has a verdict (other than ``infra_error``) gets that job's id,
        unless ``fresh``. Raises :class:`QueueFull` when more than ``max_queue`` jobs would be queued, and
        :class:`StoreError` when they cannot be made durable.
        """
        now = time.time()
        ids, new = [], 0
        with self.transaction() as db:
            for request in requests:
                one = request if isinstance(request, StoredRequest) else pack(request)
                found = None if fresh else db.execute(_EQUAL, (one.key,)).fetchone()
                if found is not None:
                    ids.append(found[0])
                    continue
                job_id = secrets.token_hex(12)
                db.execute(
                    "INSERT INTO jobs (id, key, client, priority, state, task_id, device, request, submitted, kind) "
                    "VALUES (?, ?, ?, ?, 'queued', ?, ?, ?, ?, ?)",
                    (
                        job_id, one.key, client, priority, one.task_id, one.device, one.blob, now,
                        one.kind,
                    ),
                )  # fmt: skip
                ids.append(job_id)
                new += 1
            (waiting,) = db.execute("SELECT COALESCE(SUM(n), 0) FROM tally WHERE name = 'queued'").fetchone()
            if max_queue is not None and new and waiting > max_queue:
                raise QueueFull(waiting - new)
            if names is not None:
                db.executemany("INSERT OR REPLACE INTO names VALUES (?, ?)", zip(names, ids, strict=True))
        return ids

    def known(self, keys: Iterable[str]) -> list[str] | None:
        """Return the ids of the jobs of all these keys, without writing; None when any key is new."""
        ids = []
        for key in keys:
            rows = self._look(_EQUAL, (key,))
            if not rows:
                return None
            ids.append(rows[0][0])
        return ids

    def cancel(self, job_id: str) -> bool:
        """Cancel a queued job; return False when it runs, is done or does not exist."""
        with self.transaction() as db:
            changed = db.execute(
                "UPDATE jobs SET state = 'cancelled', finished = ? WHERE id = ? AND state = 'queued'",
                (time.time(), job_id),
            )
            return changed.rowcount == 1

    def alias(self, name: str) -> str | None:
        """Return the job that a client's name stands for; a name given again stands for the later job."""
        rows = self._look("SELECT job_id FROM names WHERE name = ?", (name,))
        return str(rows[0][0]) if rows else None

    # ---- working

    def lease(
        self, owner: str, seconds: float, *, kinds: Sequence[str] | None = None
    ) -> tuple[JobView, EvalRequest] | None:
        """Lease the next job: highest priority, then the client with the fewest running, then the oldest.

        ``kinds`` are the kinds of devices ("sim", "cuda") that the owner has; None takes any.
        """
        now = time.time()
        with self.transaction() as db:
            chosen = self._next(db, kinds)
            if chosen is None:
                return None
            job_id, blob = chosen
            db.execute(
                "UPDATE jobs SET state = 'leased', owner = ?, lease_until = ?, started = ?, attempts = attempts + 1 "
                "WHERE id = ?",
                (owner, now + seconds, now, job_id),
            )
            job = _job(db.execute(f"SELECT {_COLUMNS} FROM jobs WHERE id = ?", (job_id,)).fetchone())
            try:
                return job, EvalRequest.model_validate_json(zlib.decompress(blob))
            except ValidationError as error:  # of another version of drkernel
                text = f"the stored request is not valid for this version: {error.errors()[0]['msg']}"
                _end_without_trial(db, job, "invalid_request", "StoredRequest", text)
        return self.lease(owner, seconds, kinds=kinds)

    @staticmethod
    def _next(db: sqlite3.Connection, kinds: Sequence[str] | None) -> tuple[str, bytes] | None:
        """Return id and request of the next job."""
        heads = []
        for kind in kinds if kinds is not None else [kind for (kind,) in db.execute(_KINDS)]:
            where = "state = 'queued' AND kind = ?"
            (priority,) = db.execute(f"SELECT MAX(priority) FROM jobs WHERE {where}", (kind,)).fetchone()
            if priority is not None:
                row = db.execute(_NEXT_CLIENT, {"kind": kind, "priority": priority}).fetchone()
                heads.append((-priority, *row, kind))
        if not heads:
            return None
        negative, _, _, client, kind = min(heads)
        row = db.execute(
            "SELECT id, request FROM jobs WHERE state = 'queued' AND kind = ? AND priority = ? AND client = ? "
            "ORDER BY submitted, rowid LIMIT 1",
            (kind, -negative, client),
        ).fetchone()
        return row[0], row[1]

    def heartbeat(self, owner: str, job_ids: Iterable[str], seconds: float) -> list[str]:
        """Extend leases; return the ids that ``owner`` still holds."""
        held = []
        with self.transaction() as db:
            for job_id in job_ids:
                changed = db.execute(
                    "UPDATE jobs SET lease_until = ? WHERE id = ? AND state = 'leased' AND owner = ?",
                    (time.time() + seconds, job_id, owner),
                )
                if changed.rowcount:
                    held.append(job_id)
        return held

    def complete(self, job_id: str, owner: str, verdict: Verdict) -> bool:
        """Record a verdict; return False, and change nothing, when ``owner`` no longer holds the job."""
        blob = packed(verdict)
        with self.transaction() as db:
            holds = "SELECT 1 FROM jobs WHERE id = ? AND state = 'leased' AND owner = ?"
            if db.execute(holds, (job_id, owner)).fetchone() is None:
                return False
            _end(db, job_id, verdict, blob)
            return True

    def give_back(self, job_id: str, owner: str, more_attempts: int = 0) -> bool:
        """Requeue a leased job that the worker could not do.

        ``more_attempts``: attempts made besides the one that the lease counted; -1 when there was none.
        """
        return self._requeue("id = ? AND owner = ?", (job_id, owner), more_attempts) == 1

    def expire(self, owners_gone: str | None = None) -> int:
        """Requeue jobs whose lease expired, or whose owner's name begins with ``owners_gone``; return how many."""
        gone = "(lease_until < ? OR substr(owner, 1, length(?)) = ?)"
        return self._requeue(gone, (time.time(), owners_gone, owners_gone))

    def take_back(self, owner: str, *, tried: bool) -> int:
        """Requeue the jobs of an ``owner`` that ended; return how many. ``tried``: each loses an attempt."""
        return self._requeue("owner = ?", (owner,), 0 if tried else -1)

    def _requeue(self, where: str, values: Sequence[Any], more_attempts: int = 0) -> int:
        """Queue leased jobs again, with so many attempts more; return how many."""
        with self.transaction() as db:
            changed = db.execute(
                "UPDATE jobs SET state = 'queued', owner = NULL, lease_until = NULL, "
                f"attempts = MAX(0, attempts + ?) WHERE state = 'leased' AND {where}",
                (more_attempts, *values),
            )
            return changed.rowcount

    def give_up(self, max_attempts: int) -> list[JobView]:
        """End queued jobs whose attempts are used up because every worker that leased them was lost; return the jobs,
        now done."""
        with self.transaction() as db:
            rows = db.execute(f"SELECT {_COLUMNS} FROM jobs WHERE state = 'queued' AND attempts >= ?", (max_attempts,))
            spent = [_job(row) for row in rows.fetchall()]
            for job in spent:
                text = f"given up after {job.attempts} attempts: each time whoever evaluated it was lost with it"
                _end_without_trial(db, job, "infra_error", "GivenUp", text)
            return spent

    # ---- asking

    def get(self, job_id: str) -> JobView | None:
        """Return a job by id; None if there is none."""
        rows = self._look(f"SELECT {_COLUMNS} FROM jobs WHERE id = ?", (job_id,))
        return _job(rows[0]) if rows else None

    def verdict(self, job_id: str) -> Verdict | None:
        """Return the verdict of a finished job; None otherwise."""
        blob = self.stored("verdict", job_id)
        return Verdict.model_validate_json(blob) if blob is not None else None

    def request(self, job_id: str) -> EvalRequest | None:
        """Return the request of a job; None if there is none."""
        blob = self.stored("request", job_id)
        return EvalRequest.model_validate_json(blob) if blob is not None else None

    def stored(self, column: Literal["request", "verdict"], job_id: str) -> bytes | None:
        """Return a job's request or verdict as the stored JSON; None if there is none."""
        rows = self._look(f"SELECT {column} FROM jobs WHERE id = ?", (job_id,))
        return zlib.decompress(rows[0][0]) if rows and rows[0][0] is not None else None

    def find(
        self,
        *,
        state: str | None = None,
        status: str | None = None,
        task: str | None = None,
        client: str | None = None,
        limit: int = 100,
        before: float | None = None,
    ) -> list[JobView]:
        """Return matching jobs, newest first; ``task`` matches part of the id."""
        wanted: list[tuple[str, Any]] = [
            ("state = ?", state), ("status = ?", status), ("client = ?", client), ("submitted < ?", before),
            ("instr(task_id, ?) > 0", task),
        ]  # fmt: skip
        clauses = [(clause, value) for clause, value in wanted if value is not None]
        where = " WHERE " + " AND ".join(clause for clause, _ in clauses) if clauses else ""
        query = f"SELECT {_COLUMNS} FROM jobs{where} ORDER BY submitted DESC, id LIMIT ?"
        return [_job(row) for row in self._look(query, (*(value for _, value in clauses), limit), scan=True)]

    def finished_after(self, sequence: int) -> list[JobView]:
        """Return the first 200 jobs done after a sequence number, in the order in which they finished."""
        query = f"SELECT {_COLUMNS} FROM jobs WHERE sequence > ? ORDER BY sequence LIMIT 200"
        return [_job(row) for row in self._look(query, (sequence,), scan=True)]

    def last_sequence(self) -> int:
        """Return the sequence number of the job that finished last, 0 if none did. Never reused after pruning."""
        return int(self._look("SELECT n FROM tally WHERE what = 'sequence'")[0][0])

    def counts(self) -> dict[str, dict[str, int]]:
        """Count jobs by state, and verdicts by status."""
        found: dict[str, dict[str, int]] = {"state": {}, "status": {}}
        for what, name, n in self._look("SELECT what, name, n FROM tally WHERE what != 'sequence' AND n > 0"):
            found[what][name] = n
        return found

    def kinds_waiting(self) -> list[str]:
        """Return the kinds of device that queued jobs need."""
        return [str(row[0]) for row in self._look(_KINDS)]

    def finished_since(self, when: float, limit: int = 100_000) -> list[tuple[float, float, str]]:
        """Return (finished, seconds from submission, status) of the last ``limit`` jobs done since ``when``."""
        rows = self._look(
            "SELECT finished, finished - submitted, status FROM jobs WHERE state = 'done' AND sequence > "
            "(SELECT n FROM tally WHERE what = 'sequence') - ? AND finished >= ? ORDER BY finished",
            (limit, when),
            scan=True,
        )
        return [(float(at), float(latency), str(status)) for at, latency, status in rows]

    def queue(self) -> list[dict[str, Any]]:
        """Return clients with queued or running jobs: counts, highest priority, time of the oldest queued job."""
        found: dict[str, dict[str, Any]] = {}
        waiting = (
            "SELECT client, COUNT(*), MAX(priority), MIN(submitted) FROM jobs WHERE state = 'queued' GROUP BY client"
        )
        for client, n, priority, oldest in self._look(waiting, scan=True):
            found[client] = {"client": client, "waiting": n, "running": 0, "priority": priority, "since": oldest}
        running = "SELECT client, COUNT(*) FROM jobs WHERE state = 'leased' GROUP BY client"
        for client, n in self._look(running, scan=True):
            row = {"client": client, "waiting": 0, "running": 0, "priority": None, "since": None}
            found.setdefault(client, row)["running"] = n
        return sorted(found.values(), key=lambda row: (-row["waiting"], -row["running"], row["client"]))[:100]

    def prune(self, older_than_s: float) -> int:
        """Delete finished and cancelled jobs of that age; return how many."""
        with self.transaction() as db:
            changed = db.execute(
                "DELETE FROM jobs WHERE state IN ('done', 'cancelled') AND finished < ?", (time.time() - older_than_s,)
            )
            db.execute("DELETE FROM names WHERE job_id NOT IN (SELECT id FROM jobs)")
            return changed.rowcount


_WHOLE = ("BEGIN IMMEDIATE", "COMMIT", "ROLLBACK")


def _no_room(path: Path) -> bool:
    import shutil

    return shutil.disk_usage(path.parent).free < 1 << 20


# ---- the end of a job


def _end(db: sqlite3.Connection, job_id: str, verdict: Verdict, blob: bytes) -> None:
    """Record a verdict, packed as ``blob``, inside a transaction."""
    db.execute("UPDATE tally SET n = n + 1 WHERE what = 'sequence'")
    db.execute(
        "UPDATE jobs SET state = 'done', finished = ?, status = ?, verdict = ?, result = ?, owner = NULL, "
        "lease_until = NULL, sequence = (SELECT n FROM tally WHERE what = 'sequence') WHERE id = ?",
        (time.time(), verdict.status, blob, JobResult.of(verdict).model_dump_json(), job_id),
    )


def _end_without_trial(db: sqlite3.Connection, job: JobView, status: Status, kind: str, message: str) -> None:
    """Record, inside a transaction, a verdict that says why ``job`` was not evaluated."""
    verdict = not_evaluated(status, job.task_id, job.device, kind, message, attempts=max(1, job.attempts))
    _end(db, job.id, verdict, packed(verdict))
