"""A run directory, read: what ``drkernel train`` wrote, tolerant of a run that is still going."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]


class RunError(ValueError):
    """The directory is no run, or a file in it is damaged; names the file and the line."""


@dataclass(frozen=True)
class RunData:
    """The data that a report shows."""

    directory: Path
    config: str
    metrics: list[Row]
    evaluations: list[Row]
    samples: list[Row]
    summary: Row | None
    """None while the run is not finished"""

    def stage(self, name: str) -> list[Row]:
        """Metrics of one stage, by step."""
        return sorted((row for row in self.metrics if row.get("stage") == name), key=lambda row: row["step"])

    def evaluation(self, label: str) -> Row | None:
        """The last evaluation with a label."""
        found = [row for row in self.evaluations if row.get("label") == label]
        return found[-1] if found else None


def read_run(directory: Path) -> RunData:
    """Read a run directory.

    Raises:
        RunError: it has no ``config.yaml``, or a row cannot be read.
    """
    config = directory / "config.yaml"
    if not config.is_file():
        raise RunError(f"{directory} is not a run: it has no config.yaml (runs are made by 'drkernel train RECIPE')")
    summary = directory / "summary.json"
    try:
        return RunData(
            directory,
            config.read_text(encoding="utf-8"),
            _rows(directory / "metrics.jsonl"),
            _rows(directory / "eval.jsonl"),
            _rows(directory / "samples.jsonl"),
            json.loads(summary.read_text(encoding="utf-8")) if summary.is_file() else None,
        )
    except json.JSONDecodeError as error:
        raise RunError(f"{summary}: {error}") from None


def _rows(path: Path) -> list[Row]:
    """JSON lines; a last line cut short by a kill is left out."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):
                break
            raise RunError(f"{path}, line {number}: {error}") from None
        if not isinstance(row, dict):
            raise RunError(f"{path}, line {number}: not an object")
        rows.append(row)
    return rows
