"""A verdict under the names of KernelGYM: what its server answers, and what its models read after an answer."""

from __future__ import annotations

import json
from bisect import bisect_right
from itertools import accumulate
from typing import Any, NamedTuple

from drkernel.verdict import Verdict

FAILED = ("compile_error", "unsupported", "infra_error", "invalid_request")


class CallWork(NamedTuple):
    """Launches and device time of a profiled call."""

    calls: int
    microseconds: float


def findings(verdict: Verdict) -> list[str]:
    """Return the findings, one line each."""
    return [f"{finding.kind}: {finding.message}" for finding in verdict.findings]


def work(verdict: Verdict) -> tuple[CallWork, CallWork]:
    """Return the work of the candidate's own kernels, and all of it; zeros without a profile."""
    rows = verdict.profile.rows if verdict.profile is not None else ()
    own = [row for row in rows if row.owner == "custom"]
    mine, every = (CallWork(sum(r.calls for r in some), sum(r.seconds for r in some) * 1e6) for some in (own, rows))
    return mine, every


def outcome(verdict: Verdict) -> dict[str, Any]:
    """Return the fields that say how an evaluation went."""
    failed = verdict.status in FAILED
    message = verdict.error.message if verdict.error is not None else None
    if verdict.correctness is not None and verdict.status == "incorrect":
        message = verdict.correctness.message or message
    if verdict.is_hack:
        message = "; ".join(findings(verdict))
    return {
        "status": "failed" if failed else "timeout" if verdict.status == "timeout" else "completed",
        "compiled": not failed,
        "correctness": verdict.is_correct,
        "decoy_kernel": verdict.is_hack,
        "speedup": verdict.speedup.value if verdict.speedup is not None and verdict.is_correct else 0.0,
        "error_message": message,
    }


def report_json(verdict: Verdict, reward: float | None, budget: int) -> str:
    """Return the report that KernelGYM's models read after an answer, as indented JSON.

    The fields are those of its reward client. An error's message is shortened so that the whole stays within
    ``budget`` characters, where the other fields leave room.
    """
    told, (own, every) = outcome(verdict), work(verdict)
    right, hack = told["correctness"], told["decoy_kernel"]
    report: dict[str, Any] = {
        "reward": reward,
        "speedup": told["speedup"],
        "success": right,
        "correctness": right,
        "compiled": told["compiled"] and told["status"] == "completed" and not hack,
        "score": reward,
    }
    if hack:
        report["decoy_kernel"] = True
    if told["status"] != "completed":
        report["status"] = told["status"]
    elif not hack:
        report |= {
            "num_custom_kernel": own.calls if right else 0,
            "num_total_kernels": every.calls if right else 0,
            "custom_kernel_cuda_time_in_profiling_us": own.microseconds if right else 0,
            "total_kernel_run_time_in_profiling_us": every.microseconds if right else 0,
        }
    if told["error_message"]:
        room = budget - len(_dump({**report, "error": ""}))
        report["error"] = _cut(told["error_message"], room)
    return _dump(report)


def _cut(text: str, room: int) -> str:
    """Return as much of a text as fits into ``room`` characters of JSON, with the cut marked."""
    sizes = list(accumulate(len(json.dumps(character, ensure_ascii=False)) - 2 for character in text))
    if sizes[-1] <= room:
        return text
    kept = bisect_right(sizes, room - len("..."))
    return text[:kept] + "..." if kept else ""


def _dump(report: dict[str, Any]) -> str:
    return json.dumps(report, ensure_ascii=False, indent=2)
