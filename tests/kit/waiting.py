"""Waiting for what another thread or process does."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def until(what: Callable[[], T], seconds: float = 60.0, every: float = 0.02) -> T:
    """The first value of ``what()`` that is true; fails where none is in time."""
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(every)
    return found


def gone(pid: int) -> bool:
    """Whether a process has ended. Where nobody collects one that is no child of ours, it stays as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True
