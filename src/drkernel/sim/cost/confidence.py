"""The error of modelled times: half the width of the 90% interval, as a logarithm, derived from published measurements.

The residuals are those of the tables in ``docs/cost_model.md`` and ``docs/results/model_vs_liger.md``. They depend on
who wrote a kernel and on what bounds it: memory-bound kernels are known best, library choices less well, and compute
rates of kinds of kernels without measurements least.
"""

from __future__ import annotations

import math
from typing import Literal

from drkernel.verdict import Profile, ProfileRow, Speedup

Baseline = Literal["eager", "compile"]
"""how the reference ran: operator by operator, or through TorchInductor's code"""
CONFIDENCE = 0.9
"""coverage of the intervals: the residuals are 90th percentiles"""
CUSTOM = {"memory": 0.17, "latency": 0.30, "compute": 0.55}
"""Triton kernels by what bounds them: 90th percentiles of Liger-Kernel's forward rows on H100 that such kernels decide.
45 by memory (median 0.02), 5 by arithmetic (0.04), 3 by latency: the last two are few"""
LIBRARY = 0.25
"""PyTorch's operators: 49 of those rows (median 0.06), and KernelBench's levels 1 and 2 on H100 (0.22 and 0.18)"""
CONVOLUTION: dict[Baseline, float] = {"eager": LIBRARY, "compile": 0.89}
"""Convolutions by where the time is from. Under a compiler they are other kernels, in another layout: KernelBench's
published compiled times on H100, 91 problems of levels 1 and 2 with convolutions"""
COMPILED = 0.23
"""Everything else that a compiler generates or calls: 98 of those problems without convolutions and windows"""
COPY = 0.30
HOST = 0.40
"""time in which the device waits for the host: level 3 of KernelBench, between clouds"""


def _row_error(row: ProfileRow, baseline: Baseline) -> float:
    if row.owner != "copy" and "convolution" in row.name:
        return CONVOLUTION[baseline]
    if row.owner != "copy" and baseline == "compile":
        return COMPILED
    if row.owner == "custom":
        return CUSTOM[row.bound or "latency"]
    return LIBRARY if row.owner == "library" else COPY


def log_error(profile: Profile, baseline: Baseline = "eager") -> float:
    """Return the error of a call's modelled time: that of its rows and of the idle time, weighted by share, all in one
    direction."""
    if profile.elapsed_seconds <= 0:
        return 0.0
    busy = sum(row.seconds for row in profile.rows)
    idle = max(0.0, profile.elapsed_seconds - busy)
    weighted = sum(row.seconds * _row_error(row, baseline) for row in profile.rows) + idle * HOST
    return weighted / max(busy + idle, 1e-30)


def speedup_of(reference: Profile, candidate: Profile, *, baseline: Baseline = "eager") -> Speedup | None:
    """Return reference over candidate with the interval implied by the model's error; None when nothing was timed.

    ``baseline`` says how the reference was run.
    """
    if reference.elapsed_seconds <= 0 or candidate.elapsed_seconds <= 0:
        return None
    ratio = reference.elapsed_seconds / candidate.elapsed_seconds
    off = math.hypot(log_error(reference, baseline), log_error(candidate))
    low, high = ratio * math.exp(-off), ratio * math.exp(off)
    return Speedup(value=ratio, low=low, high=high, confidence=CONFIDENCE, kind="modelled")
