"""What a run keeps on disk: replies, so that none is paid for twice, and attempts, one line each as they come.

Both survive ``kill -9``: a reply is committed before it is graded, an attempt is one appended line, and a line that was
torn by the kill is cut off when the run is opened again.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drkernel.config import ConfigError
from drkernel.episode.chat import Reply


class ReplyCache:
    """Replies by content hash in one SQLite file; several processes may share it."""

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        try:
            self._db = sqlite3.connect(path, timeout=30, check_same_thread=False, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute("CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT NOT NULL)")
        except sqlite3.Error as error:
            raise ConfigError(f"cannot use the reply cache {path}: {error}") from error

    def get(self, key: str) -> Reply | None:
        """The reply kept under ``key``, if any."""
        with self._lock:
            row = self._db.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
        return None if row is None else Reply.model_validate_json(row[0])

    def put(self, key: str, reply: Reply) -> None:
        """Keep a reply; on return it is safe from the death of this process."""
        with self._lock:
            self._db.execute("INSERT OR IGNORE INTO replies VALUES (?, ?)", (key, reply.model_dump_json()))

    def __len__(self) -> int:
        with self._lock:
            return int(self._db.execute("SELECT COUNT(*) FROM replies").fetchone()[0])

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()


class Journal:
    """An append-only JSONL file with one writer at a time.

    Raises :class:`ConfigError` when another process writes it.
    """

    def __init__(self, path: Path):
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 (kept open; closed in close())
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise ConfigError(f"{path} is being written by another process; wait for it or end it") from None
        cut_torn_line(path)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every row so far. Raises :class:`ConfigError` naming a damaged line."""
        yield from read_rows(self.path)

    def append(self, row: str) -> None:
        """Add one row, given as JSON without line breaks."""
        self._file.write(row + "\n")
        self._file.flush()

    def close(self) -> None:
        """Bring the file to the disk and let it go."""
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()


def cut_torn_line(path: Path) -> None:
    """Cut off a last line without its line break: the process died while it wrote it."""
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        os.truncate(path, data.rfind(b"\n") + 1)


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a JSONL file; a torn last line is left out.

    Raises:
        ConfigError: the file cannot be read, or a line before the last is damaged.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    for number, line in enumerate(text.split("\n")[:-1], 1):
        try:
            yield json.loads(line)
        except json.JSONDecodeError as error:
            raise ConfigError(f"{path}, line {number}: {error.msg}; the file was changed by something else") from None
