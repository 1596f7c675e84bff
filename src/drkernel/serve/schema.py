"""The store's tables, the migration of older files, and queries that only their indexes make fast."""

from __future__ import annotations

import sqlite3

SCHEMA_VERSION = 3

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

_FROM_2 = f"""
ALTER TABLE jobs ADD COLUMN result TEXT;
UPDATE meta SET version = {SCHEMA_VERSION};
"""


def prepare(db: sqlite3.Connection) -> int:
    """Create the tables, or migrate those of versions 1 and 2; return the version found (ours for a new file).

    A file of an unknown version is not changed.
    """
    known = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone()
    row = db.execute("SELECT version FROM meta").fetchone() if known else None
    if row is not None and row[0] not in (1, 2, SCHEMA_VERSION):
        return int(row[0])
    steps = [TABLES]
    if row is None:
        steps += [f"INSERT INTO meta VALUES ({SCHEMA_VERSION});", "INSERT INTO tally VALUES ('sequence', '', 0);"]
    elif row[0] < SCHEMA_VERSION:
        steps += [_FROM_1, _FROM_2] if row[0] == 1 else [_FROM_2]
    db.executescript("\n".join(["BEGIN IMMEDIATE;", *steps, INDEXES, "COMMIT;"]))
    return SCHEMA_VERSION


def waiting_kinds(db: sqlite3.Connection) -> list[str]:
    """Return the kinds of device with queued jobs, each found by one step in the index."""
    kinds: list[str] = []
    query = "SELECT MIN(kind) FROM jobs WHERE state = 'queued' AND kind > ?"
    (found,) = db.execute("SELECT MIN(kind) FROM jobs WHERE state = 'queued'").fetchone()
    while found is not None:
        kinds.append(found)
        (found,) = db.execute(query, (found,)).fetchone()
    return kinds
