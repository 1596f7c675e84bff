"""The files of a run on disk: cached replies, so that none is paid for twice, and a journal of graded turns.

Both survive ``kill -9``. A reply is committed before it is graded, a turn is one appended line, and a line torn by the
kill is cut off when the run is opened again. Bench, search and cold start resume from these files.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError, model_validator

from drkernel.config import Config, ConfigError
from drkernel.episode.chat import Reply
from drkernel.episode.records import COMPLETE, End, Turn, best_path

Key = tuple[str, int]
"""(task id, sample)"""


class JournalEntry(Config):
    """One line of a journal: a graded turn of a trajectory, or the reason why the trajectory ended."""

    task_id: str
    sample: int = 0
    turn: Turn | None = None
    end: End | None = None
    detail: str = ""

    @model_validator(mode="after")
    def _says_one_thing(self) -> JournalEntry:
        if (self.turn is None) == (self.end is None):
            raise ValueError("a line of a journal holds either a turn or an end")
        return self


@dataclass
class Played:
    """The trajectories of a journal."""

    made: dict[Key, dict[str, Turn]] = field(default_factory=dict)
    """(task id, sample) -> turn's id -> turn"""
    ended: dict[Key, JournalEntry] = field(default_factory=dict)

    def add(self, entry: JournalEntry) -> None:
        """Add one line; it replaces an earlier line of the same turn."""
        key = (entry.task_id, entry.sample)
        if entry.turn is not None:
            self.made.setdefault(key, {})[entry.turn.id] = entry.turn
        else:
            self.ended[key] = entry

    def turns(self, key: Key) -> list[Turn]:
        """Return the graded turns of one trajectory in order, including branches."""
        made = self.made.get(key, {}).values()
        return sorted((turn for turn in made if turn.valid), key=lambda turn: turn.position)

    def path(self, key: Key) -> list[Turn]:
        """Return the graded turns on the path: those that the conversation continued from."""
        return [turn for turn in best_path(self.made.get(key, {}).values()) if turn.valid]

    def complete(self, key: Key) -> bool:
        """Return whether the trajectory is finished."""
        ended = self.ended.get(key)
        return ended is not None and ended.end in COMPLETE

    def why_missing(self, keys: Sequence[Key]) -> dict[str, int]:
        """Count the incomplete trajectories by reason, in words, with the first detail of each reason as an example."""
        details: dict[str, list[str]] = {}
        for key in keys:
            ended = self.ended.get(key)
            reason = "not played yet" if ended is None else str(ended.end)
            details.setdefault(reason, []).append(ended.detail if ended else "")
        reasons = {}
        for end, said in details.items():
            joint = ": " if len(set(said)) == 1 else ", e.g. "
            reasons[f"{end}{joint}{said[0][:300]}" if said[0] else end] = len(said)
        return reasons


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
        """Return the reply stored under ``key``; None if there is none."""
        with self._lock:
            row = self._db.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
        return None if row is None else Reply.model_validate_json(row[0])

    def put(self, key: str, reply: Reply) -> None:
        """Store a reply. Once this returns, the reply survives the death of this process."""
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

    def append(self, entry: JournalEntry) -> None:
        """Append one line. Once this returns, the line survives the death of this process."""
        self._file.write(entry.model_dump_json() + "\n")
        self._file.flush()

    def close(self) -> None:
        """Flush the file to disk and close it."""
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()


def read_journal(path: Path) -> Played:
    """Read the trajectories of a journal, even while it is written. Raises :class:`ConfigError` naming a bad line."""
    played = Played()
    for number, row in enumerate(read_rows(path), 1):
        try:
            played.add(JournalEntry.model_validate(row))
        except ValidationError as error:
            raise ConfigError(f"{path}, line {number}: {error.errors()[0]['msg']}") from None
    return played


def cut_torn_line(path: Path) -> None:
    """Truncate a last line without a line break: the process died while writing it."""
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        os.truncate(path, data.rfind(b"\n") + 1)


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a JSONL file, except a torn last line.

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
