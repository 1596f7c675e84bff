"""``script:PATH``: replies from a file or a directory, for tests and demonstrations.

A ``.jsonl`` file holds one object a line: ``reply``, and optionally ``task`` (an id, or the end of one after a
slash), ``sample`` and ``turn``, which say what it answers; what is left out matches everything. Of the lines that
match, the one that says most wins, then the first. A directory holds ``turn1.md``, ``turn2.md``, ... for any task, and
the same names in folders called like tasks' last parts for one task. Past the last turn there is no reply: an error.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from pydantic import Field, ValidationError

from drkernel.config import Config, ConfigError
from drkernel.episode.answerer import Call, ModelError, estimated_usage
from drkernel.episode.chat import Reply


class Line(Config):
    """One reply and what it answers."""

    reply: str
    task: str | None = Field(None, description="the task's id, or its end after a slash")
    sample: int | None = Field(None, ge=0)
    turn: int | None = Field(None, ge=1)

    def matches(self, call: Call) -> bool:
        """Whether this line may answer ``call``."""
        named = self.task is None or call.task_id == self.task or call.task_id.endswith("/" + self.task)
        return named and self.sample in (None, call.sample) and self.turn in (None, call.turn)

    @property
    def says(self) -> int:
        """How many of the three conditions it states."""
        return sum(value is not None for value in (self.task, self.sample, self.turn))


class ScriptModel:
    """Replies that stand written. Raises :class:`ConfigError` for a path that holds none."""

    def __init__(self, path: str | Path):
        self.name = f"script:{path}"
        self._lines = _read(Path(path))

    async def complete(self, call: Call) -> Reply:
        """The line that fits best."""
        fitting = [line for line in self._lines if line.matches(call)]
        if not fitting:
            raise ModelError(f"{self.name} holds no reply for task {call.task_id}, turn {call.turn}")
        text = max(fitting, key=lambda line: line.says).reply
        return Reply(text=text, usage=estimated_usage(call, text), model=self.name)

    async def close(self) -> None:
        """Nothing is open."""


def _read(path: Path) -> list[Line]:
    lines = _directory(path) if path.is_dir() else _file(path)
    if not lines:
        raise ConfigError(f"{path} holds no reply: give a .jsonl file, or a directory of turn1.md, turn2.md, ...")
    return lines


def _directory(path: Path) -> list[Line]:
    found = []
    for file in sorted(path.rglob("turn*.md")):
        number = re.fullmatch(r"turn(\d+)\.md", file.name)
        if number is not None:
            task = "/".join(file.parent.relative_to(path).parts) or None
            found.append(Line(reply=file.read_text(encoding="utf-8"), task=task, turn=int(number[1])))
    return found


def _file(path: Path) -> list[Line]:
    try:
        rows = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the script {path}: {error}") from error
    lines = []
    for number, row in enumerate(rows, 1):
        if row.strip():
            try:
                lines.append(Line.model_validate(json.loads(row)))
            except (json.JSONDecodeError, ValidationError) as error:
                reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
                raise ConfigError(f"{path}, line {number}: {reason}") from None
    return lines
