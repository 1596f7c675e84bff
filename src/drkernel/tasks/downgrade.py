"""Is an inaccurate output inaccurate *because* operands were rounded to a lower precision?

The size of an error does not say: a wrong formula may be off by as much. Rounding does leave marks, though. An output
that was computed in a narrower format and widened has only zeros in its last bits. And rounding is deterministic: the
error of a run with operands rounded to a format agrees, element by element, with the error of the double run with the
same operands rounded to that format, while an unrelated error does not correlate with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from drkernel.tasks.oracle import ExpectedOutput, RawOutput, flatten_outputs
from drkernel.tasks.problem import Call, Instance
from drkernel.tasks.promote import run_rounded
from drkernel.tasks.tolerance import MANTISSA_BITS, NEXT_LOWER

MIN_CORRELATION = 0.3
DEVIATIONS = 4.0
"""Least correlation that counts: above 0.3 and four standard deviations of what unrelated noise shows."""
_NARROWER: dict[torch.dtype, tuple[tuple[str, torch.dtype], ...]] = {
    torch.float16: (("bf16", torch.bfloat16),),
    torch.float32: (("bf16", torch.bfloat16), ("fp16", torch.float16)),
    torch.float64: (("bf16", torch.bfloat16), ("fp16", torch.float16), ("fp32", torch.float32)),
}


@dataclass(frozen=True)
class DowngradeEvidence:
    """Marks of a lower precision in one output."""

    output: int
    format: str
    """'fp32', 'tf32' (or fp16: the mantissas are equal), 'fp16', 'bf16' or 'fp8'."""
    how: str
    """'output bits' or 'rounded operands'."""
    strength: float
    """Correlation of the errors; 1 for output bits."""


def downgrade_evidence(instance: Instance, call: Call, actual: Sequence[RawOutput]) -> DowngradeEvidence | None:
    """The strongest mark of a lower precision in outputs of the right form; None where there is none.

    Costs about two double runs of the reference; ask it when the accuracy test fails.
    """
    found: list[DowngradeEvidence] = []
    for index, (got, want) in enumerate(zip(actual, call.oracle.outputs, strict=True)):
        if isinstance(got, torch.Tensor) and want.floating:
            found += [DowngradeEvidence(index, name, "output bits", 1.0) for name in _formats_held(got, want)]
    if found:
        return found[0]
    precision = instance.problem.task.precision
    formats = [
        name for name in ("fp32", "tf32", "bf16", "fp8") if MANTISSA_BITS[name] <= MANTISSA_BITS[NEXT_LOWER[precision]]
    ]
    for name in formats:
        try:
            rounded = flatten_outputs(run_rounded(instance.model, call.inputs, MANTISSA_BITS[name]))
        except (RuntimeError, NotImplementedError):
            return None  # the reference does not run in double
        for index, (got, low, want) in enumerate(zip(actual, rounded, call.oracle.outputs, strict=True)):
            if isinstance(got, torch.Tensor) and isinstance(low, torch.Tensor) and want.floating:
                strength, needed = _correlation(got, low, want)
                if strength >= needed:
                    found.append(DowngradeEvidence(index, name, "rounded operands", strength))
    return max(found, key=lambda evidence: evidence.strength, default=None)


def _formats_held(got: torch.Tensor, want: ExpectedOutput) -> list[str]:
    """Narrower formats that hold every element of ``got`` although they do not hold the right answer."""
    held = []
    exact = want.value.to(got.dtype)
    for name, dtype in _NARROWER.get(got.dtype, ()):
        fits = torch.equal(got, got.to(dtype).to(got.dtype))
        # a small share of right answers fits by chance; where most do (integers, zeros) the bits say nothing
        natural = float((exact == exact.to(dtype).to(exact.dtype)).double().mean())
        if fits and got.numel() >= 16 and natural < 0.5:
            held.append(name)
    return held


def _correlation(got: torch.Tensor, low: torch.Tensor, want: ExpectedOutput) -> tuple[float, float]:
    """Correlation of two errors over stable elements, and the least that is not chance.

    A common offset or factor is taken out of both first: any wrong formula may have one. Errors of different size
    (beyond a factor of 4) are not the same rounding, whatever their correlation.
    """
    assert want.stable is not None
    kept = want.stable & (want.scale > 0) & torch.isfinite(got) & torch.isfinite(low)
    count = int(kept.sum())
    if count < 16 or want.value.is_complex():
        return 0.0, 1.0
    scale = want.scale[kept]
    shared = torch.stack([torch.ones_like(scale), want.value[kept] / scale], dim=1)
    errors = torch.stack([(value.double() - want.value)[kept] / scale for value in (got, low)], dim=1)
    sizes = errors.norm(dim=0)
    rest = errors - shared @ torch.linalg.lstsq(shared, errors).solution
    own, other = rest.norm(dim=0).tolist()
    if own == 0 or other == 0 or not 0.25 <= float(sizes[0] / sizes[1]) <= 4:
        return 0.0, 1.0
    # Fisher's z: the correlation of unrelated noise is tanh of a normal deviate of 1 / sqrt(count - 3)
    needed = max(MIN_CORRELATION, math.tanh(DEVIATIONS / (count - 3) ** 0.5))
    return float((rest[:, 0] * rest[:, 1]).sum()) / (own * other), needed
