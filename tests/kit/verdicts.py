"""Verdicts as a judge would give them, without a judge."""

from typing import Any

from drkernel.verdict import Speedup, Verdict


def verdict_of(status: Any = "correct", **parts: Any) -> Verdict:
    """A verdict with these parts, on a task ``t`` and a simulated H200 unless they say otherwise."""
    return Verdict(**{"task_id": "t", "candidate_sha256": "0" * 64, "device": "sim:h200", **parts, "status": status})


class Judge:
    """A pool without ``evaluate``, which tests add."""

    def health(self) -> dict[str, Any]:
        return {}

    async def close(self) -> None: ...


def speedup_of(value: float, low: float | None = None) -> Speedup:
    """A modelled speedup, certain unless ``low`` says otherwise."""
    return Speedup(value=value, low=value if low is None else low, high=value, kind="modelled")
