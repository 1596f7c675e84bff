"""The kernels of ``liger-kernel`` on the simulated device, forward and backward, against PyTorch in float64."""

import pytest

pytest.importorskip("liger_kernel", reason="needs the package liger-kernel (test extra)")

from liger_cases import all_cases, run_case

FAST = {"rms_norm (llama)", "cross_entropy (z-loss)", "rope"}


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name, marks=() if case.name in FAST else pytest.mark.slow) for case in all_cases()],
)
def test_agrees_with_float64(case):
    outcome = run_case(case)
    assert outcome.status == "pass", f"{outcome.status}: {outcome.detail}"
