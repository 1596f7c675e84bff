"""Long tables of pages: a CSV file beside the page, which GitHub and the built site show with a search field."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

RULE = re.compile(r"\|[\s:|-]+\|")
"""the line between head and body of a Markdown table"""
BAR = re.compile(r"(?<!\\)\|")
"""what stands between cells"""


def write_table(path: Path, rows: Sequence[Sequence[str]]) -> str:
    """Write rows, the head first, and return the line by which a page in the same folder shows them."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    return f"[{path.name}, {len(rows) - 1} rows]({path.name})"


def cells(lines: Iterable[str]) -> list[list[str]]:
    """The rows of a Markdown table."""
    return [
        [cell.strip().replace("\\|", "|") for cell in BAR.split(line.strip())[1:-1]]
        for line in lines
        if not RULE.fullmatch(line.strip())
    ]
