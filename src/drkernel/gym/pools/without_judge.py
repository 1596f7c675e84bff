"""Verdicts on requests that no judge could evaluate."""

from __future__ import annotations

import hashlib
import traceback

from drkernel.gym.judge.memory import too_large
from drkernel.gym.request import EvalRequest
from drkernel.verdict import CandidateError, Status, Verdict


def infra_verdict(request: EvalRequest, error: BaseException, seconds: float) -> Verdict:
    """The verdict for trouble that is not the candidate's."""
    frames = "".join(traceback.format_exception(error))[-8000:]
    told = CandidateError(type=type(error).__name__, message=str(error), traceback=frames)
    return _verdict_without_judge(request, "infra_error", told, seconds)


def too_large_verdict(request: EvalRequest, error: BaseException, budget: int, seconds: float) -> Verdict:
    """The verdict for a task whose judge was ended because of its memory use."""
    told = CandidateError(type="TaskTooLarge", message=too_large(str(error), budget))
    return _verdict_without_judge(request, "invalid_request", told, seconds)


def _verdict_without_judge(request: EvalRequest, status: Status, error: CandidateError, seconds: float) -> Verdict:
    return Verdict(
        status=status,
        task_id=request.task.id,
        candidate_sha256=hashlib.sha256(request.candidate.encode("utf-8", "surrogatepass")).hexdigest(),
        device=request.settings.device,
        baseline=request.settings.baseline,
        error=error,
        seconds=seconds,
    )
