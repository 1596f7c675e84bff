"""Every conformance case on the executor, against references in float64 or exact rounding."""

from __future__ import annotations

import sys
from pathlib import Path

import kernels_blocks  # noqa: F401
import kernels_casts  # noqa: F401
import kernels_control  # noqa: F401
import kernels_elementwise  # noqa: F401
import kernels_matmul  # noqa: F401
import pytest
from conformance_cases import CASES, REACHABLE

from drkernel.sim.executor import Checks

sys.path.insert(0, str(Path(__file__).parents[1]))
from harness import executing


def _parameters() -> list:
    return [pytest.param(name, marks=[pytest.mark.slow] if case.slow else []) for name, case in CASES.items()]


def _errors(name: str, checks: Checks) -> list[str]:
    """Wrong values and findings of one case."""
    with executing(checks) as log:
        log.reachable = REACHABLE
        wrong = [error for check in CASES[name].run("cpu") if (error := check.error()) is not None]
    REACHABLE.clear()
    return wrong + [finding.message for finding in log.findings if finding.severity == "error"]


@pytest.mark.parametrize("name", _parameters())
def test_case(name: str) -> None:
    errors = _errors(name, Checks())
    assert not errors, "\n".join(errors)


@pytest.mark.slow
@pytest.mark.parametrize("name", _parameters())
def test_case_with_sanitizers(name: str) -> None:
    """The build with all checks is other code: it must compute the same."""
    errors = _errors(name, Checks(uninitialized=True, race=True))
    assert not errors, "\n".join(errors)
