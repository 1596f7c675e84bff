"""How wrong a modelled time may be: half the width of its 90% interval, as a logarithm, by published rows.

Residuals are those of the tables in ``docs/cost_model.md`` and ``docs/results/model_vs_liger.md``. They depend on who
wrote a kernel and on what bounds it: how it moves memory is known well, what a library chooses less, and how fast an
unmeasured kind of kernel computes least.
"""

from __future__ import annotations

import math

from drkernel.verdict import Profile, ProfileRow, Speedup

CONFIDENCE = 0.9
"""coverage of the intervals: the residuals are 90th percentiles"""
CUSTOM = {"memory": 0.10, "latency": 0.30, "compute": 0.45}
"""Triton kernels by what bounds them. Memory: Liger-Kernel's rows, H100. Compute and latency: no rows of their own but
JSD's spills and the backward passes; wider than those"""
LIBRARY = 0.25
"""PyTorch's operators: KernelBench's levels 1 and 2 on H100 (0.23 and 0.18), H100 PCIe (0.29, 0.23)"""
COPY = 0.30
HOST = 0.40
"""time in which the device waits for the host: level 3 of KernelBench, between clouds"""


def _row_error(row: ProfileRow) -> float:
    if row.owner == "custom":
        return CUSTOM[row.bound or "latency"]
    return LIBRARY if row.owner == "library" else COPY


def log_error(profile: Profile) -> float:
    """The error of a call's modelled time: its rows' and the idle time's, by their shares, as if all went one way."""
    if profile.elapsed_seconds <= 0:
        return 0.0
    busy = sum(row.seconds for row in profile.rows)
    idle = max(0.0, profile.elapsed_seconds - busy)
    weighted = sum(row.seconds * _row_error(row) for row in profile.rows) + idle * HOST
    return weighted / max(busy + idle, 1e-30)


def speedup_of(reference: Profile, candidate: Profile) -> Speedup | None:
    """Reference over candidate with the interval that the model's error leaves. None when nothing was timed."""
    if reference.elapsed_seconds <= 0 or candidate.elapsed_seconds <= 0:
        return None
    ratio = reference.elapsed_seconds / candidate.elapsed_seconds
    off = math.hypot(log_error(reference), log_error(candidate))
    low, high = ratio * math.exp(-off), ratio * math.exp(off)
    return Speedup(value=ratio, low=low, high=high, confidence=CONFIDENCE, kind="modelled")
