"""Reads parquet files, with the extra ``drkernel[data]``."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def read_rows(path: Path, error: type[ValueError]) -> tuple[set[str], list[dict[str, Any]]]:
    """Return the names of a file's columns, and its rows.

    Raises ``error`` when the file cannot be read or pyarrow is not installed.
    """
    try:
        import pyarrow.parquet as parquet
    except ImportError as missing:
        raise error("reading parquet needs pyarrow: pip install 'drkernel[data]'") from missing
    try:
        table = parquet.read_table(path)
    except (OSError, ValueError) as unreadable:
        raise error(f"cannot read {path}: {unreadable}") from unreadable
    return set(table.column_names), table.to_pylist()
