"""The store's tables, the migration of older files, and queries that only their indexes make fast."""

from __future__ import annotations

import fcntl
import sqlite3
import zlib
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from drkernel.base.files import replacing
from drkernel.gym.request import EvalRequest
from drkernel.serve.jobs import StoreError, packed
from drkernel.serve.protocol import JobResult
from drkernel.verdict import Verdict

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
    kind TEXT NOT NULL DEFAULT '', -- of the device: what stands before its colon
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

_FROM_1 = """
ALTER TABLE jobs ADD COLUMN kind TEXT NOT NULL DEFAULT '';
UPDATE jobs SET kind = substr(device, 1, instr(device || ':', ':') - 1);
DROP INDEX IF EXISTS jobs_queue;
DROP INDEX IF EXISTS jobs_task;
DELETE FROM tally;
INSERT INTO tally SELECT 'state', state, COUNT(*) FROM jobs GROUP BY state;
INSERT INTO tally SELECT 'status', status, COUNT(*) FROM jobs WHERE status IS NOT NULL GROUP BY status;
INSERT INTO tally SELECT 'sequence', '', COALESCE(MAX(sequence), 0) FROM jobs;
"""

_FROM_2 = "ALTER TABLE jobs ADD COLUMN result TEXT;"


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
    """Create the tables, or migrate those of an earlier version, with a copy of the file beside it (``NAME.v3``).

    Raises :class:`StoreError`, and changes nothing, for a version that is not known or a record that cannot be read.
    """
    found = _version(db)
    if found is None:
        first = f"INSERT INTO meta VALUES ({SCHEMA_VERSION}); INSERT INTO tally VALUES ('sequence', '', 0);"
        db.executescript(f"BEGIN IMMEDIATE; {TABLES} {first} {INDEXES} COMMIT;")
    elif not 1 <= found <= SCHEMA_VERSION:
        raise StoreError(f"{path} is a store of version {found}; this program reads 1 to {SCHEMA_VERSION}")
    elif found < SCHEMA_VERSION:
        with claim(path):
            if _version(db) == found:
                _migrate(db, path, found)


def _version(db: sqlite3.Connection) -> int | None:
    known = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone()
    row = db.execute("SELECT version FROM meta").fetchone() if known else None
    return None if row is None else int(row[0])


def _migrate(db: sqlite3.Connection, path: Path, found: int) -> None:
    with replacing(path.with_name(f"{path.name}.v{found}")) as backup:
        db.execute("VACUUM INTO ?", (str(backup),))
    steps = [TABLES, *([_FROM_1] if found < 2 else []), *([_FROM_2] if found < 3 else []), INDEXES]
    try:
        db.executescript("\n".join(["BEGIN IMMEDIATE;", *steps]))
        for (job_id,) in db.execute("SELECT id FROM jobs").fetchall():
            blobs = db.execute("SELECT request, verdict FROM jobs WHERE id = ?", (job_id,)).fetchone()
            try:
                now = _rewritten(*blobs)
            except (ValidationError, zlib.error) as error:
                why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
                raise StoreError(
                    f"{path} is a store of version {found}, and its job {job_id} cannot be read by this version of "
                    f"drkernel ({why}); the store is as it was"
                ) from error
            db.execute("UPDATE jobs SET request = ?, verdict = ?, result = ? WHERE id = ?", (*now, job_id))
        db.execute("UPDATE meta SET version = ?", (SCHEMA_VERSION,))
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _rewritten(request: bytes, verdict: bytes | None) -> tuple[bytes, bytes | None, str | None]:
    """Return the records of a job, and its result in short, in the present version."""
    asked = packed(EvalRequest.model_validate_json(zlib.decompress(request)))
    if verdict is None:
        return asked, None, None
    judged = Verdict.model_validate_json(zlib.decompress(verdict))
    return asked, packed(judged), JobResult.of(judged).model_dump_json()


def waiting_kinds(db: sqlite3.Connection) -> list[str]:
    """Return the kinds of device with queued jobs, each found by one step in the index."""
    kinds: list[str] = []
    query = "SELECT MIN(kind) FROM jobs WHERE state = 'queued' AND kind > ?"
    (found,) = db.execute("SELECT MIN(kind) FROM jobs WHERE state = 'queued'").fetchone()
    while found is not None:
        kinds.append(found)
        (found,) = db.execute(query, (found,)).fetchone()
    return kinds
