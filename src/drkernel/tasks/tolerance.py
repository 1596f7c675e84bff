"""Tolerances: how far an output may be from the fp64 oracle, by declared precision.

Two tests must both hold (docs/correctness.md has the derivation):

1. every element: ``|a - o| <= rtol |o| + atol_scale * spread(o) + noise_factor * noise``;
2. the whole output: the root mean square of ``(a - o) / (|o| + spread(o))`` stays under the *accuracy limit*
   ``max(operand_factor * z_operand, reference_factor * z_reference, floor_units * u)``, on ``mixed`` inputs
   ``mixed_factor`` times that.

``u`` is the declared unit roundoff, ``z_operand`` the same statistic for the reference in double with operands jittered
by ``u`` (the conditioning of the task), ``z_reference`` for the reference run at the declared precision. The second
test is what separates precisions: rounding operands to the next lower format multiplies ``z_operand`` by the ratio of
the unit roundoffs (8192 from fp32 to tf32 or fp16, 128 to two bf16 with sixteen bits, 8 from fp16 to bf16, 16 from bf16
to fp8), while another order of summation stays within a few times ``z_reference``. Slices that lie several deviations
from zero, as ``mixed`` inputs have them, cost a variance in one pass more than that. Where the limit is exceeded, the
reference is run once more with sums taken term after term, as a kernel may take them: three times that error passes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from drkernel.task import Precision, Tolerance

MANTISSA_BITS: dict[str, int] = {"fp64": 52, "fp32": 23, "tf32": 10, "fp16": 10, "bf16": 7, "fp8": 3}
"""Stored mantissa bits. fp8 is the e4m3 format."""

NEXT_LOWER: dict[str, str] = {"fp64": "fp32", "fp32": "tf32", "tf32": "bf16", "fp16": "bf16", "bf16": "fp8"}
"""The first format that counts as a downgrade of each declared precision."""


def unit_roundoff(precision: str) -> float:
    """Return the largest relative error of rounding to nearest in a format: ``2 ** -(stored mantissa bits + 1)``."""
    return 2.0 ** -(MANTISSA_BITS[precision] + 1)


@dataclass(frozen=True)
class ToleranceRule:
    """The numbers of the two tests for one task."""

    precision: Precision
    rtol: float
    """Relative part of the element test."""
    atol_scale: float
    """Absolute part of the element test, in units of the reference output's spread."""
    noise_factor: float
    """Multiple of the measured noise at an element that is added to its tolerance."""
    operand_factor: float
    reference_factor: float
    floor_units: float
    """Factors of the accuracy limit's three terms; see the module's docstring."""
    order_factor: float = 3
    """Multiple of the error of the reference's sums taken term after term that passes the second test, too."""
    mixed_factor: float = 1
    """Factor of the accuracy limit on ``mixed`` inputs."""
    explicit: bool = False
    """True if the task gives its own tolerance: then only the element test is applied, with the task's numbers."""

    def accuracy_limit(self, z_operand: float, z_reference: float, mixed: bool = False) -> float:
        """Return the largest root-mean-square scaled error that passes the second test."""
        limit = max(
            self.operand_factor * z_operand,
            self.reference_factor * z_reference,
            self.floor_units * unit_roundoff(self.precision),
        )
        return limit * (self.mixed_factor if mixed else 1)


_RULES: dict[str, ToleranceRule] = {
    "fp64": ToleranceRule("fp64", 1e-9, 1e-9, 16, 4096, 64, 4096),
    "fp32": ToleranceRule("fp32", 1e-4, 1e-4, 16, 16, 8, 16, mixed_factor=16),
    "tf32": ToleranceRule("tf32", 4e-3, 4e-3, 4, 3, 5, 1),
    "fp16": ToleranceRule("fp16", 4e-3, 4e-3, 4, 3, 5, 1),
    "bf16": ToleranceRule("bf16", 3e-2, 3e-2, 4, 4, 8, 2),
}


def tolerance_for(precision: Precision, tolerance: Tolerance | None = None) -> ToleranceRule:
    """Return the rule of a declared precision, with the task's own ``rtol`` and ``atol_scale`` where given."""
    rule = _RULES[precision]
    if tolerance is None or (tolerance.rtol is None and tolerance.atol_scale is None):
        return rule
    return replace(
        rule,
        rtol=rule.rtol if tolerance.rtol is None else tolerance.rtol,
        atol_scale=rule.atol_scale if tolerance.atol_scale is None else tolerance.atol_scale,
        noise_factor=0.0,
        explicit=True,
    )
