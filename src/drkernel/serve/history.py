"""Throughput and latency over the last hour, in bins of ten seconds, for the live page."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

BIN_S = 10
BINS = 360
_KEPT = 512
"""most latencies of a bin that are kept; a busier bin keeps its first ones"""


@dataclass
class Bin:
    """The verdicts of ten seconds."""

    start: int
    count: int = 0
    failed: int = 0
    """infrastructure errors among them"""
    latencies: list[float] = field(default_factory=list)
    """seconds from submission"""


class History:
    """Bins in order of time, without empty ones."""

    def __init__(self) -> None:
        self._bins: deque[Bin] = deque(maxlen=BINS)

    def add(self, finished: float, latency: float, status: str) -> None:
        """Add a verdict; times must be in order, up to the bin's width."""
        start = int(finished) // BIN_S * BIN_S
        if not self._bins or self._bins[-1].start < start:
            self._bins.append(Bin(start))
        latest = self._bins[-1]
        latest.count += 1
        latest.failed += status == "infra_error"
        if len(latest.latencies) < _KEPT:
            latest.latencies.append(latency)

    def rows(self, seconds: float = BIN_S * BINS) -> list[tuple[int, int, int, float, float]]:
        """Return (start, verdicts, infrastructure errors, median seconds, 95th percentile) of every non-empty bin."""
        since = time.time() - seconds
        return [
            (one.start, one.count, one.failed, round(quantile(one.latencies, 0.5), 4),
             round(quantile(one.latencies, 0.95), 4))
            for one in self._bins if one.start >= since
        ]  # fmt: skip

    def latency(self, seconds: float = 300.0) -> dict[str, float]:
        """Return median and 95th percentile (seconds) over the last ``seconds``; empty when there was no verdict."""
        since = time.time() - seconds
        values = [value for one in self._bins if one.start >= since - BIN_S for value in one.latencies]
        return {"p50": quantile(values, 0.5), "p95": quantile(values, 0.95)} if values else {}


def quantile(values: list[float], share: float) -> float:
    """Return the smallest value that at least ``share`` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
