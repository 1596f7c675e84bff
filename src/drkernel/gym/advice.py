"""Finds changes that would make a graded candidate faster: each is graded as a candidate of its own.

The judge therefore vouches for advice as it does for any answer: the changed kernel is correct and no hack, and its
time comes from the same device at the same sizes.
"""

from __future__ import annotations

import math

from drkernel.gym.request import EvalRequest, Pool
from drkernel.sim.advice import changes_of, worth
from drkernel.sim.cost.confidence import kernel_error
from drkernel.sim.rewrite import with_settings
from drkernel.verdict import Advice, Advised, Profile, Tried, Verdict

CHECKS = 1
"""checked calls of a changed candidate"""


async def advise(pool: Pool, request: EvalRequest, verdict: Verdict) -> Advised | None:
    """Grade ``request`` with other warps, stages and block sizes; None for answers that are wrong or untimed.

    A change becomes advice when its gain exceeds the error of the times.
    """
    if not verdict.is_correct or verdict.timing is None or verdict.profile is None or verdict.speedup is None:
        return None
    if verdict.timing.kind == "measured":
        error = math.log(verdict.speedup.high / verdict.speedup.low) / 2
    else:
        error = own_error(verdict.profile)
    before = verdict.timing.seconds
    terms = request.settings.model_copy(update={"checks": CHECKS, "other_calls": False, "lines": False})
    advice, tried = [], []
    for change, settings, line in changes_of(request.candidate):
        text = with_settings(request.candidate, settings)
        other = await pool.evaluate(request.model_copy(update={"candidate": text, "settings": terms}))
        after = other.timing.seconds if other.is_correct and other.timing is not None else None
        if after is not None and worth(before, after, error):
            advice.append(Advice(change=change, line=line, before=before, after=after, compared=True))
        else:
            tried.append(Tried(change=change, after=after, failed=None if after is not None else why_not(other)))
    advice.sort(key=lambda each: each.after)
    return Advised(seconds=before, error=error, advice=tuple(advice), tried=tuple(tried))


async def with_advice(pool: Pool, request: EvalRequest, verdict: Verdict) -> Verdict:
    """Return the verdict, with advice where there is any to give."""
    return verdict.model_copy(update={"advised": await advise(pool, request, verdict)})


def own_error(profile: Profile) -> float:
    """The error of the own kernels' modelled times, as a logarithm."""
    return kernel_error((row.seconds, row.bound or "latency") for row in profile.rows if row.owner == "custom")


def why_not(verdict: Verdict) -> str:
    """Why a changed candidate has no time, in a line."""
    if verdict.error is not None:
        return f"{verdict.error.type}: {(verdict.error.message.strip().splitlines() or [''])[-1]}"[:200]
    return verdict.status.replace("_", " ") if not verdict.is_correct else "it has no price"
