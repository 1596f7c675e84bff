"""``script:PATH``: replies from a file or a directory, for tests and demonstrations.

A ``.jsonl`` file holds one object per line: ``reply``, and optionally the conditions ``task`` (an id, or its part after
a slash), ``sample`` and ``turn``; an omitted condition matches everything. Of the lines that match, the one with the
most conditions wins, then the first. A directory holds ``turn1.md``, ``turn2.md``, ... for every task; a folder in it
named after the last part of a task's id holds the same files for that task. Asking past the last turn is an error.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from pydantic import Field, ValidationError

from drkernel.config import Config, ConfigError
from drkernel.episode.answerer import ModelCall, ModelError, estimated_usage
from drkernel.episode.chat import Reply


class ScriptLine(Config):
    """One reply and the conditions under which it is used."""

    reply: str
    task: str | None = Field(None, description="the task's id, or its end after a slash")
    sample: int | None = Field(None, ge=0)
    turn: int | None = Field(None, ge=1)

    def matches(self, call: ModelCall) -> bool:
        """Return whether this line may answer ``call``."""
        named = self.task is None or call.task_id == self.task or call.task_id.endswith("/" + self.task)
        return named and self.sample in (None, call.sample) and self.turn in (None, call.turn)

    @property
    def says(self) -> int:
        """How many of the three conditions the line states."""
        return sum(value is not None for value in (self.task, self.sample, self.turn))


class ScriptModel:
    """Answers with replies read from files. Raises :class:`ConfigError` for a path without any."""

    def __init__(self, path: str | Path):
        self.name = f"script:{path}"
        self._lines = _read(Path(path))

    async def complete(self, call: ModelCall) -> Reply:
        """Answer with the line that matches most specifically. Raises :class:`ModelError` when none matches."""
        fitting = [line for line in self._lines if line.matches(call)]
        if not fitting:
            raise ModelError(f"{self.name} holds no reply for task {call.task_id}, turn {call.turn}")
        text = max(fitting, key=lambda line: line.says).reply
        return Reply(text=text, usage=estimated_usage(call, text), model=self.name)

    async def close(self) -> None:
        """Do nothing: no file stays open."""


def _read(path: Path) -> list[ScriptLine]:
    lines = _directory(path) if path.is_dir() else _file(path)
    if not lines:
        raise ConfigError(f"{path} holds no reply: give a .jsonl file, or a directory of turn1.md, turn2.md, ...")
    return lines


def _directory(path: Path) -> list[ScriptLine]:
    found = []
    for file in sorted(path.rglob("turn*.md")):
        number = re.fullmatch(r"turn(\d+)\.md", file.name)
        if number is not None:
            task = "/".join(file.parent.relative_to(path).parts) or None
            found.append(ScriptLine(reply=file.read_text(encoding="utf-8"), task=task, turn=int(number[1])))
    return found


def _file(path: Path) -> list[ScriptLine]:
    try:
        rows = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the script {path}: {error}") from error
    lines = []
    for number, row in enumerate(rows, 1):
        if row.strip():
            try:
                lines.append(ScriptLine.model_validate(json.loads(row)))
            except (json.JSONDecodeError, ValidationError) as error:
                reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
                raise ConfigError(f"{path}, line {number}: {reason}") from None
    return lines
