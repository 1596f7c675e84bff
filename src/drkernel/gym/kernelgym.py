"""A verdict under the names of KernelGYM: what its server answers, and what its models read after an answer."""

import json
from bisect import bisect_right
from itertools import accumulate
from typing import Any, NamedTuple

from drkernel.config import ConfigError
from drkernel.gym.device import parse_device
from drkernel.verdict import CandidateError, Profile, Verdict

FAILED = ("compile_error", "unsupported", "infra_error", "invalid_request")
ROWS_SHOWN = (200, 8, 4, 2, 1)
"""kernels of a profile in a report: as many of the costliest as its budget allows"""
LEAST_ERROR = 200
"""characters of an error that rows of the profile make room for"""


class CallWork(NamedTuple):
    """Launches and device time of a profiled call."""

    calls: int
    microseconds: float


def findings(verdict: Verdict) -> list[str]:
    """Return the findings, one line each."""
    return [f"{finding.kind}: {finding.message}" for finding in verdict.findings]


def work(verdict: Verdict) -> tuple[CallWork, CallWork]:
    """Return the work of the candidate's own kernels, and all of it; zeros without a profile.

    Time of own kernels that the answer does not need is left out, as it is of the coverage.
    """
    rows = verdict.profile.rows if verdict.profile is not None else ()
    own = [row for row in rows if row.owner == "custom"]
    mine, every = (CallWork(sum(r.calls for r in some), sum(r.seconds for r in some) * 1e6) for some in (own, rows))
    counted = mine.microseconds if verdict.coverage is None else verdict.coverage * every.microseconds
    return mine._replace(microseconds=min(mine.microseconds, counted)), every


def outcome(verdict: Verdict) -> dict[str, Any]:
    """Return the fields that say how an evaluation went. Runtimes are in milliseconds."""
    failed = verdict.status in FAILED
    message = _error_text(verdict.error) if verdict.error is not None else None
    if verdict.correctness is not None and verdict.status == "incorrect":
        message = verdict.correctness.message or message
    if verdict.is_hack:
        message = "; ".join(findings(verdict))
    theirs, own = verdict.reference_timing, verdict.timing
    return {
        "status": "failed" if failed else "timeout" if verdict.status == "timeout" else "completed",
        "compiled": not failed,
        "correctness": verdict.is_correct,
        "decoy_kernel": verdict.is_hack,
        "reference_runtime": theirs.seconds * 1e3 if theirs is not None else None,
        "kernel_runtime": own.seconds * 1e3 if own is not None else None,
        "speedup": verdict.speedup.value if verdict.speedup is not None and verdict.is_correct else 0.0,
        "error_message": message,
    }


def _error_text(error: CandidateError) -> str:
    """Return the exception's type and message, then its traceback."""
    head, frames = f"{error.type}: {error.message.strip()}", (error.traceback or "").strip()
    return f"{head}\n{frames}" if frames and frames not in head else head


def metadata(verdict: Verdict, rows: int = ROWS_SHOWN[0]) -> dict[str, Any]:
    """Return what is known beyond the outcome: hardware, checks, the profile's costliest ``rows``, and the share of own
    kernels in words."""
    own, every = work(verdict)
    known: dict[str, Any] = {
        "hardware": _hardware(verdict),
        "device": verdict.device,
        "backend": verdict.language,
        "reference_backend": "torch_compile" if verdict.baseline == "compile" else "pytorch",
        "timing_kind": verdict.timing.kind if verdict.timing is not None else None,
        "drkernel_status": verdict.status,
        "findings": findings(verdict),
        "checked_at": verdict.checked_at.words if verdict.checked_at is not None else None,
        "timed_at": verdict.timed_at.words if verdict.timed_at is not None else None,
        "untimed": verdict.untimed,
        "num_custom_kernels": own.calls,
        "num_total_kernels": every.calls,
        "custom_kernel_cuda_time_in_profiling_us": own.microseconds,
        "total_kernel_run_time_in_profiling_us": every.microseconds,
    }
    if verdict.correctness is not None:
        known["correctness_trials"] = f"({verdict.correctness.passed_calls} / {verdict.correctness.checked_calls})"
    if verdict.error is not None:
        kind = "compilation" if verdict.status == "compile_error" else "runtime"
        known[f"{kind}_error_name"] = verdict.error.type
    if verdict.profile is not None:
        known |= _profiled(verdict.profile, own, every, rows)
    return known


def _profiled(profile: Profile, own: CallWork, every: CallWork, rows: int) -> dict[str, Any]:
    ordered = sorted(profile.rows, key=lambda row: -row.seconds)
    host = [row.host_seconds for row in ordered if row.host_seconds is not None]
    profiling: dict[str, Any] = {
        "kernels": [
            {
                "name": row.name,
                "cuda_time_us": row.seconds * 1e6,
                "cpu_time_us": row.host_seconds * 1e6 if row.host_seconds is not None else None,
                "count": row.calls,
            }
            for row in ordered[:rows]
        ],
        "kernel_count": len(ordered),
        "total_cuda_time_us": every.microseconds,
        "total_cpu_time_us": sum(host) * 1e6 if host else None,
    }
    launched = own.calls / every.calls if every.calls else 0.0
    share = own.microseconds / every.microseconds if every.microseconds else 0.0
    return {
        "profiling": profiling,
        "triton_profiler_matches": [row.name for row in ordered if row.owner == "custom"],
        "triton_kernel_coverage": f"Run {own.calls} custom kernels / Total {every.calls} kernels, "
        f"Coverage: {launched:.2%}",
        "custom_kernel_cuda_time_coverage": f"Custom kernel CUDA time: {own.microseconds:.2f}us / "
        f"Total time: {every.microseconds:.2f}us, Coverage: {share:.2%}",
    }


def _hardware(verdict: Verdict) -> str:
    """Return the GPU's name, which a measured time carries with it."""
    named = verdict.timing.device.partition(" ")[2] if verdict.timing is not None else ""
    try:
        return named or parse_device(verdict.device).full_name
    except ConfigError:  # a card of somebody else's file
        return verdict.device


def report_json(verdict: Verdict, reward: float | None, budget: int) -> str:
    """Return the report that KernelGYM's models read after an answer, as indented JSON: the whole result of the server
    under what its reward client adds.

    To stay within ``budget`` characters it lists fewer kernels of the profile, then shortens the error, then leaves
    out everything but the outcome.
    """
    told = outcome(verdict)
    report: dict[str, Any] = {
        **{key: value for key, value in told.items() if key != "error_message"},
        "compiled": told["compiled"] and told["status"] == "completed" and not told["decoy_kernel"],
        "success": told["correctness"],
        "reward": reward,
        "score": reward,
    }
    error = told["error_message"] or ""
    if error:
        report["error_message"] = ""
    for rows in ROWS_SHOWN:
        full = {**report, "metadata": {k: v for k, v in metadata(verdict, rows).items() if v not in (None, [])}}
        if budget - len(_dump(full)) >= min(len(error), LEAST_ERROR):
            report = full
            break
    if error:
        report["error_message"] = _cut(error, budget - len(_dump(report)))
    return _dump(report)


def _cut(text: str, room: int) -> str:
    """Return as much of a text as fits into ``room`` characters of JSON, with the cut marked."""
    sizes = list(accumulate(len(json.dumps(character, ensure_ascii=False)) - 2 for character in text))
    if sizes[-1] <= room:
        return text
    kept = bisect_right(sizes, room - len("..."))
    return text[:kept] + "..." if kept else ""


def _dump(report: dict[str, Any]) -> str:
    return json.dumps(_short(report), ensure_ascii=False, indent=2)


def _short(value: Any) -> Any:
    """Return the value with its numbers in six significant digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    return [_short(item) for item in value] if isinstance(value, list) else value
