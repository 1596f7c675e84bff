"""A pool that remembers verdicts on disk, so that equal requests are evaluated once, however many runs make them.

Only repeatable verdicts are remembered: those of requests with a seed whose outcome no clock influenced. The file is
bound to the code that judges; verdicts of another version are never used.
"""

from __future__ import annotations

import sqlite3
import zlib
from pathlib import Path
from typing import Any

from drkernel.config import ConfigError
from drkernel.digest import source_digest
from drkernel.gym.request import EvalRequest, Pool
from drkernel.verdict import Verdict

REPEATABLE = frozenset({"correct", "incorrect", "compile_error", "runtime_error", "hack", "unsupported"})
"""statuses that do not depend on how busy the machine was, unless exact verification is open: it may have taken too
long"""
JUDGING = ("gym", "sim", "tasks")
"""packages that decide about a verdict, besides the records beside them"""


def code_digest() -> str:
    """Return a digest of the source that judges."""
    return source_digest(*JUDGING)


class RememberingPool:
    """Answers from the file at ``path``; asks ``pool`` for the rest and stores its repeatable verdicts."""

    def __init__(self, pool: Pool, path: Path):
        """Open or create the file. Raises :class:`ConfigError` when that fails."""
        self._pool, self._hits = pool, 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = sqlite3.connect(path, timeout=60, isolation_level=None)
            self._file.execute("PRAGMA journal_mode=WAL")
            self._file.execute("PRAGMA synchronous=NORMAL")
            self._file.execute("CREATE TABLE IF NOT EXISTS verdicts (key TEXT PRIMARY KEY, verdict BLOB) WITHOUT ROWID")
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(f"cannot keep verdicts in {path}: {error}") from error

    async def evaluate(self, request: EvalRequest) -> Verdict:
        """Return the remembered verdict, else the pool's."""
        if request.settings.seed is None:
            return await self._pool.evaluate(request)
        key = f"{code_digest()[:16]}-{request.key}"
        row = self._file.execute("SELECT verdict FROM verdicts WHERE key = ?", (key,)).fetchone()
        if row is not None:
            self._hits += 1
            return Verdict.model_validate_json(zlib.decompress(row[0]))
        verdict = await self._pool.evaluate(request)
        if verdict.status in REPEATABLE and (verdict.exactness is None or verdict.exactness.outcome != "open"):
            packed = zlib.compress(verdict.model_dump_json().encode())
            self._file.execute("INSERT OR REPLACE INTO verdicts VALUES (?, ?)", (key, packed))
        return verdict

    def health(self) -> dict[str, Any]:
        """Return the pool's health, and how many verdicts came from the file."""
        return {**self._pool.health(), "remembered": self._hits}

    async def close(self) -> None:
        """Close the file and the pool."""
        self._file.close()
        await self._pool.close()
